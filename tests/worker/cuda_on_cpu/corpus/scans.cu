#include "corpus.h"

__global__ void hillis_steele(const float* x, float* y, int n) {
  extern __shared__ float both[];
  float* from = both;
  float* to = both + blockDim.x;
  const int i = threadIdx.x;
  from[i] = i < n ? x[blockIdx.x * n + i] : 0.0f;
  __syncthreads();
  for (int step = 1; step < blockDim.x; step *= 2) {
    to[i] = i >= step ? from[i] + from[i - step] : from[i];
    __syncthreads();
    float* other = from;
    from = to, to = other;
  }
  if (i < n) y[blockIdx.x * n + i] = from[i];
}
API scan_hillis_steele(const float* x, float* y, int rows, int n) {
  return finished([&] { hillis_steele<<<rows, 128, 2 * 128 * sizeof(float)>>>(x, y, n); });
}

__global__ void blelloch(const float* x, float* y) {
  __shared__ float tree[256];
  const int i = threadIdx.x;
  tree[2 * i] = x[2 * i];
  tree[2 * i + 1] = x[2 * i + 1];
  int step = 1;
  for (int d = 128; d > 0; d >>= 1, step *= 2) {
    __syncthreads();
    if (i < d) tree[step * (2 * i + 2) - 1] += tree[step * (2 * i + 1) - 1];
  }
  if (i == 0) tree[255] = 0.0f;
  for (int d = 1; d < 256; d *= 2) {
    step >>= 1;
    __syncthreads();
    if (i < d) {
      const int left = step * (2 * i + 1) - 1, right = step * (2 * i + 2) - 1;
      const float before = tree[left];
      tree[left] = tree[right];
      tree[right] += before;
    }
  }
  __syncthreads();
  y[2 * i] = tree[2 * i];
  y[2 * i + 1] = tree[2 * i + 1];
}
API scan_blelloch(const float* x, float* y) {
  return finished([&] { blelloch<<<1, 128>>>(x, y); });
}

__device__ int inclusive(int v, int lane) {
  for (int delta = 1; delta < warpSize; delta <<= 1) {
    const int below = __shfl_up_sync(kAll, v, delta);
    if (lane >= delta) v += below;
  }
  return v;
}
__global__ void __launch_bounds__(1024) warp_scans(const int* x, int* y, int n) {
  __shared__ int totals[32];
  const int i = threadIdx.x, lane = i % 32, warp = i / 32;
  int v = inclusive(i < n ? x[i] : 0, lane);
  if (lane == 31) totals[warp] = v;
  __syncthreads();
  if (warp == 0) totals[lane] = inclusive(totals[lane], lane);
  __syncthreads();
  if (warp > 0) v += totals[warp - 1];
  if (i < n) y[i] = v;
}
API scan_shuffle(const int* x, int* y, int n) {
  return finished([&] { warp_scans<<<1, 1024>>>(x, y, n); });
}

// A chain of blocks: each waits for the sum of those before it.
__global__ void chained(const float* x, float* y, volatile float* sums, volatile int* flags, unsigned* order, int n) {
  __shared__ float part[64];
  __shared__ int block;
  __shared__ float before;
  const int i = threadIdx.x;
  if (i == 0) block = atomicAdd(order, 1u);
  __syncthreads();
  const int at = block * 64 + i;
  part[i] = at < n ? x[at] : 0.0f;
  __syncthreads();
  for (int step = 1; step < 64; step *= 2) {
    const float add = i >= step ? part[i - step] : 0.0f;
    __syncthreads();
    part[i] += add;
    __syncthreads();
  }
  if (i == 0) {
    before = 0.0f;
    if (block > 0) {
      while (flags[block - 1] == 0) {
      }
      __threadfence();
      before = sums[block - 1];
    }
    sums[block] = before + part[63];
    __threadfence();
    flags[block] = 1;
  }
  __syncthreads();
  if (at < n) y[at] = before + part[i];
}
API scan_chained(const float* x, float* y, float* sums, int* flags, unsigned* order, int n) {
  return finished([&] {
    const int blocks = (n + 63) / 64;
    cudaMemset(flags, 0, blocks * sizeof(int));
    cudaMemset(order, 0, sizeof(unsigned));
    chained<<<blocks, 64>>>(x, y, sums, flags, order, n);
  });
}

__global__ void compact(const int* x, int* y, int* count, int n) {
  __shared__ int offsets[8];
  const int i = threadIdx.x, lane = i % 32, warp = i / 32;
  const bool keep = i < n && x[i] % 3 == 0;
  const unsigned ballot = __ballot_sync(kAll, keep);
  if (lane == 0) offsets[warp] = __popc(ballot);
  __syncthreads();
  int start = 0;
  for (int w = 0; w < warp; w++) start += offsets[w];
  if (keep) y[start + __popc(ballot & ((1u << lane) - 1))] = x[i];
  if (i == 255) *count = start + __popc(ballot);
}
API scan_compact(const int* x, int* y, int* count, int n) {
  return finished([&] { compact<<<1, 256>>>(x, y, count, n); });
}
