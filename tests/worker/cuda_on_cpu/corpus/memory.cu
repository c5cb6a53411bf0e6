#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "corpus.h"

__global__ void histogram_kernel(const unsigned char* x, unsigned* counts, int n) {
  __shared__ unsigned local[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    if (local[i]) atomicAdd(counts + i, local[i]);
}
API histogram_shared(const unsigned char* x, unsigned* counts, int n) {
  return finished([&] {
    cudaMemset(counts, 0, 256 * sizeof(unsigned));
    histogram_kernel<<<4, 128>>>(x, counts, n);
  });
}

__global__ void bitonic(float* x) {
  extern __shared__ float keys[];
  const int i = threadIdx.x;
  keys[i] = x[blockIdx.x * blockDim.x + i];
  __syncthreads();
  for (int size = 2; size <= blockDim.x; size <<= 1) {
    for (int stride = size >> 1; stride > 0; stride >>= 1) {
      const int other = i ^ stride;
      if (other > i) {
        const bool up = (i & size) == 0;
        const float a = keys[i], b = keys[other];
        if (a > b == up) keys[i] = b, keys[other] = a;
      }
      __syncthreads();
    }
  }
  x[blockIdx.x * blockDim.x + i] = keys[i];
}
API sort_bitonic(float* x, int rows) {
  return finished([&] { bitonic<<<rows, 256, 256 * sizeof(float)>>>(x); });
}

__global__ void odd_even(int* x, int n) {
  __shared__ int keys[64];
  const int i = threadIdx.x;
  keys[i] = x[i];
  for (int round = 0; round < n; round++) {
    __syncthreads();
    const int left = 2 * i + (round & 1);
    if (left + 1 < n && keys[left] > keys[left + 1]) {
      const int swap = keys[left];
      keys[left] = keys[left + 1];
      keys[left + 1] = swap;
    }
  }
  __syncthreads();
  x[i] = keys[i];
}
API sort_odd_even(int* x) {
  return finished([&] { odd_even<<<1, 64>>>(x, 64); });
}

__global__ void stencil(const float* x, float* y, int height, int width) {
  __shared__ float tile[10][34];
  const int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
  auto at = [&](int r, int c) { return x[min(max(r, 0), height - 1) * width + min(max(c, 0), width - 1)]; };
  tile[threadIdx.y + 1][threadIdx.x + 1] = at(row, col);
  if (threadIdx.y == 0) tile[0][threadIdx.x + 1] = at(row - 1, col);
  if (threadIdx.y == 7) tile[9][threadIdx.x + 1] = at(row + 1, col);
  if (threadIdx.x == 0) tile[threadIdx.y + 1][0] = at(row, col - 1);
  if (threadIdx.x == 31) tile[threadIdx.y + 1][33] = at(row, col + 1);
  __syncthreads();
  if (row < height && col < width) {
    const int r = threadIdx.y + 1, c = threadIdx.x + 1;
    y[row * width + col] = 0.2f * (tile[r][c] + tile[r - 1][c] + tile[r + 1][c] + tile[r][c - 1] + tile[r][c + 1]);
  }
}
API stencil_2d(const float* x, float* y, int height, int width) {
  return finished([&] { stencil<<<dim3((width + 31) / 32, (height + 7) / 8), dim3(32, 8)>>>(x, y, height, width); });
}

__global__ void gather(const float* table, const int* rows, float* y, int dim) {
  for (int d = threadIdx.x; d < dim; d += blockDim.x) y[blockIdx.x * dim + d] = table[rows[blockIdx.x] * dim + d];
}
API gather_rows(const float* table, const int* rows, float* y, int n, int dim) {
  return finished([&] { gather<<<n, 32>>>(table, rows, y, dim); });
}

__global__ void scatter(const float* x, const int* rows, float* sums, int* counts, int dim) {
  if (threadIdx.x == 0) atomicAdd(&counts[rows[blockIdx.x]], 1);
  for (int d = threadIdx.x; d < dim; d += blockDim.x) atomicAdd(&sums[rows[blockIdx.x] * dim + d], x[blockIdx.x * dim + d]);
}
API scatter_add(const float* x, const int* rows, float* sums, int* counts, int n, int dim, int buckets) {
  return finished([&] {
    cudaMemset(sums, 0, buckets * dim * sizeof(float));
    cudaMemset(counts, 0, buckets * sizeof(int));
    scatter<<<n, 32>>>(x, rows, sums, counts, dim);
  });
}

__global__ void half2_axpy(const __half2* x, const __half2* y, __half2* z, float a, int n2) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n2) z[i] = __hfma2(__float2half2_rn(a), x[i], y[i]);
}
__global__ void half_tail(const __half* x, const __half* y, __half* z, float a, int i) {
  z[i] = __float2half(a * __half2float(x[i]) + __half2float(y[i]));
}
API half_axpy(const void* x, const void* y, void* z, int n) {
  return finished([&] {
    half2_axpy<<<(n / 2 + 63) / 64, 64>>>((const __half2*)x, (const __half2*)y, (__half2*)z, 2.0f, n / 2);
    if (n % 2) half_tail<<<1, 1>>>((const __half*)x, (const __half*)y, (__half*)z, 2.0f, n - 1);
  });
}

__device__ __forceinline__ float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678f)); }
__global__ void bfloat16_gelu_kernel(const __nv_bfloat16* x, __nv_bfloat16* y, int n) {
  __shared__ __nv_bfloat16 staged[64];
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) staged[threadIdx.x] = x[i];
  __syncthreads();
  if (i < n) y[i] = __float2bfloat16(gelu(__bfloat162float(staged[threadIdx.x])));
}
API bfloat16_gelu(const void* x, void* y, int n) {
  return finished([&] { bfloat16_gelu_kernel<<<(n + 63) / 64, 64>>>((const __nv_bfloat16*)x, (__nv_bfloat16*)y, n); });
}

__global__ void pool(const float* x, float* y, int height, int width) {
  const int col = threadIdx.x, row = blockIdx.x;
  if (col >= width / 2) return;
  const float2 upper = reinterpret_cast<const float2*>(x + 2 * row * width)[col];
  const float2 lower = reinterpret_cast<const float2*>(x + (2 * row + 1) * width)[col];
  y[row * (width / 2) + col] = fmaxf(fmaxf(upper.x, upper.y), fmaxf(lower.x, lower.y));
}
API max_pool(const float* x, float* y, int height, int width) {
  return finished([&] { pool<<<height / 2, 64>>>(x, y, height, width); });
}

// One lane of each set with equal keys counts for all of them.
__global__ void count_keys(const int* keys, int* counts, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned here = __ballot_sync(kAll, i < n);
  if (i >= n) return;
  const unsigned same = __match_any_sync(here, keys[i]);
  if (__ffs(same) - 1 == threadIdx.x % 32) atomicAdd(&counts[keys[i]], __popc(same));
}
API count_by_match(const int* keys, int* counts, int n, int distinct) {
  return finished([&] {
    cudaMemset(counts, 0, distinct * sizeof(int));
    count_keys<<<(n + 63) / 64, 64>>>(keys, counts, n);
  });
}

__global__ void locked_sum(const double* x, double* total, int* lock, int n) {
  double mine = 0.0;
  for (int i = threadIdx.x; i < n; i += 4) mine += x[blockIdx.x * n + i];
  for (int turn = 0; turn < 4; turn++) {
    if (turn == threadIdx.x) {
      while (atomicCAS(lock, 0, 1) != 0) {
      }
      __threadfence();
      *total += mine;
      __threadfence();
      atomicExch(lock, 0);
    }
    __syncthreads();
  }
}
API sum_under_lock(const double* x, double* total, int* lock, int rows, int n) {
  return finished([&] {
    cudaMemset(total, 0, sizeof(double));
    cudaMemset(lock, 0, sizeof(int));
    locked_sum<<<rows, 4>>>(x, total, lock, n);
  });
}
