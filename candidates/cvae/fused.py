"""The whole forward in one launch, or two for a batch of thousands, torch's own random numbers included.

A small batch: a cluster of eight blocks takes eight samples. Each block copies an eighth of every layer's
weights to its shared memory at once, computes those outputs for all eight samples, and writes them into the
other blocks' shared memory; so a cluster reads every weight once, and waits for memory once.

A large batch: one launch lays the weights out input by input and draws the noise, a second takes 128 samples a
block through all layers as register-tiled float32 products, activations in shared memory.

Noise comes from torch's CUDA generator: element i of `randn` is a function of seed, offset, i and the
number of elements, and the generator moves on by as much as `randn` moves it. The first call on a device
compares that function with `randn`, and refuses to run if they differ. The last block to finish adds up the
blocks' losses in their order: no float atomics, and the same bits every time.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

DEVICES = ("cuda",)

CPP_SOURCE = r"""
std::tuple<at::Tensor, at::Tensor, at::Tensor> cvae_forward(const at::Tensor& x_in, const at::Tensor& y_in,
                                                            const std::vector<at::Tensor>& weights);
"""

HEADERS = r"""
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/EmptyTensor.h>
#include <ATen/cuda/PhiloxUtils.cuh>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cooperative_groups.h>
#include <cuda_pipeline_primitives.h>
#include <torch/version.h>

#include <limits>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>
"""

KERNELS = r"""
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr unsigned kAllLanes = 0xffffffffu;

struct Shape {
  int batch, input, label, hidden, latent;
};

struct Network {
  const float *x, *y;
  const float *encoder, *encoder_bias, *mu, *mu_bias, *logvar, *logvar_bias;
  const float *decoder, *decoder_bias, *output, *output_bias;
};

// Where `randn` stands, and how many threads it would start: what decides which number an element gets.
struct Draws {
  at::PhiloxCudaState state;
  unsigned threads;
};

struct Result {
  double2* partial;  // reconstruction and KL sums, one pair a block
  unsigned* ticket;  // 0 before and after every launch
  float *loss, *recon, *kl;
};

struct Philox {
  uint64_t seed, offset;
};

__device__ inline Philox unpack(const Draws& draws) {
  const auto state = at::cuda::philox::unpack(draws.state);
  return {std::get<0>(state), std::get<1>(state)};
}

// Philox 4x32 with ten rounds: four random words for a counter and a key.
__device__ inline uint4 philox_words(uint4 counter, uint2 key) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t even = 0xD2511F53ull * counter.x, odd = 0xCD9E8D57ull * counter.z;
    counter = make_uint4(static_cast<unsigned>(odd >> 32) ^ counter.y ^ key.x, static_cast<unsigned>(odd),
                         static_cast<unsigned>(even >> 32) ^ counter.w ^ key.y, static_cast<unsigned>(even));
    key = make_uint2(key.x + 0x9E3779B9u, key.y + 0xBB67AE85u);
  }
  return counter;
}

// Two normal numbers of two random words, by Box and Muller, in the arithmetic of torch's generator.
__device__ inline float2 normal_pair(unsigned radius_word, unsigned angle_word) {
  constexpr float kUnit = 2.3283064e-10f, kTurn = kUnit * 6.2831855f;  // 2^-32, and that part of a turn
  const float radius = sqrtf(-2.0f * logf(radius_word * kUnit + kUnit / 2));
  float sine, cosine;
  __sincosf(angle_word * kTurn + kTurn / 2, &sine, &cosine);
  return make_float2(radius * sine, radius * cosine);
}

// Element `element` of the tensor that torch's `randn` fills: thread t draws four numbers at a time and puts
// them at t, t + threads, t + 2 * threads, t + 3 * threads; then it goes on from t + 4 * threads.
__device__ inline float normal(Philox philox, unsigned threads, unsigned element) {
  const unsigned thread = element % threads, step = element / threads;
  const uint64_t counter = philox.offset / 4 + step / 4;
  const uint4 words = philox_words(
      make_uint4(static_cast<unsigned>(counter), static_cast<unsigned>(counter >> 32), thread, 0),
      make_uint2(static_cast<unsigned>(philox.seed), static_cast<unsigned>(philox.seed >> 32)));
  const float2 pair = step & 2 ? normal_pair(words.z, words.w) : normal_pair(words.x, words.y);
  return step & 1 ? pair.y : pair.x;
}

__global__ void draw_normals(Draws draws, float* out, unsigned count) {
  const unsigned element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element < count) out[element] = normal(unpack(draws), draws.threads, element);
}

// NaN stays NaN, as in torch.
__device__ inline float relu(float value) { return value < 0.0f ? 0.0f : value; }

__device__ inline float square(float value) { return value * value; }

// 1 + logvar - mu^2 - e^logvar: the KL divergence of one latent dimension, times -2.
__device__ inline float divergence(float mu, float logvar) { return 1.0f + logvar - mu * mu - expf(logvar); }

// The sum over the block, for every thread, always in one order.
template <int kBlock>
__device__ inline double block_sum(double value, double* scratch) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  double total = 0;
  for (int warp = 0; warp < kBlock / 32; ++warp) total += scratch[warp];
  __syncthreads();
  return total;
}

// Leave the sums of this block of kBlock threads; the block that comes last adds all of them up.
template <int kBlock>
__device__ inline void finish(const Result& result, float recon, float divergences, int batch) {
  __shared__ double scratch[kBlock / 32];
  __shared__ int last[1];
  const double block_recon = block_sum<kBlock>(recon, scratch), block_divergence = block_sum<kBlock>(divergences, scratch);
  if (threadIdx.x == 0) {
    result.partial[blockIdx.x] = make_double2(block_recon, block_divergence);
    __threadfence();
    last[0] = atomicInc(result.ticket, gridDim.x - 1) == gridDim.x - 1;  // and back to 0 by itself
  }
  __syncthreads();
  if (!last[0]) return;
  __threadfence();
  double all_recon = 0, all_divergence = 0;
  for (unsigned block = threadIdx.x; block < gridDim.x; block += kBlock) {
    const double2 sums = __ldcg(result.partial + block);
    all_recon += sums.x;
    all_divergence += sums.y;
  }
  all_recon = block_sum<kBlock>(all_recon, scratch);
  all_divergence = block_sum<kBlock>(all_divergence, scratch);
  if (threadIdx.x != 0) return;
  const float mean_recon = all_recon / batch, mean_kl = -0.5 * all_divergence / batch;
  *result.loss = mean_recon + mean_kl;
  *result.recon = mean_recon;
  *result.kl = mean_kl;
}

// ---- A small batch: a cluster of blocks shares the layers, and each block holds all samples of the cluster.

constexpr int kCluster = 8;  // blocks; the largest cluster that every device with clusters can start
constexpr int kGroup = 8;  // samples of one cluster
static_assert(kGroup == kWarps, "a warp copies one sample");

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__device__ inline int cluster_rank() { return cooperative_groups::this_cluster().block_rank(); }
__device__ inline void cluster_sync() { cooperative_groups::this_cluster().sync(); }
__device__ inline float* of_peer(float* mine, int rank) {
  return cooperative_groups::this_cluster().map_shared_rank(mine, rank);
}
#else  // never started there: the host asks for compute capability 9.0
__device__ inline int cluster_rank() { return 0; }
__device__ inline void cluster_sync() {}
__device__ inline float* of_peer(float* mine, int) { return mine; }
#endif

// The outputs of a layer that one block of the cluster computes.
struct Slice {
  int first, count;
};

__host__ __device__ inline int share(int outputs) { return (outputs + kCluster - 1) / kCluster; }

__device__ inline Slice slice(int outputs, int rank) {
  const int first = min(rank * share(outputs), outputs);
  return {first, min(share(outputs), outputs - first)};
}

__host__ __device__ inline int padded(int floats) { return (floats + 3) / 4 * 4; }

// Offsets into a block's shared memory, in floats, each a multiple of 16 bytes.
struct Places {
  int input, hidden, latent, noise;
  int encoder_bias, mu_bias, logvar_bias, decoder_bias, output_bias;
  int encoder, mu, logvar, decoder, output;
  int end;
};

__host__ __device__ inline int take(int& end, int floats) {
  const int start = end;
  end += padded(floats);
  return start;
}

__host__ __device__ inline Places places(const Shape& s, bool staged) {
  Places at;
  int end = 0;
  at.input = take(end, kGroup * padded(s.input + s.label));
  at.hidden = take(end, kGroup * s.hidden);
  at.latent = take(end, kGroup * padded(s.latent + s.label));
  at.noise = take(end, kGroup * share(s.latent));
  at.encoder_bias = take(end, share(s.hidden));
  at.mu_bias = take(end, share(s.latent));
  at.logvar_bias = take(end, share(s.latent));
  at.decoder_bias = take(end, share(s.hidden));
  at.output_bias = take(end, share(s.input));
  at.encoder = at.mu = at.logvar = at.decoder = at.output = 0;
  if (staged) {
    at.encoder = take(end, share(s.hidden) * (s.input + s.label));
    at.mu = take(end, share(s.latent) * s.hidden);
    at.logvar = take(end, share(s.latent) * s.hidden);
    at.decoder = take(end, share(s.hidden) * (s.latent + s.label));
    at.output = take(end, share(s.input) * s.hidden);
  }
  at.end = end;
  return at;
}

// Start copying `count` floats into shared memory; `threads` threads take part, this is number `thread`.
__device__ inline void copy_async(float* to, const float* from, int count, int thread, int threads) {
  int done = 0;
  if (((reinterpret_cast<size_t>(to) | reinterpret_cast<size_t>(from)) & 15) == 0) {
    done = count & ~3;
    for (int i = 4 * thread; i < done; i += 4 * threads) __pipeline_memcpy_async(to + i, from + i, 16);
  }
  for (int i = done + thread; i < count; i += threads) __pipeline_memcpy_async(to + i, from + i, 4);
}

// This block's rows of a layer's weights: in shared memory, on their way, if staged; else where they are.
template <bool kStaged>
__device__ inline const float* weights_of(float* staging, const float* weights, Slice outputs, int inputs) {
  const float* mine = weights + static_cast<size_t>(outputs.first) * inputs;
  if (!kStaged) return mine;
  copy_async(staging, mine, outputs.count * inputs, threadIdx.x, kThreads);
  return staging;
}

// Sum each of the values over the warp's lanes. Lane l gets the sum of value l * kValues / 32: at each step,
// half of the lanes keep one half of the values and hand over the other.
template <int kValues>
__device__ inline float scatter_sum(float (&values)[kValues]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int bit = 16, half = kValues / 2; bit > 0; bit /= 2, half /= 2) {
    if (half == 0) {
      values[0] += __shfl_xor_sync(kAllLanes, values[0], bit);
      continue;
    }
    const bool upper = lane & bit;
#pragma unroll
    for (int i = 0; i < kValues / 2; ++i) {
      if (i >= half) break;
      const float keep = upper ? values[i + half] : values[i];
      const float give = upper ? values[i] : values[i + half];
      values[i] = keep + __shfl_xor_sync(kAllLanes, give, bit);
    }
  }
  return values[0];
}

// kRows rows of weights times every sample: lanes split the inputs. Lane l gets product
// l * kRows * kGroup / 32, counted row by row, sample by sample.
template <int kRows>
__device__ inline float products(const float* const (&rows)[kRows], const float* input, int stride,
                                 int inputs) {
  float sums[kRows * kGroup] = {};
#pragma unroll 2
  for (int k = threadIdx.x % 32; k < inputs; k += 32) {
    float samples[kGroup];
#pragma unroll
    for (int s = 0; s < kGroup; ++s) samples[s] = input[s * stride + k];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float weight = rows[r][k];
#pragma unroll
      for (int s = 0; s < kGroup; ++s) sums[r * kGroup + s] += weight * samples[s];
    }
  }
  return scatter_sum(sums);
}

// Call use(output, sample, value, part, parts) for each of `count` outputs and each sample, in `parts` lanes.
template <int kRows, typename Use>
__device__ inline void linear(const float* weights, const float* bias, int count, const float* input,
                              int stride, int inputs, const Use& use) {
  constexpr int kParts = 32 / (kRows * kGroup);
  const int lane = threadIdx.x % 32, index = lane / kParts;
  for (int first = threadIdx.x / 32 * kRows; first < count; first += kWarps * kRows) {
    const float* rows[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      rows[r] = weights + static_cast<size_t>(min(first + r, count - 1)) * inputs;
    const float value = products<kRows>(rows, input, stride, inputs);
    const int output = first + index / kGroup;
    if (output < count) use(output, index % kGroup, value + bias[output], lane % kParts, kParts);
  }
}

// Store a value at one place of every block's shared memory; `parts` lanes hold it, this is number `part`.
__device__ inline void share_value(float* at, float value, int part, int parts) {
  for (int peer = part; peer < kCluster; peer += parts) *of_peer(at, peer) = value;
}

// mu and logvar of this block's latent dimensions: z goes to every block; returns KL terms of valid samples.
__device__ inline float latent_layer(const float* mu_weights, const float* mu_bias,
                                     const float* logvar_weights, const float* logvar_bias, Slice mine,
                                     const float* hidden, int inputs, const float* noise, float* latent,
                                     int stride, int valid) {
  const int lane = threadIdx.x % 32, sample = lane / 2 % kGroup;
  float total = 0.0f;
  for (int j = threadIdx.x / 32; j < mine.count; j += kWarps) {
    const float* rows[2] = {mu_weights + static_cast<size_t>(j) * inputs,
                            logvar_weights + static_cast<size_t>(j) * inputs};
    const float value = products<2>(rows, hidden, inputs, inputs);
    const float other = __shfl_xor_sync(kAllLanes, value, 16);  // lanes below 16 hold mu, the others logvar
    const float mu = (lane < 16 ? value : other) + mu_bias[j];
    const float logvar = (lane < 16 ? other : value) + logvar_bias[j];
    const float z = mu + expf(0.5f * logvar) * noise[j * kGroup + sample];
    share_value(latent + sample * stride + mine.first + j, z, lane / 16 * 2 + lane % 2, 4);
    if (lane < 16 && lane % 2 == 0 && sample < valid) total += divergence(mu, logvar);
  }
  return total;
}

template <bool kStaged>
__global__ void __launch_bounds__(kThreads)
    cluster_forward(Shape shape, Network net, Draws draws, Result result) {
  extern __shared__ float4 shared_memory[];
  float* const shared = reinterpret_cast<float*>(shared_memory);
  const Places at = places(shape, kStaged);
  const int rank = cluster_rank(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first = blockIdx.x / kCluster * kGroup, valid = min(kGroup, shape.batch - first);
  const Slice hiddens = slice(shape.hidden, rank), latents = slice(shape.latent, rank);
  const Slice outputs = slice(shape.input, rank);
  const int encoder_inputs = shape.input + shape.label, decoder_inputs = shape.latent + shape.label;
  const int input_stride = padded(encoder_inputs), latent_stride = padded(decoder_inputs);
  float *const input = shared + at.input, *const hidden = shared + at.hidden;
  float* const latent = shared + at.latent;
  float *const noise = shared + at.noise, *const encoder_bias = shared + at.encoder_bias;
  float *const mu_bias = shared + at.mu_bias, *const logvar_bias = shared + at.logvar_bias;
  float *const decoder_bias = shared + at.decoder_bias, *const output_bias = shared + at.output_bias;

  // Everything is on its way before the first wait; what the encoder needs comes first. A warp copies one
  // sample, and samples past the last repeat it.
  const size_t sample = first + min(warp, valid - 1);
  copy_async(input + warp * input_stride, net.x + sample * shape.input, shape.input, lane, 32);
  copy_async(input + warp * input_stride + shape.input, net.y + sample * shape.label, shape.label, lane, 32);
  copy_async(encoder_bias, net.encoder_bias + hiddens.first, hiddens.count, threadIdx.x, kThreads);
  const float* const encoder = weights_of<kStaged>(shared + at.encoder, net.encoder, hiddens, encoder_inputs);
  __pipeline_commit();
  copy_async(latent + warp * latent_stride + shape.latent, net.y + sample * shape.label, shape.label, lane,
             32);
  copy_async(mu_bias, net.mu_bias + latents.first, latents.count, threadIdx.x, kThreads);
  copy_async(logvar_bias, net.logvar_bias + latents.first, latents.count, threadIdx.x, kThreads);
  copy_async(decoder_bias, net.decoder_bias + hiddens.first, hiddens.count, threadIdx.x, kThreads);
  copy_async(output_bias, net.output_bias + outputs.first, outputs.count, threadIdx.x, kThreads);
  const float* const mu = weights_of<kStaged>(shared + at.mu, net.mu, latents, shape.hidden);
  const float* const logvar = weights_of<kStaged>(shared + at.logvar, net.logvar, latents, shape.hidden);
  const float* const decoder = weights_of<kStaged>(shared + at.decoder, net.decoder, hiddens, decoder_inputs);
  const float* const output = weights_of<kStaged>(shared + at.output, net.output, outputs, shape.hidden);
  __pipeline_commit();

  const Philox philox = unpack(draws);
  for (int i = threadIdx.x; i < latents.count * kGroup; i += kThreads) {
    const unsigned row = first + min(i % kGroup, valid - 1), column = latents.first + i / kGroup;
    noise[i] = normal(philox, draws.threads, row * shape.latent + column);
  }

  __pipeline_wait_prior(1);
  cluster_sync();  // the encoder's weights are here, and so are the other blocks, ready to be written to
  linear<2>(encoder, encoder_bias, hiddens.count, input, input_stride, encoder_inputs,
            [&](int row, int s, float value, int part, int parts) {
              share_value(hidden + s * shape.hidden + hiddens.first + row, relu(value), part, parts);
            });
  __pipeline_wait_prior(0);
  cluster_sync();
  const float divergences = latent_layer(mu, mu_bias, logvar, logvar_bias, latents, hidden, shape.hidden,
                                         noise, latent, latent_stride, valid);
  cluster_sync();  // every block has read `hidden`: it may be written again
  linear<2>(decoder, decoder_bias, hiddens.count, latent, latent_stride, decoder_inputs,
            [&](int row, int s, float value, int part, int parts) {
              share_value(hidden + s * shape.hidden + hiddens.first + row, relu(value), part, parts);
            });
  cluster_sync();  // nothing is written to another block from here on: a block may leave
  float recon = 0.0f;
  linear<4>(output, output_bias, outputs.count, hidden, shape.hidden, shape.hidden,
            [&](int row, int s, float value, int, int) {
              if (s < valid) recon += square(value - input[s * input_stride + outputs.first + row]);
            });
  finish<kThreads>(result, recon, divergences, shape.batch);
}

// ---- A large batch: a block takes a tile of samples through every layer.

constexpr int kTile = 128;  // samples of a block, and outputs of a wide pass
constexpr int kTileThreads = 128;
constexpr int kSamples = 16;  // samples of a thread
constexpr int kDepth = 8;  // inputs staged at a time
static_assert(kTileThreads * kSamples == 16 * kTile, "threads times their products cover the tile");
constexpr int kPitch = kTile + 4;  // of a row of samples: transposed stores then meet different banks

__host__ __device__ inline int rounded(int count, int multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

// A layer laid out for the tiles: row 0 holds the biases, row 1 + k the weights of input k, zeros as padding.
// Inputs that come from two tensors are padded one by one.
struct Panel {
  int start, inputs, width;
};

struct Panels {
  Panel encoder, latent, decoder, output;
  int end;
};

__host__ __device__ inline Panel place(int& end, int inputs, int outputs) {
  const Panel panel = {end, inputs, rounded(outputs, kTile / 2)};
  end += (1 + inputs) * panel.width;
  return panel;
}

__host__ __device__ inline Panels panels(const Shape& s) {
  Panels p;
  p.end = 0;
  p.encoder = place(p.end, rounded(s.input, kDepth) + rounded(s.label, kDepth), s.hidden);
  p.latent = place(p.end, rounded(s.hidden, kDepth), 2 * s.latent);
  p.decoder = place(p.end, rounded(s.latent, kDepth) + rounded(s.label, kDepth), s.hidden);
  p.output = place(p.end, rounded(s.hidden, kDepth), s.input);
  return p;
}

// The column of a weight matrix over [left | right] that padded input k stands for; -1 for padding.
__device__ inline int column_of(int k, int left, int right) {
  const int from_right = k - rounded(left, kDepth);
  if (from_right < 0) return k < left ? k : -1;
  return from_right < right ? left + from_right : -1;
}

__device__ inline float element(const float* weights, const float* bias, int output, int outputs, int k,
                                int left, int right) {
  if (output >= outputs) return 0.0f;
  if (k < 0) return bias[output];
  const int column = column_of(k, left, right);
  return column < 0 ? 0.0f : weights[static_cast<size_t>(output) * (left + right) + column];
}

constexpr int kLayers = 4;
constexpr dim3 kPackGrid(32, kLayers + 16);  // rows of blocks: one for each layer, the others draw

// The numbers that `randn` would give, in its order: one Philox call for four of them, a grid of torch's apart.
__device__ inline void draw_all(const Draws& draws, float* noise, unsigned count, unsigned thread, unsigned threads) {
  const Philox philox = unpack(draws);
  const unsigned per_step = 4 * draws.threads, calls = (count + per_step - 1) / per_step * draws.threads;
  for (unsigned call = thread; call < calls; call += threads) {
    const unsigned step = call / draws.threads, first = call % draws.threads;
    const uint64_t counter = philox.offset / 4 + step;
    const uint4 words = philox_words(
        make_uint4(static_cast<unsigned>(counter), static_cast<unsigned>(counter >> 32), first, 0),
        make_uint2(static_cast<unsigned>(philox.seed), static_cast<unsigned>(philox.seed >> 32)));
    const float2 low = normal_pair(words.x, words.y), high = normal_pair(words.z, words.w);
    const float values[] = {low.x, low.y, high.x, high.y};
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned element = step * per_step + i * draws.threads + first;
      if (element < count) noise[element] = values[i];
    }
  }
}

// What the tiles read: the layers laid out, and the noise. mu and logvar alternate: one thread of a tile gets both
// of a dimension.
__global__ void __launch_bounds__(kThreads) pack(Shape s, Network net, Draws draws, float* packed, float* noise) {
  if (blockIdx.y >= kLayers) {
    const unsigned blocks = (gridDim.y - kLayers) * gridDim.x, block = (blockIdx.y - kLayers) * gridDim.x + blockIdx.x;
    draw_all(draws, noise, static_cast<unsigned>(s.batch) * s.latent, block * kThreads + threadIdx.x, blocks * kThreads);
    return;
  }
  const Panels all = panels(s);
  const Panel panels_of[] = {all.encoder, all.latent, all.decoder, all.output};
  const Panel panel = panels_of[blockIdx.y];
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < (1 + panel.inputs) * panel.width;
       i += gridDim.x * kThreads) {
    const int k = i / panel.width - 1, n = i % panel.width;
    float value;
    if (blockIdx.y == 0) value = element(net.encoder, net.encoder_bias, n, s.hidden, k, s.input, s.label);
    else if (blockIdx.y == 2)
      value = element(net.decoder, net.decoder_bias, n, s.hidden, k, s.latent, s.label);
    else if (blockIdx.y == 3) value = element(net.output, net.output_bias, n, s.input, k, s.hidden, 0);
    else if (n % 2 == 0) value = element(net.mu, net.mu_bias, n / 2, s.latent, k, s.hidden, 0);
    else value = element(net.logvar, net.logvar_bias, n / 2, s.latent, k, s.hidden, 0);
    packed[panel.start + i] = value;
  }
}

// A block's shared memory, in floats: two buffers each for staged samples and weights, then activations.
// Offsets rather than pointers, and always from the array itself, so that the compiler knows every access for
// one to shared memory.
constexpr int kSampleBuffer = kDepth * kPitch, kWeightBuffer = kDepth * kTile;
constexpr int kStagedWeights = 2 * kSampleBuffer, kActivations = kStagedWeights + 2 * kWeightBuffer;

// Inputs of a layer for every sample of the tile: activations, [input][kPitch] from an offset on, or rows of
// a tensor.
struct Source {
  int activations;  // -1: none
  const float* rows;  // the tile's first sample
  int width;
};

__host__ __device__ inline size_t tile_floats(const Shape& s) {
  return kActivations + static_cast<size_t>(rounded(s.hidden, kDepth) + rounded(s.latent, kDepth)) * kPitch;
}

// Four inputs of one row from input k on; zeros past the end.
__device__ inline float4 load_inputs(const float* row, int k, int width) {
  if (k + 4 <= width && (reinterpret_cast<size_t>(row) & 15) == 0)
    return __ldg(reinterpret_cast<const float4*>(row + k));
  const auto at = [&](int i) { return i < width ? __ldg(row + i) : 0.0f; };
  return make_float4(at(k), at(k + 1), at(k + 2), at(k + 3));
}

// Which part of a tile of 128 samples and 16 * kColumns outputs a thread computes: kSamples samples, as runs of
// four 16 apart, and kColumns outputs, as runs of four 32 apart. A warp covers 4 x 8 threads, so that its
// reads of samples and of weights are both without bank conflicts. With 16 x 8 products a thread six reads of
// four floats feed 128 multiplications; with 8 x 8 shared memory would be as busy as the multipliers.
template <int kColumns>
struct Part {
  int sample, output;

  __device__ Part() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    sample = warp / 2 * (4 * kSamples) + lane / 8 * 4;
    output = warp % 2 * (8 * kColumns) + lane % 8 * 4;
  }

  // Where the thread's i-th sample lies in the tile, and its j-th output.
  __device__ int sample_at(int i) const { return sample + i / 4 * 16 + i % 4; }
  __device__ int output_at(int j) const { return output + j / 4 * 32 + j % 4; }
};

// sums += weights times the inputs of `left`, then of `right`. The next inputs are on their way while the
// thread computes with the present ones.
template <int kColumns>
__device__ inline void multiply(float (&sums)[kSamples][kColumns], Source left, Source right, int valid,
                                const float* weights, int pitch, float* shared) {
  const Part<kColumns> part;
  const int left_steps = rounded(left.width, kDepth) / kDepth;
  const int steps = left_steps + rounded(right.width, kDepth) / kDepth;
  constexpr int kWeightQuads = 4 * kColumns;  // of one input; the block fetches those of so many inputs at once:
  constexpr int kWeightRows = kTileThreads / kWeightQuads;
  const int weight_row = threadIdx.x / kWeightQuads, weight_column = threadIdx.x % kWeightQuads * 4;
  const float* const weight = weights + static_cast<size_t>(weight_row) * pitch + weight_column;
  float* const staged_weight = shared + kStagedWeights + weight_row * kTile + weight_column;
  // A thread stages four inputs of every kStride-th sample, kStaged in all.
  constexpr int kQuads = kDepth / 4, kStride = kTileThreads / kQuads, kStaged = kTile / kStride;
  const int row = threadIdx.x / kQuads, quad = threadIdx.x % kQuads * 4;
  float* const staged_sample = shared + quad * kPitch + row;

  const auto fetch_weights = [&](int step) {
#pragma unroll
    for (int k = 0; k < kDepth; k += kWeightRows) {
      if (kWeightRows > kDepth && weight_row >= kDepth) continue;
      __pipeline_memcpy_async(staged_weight + step % 2 * kWeightBuffer + k * kTile,
                              weight + static_cast<size_t>(step * kDepth + k) * pitch, 16);
    }
    __pipeline_commit();
  };
  const auto fetch_inputs = [&](int step, float4 (&inputs)[kStaged]) {
    const bool is_left = step < left_steps;
    const float* rows = is_left ? left.rows : right.rows;
    if (rows == nullptr) return;
    const int width = is_left ? left.width : right.width;
    const int k = (is_left ? step : step - left_steps) * kDepth + quad;
#pragma unroll
    for (int i = 0; i < kStaged; ++i)
      inputs[i] = load_inputs(rows + static_cast<size_t>(min(row + i * kStride, valid - 1)) * width, k, width);
  };
  const auto store_inputs = [&](int step, const float4 (&inputs)[kStaged]) {
    if ((step < left_steps ? left.rows : right.rows) == nullptr) return;
    float* const to = staged_sample + step % 2 * kSampleBuffer;
#pragma unroll
    for (int i = 0; i < kStaged; ++i) {
      to[i * kStride] = inputs[i].x;
      to[i * kStride + kPitch] = inputs[i].y;
      to[i * kStride + 2 * kPitch] = inputs[i].z;
      to[i * kStride + 3 * kPitch] = inputs[i].w;
    }
  };
  const auto samples_of = [&](int step) {
    const bool is_left = step < left_steps;
    const int activations = is_left ? left.activations : right.activations;
    return activations < 0 ? step % 2 * kSampleBuffer
                           : activations + (is_left ? step : step - left_steps) * kDepth * kPitch;
  };

  float4 next[kStaged] = {};
  fetch_weights(0);
  fetch_inputs(0, next);
  store_inputs(0, next);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    __pipeline_wait_prior(0);
    __syncthreads();  // this step's inputs are here, and the buffers of the step before are free
    if (step + 1 < steps) {
      fetch_weights(step + 1);
      fetch_inputs(step + 1, next);
    }
    const float* samples = shared + samples_of(step) + part.sample;
    const float* columns = shared + kStagedWeights + step % 2 * kWeightBuffer + part.output;
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      float a[kSamples], b[kColumns];
#pragma unroll
      for (int i = 0; i < kSamples; i += 4)
        *reinterpret_cast<float4*>(a + i) = *reinterpret_cast<const float4*>(samples + k * kPitch + 4 * i);
#pragma unroll
      for (int j = 0; j < kColumns; j += 4)
        *reinterpret_cast<float4*>(b + j) = *reinterpret_cast<const float4*>(columns + k * kTile + 8 * j);
#pragma unroll
      for (int i = 0; i < kSamples; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) sums[i][j] += a[i] * b[j];
    }
    if (step + 1 < steps) store_inputs(step + 1, next);
  }
  __syncthreads();
}

__device__ inline void store_four(float* to, float a, float b, float c, float d) {
  *reinterpret_cast<float4*>(to) = make_float4(a, b, c, d);
}

// A block's pass over its tile; `recon` and `divergences` gather this thread's share of the losses.
struct TilePass {
  const Shape& s;
  const Network& net;
  const float* noise;
  const float* packed;
  float* shared;
  int first, valid;
  float recon = 0.0f, divergences = 0.0f;

  enum Layer { kEncoder, kLatent, kDecoder, kOutput };

  __device__ int hidden() const { return kActivations; }
  __device__ int latent() const { return kActivations + rounded(s.hidden, kDepth) * kPitch; }

  __device__ Source rows_of(const float* tensor, int width) const {
    return {-1, tensor + static_cast<size_t>(first) * width, width};
  }

  // One loop over the layers, so that there is one copy of the products in the instruction cache.
  __device__ void run() {
    const Panels all = panels(s);
#pragma unroll 1
    for (int layer = kEncoder; layer <= kOutput; ++layer) {
      Panel panel = all.encoder;
      Source left = rows_of(net.x, s.input), right = rows_of(net.y, s.label);
      if (layer == kDecoder) {
        panel = all.decoder;
        left = {latent(), nullptr, s.latent};
      } else if (layer != kEncoder) {
        panel = layer == kLatent ? all.latent : all.output;
        left = {hidden(), nullptr, s.hidden};
        right = {-1, nullptr, 0};
      }
#pragma unroll 1
      for (int start = 0; start < panel.width; start += kTile) {
        if (panel.width - start >= kTile) pass<8>(layer, panel, start, left, right);
        else pass<4>(layer, panel, start, left, right);
      }
    }
  }

  template <int kColumns>
  __device__ void pass(int layer, Panel panel, int start, Source left, Source right) {
    const Part<kColumns> part;
    const float* bias = packed + panel.start + start;
    float sums[kSamples][kColumns];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const float value = __ldg(bias + part.output_at(j));
#pragma unroll
      for (int i = 0; i < kSamples; ++i) sums[i][j] = value;
    }
    if (layer == kOutput) subtract_wanted<kColumns>(sums, part, start);
    multiply<kColumns>(sums, left, right, valid, bias + panel.width, panel.width, shared);
    if (layer == kLatent) use_latent<kColumns>(sums, part, start);
    else if (layer == kOutput) use_output<kColumns>(sums, part);
    else use_hidden<kColumns>(sums, part, start);
  }

  // Padding up to a multiple of kDepth is written too: it is zero, and the next layer reads it.
  template <int kColumns>
  __device__ void use_hidden(const float (&sums)[kSamples][kColumns], const Part<kColumns>& part, int start) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int output = start + part.output_at(j);
      if (output >= rounded(s.hidden, kDepth)) continue;
      float* to = shared + hidden() + output * kPitch + part.sample;
#pragma unroll
      for (int i = 0; i < kSamples; i += 4)
        store_four(to + 4 * i, relu(sums[i][j]), relu(sums[i + 1][j]), relu(sums[i + 2][j]),
                   relu(sums[i + 3][j]));
    }
  }

  template <int kColumns>
  __device__ void use_latent(const float (&sums)[kSamples][kColumns], const Part<kColumns>& part, int start) {
#pragma unroll
    for (int j = 0; j < kColumns; j += 2) {
      const int column = (start + part.output_at(j)) / 2;
      if (column >= rounded(s.latent, kDepth)) continue;
      float z[kSamples];
      const float* const drawn = noise + static_cast<size_t>(first) * s.latent + min(column, s.latent - 1);
#pragma unroll
      for (int i = 0; i < kSamples; ++i) z[i] = __ldg(drawn + min(part.sample_at(i), valid - 1) * s.latent);
#pragma unroll
      for (int i = 0; i < kSamples; ++i) {
        const float mu = sums[i][j], logvar = sums[i][j + 1];
        z[i] = mu + expf(0.5f * logvar) * z[i];
        if (column < s.latent && part.sample_at(i) < valid) divergences += divergence(mu, logvar);
      }
      float* to = shared + latent() + column * kPitch + part.sample;
#pragma unroll
      for (int i = 0; i < kSamples; i += 4) store_four(to + 4 * i, z[i], z[i + 1], z[i + 2], z[i + 3]);
    }
  }

  // The last layer starts from bias - x, so that all of x is on its way before the products. Past the last feature
  // both sides are zero.
  template <int kColumns>
  __device__ void subtract_wanted(float (&sums)[kSamples][kColumns], const Part<kColumns>& part, int start) const {
    const float* const x = net.x + static_cast<size_t>(first) * s.input;
    const bool by_four = s.input % 4 == 0 && (reinterpret_cast<size_t>(net.x) & 15) == 0;
#pragma unroll
    for (int j = 0; j < kColumns; j += 4) {
      const int column = start + part.output_at(j);
      if (by_four && column < s.input) {
#pragma unroll
        for (int i = 0; i < kSamples; ++i) {
          const size_t row = min(part.sample_at(i), valid - 1);
          const float4 wanted = __ldg(reinterpret_cast<const float4*>(x + row * s.input + column));
          sums[i][j] -= wanted.x;
          sums[i][j + 1] -= wanted.y;
          sums[i][j + 2] -= wanted.z;
          sums[i][j + 3] -= wanted.w;
        }
      } else if (column < s.input) {
#pragma unroll
        for (int i = 0; i < kSamples; ++i) {
          const size_t row = min(part.sample_at(i), valid - 1);
#pragma unroll
          for (int d = 0; d < 4; ++d)
            if (column + d < s.input) sums[i][j + d] -= __ldg(x + row * s.input + column + d);
        }
      }
    }
  }

  template <int kColumns>
  __device__ void use_output(const float (&sums)[kSamples][kColumns], const Part<kColumns>& part) {
#pragma unroll
    for (int i = 0; i < kSamples; ++i) {
      if (part.sample_at(i) >= valid) continue;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) recon += square(sums[i][j]);
    }
  }
};

__global__ void __launch_bounds__(kTileThreads, 2)
    tile_forward(Shape shape, Network net, const float* packed, const float* noise, Result result) {
  extern __shared__ float4 shared_memory[];
  const int first = blockIdx.x * kTile;
  TilePass pass{shape, net,   noise, packed, reinterpret_cast<float*>(shared_memory),
                first, min(kTile, shape.batch - first)};
  pass.run();
  finish<kTileThreads>(result, pass.recon, pass.divergences, shape.batch);
}
"""

HOST = r"""
// What `randn` of so many elements does to the generator, and how many threads it starts, on this device.
struct Scheme {
  unsigned threads;
  uint64_t increment;
};

Scheme scheme_of(const cudaDeviceProp& device, int64_t elements) {
  constexpr int64_t kBlock = 256, kUnroll = 4;
  const int64_t most =
      static_cast<int64_t>(device.multiProcessorCount) * (device.maxThreadsPerMultiProcessor / kBlock);
  const int64_t threads = std::min(most, (elements + kBlock - 1) / kBlock) * kBlock;
  return {static_cast<unsigned>(threads),
          static_cast<uint64_t>((elements - 1) / (threads * kUnroll) + 1) * 4};
}

Draws take_draws(const at::Generator& generator, const Scheme& scheme) {
  auto* cuda_generator = at::check_generator<at::CUDAGeneratorImpl>(generator);
  std::lock_guard<std::mutex> lock(cuda_generator->mutex_);
  return {cuda_generator->philox_cuda_state(scheme.increment), scheme.threads};
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status;
  C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

at::Tensor floats(at::IntArrayRef sizes, const at::Device& device) {
  return at::Tensor(at::detail::empty_cuda(sizes, at::kFloat, device, std::nullopt));
}

// What one device needs once: a look at its limits and its random numbers, and zeroed tickets.
class Device {
 public:
  static Device& current() {
    // Never destroyed: tensors that outlive the CUDA context cannot be freed.
    static auto& devices = *new std::map<int, Device*>();
    static std::mutex mutex;
    std::lock_guard<std::mutex> lock(mutex);
    Device*& device = devices[c10::cuda::current_device()];
    if (device == nullptr) device = new Device();
    return *device;
  }

  // A ticket for one launch. Launches of one stream run one after the other and share one; a captured launch
  // may be replayed anywhere and gets its own. When they run out, a fresh zero costs one more launch.
  unsigned* ticket(cudaStream_t stream, at::Tensor& fresh) {
    const bool capturing = is_capturing(stream);
    std::lock_guard<std::mutex> lock(mutex_);
    const auto known = streams_.find(stream);
    if (!capturing && known != streams_.end()) return tickets_ + known->second;
    if (used_ == kTickets) {
      fresh = at::zeros({1}, at::TensorOptions().dtype(at::kInt).device(at::kCUDA));
      return reinterpret_cast<unsigned*>(fresh.data_ptr<int>());
    }
    if (!capturing) streams_[stream] = used_;
    return tickets_ + used_++;
  }

  Draws take(int64_t elements) const {
    return take_draws(at::cuda::detail::getDefaultCUDAGenerator(index_), scheme_of(properties_, elements));
  }


  // What `finish` keeps is not part of the dynamic shared memory.
  size_t shared_bytes() const { return properties_.sharedMemPerBlockOptin - 1024; }
  bool fits(size_t bytes) const { return bytes <= shared_bytes(); }

 private:
  static constexpr int kTickets = 4096;

  Device() : index_(c10::cuda::current_device()) {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    TORCH_CHECK(!is_capturing(stream),
                "the first forward on a device checks its draws and cannot be captured; run one before");
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties_, index_));
    TORCH_CHECK(properties_.major >= 9, "clusters of blocks need compute capability 9.0; ", properties_.name,
                " has ", properties_.major, ".", properties_.minor);
    for (const void* kernel :
         {reinterpret_cast<const void*>(cluster_forward<true>),
          reinterpret_cast<const void*>(cluster_forward<false>), reinterpret_cast<const void*>(tile_forward)})
      C10_CUDA_CHECK(
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes()));
    check_scheme(stream);
    const at::Tensor zeros =
        at::zeros({kTickets}, at::TensorOptions().dtype(at::kInt).device(at::kCUDA, index_));
    C10_CUDA_CHECK(cudaStreamSynchronize(stream));
    tickets_ = reinterpret_cast<unsigned*>((new at::Tensor(zeros))->data_ptr<int>());
  }

  // Fail unless `normal` draws what this torch draws, with one number a thread and with several.
  void check_scheme(cudaStream_t stream) const {
    const at::Device on(at::kCUDA, index_);
    const int64_t all_threads = scheme_of(properties_, std::numeric_limits<int32_t>::max()).threads;
    for (const int64_t elements : {int64_t{5}, int64_t{4096}, 5 * all_threads + 3}) {
      at::Generator theirs = at::cuda::detail::createCUDAGenerator(index_);
      theirs.set_current_seed(0x123456789abcdefULL);
      theirs.set_offset(20);
      const at::Generator ours = theirs.clone();
      const at::Tensor expected = floats({elements}, on).normal_(0, 1, theirs);
      const at::Tensor drawn = floats({elements}, on);
      const Scheme scheme = scheme_of(properties_, elements);
      draw_normals<<<(elements + 255) / 256, 256, 0, stream>>>(take_draws(ours, scheme),
                                                               drawn.data_ptr<float>(), elements);
      C10_CUDA_KERNEL_LAUNCH_CHECK();
      TORCH_CHECK(
          ours.get_offset() == theirs.get_offset() && (drawn - expected).abs().max().item<float>() <= 1e-5f,
          "torch ", TORCH_VERSION,
          " draws normal numbers by another scheme than this kernel knows: ", elements,
          " numbers differ from torch.randn; use another candidate with this version");
    }
  }

  const c10::DeviceIndex index_;
  cudaDeviceProp properties_;
  std::mutex mutex_;
  std::map<cudaStream_t, int> streams_;
  unsigned* tickets_;
  int used_ = 0;
};

template <bool kStaged>
void start_clusters(const Shape& shape, const Network& net, const Draws& draws, const Result& result,
                    int blocks, size_t bytes, cudaStream_t stream) {
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = kCluster;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  C10_CUDA_CHECK(cudaLaunchKernelEx(&config, cluster_forward<kStaged>, shape, net, draws, result));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

const float* checked(const at::Tensor& tensor, at::IntArrayRef sizes, const at::Device& device,
                     const char* name) {
  TORCH_CHECK(tensor.device() == device && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() &&
                  tensor.sizes() == sizes,
              name, " must be contiguous float32 ", sizes, " on ", device, ", got ", tensor.scalar_type(),
              " ", tensor.sizes(), " on ", tensor.device());
  return tensor.const_data_ptr<float>();
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> cvae_forward(const at::Tensor& x_in, const at::Tensor& y_in,
                                                            const std::vector<at::Tensor>& weights) {
  TORCH_CHECK(x_in.is_cuda() && x_in.dim() == 2 && y_in.dim() == 2 && x_in.size(0) > 0,
              "x and y must be CUDA matrices of at least one sample, got ", x_in.sizes(), " on ",
              x_in.device(), " and ", y_in.sizes());
  TORCH_CHECK(weights.size() == 10, "expected 5 weights and 5 biases, got ", weights.size(), " tensors");
  const at::Device on = x_in.device();
  const c10::cuda::CUDAGuard guard(on);
  const int64_t batch = x_in.size(0), input = x_in.size(1), label = y_in.size(1);
  const int64_t hidden = weights[0].size(0), latent = weights[2].size(0);
  TORCH_CHECK(batch * std::max(input, latent) < std::numeric_limits<int32_t>::max(), "a batch of ", batch,
              " is too large");
  const at::Tensor x = x_in.contiguous(), y = y_in.contiguous();
  const Network net = {
      checked(x, {batch, input}, on, "x"),
      checked(y, {batch, label}, on, "y"),
      checked(weights[0], {hidden, input + label}, on, "enc.0.weight"),
      checked(weights[1], {hidden}, on, "enc.0.bias"),
      checked(weights[2], {latent, hidden}, on, "enc_mu.weight"),
      checked(weights[3], {latent}, on, "enc_mu.bias"),
      checked(weights[4], {latent, hidden}, on, "enc_logvar.weight"),
      checked(weights[5], {latent}, on, "enc_logvar.bias"),
      checked(weights[6], {hidden, latent + label}, on, "dec.0.weight"),
      checked(weights[7], {hidden}, on, "dec.0.bias"),
      checked(weights[8], {input, hidden}, on, "dec.2.weight"),
      checked(weights[9], {input}, on, "dec.2.bias"),
  };
  const Shape shape = {static_cast<int>(batch), static_cast<int>(input), static_cast<int>(label),
                       static_cast<int>(hidden), static_cast<int>(latent)};

  Device& device = Device::current();
  const size_t tile_bytes = tile_floats(shape) * sizeof(float);
  const size_t staged_bytes = places(shape, true).end * sizeof(float);
  const size_t plain_bytes = places(shape, false).end * sizeof(float);
  // On an H200 clusters take 0.2 ms for 4096 samples; a wave of tiles took half of the 0.3 ms of 65536.
  const bool tiled = device.fits(tile_bytes) && batch >= 32 * kTile;
  TORCH_CHECK(tiled || device.fits(plain_bytes), "the activations of these layers take ", plain_bytes,
              " bytes of shared memory, and ", device.shared_bytes(), " are there");
  const int blocks = tiled ? (batch + kTile - 1) / kTile : (batch + kGroup - 1) / kGroup * kCluster;

  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  at::Tensor loss = floats({}, on), recon = floats({}, on), kl = floats({}, on);
  at::Tensor fresh_ticket;
  const at::Tensor partial = floats({4 * blocks}, on);  // two doubles a block
  const Result result = {reinterpret_cast<double2*>(partial.data_ptr<float>()),
                         device.ticket(stream, fresh_ticket), loss.data_ptr<float>(), recon.data_ptr<float>(),
                         kl.data_ptr<float>()};
  const Draws draws = device.take(batch * latent);

  if (tiled) {
    const at::Tensor packed = floats({panels(shape).end}, on), noise = floats({batch * latent}, on);
    pack<<<kPackGrid, kThreads, 0, stream>>>(shape, net, draws, packed.data_ptr<float>(), noise.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    tile_forward<<<blocks, kTileThreads, tile_bytes, stream>>>(shape, net, packed.const_data_ptr<float>(),
                                                               noise.const_data_ptr<float>(), result);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  } else if (device.fits(staged_bytes)) {
    start_clusters<true>(shape, net, draws, result, blocks, staged_bytes, stream);
  } else {
    start_clusters<false>(shape, net, draws, result, blocks, plain_bytes, stream);
  }
  return {loss, recon, kl};
}
"""

ops = load_inline(
    name="cvae_fused",
    cpp_sources=CPP_SOURCE,
    cuda_sources=HEADERS + KERNELS + HOST,
    functions=["cvae_forward"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


class ModelNew(nn.Module):
    """The reference's layers and parameter names; one call into the extension does the forward."""

    def __init__(self, input_dim: int, label_dim: int, hidden_dim: int, latent_dim: int) -> None:
        super().__init__()
        self.enc = nn.Sequential(
            nn.Linear(input_dim + label_dim, hidden_dim),
            nn.ReLU(),
        )
        self.enc_mu = nn.Linear(hidden_dim, latent_dim)
        self.enc_logvar = nn.Linear(hidden_dim, latent_dim)
        self.dec = nn.Sequential(
            nn.Linear(latent_dim + label_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, input_dim),
        )

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return loss, reconstruction loss and KL divergence as scalars."""
        return ops.cvae_forward(x, y, self._weights())

    def _weights(self) -> list[torch.Tensor]:
        """List weight and bias of the five layers, past nn.Module's lookups, as dear as a launch."""
        modules = self._modules
        encoder, decoder = modules["enc"]._modules, modules["dec"]._modules
        layers = (encoder["0"], modules["enc_mu"], modules["enc_logvar"], decoder["0"], decoder["2"])
        return [layer._parameters[name] for layer in layers for name in ("weight", "bias")]
