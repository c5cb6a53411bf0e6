"""Launches a kernel that never ends."""

import torch
from torch.utils.cpp_extension import load_inline

EXPECT = {"status": "fail", "reason": ["timeout"], "detail": ""}
DEVICES = ("cuda",)

module = load_inline(
    name="cuda_loop",
    cpp_sources="torch::Tensor run(torch::Tensor x);",
    cuda_sources=r"""
#include <torch/extension.h>

__global__ void spin(volatile float* y) {
    while (y[0] != 12345.0f) {
        y[1] = y[0];
    }
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    spin<<<1, 1>>>(y.data_ptr<float>());
    return y;
}
""",
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.run(x)
