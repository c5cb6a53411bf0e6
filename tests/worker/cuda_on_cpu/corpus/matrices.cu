#include "corpus.h"

#define TILE 16
#define CEIL(a, b) (((a) + (b)-1) / (b))

__global__ void tiled(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float as[TILE][TILE], bs[TILE][TILE];
  const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.0f;
  for (int t = 0; t < CEIL(k, TILE); t++) {
    const int ka = t * TILE + threadIdx.x, kb = t * TILE + threadIdx.y;
    as[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[row * k + ka] : 0.0f;
    bs[threadIdx.y][threadIdx.x] = kb < k && col < n ? b[kb * n + col] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; i++) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = sum;
}
API matmul_tiled(const float* a, const float* b, float* c, int m, int n, int k) {
  return finished([&] { tiled<<<dim3(CEIL(n, TILE), CEIL(m, TILE)), dim3(TILE, TILE)>>>(a, b, c, m, n, k); });
}

// Each thread computes 4 by 4 outputs from registers.
template <int kSide, int kDepth, int kEach>
__global__ void register_tiled(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n, int k) {
  constexpr int kThreads = kSide / kEach * (kSide / kEach);
  __shared__ float as[kDepth][kSide + 4], bs[kDepth][kSide];
  const int tid = threadIdx.x, tx = tid % (kSide / kEach), ty = tid / (kSide / kEach);
  float sums[kEach][kEach] = {};
  for (int k0 = 0; k0 < k; k0 += kDepth) {
    for (int i = tid; i < kSide * kDepth; i += kThreads) {
      as[i % kDepth][i / kDepth] = a[(blockIdx.y * kSide + i / kDepth) * k + k0 + i % kDepth];
      bs[i / kSide][i % kSide] = b[(k0 + i / kSide) * n + blockIdx.x * kSide + i % kSide];
    }
    __syncthreads();
    for (int d = 0; d < kDepth; d++) {
      float x[kEach], y[kEach];
      for (int i = 0; i < kEach; i++) x[i] = as[d][ty * kEach + i], y[i] = bs[d][tx * kEach + i];
      for (int i = 0; i < kEach; i++)
        for (int j = 0; j < kEach; j++) sums[i][j] += x[i] * y[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < kEach; i++)
    for (int j = 0; j < kEach; j++) c[(blockIdx.y * kSide + ty * kEach + i) * n + blockIdx.x * kSide + tx * kEach + j] = sums[i][j];
}
API matmul_registers(const float* a, const float* b, float* c, int m, int n, int k) {
  return finished([&] { register_tiled<32, 8, 4><<<dim3(n / 32, m / 32), 64>>>(a, b, c, n, k); });
}

__global__ void vectorised(const float* a, const float* b, float* c, int n, int k) {
  __shared__ alignas(16) float as[8][16];
  const int row = blockIdx.y * 8 + threadIdx.y;
  float4 sum = make_float4(0, 0, 0, 0);
  for (int k0 = 0; k0 < k; k0 += 16) {
    if (threadIdx.x < 4)
      *reinterpret_cast<float4*>(&as[threadIdx.y][threadIdx.x * 4]) = *reinterpret_cast<const float4*>(a + row * k + k0 + threadIdx.x * 4);
    __syncthreads();
    for (int i = 0; i < 16; i++) {
      const float4 v = reinterpret_cast<const float4*>(b + (k0 + i) * n)[blockIdx.x * blockDim.x + threadIdx.x];
      const float w = as[threadIdx.y][i];
      sum.x += w * v.x, sum.y += w * v.y, sum.z += w * v.z, sum.w += w * v.w;
    }
    __syncthreads();
  }
  reinterpret_cast<float4*>(c + row * n)[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
API matmul_float4(const float* a, const float* b, float* c, int m, int n, int k) {
  return finished([&] { vectorised<<<dim3(n / 32, m / 8), dim3(8, 8)>>>(a, b, c, n, k); });
}

__global__ void matvec(const float* w, const float* x, const float* bias, float* y, int outputs, int inputs) {
  const int output = blockIdx.x * blockDim.y + threadIdx.y;
  if (output >= outputs) return;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < inputs; i += 32) sum += w[output * inputs + i] * x[blockIdx.y * inputs + i];
  for (int delta = 16; delta; delta >>= 1) sum += __shfl_down_sync(kAll, sum, delta);
  if (threadIdx.x == 0) y[blockIdx.y * outputs + output] = fmaxf(sum + bias[output], 0.0f);
}
API linear_relu(const float* w, const float* x, const float* bias, float* y, int batch, int outputs, int inputs) {
  return finished([&] { matvec<<<dim3(CEIL(outputs, 4), batch), dim3(32, 4)>>>(w, x, bias, y, outputs, inputs); });
}

template <typename T>
__global__ void transpose_kernel(const T* x, T* y, int rows, int cols) {
  __shared__ T tile[32][33];
  int col = blockIdx.x * 32 + threadIdx.x;
  for (int i = threadIdx.y; i < 32; i += 8) {
    const int row = blockIdx.y * 32 + i;
    if (row < rows && col < cols) tile[i][threadIdx.x] = x[row * cols + col];
  }
  __syncthreads();
  col = blockIdx.y * 32 + threadIdx.x;
  for (int i = threadIdx.y; i < 32; i += 8) {
    const int row = blockIdx.x * 32 + i;
    if (row < cols && col < rows) y[row * rows + col] = tile[threadIdx.x][i];
  }
}
API transpose_padded(const float* x, float* y, int rows, int cols) {
  return finished([&] { transpose_kernel<<<dim3(CEIL(cols, 32), CEIL(rows, 32)), dim3(32, 8)>>>(x, y, rows, cols); });
}

__global__ void permute(const int* x, int* y, int a, int b, int c) {
  const int i = blockIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y, k = blockIdx.z * blockDim.x + threadIdx.x;
  if (j < b && k < c) y[(k * b + j) * a + i] = x[(i * b + j) * c + k];
}
API permute_3d(const int* x, int* y, int a, int b, int c) {
  return finished([&] { permute<<<dim3(a, CEIL(b, 4), CEIL(c, 8)), dim3(8, 4)>>>(x, y, a, b, c); });
}

__global__ void conv1d_kernel(const float* x, const float* w, float* y, int n) {
  __shared__ float line[128 + 4];
  const int i = blockIdx.x * 128 + threadIdx.x;
  line[threadIdx.x + 2] = i < n ? x[i] : 0.0f;
  if (threadIdx.x < 2) {
    line[threadIdx.x] = i >= 2 ? x[i - 2] : 0.0f;
    line[threadIdx.x + 130] = i + 128 < n ? x[i + 128] : 0.0f;
  }
  __syncthreads();
  if (i >= n) return;
  float sum = 0.0f;
  for (int t = 0; t < 5; t++) sum += w[t] * line[threadIdx.x + t];
  y[i] = sum;
}
API conv1d_halo(const float* x, const float* w, float* y, int n) {
  return finished([&] { conv1d_kernel<<<CEIL(n, 128), 128>>>(x, w, y, n); });
}

__constant__ float filter[3 * 3];

__global__ void conv2d_kernel(const float* x, float* y, int height, int width) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= height || col >= width) return;
  float sum = 0.0f;
#pragma unroll
  for (int i = -1; i <= 1; i++)
#pragma unroll
    for (int j = -1; j <= 1; j++)
      if (row + i >= 0 && row + i < height && col + j >= 0 && col + j < width)
        sum += filter[(i + 1) * 3 + j + 1] * x[(blockIdx.z * height + row + i) * width + col + j];
  y[(blockIdx.z * height + row) * width + col] = sum;
}
API conv2d_constant(const float* x, const float* w, float* y, int images, int height, int width) {
  return finished([&] {
    cudaMemcpyToSymbol(filter, w, sizeof(filter), 0, cudaMemcpyDefault);
    conv2d_kernel<<<dim3(CEIL(width, 16), CEIL(height, 4), images), dim3(16, 4)>>>(x, y, height, width);
  });
}

// One query a block, keys in tiles, softmax as they come.
__global__ void attention_kernel(const float* q, const float* k, const float* v, float* out, int keys, int dim) {
  extern __shared__ float shared[];
  float* query = shared;
  float* scores = shared + dim;
  const int tid = threadIdx.x;
  for (int d = tid; d < dim; d += blockDim.x) query[d] = q[blockIdx.x * dim + d];
  float top = -INFINITY, sum = 0.0f, result = 0.0f;
  for (int first = 0; first < keys; first += blockDim.x) {
    __syncthreads();
    float score = -INFINITY;
    if (first + tid < keys) {
      score = 0.0f;
      for (int d = 0; d < dim; d++) score += query[d] * k[(first + tid) * dim + d];
      score *= rsqrtf(static_cast<float>(dim));
    }
    scores[tid] = score;
    __syncthreads();
    float higher = top;
    for (int j = 0; j < blockDim.x; j++) higher = fmaxf(higher, scores[j]);
    const float keep = expf(top - higher);
    sum *= keep, result *= keep, top = higher;
    for (int j = 0; j < min(static_cast<int>(blockDim.x), keys - first); j++) {
      const float weight = expf(scores[j] - top);
      sum += weight;
      if (tid < dim) result += weight * v[(first + j) * dim + tid];
    }
  }
  if (tid < dim) out[blockIdx.x * dim + tid] = result / sum;
}
API attention_online(const float* q, const float* k, const float* v, float* out, int queries, int keys, int dim) {
  return finished([&] { attention_kernel<<<queries, 64, (dim + 64) * sizeof(float)>>>(q, k, v, out, keys, dim); });
}
