// One fault each, at the line that says so; `either` marks the other end of a race.
#include <cassert>

#include "corpus.h"

__global__ void no_guard(const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = 2.0f * x[i];  // fault: no_guard
}
API fault_no_guard(const float* x, float* y, int n) {
  return finished([&] { no_guard<<<(n + 63) / 64, 64>>>(x, y); });
}

__global__ void before_start(const float* x, float* y, int n) {
  const int i = threadIdx.x;
  if (i < n) y[i] = x[i] - x[i - 1];  // fault: before_start
}
API fault_before_start(const float* x, float* y, int n) {
  return finished([&] { before_start<<<1, 64>>>(x, y, n); });
}

__global__ void small_dynamic(const float* x, float* y, int n) {
  extern __shared__ float row[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) row[i] = x[i];  // fault: small_dynamic
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = row[n - 1 - i];
}
API fault_small_dynamic(const float* x, float* y, int n) {
  return finished([&] { small_dynamic<<<1, 32, n>>>(x, y, n); });
}

__global__ void too_many_components(const float* x, float* y, int n) {
  float local[4];
  for (int k = 0; k < n; k++) local[k] = x[k];  // fault: too_many_components
  for (int k = 0; k < n; k++) y[k] = local[k];
}
API fault_too_many_components(const float* x, float* y, int n) {
  return finished([&] { too_many_components<<<1, 1>>>(x, y, n); });
}

__global__ void part_filled(const float* x, float* y, int n) {
  __shared__ float sums[128];
  if (threadIdx.x < n) sums[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  for (int half = 64; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];  // fault: part_filled
    __syncthreads();
  }
  if (threadIdx.x == 0) *y = sums[0];
}
API fault_part_filled(const float* x, float* y, int n) {
  return finished([&] { part_filled<<<1, 128>>>(x, y, n); });
}

__global__ void never_zeroed(const float* x, float* y, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(y, x[i]);  // fault: never_zeroed
}
API fault_never_zeroed(const float* x, float* y, int n) {
  return finished([&] { never_zeroed<<<1, 64>>>(x, y, n); });
}

__global__ void no_barrier(const float* x, float* y) {
  __shared__ float row[64];
  row[threadIdx.x] = x[threadIdx.x];  // either: no_barrier
  y[threadIdx.x] = row[63 - threadIdx.x];  // fault: no_barrier
}
API fault_no_barrier(const float* x, float* y) {
  return finished([&] { no_barrier<<<1, 64>>>(x, y); });
}

__device__ float block_sum(float v, float* shared) {
  for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_down_sync(kAll, v, offset);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;  // fault: reused_array
  __syncthreads();
  v = shared[0];  // either: reused_array
  for (int warp = 1; warp < blockDim.x / 32; warp++) v += shared[warp];  // either: reused_array
  return v;
}
__global__ void reused_array(const float* x, float* y, int rows) {
  __shared__ float shared[32];
  for (int row = 0; row < rows; row++) {
    const float sum = block_sum(x[row * blockDim.x + threadIdx.x], shared);
    if (threadIdx.x == 0) y[row] = sum;
  }
}
API fault_reused_array(const float* x, float* y, int rows) {
  return finished([&] { reused_array<<<1, 128>>>(x, y, rows); });
}

__global__ void warp_synchronous(const float* x, float* y) {
  __shared__ volatile float sums[64];
  const int i = threadIdx.x;
  sums[i] = x[i];
  __syncthreads();
  if (i < 32) {
    sums[i] += sums[i + 32];  // either: warp_synchronous
    sums[i] += sums[i + 16];  // fault: warp_synchronous
    sums[i] += sums[i + 8];  // either: warp_synchronous
    sums[i] += sums[i + 4];  // either: warp_synchronous
    sums[i] += sums[i + 2];  // either: warp_synchronous
    sums[i] += sums[i + 1];  // either: warp_synchronous
  }
  if (i == 0) *y = sums[0];
}
API fault_warp_synchronous(const float* x, float* y) {
  return finished([&] { warp_synchronous<<<1, 64>>>(x, y); });
}

__global__ void shared_total(const float* x, float* total, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) *total += x[i];  // fault: shared_total
}
API fault_shared_total(const float* x, float* total, int n) {
  return finished([&] {
    cudaMemset(total, 0, sizeof(float));
    shared_total<<<2, 32>>>(x, total, n);
  });
}

__global__ void early_total(const float* x, float* y) {
  __shared__ float total;
  if (threadIdx.x == 0) total = 0.0f;
  __syncthreads();
  atomicAdd(&total, x[threadIdx.x]);  // either: early_total
  y[threadIdx.x] = total;  // fault: early_total
}
API fault_early_total(const float* x, float* y) {
  return finished([&] { early_total<<<1, 64>>>(x, y); });
}

__global__ void in_place(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i + 1 < n) x[i] = 0.5f * (x[i] + x[i + 1]);  // fault: in_place
}
API fault_in_place(float* x, int n) {
  return finished([&] { in_place<<<(n + 31) / 32, 32>>>(x, n); });
}

__global__ void divergent_barriers(const float* x, float* y) {
  __shared__ float row[64];
  row[threadIdx.x] = x[threadIdx.x];
  if (threadIdx.x < 32) {
    __syncthreads();  // either: divergent_barriers
    y[threadIdx.x] = row[threadIdx.x + 32];
  } else {
    __syncthreads();  // fault: divergent_barriers
    y[threadIdx.x] = row[threadIdx.x - 32];
  }
}
API fault_divergent_barriers(const float* x, float* y) {
  return finished([&] { divergent_barriers<<<1, 64>>>(x, y); });
}

__global__ void part_of_a_warp(const float* x, float* y) {
  float v = x[threadIdx.x];
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_down_sync(kAll, v, offset);  // fault: part_of_a_warp
  if (threadIdx.x % 32 == 0) atomicAdd(y, v);
}
API fault_part_of_a_warp(const float* x, float* y) {
  return finished([&] {
    cudaMemset(y, 0, sizeof(float));
    part_of_a_warp<<<1, 48>>>(x, y);
  });
}

__global__ void shuffle_in_branch(const float* x, float* y) {
  float v = x[threadIdx.x];
  if (threadIdx.x % 2 == 0) v = __shfl_sync(kAll, v, threadIdx.x + 1);  // fault: shuffle_in_branch
  __syncthreads();
  y[threadIdx.x] = v;
}
API fault_shuffle_in_branch(const float* x, float* y) {
  return finished([&] { shuffle_in_branch<<<1, 32>>>(x, y); });
}

__global__ void misaligned(const float* x, float* y, int n) {
  const float4 v = *reinterpret_cast<const float4*>(x + n + threadIdx.x * 4);  // fault: misaligned
  y[threadIdx.x] = v.x + v.y + v.z + v.w;
}
API fault_misaligned(const float* x, float* y, int n) {
  return finished([&] { misaligned<<<1, 8>>>(x, y, n); });
}

__global__ void uneven_loop(const float* x, float* y, int n) {
  __shared__ float last;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    if (threadIdx.x == 0) last = x[i];
    __syncthreads();  // either: uneven_loop
    y[i] = last;
    __syncthreads();  // fault: uneven_loop
  }
  __syncthreads();  // either: uneven_loop
}
API fault_uneven_loop(const float* x, float* y, int n) {
  return finished([&] { uneven_loop<<<1, 64>>>(x, y, n); });
}

__global__ void asserted(const float* x, float* y, int n) {
  assert(n % 32 == 0);  // fault: asserted
  y[threadIdx.x] = x[threadIdx.x];
}
API fault_asserted(const float* x, float* y, int n) {
  return finished([&] { asserted<<<1, 32>>>(x, y, n); });
}

// What a device refuses to start is no fault but an error of the launch.
__global__ void copy(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}
API refused_threads(const float* x, float* y, int n) {
  return finished([&] { copy<<<1, 2048>>>(x, y, n); });
}
API refused_shared(const float* x, float* y, int n) {
  return finished([&] { copy<<<1, 32, 64 << 10>>>(x, y, n); });
}
API refused_empty(const float* x, float* y, int) {
  return finished([&] { copy<<<0, 32>>>(x, y, 0); });
}
