"""The design document's final kernels: torch draws, then one block a sample computes z and log q(z).

Standard deviations, weights and draws are torch's, in the reference's order: the components first, the noise second.
Each block reduces over the dimensions in shared memory, one component after another, and ends with a log-sum-exp.

Mended against the document's code:
- The functions that load_inline is to bind are declared in `cpp_sources`; with an empty string the bindings do not
  compile.
- The shared array of the block reduction is used again for the next component, so the reduction begins with a
  barrier: a fast warp could overwrite the total before a slow one had read it.
- The scores of the components stand in dynamic shared memory sized by their number, and beyond what a block may have
  the launch is refused with an error; an earlier version held at most 32.
- Threads are whole warps, at most 1024, and every loop over the dimensions strides by the block, so that no number of
  dimensions needs a branch of its own; the document's first version left threads out of its reduction.
- Kernels run on the current stream of the inputs' device, under a device guard, and every launch is checked for errors.
- An empty batch returns empty outputs instead of an invalid launch, and an infinite maximum is not subtracted from
  itself in the log-sum-exp.
- Offsets into the inputs are 64 bits wide; beyond 2^31 elements they overflowed.
"""

import math

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <tuple>

namespace {

constexpr int kWarp = 32;
constexpr int kMaxThreads = 1024;
constexpr int64_t kMaxSharedBytes = 48 * 1024;

__device__ __forceinline__ float warp_reduce_sum(float value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffff, value, offset);
  return value;
}

// All threads return the sum over the block; `shared` holds a float a warp.
__device__ float block_reduce_sum(float value, float* shared) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  value = warp_reduce_sum(value);
  __syncthreads();  // until everyone has read the total of the reduction before
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  if (warp == 0) {
    value = lane < blockDim.x / kWarp ? shared[lane] : 0.0f;
    value = warp_reduce_sum(value);
    if (lane == 0) shared[0] = value;
  }
  __syncthreads();
  return shared[0];
}

__device__ __forceinline__ float log_density(float z, float mu, float std, float log_var, float constant) {
  const float scaled = (z - mu) / std;
  return -0.5f * scaled * scaled - 0.5f * log_var + constant;
}

__global__ void mixture_forward_kernel(const float* __restrict__ mu, const float* __restrict__ log_var,
    const float* __restrict__ std, const int64_t* __restrict__ component, const float* __restrict__ noise,
    const float* __restrict__ log_weights, int components, int dims, float* z, float* __restrict__ log_q_z,
    float constant) {
  extern __shared__ float shared[];
  float* scores = shared + blockDim.x / kWarp;
  const int64_t sample = blockIdx.x;
  const int64_t own = (sample * components + component[sample]) * dims;
  // A thread later reads the very elements of z that it writes here.
  for (int d = threadIdx.x; d < dims; d += blockDim.x) {
    z[sample * dims + d] = mu[own + d] + std[own + d] * noise[sample * dims + d];
  }
  for (int k = 0; k < components; ++k) {
    const int64_t base = (sample * components + k) * dims;
    float local = 0.0f;
    for (int d = threadIdx.x; d < dims; d += blockDim.x) {
      local += log_density(z[sample * dims + d], mu[base + d], std[base + d], log_var[base + d], constant);
    }
    const float total = block_reduce_sum(local, shared);
    if (threadIdx.x == 0) scores[k] = total + log_weights[k];
  }
  if (threadIdx.x > 0) return;
  float largest = scores[0];
  for (int k = 1; k < components; ++k) largest = fmaxf(largest, scores[k]);
  if (isinf(largest)) largest = 0.0f;
  float sum = 0.0f;
  for (int k = 0; k < components; ++k) sum += expf(scores[k] - largest);
  log_q_z[sample] = largest + logf(sum);
}

// The first component of each sample, without a mixture.
__global__ void simple_forward_kernel(const float* __restrict__ mu, const float* __restrict__ log_var,
    const float* __restrict__ std, const float* __restrict__ noise, int components, int dims, float* __restrict__ z,
    float* __restrict__ log_q_z, float constant) {
  extern __shared__ float shared[];
  const int64_t sample = blockIdx.x, base = sample * components * dims;
  float local = 0.0f;
  for (int d = threadIdx.x; d < dims; d += blockDim.x) {
    const float value = mu[base + d] + std[base + d] * noise[sample * dims + d];
    z[sample * dims + d] = value;
    local += log_density(value, mu[base + d], std[base + d], log_var[base + d], constant);
  }
  const float total = block_reduce_sum(local, shared);
  if (threadIdx.x == 0) log_q_z[sample] = total;
}

void check(const at::Tensor& tensor, at::ScalarType type, const char* name) {
  TORCH_CHECK(tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == type, name,
              " must be contiguous ", type, " on a CUDA device, got ", tensor.toString());
}

int threads_for(int64_t dims) {
  return std::clamp<int64_t>((dims + kWarp - 1) / kWarp, 1, kMaxThreads / kWarp) * kWarp;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> mixture_forward(const at::Tensor& mu, const at::Tensor& log_var,
    const at::Tensor& std, const at::Tensor& component, const at::Tensor& noise, const at::Tensor& log_weights,
    double constant) {
  check(mu, at::kFloat, "mu");
  check(log_var, at::kFloat, "log_var");
  check(std, at::kFloat, "std");
  check(component, at::kLong, "component");
  check(noise, at::kFloat, "noise");
  check(log_weights, at::kFloat, "log_weights");
  const int64_t samples = mu.size(0), components = mu.size(1), dims = mu.size(2);
  TORCH_CHECK(log_var.sizes() == mu.sizes() && log_weights.numel() == components,
              "log_var and log_weights must fit mu of ", mu.sizes());
  const c10::cuda::CUDAGuard guard(mu.device());
  at::Tensor z = at::empty({samples, dims}, mu.options()), log_q_z = at::empty({samples}, mu.options());
  if (samples == 0) return {z, log_q_z};
  const int threads = threads_for(dims);
  const int64_t shared_bytes = (threads / kWarp + components) * sizeof(float);
  TORCH_CHECK(shared_bytes <= kMaxSharedBytes, components, " components do not fit into the shared memory of a block");
  mixture_forward_kernel<<<samples, threads, shared_bytes, c10::cuda::getCurrentCUDAStream()>>>(
      mu.const_data_ptr<float>(), log_var.const_data_ptr<float>(), std.const_data_ptr<float>(),
      component.const_data_ptr<int64_t>(), noise.const_data_ptr<float>(), log_weights.const_data_ptr<float>(),
      components, dims, z.data_ptr<float>(), log_q_z.data_ptr<float>(), static_cast<float>(constant));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {z, log_q_z};
}

std::tuple<at::Tensor, at::Tensor> simple_forward(const at::Tensor& mu, const at::Tensor& log_var,
    const at::Tensor& std, const at::Tensor& noise, double constant) {
  check(mu, at::kFloat, "mu");
  check(log_var, at::kFloat, "log_var");
  check(std, at::kFloat, "std");
  check(noise, at::kFloat, "noise");
  TORCH_CHECK(log_var.sizes() == mu.sizes(), "log_var must fit mu of ", mu.sizes());
  const int64_t samples = mu.size(0), components = mu.dim() == 3 ? mu.size(1) : 1, dims = mu.size(-1);
  const c10::cuda::CUDAGuard guard(mu.device());
  at::Tensor z = at::empty({samples, dims}, mu.options()), log_q_z = at::empty({samples}, mu.options());
  if (samples == 0) return {z, log_q_z};
  const int threads = threads_for(dims);
  const int64_t shared_bytes = threads / kWarp * sizeof(float);
  simple_forward_kernel<<<samples, threads, shared_bytes, c10::cuda::getCurrentCUDAStream()>>>(
      mu.const_data_ptr<float>(), log_var.const_data_ptr<float>(), std.const_data_ptr<float>(),
      noise.const_data_ptr<float>(), components, dims, z.data_ptr<float>(), log_q_z.data_ptr<float>(),
      static_cast<float>(constant));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {z, log_q_z};
}
"""

CPP_SOURCE = r"""
#include <torch/extension.h>

#include <tuple>

std::tuple<at::Tensor, at::Tensor> mixture_forward(const at::Tensor& mu, const at::Tensor& log_var,
    const at::Tensor& std, const at::Tensor& component, const at::Tensor& noise, const at::Tensor& log_weights,
    double constant);
std::tuple<at::Tensor, at::Tensor> simple_forward(const at::Tensor& mu, const at::Tensor& log_var,
    const at::Tensor& std, const at::Tensor& noise, double constant);
"""

ops = load_inline(
    name="mixture_document",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["mixture_forward", "simple_forward"],
    extra_cuda_cflags=["-O3", "--use_fast_math"],
    verbose=False,
)


class ModelNew(nn.Module):
    """The reference's parameters; torch draws and one kernel does the rest."""

    def __init__(self, latent_dim: int, num_components: int = 1) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        self.num_components = num_components
        self.constant = -0.5 * math.log(2 * math.pi)
        if num_components > 1:
            self.logits = nn.Parameter(torch.zeros(num_components))

    def forward(self, mu: torch.Tensor, log_var: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [batch, latent_dim] and log_q_z [batch]."""
        std = torch.exp(0.5 * log_var)
        inputs = mu.contiguous(), log_var.contiguous(), std.contiguous()
        if self.num_components > 1 and mu.dim() == 3:
            weights = torch.softmax(self.logits, dim=0)
            component = torch.multinomial(weights.expand(mu.shape[0], -1), 1).squeeze(-1)
            noise = torch.randn(mu.shape[0], mu.shape[2], device=mu.device, dtype=mu.dtype)
            return ops.mixture_forward(*inputs, component, noise, weights.log(), self.constant)
        noise = torch.randn_like(mu[:, 0] if mu.dim() == 3 else mu)
        return ops.simple_forward(*inputs, noise.contiguous(), self.constant)
