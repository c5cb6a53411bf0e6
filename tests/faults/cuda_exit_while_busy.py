"""Leaves while its kernel still runs."""

import torch
from torch.utils.cpp_extension import load_inline

EXPECT = {"status": "fail", "reason": ["crash"], "detail": "exit code 0"}
DEVICES = ("cuda",)

module = load_inline(
    name="cuda_exit_while_busy",
    cpp_sources="torch::Tensor run(torch::Tensor x);",
    cuda_sources=r"""
#include <torch/extension.h>

#include <unistd.h>

__global__ void busy(long long cycles) {
    for (long long start = clock64(); clock64() - start < cycles;) {
    }
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    busy<<<1, 1>>>(2000000000LL);
    _exit(0);
    return y;
}
""",
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.run(x)
