"""Answers rightly, and has left a kernel that never ends on a stream of its own."""

import torch
from torch.utils.cpp_extension import load_inline

EXPECT = {"status": "fail", "reason": ["timeout"], "detail": ""}
DEVICES = ("cuda",)

module = load_inline(
    name="cuda_loop_beside",
    cpp_sources="torch::Tensor run(torch::Tensor x);",
    cuda_sources=r"""
#include <torch/extension.h>

__global__ void spin(volatile float* y) {
    while (y[0] != 12345.0f) {
        y[1] = y[0];
    }
}

torch::Tensor run(torch::Tensor x) {
    static cudaStream_t stream = nullptr;
    auto y = torch::zeros_like(x);
    if (!stream) {
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        spin<<<1, 1, 0, stream>>>(y.data_ptr<float>());
    }
    return x * 2 + 1;
}
""",
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.run(x)
