// cuRAND's Philox 4x32-10: the same numbers as on a device, but for the last bits of logarithm, sine and cosine.
#pragma once
#include "kbench_cuda/device.h"

struct curandStatePhilox4_32_10 {
  uint4 counter;
  uint4 output;
  uint2 key;
  unsigned used;  // words of `output` already handed out
  bool has_extra;
  float extra;
};
using curandStatePhilox4_32_10_t = curandStatePhilox4_32_10;

namespace kbench_cuda {

inline uint4 philox(uint4 c, uint2 key) {
  for (int round = 0; round < 10; round++) {
    uint64_t even = uint64_t{0xD2511F53u} * c.x, odd = uint64_t{0xCD9E8D57u} * c.z;
    c = {static_cast<unsigned>(odd >> 32) ^ c.y ^ key.x, static_cast<unsigned>(odd),
         static_cast<unsigned>(even >> 32) ^ c.w ^ key.y, static_cast<unsigned>(even)};
    key = {key.x + 0x9E3779B9u, key.y + 0xBB67AE85u};
  }
  return c;
}

inline void advance(uint4& counter, unsigned long long blocks) {
  unsigned long long low = (static_cast<unsigned long long>(counter.y) << 32) | counter.x;
  unsigned long long high = (static_cast<unsigned long long>(counter.w) << 32) | counter.z;
  if (low + blocks < low) high++;
  low += blocks;
  counter = {static_cast<unsigned>(low), static_cast<unsigned>(low >> 32), static_cast<unsigned>(high), static_cast<unsigned>(high >> 32)};
}

inline float uniform_of(unsigned word) { return static_cast<float>(word) * 2.3283064e-10f + 2.3283064e-10f / 2.0f; }

inline float2 normals_of(unsigned x, unsigned y) {
  float radius = std::sqrt(-2.0f * std::log(uniform_of(x)));
  float angle = static_cast<float>(y) * (2.3283064e-10f * 6.2831855f) + 2.3283064e-10f * 6.2831855f / 2.0f;
  return {radius * std::sin(angle), radius * std::cos(angle)};
}

inline double uniform_double_of(unsigned x, unsigned y) {
  unsigned long long bits = static_cast<unsigned long long>(x) ^ (static_cast<unsigned long long>(y) << (53 - 32));
  return static_cast<double>(bits) * 1.1102230246251565e-16 + 1.1102230246251565e-16 / 2.0;
}

}  // namespace kbench_cuda

inline void skipahead(unsigned long long count, curandStatePhilox4_32_10_t* state) {
  state->used += static_cast<unsigned>(count & 3);
  ::kbench_cuda::advance(state->counter, count / 4 + state->used / 4);
  state->used &= 3;
  state->output = ::kbench_cuda::philox(state->counter, state->key);
}
inline void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset, curandStatePhilox4_32_10_t* state) {
  state->counter = {0, 0, static_cast<unsigned>(subsequence), static_cast<unsigned>(subsequence >> 32)};
  state->key = {static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32)};
  state->used = 0;
  state->has_extra = false;
  state->extra = 0.0f;
  skipahead(offset, state);
}
inline uint4 curand4(curandStatePhilox4_32_10_t* state) {
  uint4 now = state->output;
  ::kbench_cuda::advance(state->counter, 1);
  state->output = ::kbench_cuda::philox(state->counter, state->key);
  const uint4 next = state->output;
  switch (state->used) {
    case 1: return {now.y, now.z, now.w, next.x};
    case 2: return {now.z, now.w, next.x, next.y};
    case 3: return {now.w, next.x, next.y, next.z};
    default: return now;
  }
}
inline unsigned curand(curandStatePhilox4_32_10_t* state) {
  const uint4 now = state->output;
  const unsigned word = state->used == 0 ? now.x : state->used == 1 ? now.y : state->used == 2 ? now.z : now.w;
  if (++state->used == 4) {
    state->used = 0;
    ::kbench_cuda::advance(state->counter, 1);
    state->output = ::kbench_cuda::philox(state->counter, state->key);
  }
  return word;
}
inline float curand_uniform(curandStatePhilox4_32_10_t* state) { return ::kbench_cuda::uniform_of(curand(state)); }
inline float4 curand_uniform4(curandStatePhilox4_32_10_t* state) {
  uint4 w = curand4(state);
  return {::kbench_cuda::uniform_of(w.x), ::kbench_cuda::uniform_of(w.y), ::kbench_cuda::uniform_of(w.z), ::kbench_cuda::uniform_of(w.w)};
}
inline double curand_uniform_double(curandStatePhilox4_32_10_t* state) {
  unsigned x = curand(state), y = curand(state);
  return ::kbench_cuda::uniform_double_of(x, y);
}
inline float2 curand_normal2(curandStatePhilox4_32_10_t* state) {
  unsigned x = curand(state), y = curand(state);
  return ::kbench_cuda::normals_of(x, y);
}
inline float curand_normal(curandStatePhilox4_32_10_t* state) {
  if (state->has_extra) {
    state->has_extra = false;
    return state->extra;
  }
  float2 pair = curand_normal2(state);
  state->has_extra = true;
  state->extra = pair.y;
  return pair.x;
}
inline float4 curand_normal4(curandStatePhilox4_32_10_t* state) {
  uint4 w = curand4(state);
  float2 a = ::kbench_cuda::normals_of(w.x, w.y), b = ::kbench_cuda::normals_of(w.z, w.w);
  return {a.x, a.y, b.x, b.y};
}
inline float curand_log_normal(curandStatePhilox4_32_10_t* state, float mean, float deviation) {
  return std::exp(mean + deviation * curand_normal(state));
}
