#include "corpus.h"

__device__ inline float warp_sum(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_down_sync(kAll, v, offset);
  return v;
}

template <int kThreads>
__global__ void shared_tree(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float sums[kThreads];
  float v = 0.0f;
  for (int i = threadIdx.x; i < n; i += kThreads) v += x[blockIdx.x * n + i];
  sums[threadIdx.x] = v;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = sums[0];
}
API reduce_shared_tree(const float* x, float* y, int rows, int n) {
  return finished([&] { shared_tree<128><<<rows, 128>>>(x, y, n); });
}

__global__ void shuffled(const float* x, float* y, int n) {
  __shared__ float sums[32];
  float v = 0.0f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) v += x[blockIdx.x * n + i];
  v = warp_sum(v);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  if (lane == 0) sums[warp] = v;
  __syncthreads();
  if (warp == 0) {
    v = lane < blockDim.x / 32 ? sums[lane] : 0.0f;
    v = warp_sum(v);
    if (lane == 0) y[blockIdx.x] = v;
  }
}
API reduce_shuffle(const float* x, float* y, int rows, int n) {
  return finished([&] { shuffled<<<rows, 256>>>(x, y, n); });
}

__global__ void grid_stride(const float* x, float* total, size_t n) {
  float v = 0.0f;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) v += x[i];
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) atomicAdd(total, v);
}
API reduce_grid_stride(const float* x, float* total, int n) {
  return finished([&] {
    cudaMemset(total, 0, sizeof(float));
    grid_stride<<<dim3(5), dim3(96), 0, nullptr>>>(x, total, n);
  });
}

__device__ unsigned ticket = 0;

__global__ void last_block(const float* x, float* partial, float* total, int n) {
  extern __shared__ float scratch[];
  __shared__ bool is_last;
  float v = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
  scratch[threadIdx.x] = v;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) scratch[threadIdx.x] += scratch[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = scratch[0];
    __threadfence();
    is_last = atomicInc(&ticket, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  if (threadIdx.x == 0) {
    float sum = 0.0f;
    for (int b = 0; b < gridDim.x; b++) sum += partial[b];
    *total = sum;
  }
}
API reduce_last_block(const float* x, float* partial, float* total, int n) {
  return finished([&] { last_block<<<7, 64, 64 * sizeof(float)>>>(x, partial, total, n); });
}

template <typename T>
__global__ void butterfly(const T* x, T* y, int n) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  T v = 0;
  for (int i = threadIdx.x; i < n; i += 32) v += x[row * n + i];
  for (int bit = 16; bit; bit /= 2) v += __shfl_xor_sync(kAll, v, bit);
  if (threadIdx.x == 0) y[row] = v;
}
API reduce_warp_per_row(const double* x, double* y, int rows, int n) {
  return finished([&] { butterfly<double><<<rows / 4, dim3(32, 4)>>>(x, y, n); });
}

__global__ void maximum(const float* x, unsigned* best, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  // An order of unsigned integers that is the order of floats.
  const unsigned bits = __float_as_uint(x[i]);
  atomicMax(best, bits & 0x80000000u ? ~bits : bits | 0x80000000u);
}
__global__ void decode(const unsigned* best, float* y) {
  const unsigned bits = *best;
  *y = __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}
API reduce_atomic_max(const float* x, unsigned* best, float* y, int n) {
  return finished([&] {
    cudaMemset(best, 0, sizeof(unsigned));
    maximum<<<(n + 255) / 256, 256>>>(x, best, n);
    decode<<<1, 1>>>(best, y);
  });
}

__global__ void dot4(const float4* a, const float4* b, float* total, int n4) {
  float v = 0.0f;
  for (int i = threadIdx.x; i < n4; i += blockDim.x) {
    const float4 p = __ldg(a + i), q = b[i];
    v = fmaf(p.x, q.x, v), v = fmaf(p.y, q.y, v), v = fmaf(p.z, q.z, v), v = fmaf(p.w, q.w, v);
  }
  v = warp_sum(v);
  __shared__ float sums[4];
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x == 0) *total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
}
API reduce_dot_float4(const float* a, const float* b, float* total, int n) {
  return finished([&] {
    dot4<<<1, 128>>>(reinterpret_cast<const float4*>(a), reinterpret_cast<const float4*>(b), total, n / 4);
  });
}

__global__ void counted(const int* x, int* count, int* sum, int n) {
  const int i = threadIdx.x;
  const int positive = __syncthreads_count(i < n && x[i] > 0);
  const int lanes = __reduce_add_sync(kAll, i < n ? x[i] : 0);
  if (i == 0) *count = positive, *sum = 0;
  __syncthreads();
  if (i % 32 == 0) atomicAdd(sum, lanes);
}
API reduce_counts(const int* x, int* count, int* sum, int n) {
  return finished([&] { counted<<<1, 512>>>(x, count, sum, n); });
}
