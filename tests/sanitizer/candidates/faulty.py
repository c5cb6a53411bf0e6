"""Four kernels with a fault each; by luck or by an initialised allocator the outputs may be right."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

DEVICES = ("cuda",)

CUDA_SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

// No guard for the tail: the last block goes past the end.
__global__ void twice_unguarded(const float* x, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = 2.0f * x[i];
}

// Adds to what nobody has written.
__global__ void add_to_uninitialised(const float* x, float* out, int rows, int columns) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= columns) return;
  for (int row = 0; row < rows; ++row) out[i] += x[row * columns + i];
}

// Half of a warp comes to a barrier for the other half.
__global__ void barrier_of_others(float* out) {
  out[threadIdx.x] = threadIdx.x;
  __syncwarp(0x0000ffff);
  out[threadIdx.x + 32] = out[threadIdx.x];
}

// Reads a neighbour's value with no barrier in between.
__global__ void no_barrier(float* out) {
  __shared__ float kept[64];
  kept[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = kept[63 - threadIdx.x];
}

std::vector<at::Tensor> run(const at::Tensor& x) {
  const int rows = x.size(0), columns = x.size(1), n = x.numel();
  const auto stream = c10::cuda::getCurrentCUDAStream();
  at::Tensor doubled = at::empty_like(x), total = at::empty({columns}, x.options()), spare = at::empty({64}, x.options());
  twice_unguarded<<<(n + 255) / 256, 256, 0, stream>>>(x.const_data_ptr<float>(), doubled.data_ptr<float>());
  add_to_uninitialised<<<(columns + 255) / 256, 256, 0, stream>>>(x.const_data_ptr<float>(), total.data_ptr<float>(), rows, columns);
  barrier_of_others<<<1, 32, 0, stream>>>(spare.data_ptr<float>());
  no_barrier<<<1, 64, 0, stream>>>(spare.data_ptr<float>());
  return {doubled, total};
}
"""

ops = load_inline(
    name="faulty_kernels",
    cpp_sources="std::vector<at::Tensor> run(const at::Tensor& x);",
    cuda_sources=CUDA_SOURCE,
    functions=["run"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return tuple(ops.run(x))
