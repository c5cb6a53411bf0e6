"""CUDA through load_inline, with a library of CUDA's beside it."""

import torch
from torch.utils.cpp_extension import load_inline

DEVICES = ("cuda",)
module = load_inline(
    name="works_cuda",
    cpp_sources="torch::Tensor run(torch::Tensor x);",
    cuda_sources=r"""
#include <torch/extension.h>

__global__ void kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2 + 1;
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
""",
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.run(x)
