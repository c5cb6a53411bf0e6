"""Launches a kernel that gives up."""

import torch
from torch.utils.cpp_extension import load_inline

EXPECT = {"status": "fail", "reason": ["run", "crash"], "detail": ""}
DEVICES = ("cuda",)

module = load_inline(
    name="cuda_trap",
    cpp_sources="torch::Tensor run(torch::Tensor x);",
    cuda_sources=r"""
#include <torch/extension.h>

__global__ void give_up() {
    __trap();
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    give_up<<<1, 1>>>();
    return y;
}
""",
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.run(x)
