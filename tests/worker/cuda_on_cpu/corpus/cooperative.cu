#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_pipeline_primitives.h>

#include "corpus.h"

namespace cg = cooperative_groups;

__global__ void block_groups(const float* x, float* y, int n) {
  cg::thread_block block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  __shared__ float sums[32];
  float v = 0.0f;
  for (int i = block.thread_rank(); i < n; i += block.size()) v += x[blockIdx.x * n + i];
  v = cg::reduce(warp, v, cg::plus<float>());
  if (warp.thread_rank() == 0) sums[warp.meta_group_rank()] = v;
  block.sync();
  if (block.thread_rank() == 0) {
    float total = 0.0f;
    for (int w = 0; w < warp.meta_group_size(); w++) total += sums[w];
    y[blockIdx.x] = total;
  }
}
API groups_block_sum(const float* x, float* y, int rows, int n) {
  return finished([&] { block_groups<<<rows, 128>>>(x, y, n); });
}

template <int kTile>
__global__ void tile_softmax(const float* x, float* y, int rows, int n) {
  auto tile = cg::tiled_partition<kTile>(cg::this_thread_block());
  const int row = blockIdx.x * (blockDim.x / kTile) + threadIdx.x / kTile;
  if (row >= rows) return;
  float top = -INFINITY, sum = 0.0f;
  for (int i = tile.thread_rank(); i < n; i += kTile) top = fmaxf(top, x[row * n + i]);
  for (int delta = kTile / 2; delta > 0; delta /= 2) top = fmaxf(top, tile.shfl_xor(top, delta));
  for (int i = tile.thread_rank(); i < n; i += kTile) sum += expf(x[row * n + i] - top);
  for (int delta = kTile / 2; delta > 0; delta /= 2) sum += tile.shfl_down(sum, delta);
  sum = tile.shfl(sum, 0);
  for (int i = tile.thread_rank(); i < n; i += kTile) y[row * n + i] = expf(x[row * n + i] - top) / sum;
}
API groups_tile_softmax(const float* x, float* y, int rows, int n) {
  return finished([&] { tile_softmax<8><<<(rows + 7) / 8, 64>>>(x, y, rows, n); });
}

__global__ void two_phases(const float* x, float* partial, float* y, int n) {
  cg::grid_group grid = cg::this_grid();
  for (int i = grid.thread_rank(); i < n; i += grid.size()) partial[i] = x[i] * x[i];
  grid.sync();
  for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] = partial[i] + partial[n - 1 - i];
}
API grid_two_phases(const float* x, float* partial, float* y, int n) {
  return finished([&] {
    void* arguments[] = {&x, &partial, &y, &n};
    cudaLaunchCooperativeKernel((void*)two_phases, dim3(6), dim3(64), arguments, 0, nullptr);
  });
}

// One warp loads the next tile while the others work on the present one.
__global__ void specialised(const float* x, float* y, int tiles) {
  __shared__ float buffers[2][96];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  auto load = [&](int tile) {
    for (int i = lane; i < 96; i += 32) buffers[tile & 1][i] = x[tile * 96 + i];
  };
  if (warp == 0) load(0);
  __syncthreads();
  float sum = 0.0f;
  for (int tile = 0; tile < tiles; tile++) {
    if (warp == 0) {
      if (tile + 1 < tiles) load(tile + 1);
    } else {
      sum += buffers[tile & 1][(warp - 1) * 32 + lane];
    }
    __syncthreads();
  }
  if (warp > 0) y[(warp - 1) * 32 + lane] = sum;
}
API warp_specialised(const float* x, float* y, int tiles) {
  return finished([&] { specialised<<<1, 128>>>(x, y, tiles); });
}

__global__ void aggregated(const int* x, int* count, int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n || x[i] < 0) return;
  cg::coalesced_group active = cg::coalesced_threads();
  int start = 0;
  if (active.thread_rank() == 0) start = atomicAdd(count, active.size());
  start = active.shfl(start, 0);
  out[start + active.thread_rank()] = x[i];
}
API groups_aggregated(const int* x, int* count, int* out, int n) {
  return finished([&] {
    cudaMemset(count, 0, sizeof(int));
    aggregated<<<(n + 63) / 64, 64>>>(x, count, out, n);
  });
}

__device__ int next_item;

__global__ void queue(const int* x, int* y, int n) {
  __shared__ int item;
  for (;;) {
    if (threadIdx.x == 0) item = atomicAdd(&next_item, 1);
    __syncthreads();
    const int mine = item;
    __syncthreads();
    if (mine >= n) return;
    if (threadIdx.x == 0) y[mine] = 2 * x[mine];
  }
}
API persistent_queue(const int* x, int* y, int n) {
  return finished([&] {
    const int zero = 0;
    cudaMemcpyToSymbol(next_item, &zero, sizeof zero, 0, cudaMemcpyHostToDevice);
    queue<<<3, 32>>>(x, y, n);
  });
}

__global__ void piped(const float* x, float* y, int stages) {
  __shared__ alignas(16) float buffers[2][128];
  auto fetch = [&](int stage) {
    __pipeline_memcpy_async(&buffers[stage & 1][threadIdx.x * 4], x + stage * 128 + threadIdx.x * 4, sizeof(float4));
    __pipeline_commit();
  };
  fetch(0);
  float sum = 0.0f;
  for (int stage = 0; stage < stages; stage++) {
    if (stage + 1 < stages) fetch(stage + 1);
    __pipeline_wait_prior(stage + 1 < stages ? 1 : 0);
    __syncthreads();
    for (int i = 0; i < 4; i++) sum += buffers[stage & 1][i * 32 + threadIdx.x];
    __syncthreads();
  }
  y[threadIdx.x] = sum;
}
API pipelined_copies(const float* x, float* y, int stages) {
  return finished([&] { piped<<<1, 32>>>(x, y, stages); });
}

// Blocks of a cluster add up through each other's shared memory, once all have begun.
template <bool kAllHaveBegun>
__global__ void clustered(const float* x, float* y, int n) {
  cg::cluster_group cluster = cg::this_cluster();
  __shared__ float sums[4];
  float v = 0.0f;
  if (kAllHaveBegun) cluster.sync();
  for (int i = cluster.thread_rank(); i < n; i += cluster.num_threads()) v += x[i];
  for (int bit = 16; bit > 0; bit /= 2) v += __shfl_xor_sync(kAll, v, bit);
  if (threadIdx.x == 0) *cluster.map_shared_rank(&sums[cluster.block_rank()], 0) = v;  // fault: early_cluster
  cluster.sync();
  if (cluster.thread_rank() == 0) *y = sums[0] + sums[1] + sums[2] + sums[3];
}
template <bool kAllHaveBegun>
int summed_by_cluster(const float* x, float* y, int n) {
  return finished([&] {
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = 4;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(4);
    config.blockDim = dim3(32);
    config.attrs = &attribute;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, clustered<kAllHaveBegun>, x, y, n);
  });
}
API cluster_sum(const float* x, float* y, int n) { return summed_by_cluster<true>(x, y, n); }
API fault_early_cluster(const float* x, float* y, int n) { return summed_by_cluster<false>(x, y, n); }
