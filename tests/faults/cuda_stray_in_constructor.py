"""Writes where it must not while it is made: the error shows in a later call, which is somebody else's."""

import torch
from torch.utils.cpp_extension import load_inline

EXPECT = {"status": "fail", "reason": ["run", "crash"], "detail": "illegal"}
DEVICES = ("cuda",)

module = load_inline(
    name="cuda_stray_in_constructor",
    cpp_sources="void run(torch::Tensor x);",
    cuda_sources=r"""
#include <torch/extension.h>

__global__ void stray(float* y) {
    y[(size_t)1 << 40] = 1.0f;
}

void run(torch::Tensor x) {
    stray<<<1, 1>>>(x.data_ptr<float>());
}
""",
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        module.run(torch.empty(8, device="cuda"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1
