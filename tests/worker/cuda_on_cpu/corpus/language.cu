// What the language offers, word by word: each function writes what its words give.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdio>

#include "corpus.h"

// --- grids and blocks of three dimensions ---
__global__ void shapes(int* out) {
  const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const int size = blockDim.x * blockDim.y * blockDim.z;
  out[block * size + thread] = 1000 * block + thread;
}
API language_shapes(int* out) {
  return finished([&] { shapes<<<dim3(2, 3, 2), dim3(4, 3, 2)>>>(out); });
}

// --- memory spaces ---
__constant__ float kept[4];
__device__ int counted = 5;
__device__ float table[2][3] = {{1, 2, 3}, {4, 5, 6}};
template <class T, int kCount>
struct Buffer {
  T values[kCount];
};
extern __shared__ __align__(16) unsigned char raw[];
__global__ void __launch_bounds__(64) spaces(float* out) {  // fault: bounds
  __shared__ Buffer<float, 64> buffer;
  float* dynamic = reinterpret_cast<float*>(raw);
  buffer.values[threadIdx.x] = kept[threadIdx.x % 4];
  dynamic[threadIdx.x] = table[threadIdx.x % 2][threadIdx.x % 3];
  if (threadIdx.x == 0) atomicAdd(&counted, 2);
  __syncthreads();
  const int other = 63 - threadIdx.x;
  out[threadIdx.x] = buffer.values[other] + 10 * dynamic[other] + 100 * counted;
}
API language_spaces(float* out) {
  return finished([&] {
    const float values[4] = {1, 2, 3, 4};
    const int five = 5;
    cudaMemcpyToSymbol(kept, values, sizeof values);
    cudaMemcpyToSymbol(counted, &five, sizeof five);
    spaces<<<1, 64, 64 * sizeof(float)>>>(out);
  });
}

// --- votes, matches, shuffles of every width, counting barriers ---
__global__ void votes(int* out) {
  const int lane = threadIdx.x;
  int row = 0;
  auto put = [&](long long value) { out[row++ * 32 + lane] = static_cast<int>(value); };
  put(__ballot_sync(kAll, lane % 3 == 0));
  put(__all_sync(kAll, lane < 32));
  put(__any_sync(kAll, lane == 40));
  put(__match_any_sync(kAll, lane / 8));
  int same = 7;
  put(__match_all_sync(kAll, 3.5f, &same));
  put(same);
  put(__shfl_sync(kAll, lane * 2, lane + 1, 8));
  put(__shfl_up_sync(kAll, lane, 3, 16));
  put(__shfl_down_sync(kAll, lane, 5, 16));
  put(__shfl_xor_sync(kAll, (long long)lane << 33, 9) >> 33);
  put(__reduce_add_sync(kAll, lane));
  put(__reduce_min_sync(kAll, lane - 5));
  put(__reduce_xor_sync(kAll, unsigned(lane)));
  put(__syncthreads_count(lane % 2));
  put(__syncthreads_and(lane >= 0));
  put(__syncthreads_or(lane > 31));
  if (lane < 16) {
    put(__shfl_sync(0xffff, lane, 15 - lane));
    __syncwarp(0xffff);
  } else {
    put(__popc(__activemask()) <= 16);
  }
}
API language_votes(int* out) {
  return finished([&] { votes<<<1, 32>>>(out); });
}

// --- atomics of every type ---
__global__ void atomics(int* i, unsigned* u, unsigned long long* l, float* f, double* d) {
  const int t = threadIdx.x + 1;
  atomicAdd(&i[0], t);
  atomicSub(&i[1], t);
  atomicMin(&i[2], -t);
  atomicMax(&i[3], t);
  atomicAnd(&i[4], ~t);
  atomicOr(&i[5], t);
  atomicXor(&i[6], t);
  if (t == 1) atomicExch(&i[7], 77);
  int seen = i[8], expected;
  do {
    expected = seen;
    seen = atomicCAS(&i[8], expected, expected + t);
  } while (seen != expected);
  atomicInc(&u[0], 9);
  atomicDec(&u[1], 9);
  atomicMax(&u[2], 0x80000000u + t);
  atomicAdd(&l[0], 1ull << 33);
  atomicMax(&l[1], (unsigned long long)t << 40);
  atomicCAS(&l[2], 0ull, 5ull);
  atomicAdd(&f[0], 0.5f);
  atomicAdd(&d[0], 0.25);
}
API language_atomics(int* i, unsigned* u, unsigned long long* l, float* f, double* d) {
  return finished([&] {
    cudaMemset(i, 0, 9 * sizeof *i);
    cudaMemset(i + 4, 0xff, sizeof *i);
    cudaMemset(u, 0, 3 * sizeof *u);
    cudaMemset(l, 0, 3 * sizeof *l);
    cudaMemset(f, 0, sizeof *f);
    cudaMemset(d, 0, sizeof *d);
    atomics<<<1, 64>>>(i, u, l, f, d);
  });
}

// --- arithmetic that C++ has not ---
__global__ void arithmetic(float* f, int* n, const int* given) {
  int k = 0;
  auto put = [&](float value) { f[k++] = value; };
  put(__fdividef(1.0f, 4.0f));
  put(__expf(1.0f));
  put(__logf(2.0f));
  put(__powf(2.0f, 0.5f));
  put(__sinf(1.0f));
  put(rsqrtf(4.0f));
  put(__fsqrt_rn(2.0f));
  put(__fmaf_rn(2.0f, 3.0f, 4.0f));
  put(__saturatef(1.5f));
  put(fminf(NAN, 2.0f));
  put(max(1.0f, 2.5f));
  put(erfcxf(1.0f));
  put(normcdff(0.0f));
  put(exp10f(2.0f));
  put(__int_as_float(0x3fc00000));
  put(__half2float(__float2half(0.1f)));
  put(__half2float(__hfma(__float2half(2.0f), __float2half(3.0f), __float2half(0.5f))));
  put(__bfloat162float(__float2bfloat16(0.1f)));
  const __half2 pair = __hadd2(__floats2half2_rn(1.0f, 2.0f), __half2half2(__float2half(0.5f)));
  put(__low2float(pair) + 10 * __high2float(pair));
  const float4 four = make_float4(1, 2, 3, 4);
  const int2 two = make_int2(5, 6);
  put(four.x + four.w + two.y);
  int j = 0;
  auto note = [&](long long value) { n[j++] = static_cast<int>(value); };
  note(__popc(0xf0f0u));
  note(__clz(1));
  note(__ffs(8));
  note(__brev(1u) >> 31);
  note(__float2int_rn(2.5f));
  note(__float2int_rz(-2.7f));
  note(__float_as_int(1.0f));
  note(__umulhi(0x80000000u, 6u));
  note(__byte_perm(0x03020100u, 0x07060504u, 0x5140));
  note(__funnelshift_l(0x80000000u, 1u, 1));
  note(__dp4a(0x01020304, 0x01010101, 5));
  note(__mul24(3, 5));
  note(min(3, 4) + max(3u, 4u));
  note(__ldg(given));
  printf("%d of %s\n", j, "language");
}
API language_arithmetic(float* f, int* n, const int* given) {
  return finished([&] { arithmetic<<<1, 1>>>(f, n, given); });
}

// More threads than the bounds allow.
API fault_bounds(float* out) {
  return finished([&] { spaces<<<1, 96, 96 * sizeof(float)>>>(out); });
}
