"""Asks for more threads than a block can have, and does not look."""

import torch
from torch.utils.cpp_extension import load_inline

EXPECT = {"status": "fail", "reason": ["run", "values", "nan"], "detail": ""}
DEVICES = ("cuda",)

module = load_inline(
    name="cuda_bad_launch",
    cpp_sources="torch::Tensor run(torch::Tensor x);",
    cuda_sources=r"""
#include <torch/extension.h>

__global__ void twice(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x] * 2 + 1;
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    twice<<<1, 4096>>>(x.data_ptr<float>(), y.data_ptr<float>());
    return y;
}
""",
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.run(x)
