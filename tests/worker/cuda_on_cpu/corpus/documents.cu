// Two kernels of the design documents as they stand there, faults included.
#include <cmath>

#include "corpus.h"

__inline__ __device__ float warp_reduce_sum(float val) {
  for (int offset = 16; offset > 0; offset /= 2)
    val += __shfl_down_sync(0xffffffff, val, offset);  // fault: document_odd_block
  return val;
}
__inline__ __device__ float block_reduce_sum(float val, float* shared) {
  int lane = threadIdx.x % 32;
  int wid = threadIdx.x / 32;
  val = warp_reduce_sum(val);
  if (lane == 0) shared[wid] = val;  // fault: document_reused
  __syncthreads();
  if (wid == 0) {
    val = (threadIdx.x < (blockDim.x + 31) / 32) ? shared[lane] : 0.0f;
    val = warp_reduce_sum(val);
    if (lane == 0) shared[0] = val;
  }
  __syncthreads();
  return shared[0];  // either: document_reused
}
__global__ void mixture_forward_kernel(
    const float* __restrict__ mu, const float* __restrict__ log_var, const float* __restrict__ std,
    const int64_t* __restrict__ comp, const float* __restrict__ eps, const float* __restrict__ log_weights,
    int B, int K, int D, float* __restrict__ z, float* __restrict__ log_q_z, float const_val) {
  int b = blockIdx.x;
  if (b >= B) return;
  int tid = threadIdx.x;
  int k_sel = static_cast<int>(comp[b]);
  for (int d = tid; d < D; d += blockDim.x) {
    int idx = ((b * K) + k_sel) * D + d;
    float m = mu[idx];
    float s = std[idx];
    float e = eps[b * D + d];
    z[b * D + d] = m + s * e;
  }
  __syncthreads();
  float local[4];
#pragma unroll
  for (int k = 0; k < K; ++k) local[k] = 0.0f;  // fault: document_five
  for (int d = tid; d < D; d += blockDim.x) {
    float zv = z[b * D + d];
    for (int k = 0; k < K; ++k) {
      int idx = ((b * K) + k) * D + d;
      float m = mu[idx];
      float s = std[idx];
      float lv = log_var[idx];
      float diff = zv - m;
      float term = -0.5f * (diff / s) * (diff / s) - 0.5f * lv + const_val;
      local[k] += term;
    }
  }
  extern __shared__ float smem[];
  float comp_log_prob[4];
  for (int k = 0; k < K; ++k) {
    float sum_k = block_reduce_sum(local[k], smem);
    if (tid == 0) {
      comp_log_prob[k] = sum_k + log_weights[k];
    }
  }
  __syncthreads();
  if (tid == 0) {
    float max_val = comp_log_prob[0];
    for (int k = 1; k < K; ++k) {
      if (comp_log_prob[k] > max_val) max_val = comp_log_prob[k];
    }
    float lse = 0.0f;
    for (int k = 0; k < K; ++k) {
      lse += expf(comp_log_prob[k] - max_val);
    }
    log_q_z[b] = max_val + logf(lse);
  }
}

static int mixture(const float* mu, const int64_t* comp, const float* eps, float* z, float* log_q_z, int K, int threads) {
  return finished([&] {
    // Log variances and weights of 0 would do; the means serve for both.
    mixture_forward_kernel<<<3, threads, (threads / 32 + 1) * sizeof(float)>>>(mu, mu, mu, comp, eps, mu, 3, K, 64, z, log_q_z, -0.9f);
  });
}
API fault_document_reused(const float* mu, const int64_t* comp, const float* eps, float* z, float* log_q_z) {
  return mixture(mu, comp, eps, z, log_q_z, 4, 64);
}
API fault_document_odd_block(const float* mu, const int64_t* comp, const float* eps, float* z, float* log_q_z) {
  return mixture(mu, comp, eps, z, log_q_z, 4, 48);
}
API fault_document_five(const float* mu, const int64_t* comp, const float* eps, float* z, float* log_q_z) {
  return mixture(mu, comp, eps, z, log_q_z, 5, 64);
}

__device__ float relu(float x) { return x > 0.0f ? x : 0.0f; }
__global__ void decoder_loss_kernel(const float* x, const float* y, const float* z, const float* mu,
                                    const float* logvar, const float* dec1_w, const float* dec1_b,
                                    const float* dec2_w, const float* dec2_b, float* loss_out, int B,
                                    int input_dim, int label_dim, int hidden_dim, int latent_dim) {
  int batch_idx = blockIdx.x;
  int tid = threadIdx.x;
  extern __shared__ float shared_mem[];
  float* shared_zy = shared_mem;
  float* shared_hidden = shared_zy + latent_dim + label_dim;
  float* shared_reduce = shared_hidden + hidden_dim;
  int in_dim = latent_dim + label_dim;
  for (int i = tid; i < in_dim; i += blockDim.x) {
    shared_zy[i] = i < latent_dim ? z[batch_idx * latent_dim + i] : y[batch_idx * label_dim + (i - latent_dim)];
  }
  __syncthreads();
  if (tid < hidden_dim) {
    float h_val = dec1_b[tid];
    for (int i = 0; i < in_dim; i++) h_val += shared_zy[i] * dec1_w[tid * in_dim + i];
    shared_hidden[tid] = relu(h_val);
  }
  __syncthreads();
  float recon_sum = 0.0f;
  for (int o = tid; o < input_dim; o += blockDim.x) {
    float val = dec2_b[o];
    for (int i = 0; i < hidden_dim; i++) val += shared_hidden[i] * dec2_w[o * hidden_dim + i];
    float diff = val - x[batch_idx * input_dim + o];
    recon_sum += diff * diff;
  }
  shared_reduce[tid] = recon_sum;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (tid < s) shared_reduce[tid] += shared_reduce[tid + s];
    __syncthreads();
  }
  float total_recon = shared_reduce[0];  // either: document_decoder
  float kl_sum = 0.0f;
  if (tid < latent_dim) {
    float m = mu[batch_idx * latent_dim + tid];
    float lv = logvar[batch_idx * latent_dim + tid];
    kl_sum = -0.5f * (1.0f + lv - m * m - expf(lv));
  }
  shared_reduce[tid] = kl_sum;  // fault: document_decoder
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (tid < s) shared_reduce[tid] += shared_reduce[tid + s];
    __syncthreads();
  }
  float total_kl = shared_reduce[0];
  if (tid == 0) {
    atomicAdd(&loss_out[0], total_recon + total_kl);
    atomicAdd(&loss_out[1], total_recon);
    atomicAdd(&loss_out[2], total_kl);
  }
}
API fault_document_decoder(const float* x, const float* weights, float* losses) {
  constexpr int kBatch = 2, kInput = 50, kLabel = 10, kHidden = 40, kLatent = 20, kThreads = 128;
  return finished([&] {
    cudaMemset(losses, 0, 3 * sizeof(float));
    const size_t bytes = (kLatent + kLabel + kHidden + kThreads) * sizeof(float);
    decoder_loss_kernel<<<kBatch, kThreads, bytes>>>(x, x, x, x, x, weights, weights, weights, weights, losses, kBatch,
                                                     kInput, kLabel, kHidden, kLatent);
  });
}
