"""The whole forward in one kernel launch, with the very numbers that torch.multinomial and torch.randn would draw.

torch draws on CUDA with Philox, a function of seed, thread and call, so that any element of a draw can be computed
where it is needed. torch.multinomial takes the component with the largest weight / Exp(1), torch.randn makes normals
by Box and Muller; both fill their tensor with a grid whose size follows from the tensor's and the device's. The
kernel looks up what that grid would have given to each element, and the generator is advanced by what the two draws
take together. Seed and offset are read on the device when a CUDA graph is captured, as torch's own kernels do.

One block takes one sample. Up to 8 components stay in registers, loaded before the draws are computed, as long as 256
threads hold all dimensions (1024 of them, or a half or a quarter of that where their number is not divisible by four
or by two); larger samples are streamed, the drawn component first. Either way each input is read once from memory, and
z and log_q_z are written once.

Before the first forward on a device the draws are compared with torch's own; where they differ, because another
version draws in another way, the model raises an error. Two things cost launches of their own: inputs that are not
contiguous are copied, and beyond 1024 components the softmax is torch's.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/EmptyTensor.h>
#include <ATen/cuda/PhiloxUtils.cuh>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/softmax.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <cfloat>
#include <mutex>
#include <optional>
#include <tuple>

namespace {
// kernels: begin

constexpr unsigned kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr unsigned kMaxThreads = 256;
constexpr float kHalfLog2Pi = 0.918938533f;
// Random bits to (0, 1] and to an angle, as cuRAND does it.
constexpr float kToUnit = 2.3283064e-10f;
constexpr float kToAngle = 2.3283064e-10f * 6.2831855f;

// One draw of torch's: element i comes from thread i % threads of its grid, which runs over the tensor four grids
// at a time and spends one Philox call of four words on each such step.
struct Draw {
  unsigned threads;
  uint64_t offset;  // counted from where the generator stands before the forward
};

struct Arguments {
  const float* mu;
  const float* log_var;
  const float* logits;   // null without a mixture
  const float* weights;  // their softmax where there are too many of them for a warp, else null
  float* z;
  float* log_q_z;
  int64_t sample_stride;  // in floats, of mu and log_var
  unsigned components;
  unsigned dims;
  Draw component_draw;
  Draw noise_draw;
  unsigned noise_sample_stride;  // in elements, of the tensor that torch would fill with noise
  unsigned noise_dim_stride;
  at::PhiloxCudaState philox;
};

struct Generator {
  uint64_t seed;
  uint64_t offset;
};

__device__ __forceinline__ uint4 philox(uint64_t seed, uint64_t counter, unsigned subsequence) {
  uint4 c = make_uint4(static_cast<unsigned>(counter), static_cast<unsigned>(counter >> 32), subsequence, 0u);
  unsigned key_x = static_cast<unsigned>(seed), key_y = static_cast<unsigned>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned high_x = __umulhi(0xD2511F53u, c.x), low_x = 0xD2511F53u * c.x;
    const unsigned high_z = __umulhi(0xCD9E8D57u, c.z), low_z = 0xCD9E8D57u * c.z;
    c = make_uint4(high_z ^ c.y ^ key_x, low_z, high_x ^ c.w ^ key_y, low_x);
    key_x += 0x9E3779B9u;
    key_y += 0xBB67AE85u;
  }
  return c;
}

struct Bits {
  uint4 words;
  unsigned chosen;
};

__device__ __forceinline__ Bits random_bits(const Generator& generator, const Draw& draw, unsigned element) {
  const unsigned grids = element / draw.threads;
  const uint64_t counter = (generator.offset + draw.offset) / 4 + grids / 4;
  return {philox(generator.seed, counter, element - grids * draw.threads), grids % 4};
}

// The two normals of a pair of words, by Box and Muller.
struct NormalPair {
  float first, second;

  __device__ __forceinline__ NormalPair(unsigned radius_word, unsigned angle_word) {
    const float radius = sqrtf(-2.0f * logf(radius_word * kToUnit + kToUnit / 2));
    const float angle = angle_word * kToAngle + kToAngle / 2;
    first = radius * __sinf(angle);
    second = radius * __cosf(angle);
  }
};

__device__ __forceinline__ float exponential(const Generator& generator, const Draw& draw, unsigned element) {
  const Bits bits = random_bits(generator, draw, element);
  const uint4 w = bits.words;
  const unsigned word = bits.chosen < 2 ? (bits.chosen == 0 ? w.x : w.y) : (bits.chosen == 2 ? w.z : w.w);
  const float u = word * kToUnit + kToUnit / 2;
  // The fast logarithm and the guard against zero are torch's; a bit of difference could pick another component.
  return u >= 1.0f - FLT_EPSILON / 2 ? FLT_EPSILON / 2 : -__logf(u);
}

__device__ __forceinline__ float normal(const Generator& generator, const Draw& draw, unsigned element) {
  const Bits bits = random_bits(generator, draw, element);
  const NormalPair pair(bits.chosen < 2 ? bits.words.x : bits.words.z, bits.chosen < 2 ? bits.words.y : bits.words.w);
  return bits.chosen % 2 == 0 ? pair.first : pair.second;
}

__device__ __forceinline__ unsigned lane_index() { return threadIdx.x % kWarp; }

__device__ __forceinline__ unsigned warp_index() { return threadIdx.x / kWarp; }

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(kAllLanes, value, mask);
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, mask));
  return value;
}

// The mixture's weights, computed by each warp for itself in the order of torch's own softmax: to the last bit.
class Weights {
 public:
  __device__ __forceinline__ explicit Weights(const Arguments& a) : logits_(a.logits), given_(a.weights) {
    if (given_ != nullptr) return;
    for (unsigned k = lane_index(); k < a.components; k += kWarp) max_ = fmaxf(max_, logits_[k]);
    max_ = warp_max(max_);
    for (unsigned k = lane_index(); k < a.components; k += kWarp) sum_ += expf(logits_[k] - max_);
    sum_ = warp_sum(sum_);
  }

  __device__ __forceinline__ float operator[](unsigned k) const {
    return given_ != nullptr ? given_[k] : expf(logits_[k] - max_) / sum_;
  }

 private:
  const float* logits_;
  const float* given_;
  float max_ = -INFINITY;
  float sum_ = 0.0f;
};

// Gives all of LANES lanes in a row the best of their scores; of equal ones the lowest index wins, as in argmax.
template <int LANES>
__device__ __forceinline__ void keep_best(float& best, unsigned& component) {
#pragma unroll
  for (unsigned mask = LANES / 2; mask > 0; mask /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, best, mask);
    const unsigned index = __shfl_xor_sync(kAllLanes, component, mask);
    if (other > best || (other == best && index < component)) {
      best = other;
      component = index;
    }
  }
}

// All lanes of the warp return the component of the sample.
__device__ __forceinline__ unsigned draw_component(
    const Arguments& a, const Generator& generator, const Weights& weights, unsigned sample) {
  float best = -INFINITY;
  unsigned component = a.components - 1;
  for (unsigned k = lane_index(); k < a.components; k += kWarp) {
    const float score = weights[k] / exponential(generator, a.component_draw, sample * a.components + k);
    if (score > best) {
      best = score;
      component = k;
    }
  }
  keep_best<kWarp>(best, component);
  return component;
}

// WIDTH floats that are loaded and stored at once.
template <int WIDTH>
struct alignas(WIDTH * sizeof(float)) Chunk {
  float value[WIDTH];
};

// Inputs are read once: they need not stay in the cache.
__device__ __forceinline__ Chunk<1> load(const Chunk<1>* from) {
  return {{__ldcs(reinterpret_cast<const float*>(from))}};
}

__device__ __forceinline__ Chunk<2> load(const Chunk<2>* from) {
  const float2 v = __ldcs(reinterpret_cast<const float2*>(from));
  return {{v.x, v.y}};
}

__device__ __forceinline__ Chunk<4> load(const Chunk<4>* from) {
  const float4 v = __ldcs(reinterpret_cast<const float4*>(from));
  return {{v.x, v.y, v.z, v.w}};
}

template <int WIDTH>
__device__ __forceinline__ Chunk<WIDTH> load_inputs(const float* inputs, int64_t index) {
  return load(reinterpret_cast<const Chunk<WIDTH>*>(inputs + index));
}

// -2 times the log density of the chunk, without its constant.
template <int WIDTH>
__device__ __forceinline__ float deviance(
    const Chunk<WIDTH>& z, const Chunk<WIDTH>& mu, const Chunk<WIDTH>& log_var) {
  float total = 0.0f;
#pragma unroll
  for (int v = 0; v < WIDTH; ++v) {
    const float distance = (z.value[v] - mu.value[v]) * __expf(-0.5f * log_var.value[v]);
    total += distance * distance + log_var.value[v];
  }
  return total;
}

template <int WIDTH>
__device__ __forceinline__ Chunk<WIDTH> draw_z(const Arguments& a, const Generator& generator, unsigned sample,
    unsigned dim, const Chunk<WIDTH>& mu, const Chunk<WIDTH>& log_var) {
  Chunk<WIDTH> z;
#pragma unroll
  for (int v = 0; v < WIDTH; ++v) {
    const unsigned element = sample * a.noise_sample_stride + (dim + v) * a.noise_dim_stride;
    z.value[v] = mu.value[v] + expf(0.5f * log_var.value[v]) * normal(generator, a.noise_draw, element);
  }
  *reinterpret_cast<Chunk<WIDTH>*>(a.z + static_cast<int64_t>(sample) * a.dims + dim) = z;
  return z;
}

// Sums COUNT values over the warp at once: lane l returns the total of value l / (32 / COUNT).
template <int COUNT>
__device__ __forceinline__ float warp_sums(float (&values)[COUNT]) {
  unsigned mask = kWarp / 2;
#pragma unroll
  for (int half = COUNT / 2; half > 0; half /= 2, mask /= 2) {
    const bool upper = lane_index() & mask;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float kept = upper ? values[i + half] : values[i];
      const float sent = upper ? values[i] : values[i + half];
      values[i] = kept + __shfl_xor_sync(kAllLanes, sent, mask);
    }
  }
#pragma unroll
  for (; mask > 0; mask /= 2) values[0] += __shfl_xor_sync(kAllLanes, values[0], mask);
  return values[0];
}

// log(sum(exp)) of values that come one after another.
struct LogSumExp {
  float max = -INFINITY;
  float sum = 0.0f;

  // Infinities are not subtracted from one another.
  __device__ __forceinline__ static float base(float max) { return isinf(max) ? 0.0f : max; }

  __device__ __forceinline__ void add(float other_max, float other_sum) {
    const float larger = fmaxf(max, other_max);
    sum = sum * expf(max - base(larger)) + other_sum * expf(other_max - base(larger));
    max = larger;
  }

  // Adds up lanes that differ in a bit of `first_mask` to `last_mask`.
  __device__ __forceinline__ void add_lanes(unsigned first_mask, unsigned last_mask) {
    for (unsigned mask = first_mask; mask >= last_mask && mask > 0; mask /= 2) {
      const float other_max = __shfl_xor_sync(kAllLanes, max, mask);
      const float other_sum = __shfl_xor_sync(kAllLanes, sum, mask);
      add(other_max, other_sum);
    }
  }

  __device__ __forceinline__ float value() const { return base(max) + logf(sum); }
};

__device__ __forceinline__ float log_density(const Arguments& a, float deviance) {
  return -0.5f * deviance - a.dims * kHalfLog2Pi;
}

__device__ __forceinline__ Generator unpack(const Arguments& a) {
  const auto [seed, offset] = at::cuda::philox::unpack(a.philox);
  return {seed, offset};
}

// A mixture of at most TILE components, of which each thread holds WIDTH dimensions in registers.
template <int WIDTH, int TILE>
__global__ void __launch_bounds__(kMaxThreads) resident_kernel(const Arguments a) {
  const unsigned sample = blockIdx.x, dim = threadIdx.x * WIDTH;
  Chunk<WIDTH> mu[TILE] = {}, log_var[TILE] = {};
#pragma unroll
  for (unsigned k = 0; k < TILE; ++k) {
    if (dim < a.dims && k < a.components) {
      const int64_t index = sample * a.sample_stride + k * a.dims + dim;
      mu[k] = load_inputs<WIDTH>(a.mu, index);
      log_var[k] = load_inputs<WIDTH>(a.log_var, index);
    }
  }

  const Generator generator = unpack(a);
  const Weights weights(a);
  const unsigned component = draw_component(a, generator, weights, sample);
  float deviances[TILE] = {};
  if (dim < a.dims) {
    Chunk<WIDTH> own_mu = mu[0], own_log_var = log_var[0];
#pragma unroll
    for (unsigned k = 1; k < TILE; ++k) {
      // Selected value by value: a run-time index would move the registers to local memory.
#pragma unroll
      for (int v = 0; v < WIDTH; ++v) {
        own_mu.value[v] = k == component ? mu[k].value[v] : own_mu.value[v];
        own_log_var.value[v] = k == component ? log_var[k].value[v] : own_log_var.value[v];
      }
    }
    const Chunk<WIDTH> z = draw_z<WIDTH>(a, generator, sample, dim, own_mu, own_log_var);
#pragma unroll
    for (int k = 0; k < TILE; ++k) deviances[k] = deviance<WIDTH>(z, mu[k], log_var[k]);
  }

  __shared__ float partial[kMaxThreads / kWarp][TILE];
  constexpr unsigned kShare = kWarp / TILE;  // lanes that hold the same component
  const unsigned k = lane_index() / kShare;
  float total = warp_sums<TILE>(deviances);
  if (blockDim.x > kWarp) {
    if (lane_index() % kShare == 0) partial[warp_index()][k] = total;
    __syncthreads();
    if (warp_index() > 0) return;
    for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) total += partial[warp][k];
  }
  LogSumExp mixture;
  if (k < a.components) mixture.add(log_density(a, total) + logf(weights[k]), 1.0f);
  mixture.add_lanes(kWarp / 2, kShare);
  if (lane_index() == 0) a.log_q_z[sample] = mixture.value();
}

// The four samples of a block of `quartet_kernel`: a grid of torch's apart, so that one call of Philox draws for all.
struct Quartet {
  unsigned first, step, count;

  __device__ __forceinline__ explicit Quartet(unsigned samples)
      : first(blockIdx.y * 4 * gridDim.x + blockIdx.x),
        step(gridDim.x),
        count(first < samples ? min(4u, (samples - 1 - first) / step + 1) : 0) {}
};

// Lane j * TILE returns the component of sample j; a lane draws for one component of one sample.
template <int TILE>
__device__ __forceinline__ unsigned draw_components(
    const Arguments& a, const Generator& generator, const Weights& weights, const Quartet& quartet) {
  const unsigned j = lane_index() / TILE;
  unsigned component = lane_index() % TILE;
  float best = -INFINITY;
  if (j < quartet.count && component < a.components) {
    const unsigned element = (quartet.first + j * quartet.step) * a.components + component;
    best = weights[component] / exponential(generator, a.component_draw, element);
  }
  keep_best<TILE>(best, component);
  return component;
}

// As `resident_kernel`, four samples a block one after another: while one is computed, the next is on its way to a
// place in shared memory that each thread keeps to itself.
template <int WIDTH, int TILE>
__global__ void __launch_bounds__(kMaxThreads) quartet_kernel(const Arguments a, unsigned samples) {
  extern __shared__ float4 staged_memory[];
  Chunk<WIDTH>* const staged = reinterpret_cast<Chunk<WIDTH>*>(staged_memory) + threadIdx.x;
  const unsigned dim = threadIdx.x * WIDTH;
  const Quartet quartet(samples);
  const auto fetch = [&](unsigned j) {
    if (j < quartet.count && dim < a.dims) {
      const int64_t index = (quartet.first + j * quartet.step) * a.sample_stride + dim;
      Chunk<WIDTH>* const to = staged + j % 2 * (2 * TILE) * blockDim.x;
#pragma unroll
      for (unsigned k = 0; k < TILE; ++k) {
        if (k >= a.components) break;
        __pipeline_memcpy_async(to + 2 * k * blockDim.x, a.mu + index + k * a.dims, sizeof(Chunk<WIDTH>));
        __pipeline_memcpy_async(to + (2 * k + 1) * blockDim.x, a.log_var + index + k * a.dims, sizeof(Chunk<WIDTH>));
      }
    }
    __pipeline_commit();
  };
  fetch(0);
  fetch(1);

  const Generator generator = unpack(a);
  const Weights weights(a);
  const unsigned components = draw_components<TILE>(a, generator, weights, quartet);
  Chunk<WIDTH> noise[4] = {};
#pragma unroll
  for (int v = 0; v < WIDTH; ++v) {
    const uint4 w = philox(generator.seed, (generator.offset + a.noise_draw.offset) / 4 + blockIdx.y,
                           blockIdx.x * a.dims + dim + v);
    const NormalPair low(w.x, w.y), high(w.z, w.w);
    noise[0].value[v] = low.first;
    noise[1].value[v] = low.second;
    noise[2].value[v] = high.first;
    noise[3].value[v] = high.second;
  }

  __shared__ float partial[2][kMaxThreads / kWarp][TILE];
  constexpr unsigned kShare = kWarp / TILE;
  const unsigned k = lane_index() / kShare;
  const float log_weight = k < a.components ? logf(weights[k]) : 0.0f;
#pragma unroll 1
  for (unsigned j = 0; j < quartet.count; ++j) {
    const unsigned sample = quartet.first + j * quartet.step;
    const unsigned component = __shfl_sync(kAllLanes, components, j * TILE);
    float deviances[TILE] = {};
    __pipeline_wait_prior(1);
    if (dim < a.dims) {
      const Chunk<WIDTH>* const from = staged + j % 2 * (2 * TILE) * blockDim.x;
      const Chunk<WIDTH> own_mu = from[2 * component * blockDim.x], own_log_var = from[(2 * component + 1) * blockDim.x];
      Chunk<WIDTH> z;
#pragma unroll
      for (int v = 0; v < WIDTH; ++v) z.value[v] = own_mu.value[v] + expf(0.5f * own_log_var.value[v]) * noise[0].value[v];
      *reinterpret_cast<Chunk<WIDTH>*>(a.z + static_cast<int64_t>(sample) * a.dims + dim) = z;
#pragma unroll
      for (unsigned i = 0; i < TILE; ++i) {
        if (i < a.components) deviances[i] = deviance<WIDTH>(z, from[2 * i * blockDim.x], from[(2 * i + 1) * blockDim.x]);
      }
    }
    fetch(j + 2);
#pragma unroll
    for (int i = 0; i < 3; ++i) noise[i] = noise[i + 1];

    float total = warp_sums<TILE>(deviances);
    if (blockDim.x > kWarp) {
      if (lane_index() % kShare == 0) partial[j % 2][warp_index()][k] = total;
      __syncthreads();
      if (warp_index() > 0) continue;
      for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) total += partial[j % 2][warp][k];
    }
    LogSumExp mixture;
    if (k < a.components) mixture.add(log_density(a, total) + log_weight, 1.0f);
    mixture.add_lanes(kWarp / 2, kShare);
    if (lane_index() == 0) a.log_q_z[sample] = mixture.value();
  }
}

__device__ __forceinline__ float block_sum(float value) {
  __shared__ float partial[kMaxThreads / kWarp];
  value = warp_sum(value);
  if (lane_index() == 0) partial[warp_index()] = value;
  __syncthreads();
  float total = 0.0f;
  for (unsigned warp = 0; warp < blockDim.x / kWarp; ++warp) total += partial[warp];
  return total;
}

// Any number of components and dimensions: the drawn component by the whole block, the others by one warp a tile.
template <int WIDTH>
__global__ void __launch_bounds__(kMaxThreads) streamed_kernel(const Arguments a) {
  const unsigned sample = blockIdx.x;
  const int64_t base = sample * a.sample_stride;
  const Generator generator = unpack(a);
  unsigned component = 0;
  if (a.logits != nullptr) component = draw_component(a, generator, Weights(a), sample);

  float own = 0.0f;
  for (unsigned dim = threadIdx.x * WIDTH; dim < a.dims; dim += blockDim.x * WIDTH) {
    const int64_t index = base + static_cast<int64_t>(component) * a.dims + dim;
    const Chunk<WIDTH> mu = load_inputs<WIDTH>(a.mu, index), log_var = load_inputs<WIDTH>(a.log_var, index);
    own += deviance<WIDTH>(draw_z<WIDTH>(a, generator, sample, dim, mu, log_var), mu, log_var);
  }
  own = block_sum(own);  // its barrier also shows z to the whole block
  if (a.logits == nullptr) {
    if (threadIdx.x == 0) a.log_q_z[sample] = log_density(a, own);
    return;
  }

  constexpr unsigned kTile = 8, kShare = kWarp / kTile;
  const Weights weights(a);
  LogSumExp mixture;
  for (unsigned first = warp_index() * kTile; first < a.components; first += blockDim.x / kWarp * kTile) {
    float deviances[kTile] = {};
    for (unsigned dim = lane_index() * WIDTH; dim < a.dims; dim += kWarp * WIDTH) {
      const Chunk<WIDTH> z =
          *reinterpret_cast<const Chunk<WIDTH>*>(a.z + static_cast<int64_t>(sample) * a.dims + dim);
      Chunk<WIDTH> mu[kTile], log_var[kTile];
#pragma unroll
      for (unsigned i = 0; i < kTile; ++i) {
        if (first + i < a.components && first + i != component) {
          const int64_t index = base + static_cast<int64_t>(first + i) * a.dims + dim;
          mu[i] = load_inputs<WIDTH>(a.mu, index);
          log_var[i] = load_inputs<WIDTH>(a.log_var, index);
        }
      }
#pragma unroll
      for (unsigned i = 0; i < kTile; ++i) {
        if (first + i >= a.components || first + i == component) continue;
        deviances[i] += deviance<WIDTH>(z, mu[i], log_var[i]);
      }
    }
    const float total = warp_sums<kTile>(deviances);
    const unsigned k = first + lane_index() / kShare;
    if (k < a.components) mixture.add(log_density(a, k == component ? own : total) + logf(weights[k]), 1.0f);
  }
  mixture.add_lanes(kWarp / 2, kShare);

  __shared__ float maxima[kMaxThreads / kWarp], sums[kMaxThreads / kWarp];
  if (lane_index() == 0) {
    maxima[warp_index()] = mixture.max;
    sums[warp_index()] = mixture.sum;
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) mixture.add(maxima[warp], sums[warp]);
  a.log_q_z[sample] = mixture.value();
}

// kernels: end

// What torch's softmax of one warp takes.
constexpr int64_t kMaxWarpSoftmax = 1024;
// torch splits a draw into several launches where the bytes of its tensor outgrow an int.
constexpr int64_t kMaxDrawn = (int64_t{1} << 31) / sizeof(float) - 1;

int64_t attribute(cudaDeviceAttr name) {
  int value = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, name, c10::cuda::current_device()));
  return value;
}

// The grid that torch would draw `count` elements with; the generator's offset advances by `increment`.
struct Plan {
  unsigned threads = 1;
  uint64_t increment = 0;

  explicit Plan(int64_t count) {
    TORCH_CHECK(count <= kMaxDrawn, "a draw of ", count, " elements; at most ", kMaxDrawn, " are supported");
    if (count == 0) return;
    const int64_t block = 256;
    const int64_t most = attribute(cudaDevAttrMultiProcessorCount) *
        (attribute(cudaDevAttrMaxThreadsPerMultiProcessor) / block);
    threads = std::min((count + block - 1) / block, most) * block;
    increment = ((count - 1) / (4 * int64_t{threads}) + 1) * 4;
  }
};

struct Layout {
  int width;  // floats a thread loads at once
  unsigned threads;
};

unsigned whole_warps(int64_t threads) {
  return std::clamp<int64_t>((threads + kWarp - 1) / kWarp, 1, kMaxThreads / kWarp) * kWarp;
}

// The widest load that the addresses allow, as long as it leaves no lane of a warp idle.
Layout choose_layout(const Arguments& a) {
  const auto address = reinterpret_cast<uintptr_t>(a.mu) | reinterpret_cast<uintptr_t>(a.log_var) |
      reinterpret_cast<uintptr_t>(a.z) | static_cast<uintptr_t>(a.sample_stride | a.dims) * sizeof(float);
  int width = 4;
  while (width > 1 && (address % (width * sizeof(float)) != 0 || a.dims < kWarp * width)) width /= 2;
  return {width, whole_warps((a.dims + width - 1) / width)};
}

// Shared memory that a block has without asking for more.
constexpr unsigned kSharedBytes = 48 * 1024;

template <int WIDTH, int TILE>
void launch_resident(const Arguments& a, const Layout& layout, unsigned samples, cudaStream_t stream) {
  const unsigned rows = a.noise_draw.threads / a.dims;  // samples that one grid of torch's draws for
  const unsigned staged_bytes = 2 * 2 * TILE * layout.threads * sizeof(Chunk<WIDTH>);
  const bool shares_draws = a.noise_draw.threads % a.dims == 0 && samples >= 4 * rows;
  if (shares_draws && staged_bytes + sizeof(float[2][kMaxThreads / kWarp][TILE]) <= kSharedBytes) {
    const dim3 grid(rows, (samples + 4 * rows - 1) / (4 * rows));
    quartet_kernel<WIDTH, TILE><<<grid, layout.threads, staged_bytes, stream>>>(a, samples);
  } else {
    resident_kernel<WIDTH, TILE><<<samples, layout.threads, 0, stream>>>(a);
  }
}

template <int WIDTH>
void launch(const Arguments& a, const Layout& layout, unsigned samples, cudaStream_t stream) {
  const bool fits = a.logits != nullptr && a.dims <= layout.threads * WIDTH;
  if (fits && a.components <= 4) {
    launch_resident<WIDTH, 4>(a, layout, samples, stream);
  } else if (fits && a.components <= 8) {
    launch_resident<WIDTH, 8>(a, layout, samples, stream);
  } else {
    const unsigned threads = a.logits != nullptr ? whole_warps(int64_t{a.components} * kWarp / 8) : 0;
    streamed_kernel<WIDTH><<<samples, std::max(threads, layout.threads), 0, stream>>>(a);
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

at::Tensor empty(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::Tensor(at::detail::empty_cuda(sizes, like.scalar_type(), like.device(), std::nullopt));
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> mixture_forward(const at::Tensor& mu_in, const at::Tensor& log_var_in,
    const std::optional<at::Tensor>& logits, const std::optional<at::Generator>& generator) {
  TORCH_CHECK(mu_in.is_cuda() && log_var_in.device() == mu_in.device() && mu_in.scalar_type() == at::kFloat &&
                  log_var_in.scalar_type() == at::kFloat,
              "mu and log_var must be float32 on one CUDA device, got ", mu_in.toString(), " and ",
              log_var_in.toString());
  TORCH_CHECK((mu_in.dim() == 2 || mu_in.dim() == 3) && mu_in.sizes() == log_var_in.sizes(),
              "mu and log_var must agree in their 2 or 3 dimensions, got ", mu_in.sizes(), " and ",
              log_var_in.sizes());
  const bool mixture = logits.has_value() && mu_in.dim() == 3;
  const c10::cuda::CUDAGuard guard(mu_in.device());
  const int64_t samples = mu_in.size(0), dims = mu_in.size(-1), components = mixture ? mu_in.size(1) : 1;
  const at::Tensor mu = mu_in.contiguous(), log_var = log_var_in.contiguous();
  at::Tensor z = empty({samples, dims}, mu), log_q_z = empty({samples}, mu), weights, scores;
  if (samples == 0) return {z, log_q_z};

  Arguments a = {};
  a.mu = mu.const_data_ptr<float>();
  a.log_var = log_var.const_data_ptr<float>();
  a.z = z.data_ptr<float>();
  a.log_q_z = log_q_z.data_ptr<float>();
  a.sample_stride = mu.stride(0);
  a.components = components;
  a.dims = dims;
  a.noise_sample_stride = dims;
  a.noise_dim_stride = 1;

  Plan component_plan(0), noise_plan(samples * dims);
  if (mixture) {
    TORCH_CHECK(logits->device() == mu.device() && logits->scalar_type() == at::kFloat &&
                    logits->numel() == components,
                "logits must be ", components, " floats on ", mu.device(), ", got ", logits->toString(), " of ",
                logits->sizes());
    scores = logits->contiguous();
    a.logits = scores.const_data_ptr<float>();
    if (components > kMaxWarpSoftmax) weights = at::softmax(scores, 0);
    if (weights.defined()) a.weights = weights.const_data_ptr<float>();
    component_plan = Plan(samples * components);
  } else if (!mu_in.is_contiguous()) {
    // torch fills a tensor like the first component in the order of its memory.
    const at::Tensor noise = at::empty_like(mu_in.dim() == 3 ? mu_in.select(1, 0) : mu_in);
    a.noise_sample_stride = noise.stride(0);
    a.noise_dim_stride = noise.stride(1);
  }
  a.component_draw = {component_plan.threads, 0};
  a.noise_draw = {noise_plan.threads, component_plan.increment};

  auto* philox = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      generator, at::cuda::detail::getDefaultCUDAGenerator());
  if (const uint64_t increment = component_plan.increment + noise_plan.increment) {
    const std::lock_guard<std::mutex> lock(philox->mutex_);
    a.philox = philox->philox_cuda_state(increment);
  }
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const Layout layout = choose_layout(a);
  if (layout.width == 4) launch<4>(a, layout, samples, stream);
  if (layout.width == 2) launch<2>(a, layout, samples, stream);
  if (layout.width == 1) launch<1>(a, layout, samples, stream);
  return {z, log_q_z};
}
"""

CPP_SOURCE = r"""
#include <torch/extension.h>

#include <optional>
#include <tuple>

std::tuple<at::Tensor, at::Tensor> mixture_forward(const at::Tensor& mu, const at::Tensor& log_var,
    const std::optional<at::Tensor>& logits, const std::optional<at::Generator>& generator);
"""

ops = load_inline(
    name="mixture_single_launch",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["mixture_forward"],
    extra_cuda_cflags=["-O3"],  # no --use_fast_math: weights and scores must equal torch's to the last bit
    verbose=False,
)

_recognised: set[torch.device] = set()


def _recognise(device: torch.device) -> None:
    """Make sure that this torch draws on `device` in the way that the kernel copies.

    Raises:
        RuntimeError: it draws otherwise, or a CUDA graph is being captured, where draws cannot be compared.
    """
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("call the model once before capturing it: it first compares its draws with those of torch")
    # The second size outgrows the grid of both draws on every device of up to 240 multiprocessors.
    for batch, components, dim in ((33, 5, 7), (100_003, 5, 7)):
        if not _draws_alike(device, batch, components, dim):
            raise RuntimeError(
                f"torch {torch.__version__} draws on {torch.cuda.get_device_name(device)} in a way that this kernel "
                f"does not know (seen with [{batch}, {components}, {dim}])"
            )
    _recognised.add(device)


def _draws_alike(device: torch.device, batch: int, components: int, dim: int) -> bool:
    """Compare two forwards in a row with torch's draws, on generators of their own."""
    ours = torch.Generator(device).manual_seed(0x1234_5678_9ABC)
    theirs = torch.Generator(device).manual_seed(0x1234_5678_9ABC)
    logits = torch.linspace(-1, 1, components, device=device)
    # Far enough apart that z tells which component it came from.
    centres = 16.0 * torch.arange(components, device=device)
    mu = centres[:, None].expand(batch, -1, dim).contiguous()
    alike = True
    for _ in range(2):
        z, _ = ops.mixture_forward(mu, torch.zeros_like(mu), logits, ours)
        weights = torch.softmax(logits, dim=0).expand(batch, -1)
        component = torch.multinomial(weights, 1, generator=theirs)
        expected = centres[component] + torch.randn(batch, dim, device=device, generator=theirs)
        alike = alike and torch.allclose(z, expected, rtol=0, atol=1e-4)
    return alike and torch.equal(ours.get_state(), theirs.get_state())


class ModelNew(nn.Module):
    """The reference's parameters; one C++ call and one launch do the forward."""

    def __init__(self, latent_dim: int, num_components: int = 1) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        self.num_components = num_components
        if num_components > 1:
            self.logits = nn.Parameter(torch.zeros(num_components))

    def forward(self, mu: torch.Tensor, log_var: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [batch, latent_dim] and log_q_z [batch]."""
        if mu.device not in _recognised:
            _recognise(mu.device)
        return ops.mixture_forward(mu, log_var, self._parameters.get("logits"), None)
