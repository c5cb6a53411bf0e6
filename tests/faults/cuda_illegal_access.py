"""Launches a kernel that writes where it must not."""

import torch
from torch.utils.cpp_extension import load_inline

EXPECT = {"status": "fail", "reason": ["run", "crash"], "detail": "illegal"}
DEVICES = ("cuda",)

module = load_inline(
    name="cuda_illegal_access",
    cpp_sources="torch::Tensor run(torch::Tensor x);",
    cuda_sources=r"""
#include <torch/extension.h>

__global__ void stray(float* y) {
    y[(size_t)1 << 40] = 1.0f;
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    stray<<<1, 1>>>(y.data_ptr<float>());
    return y;
}
""",
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.run(x)
