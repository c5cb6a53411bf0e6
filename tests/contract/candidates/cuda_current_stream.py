"""Launches a kernel of its own on the current stream, on inputs that it makes contiguous: holds every contract."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

DEVICES = ("cuda",)
BROKEN = ()

CUDA_SOURCE = r"""
#include <c10/cuda/CUDAStream.h>

__global__ void sums(const float* x, float* out, int rows) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float total = 0.0f;
  for (int i = 0; i < 16; ++i) total += x[row * 16 + i];
  out[row] = total;
}

at::Tensor row_sums(const at::Tensor& given) {
  const at::Tensor x = given.contiguous();
  at::Tensor out = at::empty({x.size(0)}, x.options());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  sums<<<(x.size(0) + 63) / 64, 64, 0, stream>>>(x.const_data_ptr<float>(), out.data_ptr<float>(), x.size(0));
  return out;
}
"""

ops = load_inline(
    name="current_stream",
    cpp_sources="at::Tensor row_sums(const at::Tensor& x);",
    cuda_sources=CUDA_SOURCE,
    functions=["row_sums"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x):
        return self.layer(x), ops.row_sums(x)
