#include "corpus.h"
#include <cfloat>

enum class Take { sum, max };

template <Take kTake>
__device__ float block_all(float v) {
  __shared__ float parts[32];
  auto join = [](float a, float b) { return kTake == Take::sum ? a + b : fmaxf(a, b); };
  for (int bit = 16; bit > 0; bit >>= 1) v = join(v, __shfl_xor_sync(kAll, v, bit));
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  v = parts[0];
  for (int warp = 1; warp < blockDim.x / 32; warp++) v = join(v, parts[warp]);
  return v;
}

__global__ void softmax(const float* x, float* y, int n) {
  const float* row = x + blockIdx.x * n;
  float top = -FLT_MAX;
  for (int i = threadIdx.x; i < n; i += blockDim.x) top = fmaxf(top, row[i]);
  top = block_all<Take::max>(top);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += __expf(row[i] - top);
  sum = block_all<Take::sum>(sum);
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = __fdividef(__expf(row[i] - top), sum);
}
API softmax_block(const float* x, float* y, int rows, int n) {
  return finished([&] { softmax<<<rows, 96>>>(x, y, n); });
}

__global__ void online_softmax(const float* x, float* y, int rows, int n) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float top = -INFINITY, sum = 0.0f;
  for (int i = lane; i < n; i += 32) {
    const float v = x[row * n + i], higher = max(top, v);
    sum = sum * exp2f((top - higher) * 1.44269504f) + exp2f((v - higher) * 1.44269504f);
    top = higher;
  }
  for (int bit = 16; bit > 0; bit /= 2) {
    const float other_top = __shfl_xor_sync(kAll, top, bit), other_sum = __shfl_xor_sync(kAll, sum, bit);
    const float higher = max(top, other_top);
    if (higher > -INFINITY) sum = sum * expf(top - higher) + other_sum * expf(other_top - higher);
    top = higher;
  }
  for (int i = lane; i < n; i += 32) y[row * n + i] = expf(x[row * n + i] - top) / sum;
}
API softmax_online(const float* x, float* y, int rows, int n) {
  return finished([&] { online_softmax<<<(rows + 3) / 4, 128>>>(x, y, rows, n); });
}

__global__ void layer_norm_kernel(const float* x, const float* gain, const float* bias, float* y, int n, float eps) {
  extern __shared__ float row[];
  float sum = 0.0f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += row[i] = x[blockIdx.x * n + i];
  const float mean = block_all<Take::sum>(sum) / n;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) squares += (row[i] - mean) * (row[i] - mean);
  const float scale = rsqrtf(block_all<Take::sum>(squares) / n + eps);
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    y[blockIdx.x * n + i] = (row[i] - mean) * scale * gain[i] + bias[i];
}
API layer_norm(const float* x, const float* gain, const float* bias, float* y, int rows, int n) {
  return finished([&] { layer_norm_kernel<<<rows, 64, n * sizeof(float)>>>(x, gain, bias, y, n, 1e-5f); });
}

__global__ void rms_norm_kernel(const float4* __restrict__ x, const float4* __restrict__ gain, float4* __restrict__ y, int n4) {
  float squares = 0.0f;
  for (int i = threadIdx.x; i < n4; i += blockDim.x) {
    const float4 v = x[blockIdx.x * n4 + i];
    squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  const float scale = rsqrtf(block_all<Take::sum>(squares) / (4 * n4) + 1e-6f);
  for (int i = threadIdx.x; i < n4; i += blockDim.x) {
    float4 v = x[blockIdx.x * n4 + i];
    const float4 g = gain[i];
    v.x *= scale * g.x, v.y *= scale * g.y, v.z *= scale * g.z, v.w *= scale * g.w;
    y[blockIdx.x * n4 + i] = v;
  }
}
API rms_norm_float4(const float* x, const float* gain, float* y, int rows, int n) {
  return finished([&] { rms_norm_kernel<<<rows, 32>>>((const float4*)x, (const float4*)gain, (float4*)y, n / 4); });
}

struct Welford {
  float mean = 0.0f, m2 = 0.0f, count = 0.0f;
  __device__ void add(float v) {
    count += 1.0f;
    const float delta = v - mean;
    mean += delta / count;
    m2 += delta * (v - mean);
  }
  __device__ void merge(float other_mean, float other_m2, float other_count) {
    const float all = count + other_count;
    if (all == 0.0f) return;
    const float delta = other_mean - mean;
    mean += delta * other_count / all;
    m2 += other_m2 + delta * delta * count * other_count / all;
    count = all;
  }
};
__global__ void variance(const float* x, float* mean, float* var, int rows, int n) {
  Welford w;
  for (int i = threadIdx.x; i < rows; i += 32) w.add(x[i * n + blockIdx.x]);
  for (int delta = 16; delta > 0; delta /= 2) {
    const float m = __shfl_down_sync(kAll, w.mean, delta), s = __shfl_down_sync(kAll, w.m2, delta), c = __shfl_down_sync(kAll, w.count, delta);
    w.merge(m, s, c);
  }
  if (threadIdx.x == 0) mean[blockIdx.x] = w.mean, var[blockIdx.x] = w.m2 / w.count;
}
API batch_statistics(const float* x, float* mean, float* var, int rows, int n) {
  return finished([&] { variance<<<n, 32>>>(x, mean, var, rows, n); });
}

__global__ void argmax_kernel(const float* x, long long* y, int n) {
  __shared__ float values[128];
  __shared__ int places[128];
  float best = -INFINITY;
  int place = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    if (x[blockIdx.x * n + i] > best) best = x[blockIdx.x * n + i], place = i;
  values[threadIdx.x] = best;
  places[threadIdx.x] = place;
  __syncthreads();
  for (int half = 64; half > 0; half >>= 1) {
    if (threadIdx.x < half) {
      const float other = values[threadIdx.x + half];
      const int at = places[threadIdx.x + half];
      if (other > values[threadIdx.x] || (other == values[threadIdx.x] && at < places[threadIdx.x])) {
        values[threadIdx.x] = other;
        places[threadIdx.x] = at;
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = places[0];
}
API argmax_rows(const float* x, long long* y, int rows, int n) {
  return finished([&] { argmax_kernel<<<rows, 128>>>(x, y, n); });
}

__global__ void cross_entropy_kernel(const float* x, const long long* labels, float* loss, int rows, int n) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  float mine = 0.0f;
  if (row < rows) {
    float top = x[row * n], sum = 0.0f;
    for (int i = 1; i < n; i++) top = fmaxf(top, x[row * n + i]);
    for (int i = 0; i < n; i++) sum += expf(x[row * n + i] - top);
    mine = logf(sum) + top - x[row * n + labels[row]];
  }
  mine = block_all<Take::sum>(mine);
  if (threadIdx.x == 0) atomicAdd(loss, mine / rows);
}
API cross_entropy(const float* x, const long long* labels, float* loss, int rows, int n) {
  return finished([&] {
    cudaMemset(loss, 0, sizeof(float));
    cross_entropy_kernel<<<(rows + 63) / 64, 64>>>(x, labels, loss, rows, n);
  });
}
