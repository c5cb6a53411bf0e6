// The CUDA language as seen by translated code: qualifiers, built-in variables, barriers, warp operations, atomics.
#pragma once
#include <algorithm>
#include <cassert>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <type_traits>

#include "kbench_cuda/runtime.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__ const
#define __forceinline__ inline
#define __CUDACC_VER_MAJOR__ 13
#define KBENCH_CUDACC 1
#define KBENCH_CUDA_ARCH 900

constexpr int warpSize = 32;

#define KBENCH_DEVICE KBENCH_UNSEEN inline
// Kept out of line by the compiler anyway: code that is seen and code that is not are never merged.
#define KBENCH_OUT_OF_LINE KBENCH_UNSEEN __attribute__((noinline))

namespace kbench_cuda {

template <class T>
using same = std::common_type_t<T>;  // not deduced: the argument converts

template <size_t bytes>
struct word_of;
template <> struct word_of<1> { using type = uint8_t; };
template <> struct word_of<2> { using type = uint16_t; };
template <> struct word_of<4> { using type = uint32_t; };
template <> struct word_of<8> { using type = uint64_t; };

template <class T, class... Any>
constexpr bool is_one_of = (std::is_same_v<T, Any> || ...);

// --- warps ---------------------------------------------------------------------------------------------------------

// A value of any size, word by word, from lane `source` (-1: its own).
template <class T>
KBENCH_DEVICE T exchange(unsigned mask, T value, int source, Site site) {
  static_assert(std::is_trivially_copyable_v<T>, "a shuffle moves plain bytes");
  uint64_t words[(sizeof(T) + 7) / 8] = {};
  __builtin_memcpy(words, &value, sizeof value);
  for (uint64_t& word : words) word = warp_op(WarpOp::shuffle, mask, word, source, site);
  __builtin_memcpy(&value, words, sizeof value);
  return value;
}

KBENCH_DEVICE int lane_at(int source, int width) {
  int first = static_cast<int>(lane()) & ~(width - 1);
  return first + (source & (width - 1));
}

KBENCH_DEVICE int lane_above(unsigned delta, int width) {
  int mine = static_cast<int>(lane());
  return mine - static_cast<int>(delta) < (mine & ~(width - 1)) ? -1 : mine - static_cast<int>(delta);
}

KBENCH_DEVICE int lane_below(unsigned delta, int width) {
  int mine = static_cast<int>(lane());
  return mine + static_cast<int>(delta) > (mine | (width - 1)) ? -1 : mine + static_cast<int>(delta);
}

KBENCH_DEVICE int lane_across(int bits, int width) {
  int mine = static_cast<int>(lane());
  return (mine ^ bits) > (mine | (width - 1)) ? -1 : mine ^ bits;
}

template <class T>
KBENCH_DEVICE uint64_t bits_of(T value) {
  uint64_t word = 0;
  __builtin_memcpy(&word, &value, sizeof value);
  return word;
}

// --- atomics -------------------------------------------------------------------------------------------------------

// Blocks run on several cores, so this is atomic for the host as well. A poll that changes nothing lets others run.
template <class T, class F>
KBENCH_OUT_OF_LINE T update(T* address, F next_of, Site site, bool compares = false) {
  using Word = typename word_of<sizeof(T)>::type;
  note_atomic(address, sizeof(T), compares, site);
  auto* memory = reinterpret_cast<Word*>(address);
  Word old = __atomic_load_n(memory, __ATOMIC_RELAXED);
  for (;;) {
    T before;
    __builtin_memcpy(&before, &old, sizeof old);
    T after = next_of(before);
    Word word;
    __builtin_memcpy(&word, &after, sizeof word);
    bool unchanged = word == old;
    if (!__atomic_compare_exchange_n(memory, &old, word, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) continue;
    if (unchanged) pause(site);
    return before;
  }
}

// --- memory functions of the C library, whose accesses no compiler reports -----------------------------------------

KBENCH_OUT_OF_LINE inline void* copy_bytes(void* to, const void* from, size_t size, KBENCH_SITE) {
  note_read(from, size, site);
  note_write(to, size, site);
  return __builtin_memcpy(to, from, size);
}

KBENCH_OUT_OF_LINE inline void* move_bytes(void* to, const void* from, size_t size, KBENCH_SITE) {
  note_read(from, size, site);
  note_write(to, size, site);
  return __builtin_memmove(to, from, size);
}

KBENCH_OUT_OF_LINE inline void* set_bytes(void* to, int value, size_t size, KBENCH_SITE) {
  note_write(to, size, site);
  return __builtin_memset(to, value, size);
}

// --- launches ------------------------------------------------------------------------------------------------------

struct AnyStream {
  template <class T>
  AnyStream(T&&) {}
};

// What `kernel<<<shape>>>(arguments)` is made of: the kernel, then its shape, then its arguments. These are taken
// once, as by a device, and each thread gets a copy.
template <class Body>
struct ShapedKernel {
  const char* name;
  Body body;
  Site site;
  Shape shape;

  template <class... Arguments>
  void operator()(Arguments... arguments) const {
    auto call = [&]() { body(arguments...); };
    launch(name, shape, [](void* data) { (*static_cast<decltype(call)*>(data))(); }, &call, site);
  }
};

template <class Body>
struct Kernel {
  const char* name;
  Body body;

  ShapedKernel<Body> operator()(Site site, dim3 grid, dim3 block, size_t shared_bytes = 0, AnyStream = 0) const {
    return {name, body, site, {grid, block, shared_bytes}};
  }
};

template <class Body>
Kernel<Body> kernel_of(const char* name, Body body) {
  return {name, body};
}

// A tensor that hands out its memory tells the runtime how much that is; anything else passes unchanged.
template <class T>
auto note_tensor(const T& tensor, int) -> decltype(tensor.unsafeGetTensorImpl(), void()) {
  if (tensor.defined() && tensor.has_storage()) note_memory(tensor.storage().data(), tensor.storage().nbytes());
}
template <class T>
auto note_tensor(const T& optional, int) -> decltype(optional.has_value(), note_tensor(*optional, 0)) {
  if (optional.has_value()) note_tensor(*optional, 0);
}
template <class T>
void note_tensor(const T&, long) {}
template <class T>
const T& noted(const T& value) {
  note_tensor(value, 0);
  return value;
}
template <class T>
T* noted(T* value) {
  note_tensor(*value, 0);
  return value;
}
// Of an object that is changed through what it hands out: a std::vector's data().
template <class T, class = decltype(std::declval<T&>().data())>
T& noted(T& value) {
  note_tensor(value, 0);
  return value;
}

}  // namespace kbench_cuda

// --- barriers and fences -------------------------------------------------------------------------------------------

inline void __syncthreads(KBENCH_SITE) { ::kbench_cuda::block_barrier(::kbench_cuda::Vote::none, 0, site); }
inline int __syncthreads_count(int p, KBENCH_SITE) { return ::kbench_cuda::block_barrier(::kbench_cuda::Vote::count, p, site); }
inline int __syncthreads_and(int p, KBENCH_SITE) { return ::kbench_cuda::block_barrier(::kbench_cuda::Vote::all, p, site); }
inline int __syncthreads_or(int p, KBENCH_SITE) { return ::kbench_cuda::block_barrier(::kbench_cuda::Vote::any, p, site); }
inline void __syncwarp(unsigned mask = 0xffffffffu, KBENCH_SITE) {
  ::kbench_cuda::warp_op(::kbench_cuda::WarpOp::sync, mask, 0, -1, site);
}
inline void __threadfence() { ::kbench_cuda::fence(); }
inline void __threadfence_block() { ::kbench_cuda::fence(); }
inline void __threadfence_system() { ::kbench_cuda::fence(); }
inline void __nanosleep(unsigned, KBENCH_SITE) { ::kbench_cuda::pause(site); }
[[noreturn]] inline void __trap(KBENCH_SITE) { ::kbench_cuda::fault("cuda:trap", site, "__trap()"); }

// --- shuffles, votes, matches --------------------------------------------------------------------------------------

#define KBENCH_SHUFFLE(name, type, lane_of) \
  template <class T> \
  inline T name(unsigned mask, T value, type which, int width = 32, KBENCH_SITE) { \
    return ::kbench_cuda::exchange(mask, value, ::kbench_cuda::lane_of(which, width), site); \
  }
KBENCH_SHUFFLE(__shfl_sync, int, lane_at)
KBENCH_SHUFFLE(__shfl_up_sync, unsigned, lane_above)
KBENCH_SHUFFLE(__shfl_down_sync, unsigned, lane_below)
KBENCH_SHUFFLE(__shfl_xor_sync, int, lane_across)
#undef KBENCH_SHUFFLE

inline unsigned __ballot_sync(unsigned mask, int p, KBENCH_SITE) {
  return static_cast<unsigned>(::kbench_cuda::warp_op(::kbench_cuda::WarpOp::ballot, mask, p != 0, -1, site));
}
inline int __all_sync(unsigned mask, int p, KBENCH_SITE) {
  return static_cast<int>(::kbench_cuda::warp_op(::kbench_cuda::WarpOp::all, mask, p != 0, -1, site));
}
inline int __any_sync(unsigned mask, int p, KBENCH_SITE) {
  return static_cast<int>(::kbench_cuda::warp_op(::kbench_cuda::WarpOp::any, mask, p != 0, -1, site));
}
inline unsigned __activemask(KBENCH_SITE) { return ::kbench_cuda::active_mask(site); }
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, KBENCH_SITE) {
  return static_cast<unsigned>(::kbench_cuda::warp_op(::kbench_cuda::WarpOp::match_any, mask, ::kbench_cuda::bits_of(value), -1, site));
}
template <class T>
KBENCH_DEVICE unsigned __match_all_sync(unsigned mask, T value, int* predicate, KBENCH_SITE) {
  auto same = static_cast<unsigned>(::kbench_cuda::warp_op(::kbench_cuda::WarpOp::match_all, mask, ::kbench_cuda::bits_of(value), -1, site));
  *predicate = same != 0;
  return same;
}

#define KBENCH_REDUCE(name, type, op) \
  inline type name(unsigned mask, type value, KBENCH_SITE) { \
    return static_cast<type>(::kbench_cuda::warp_op(::kbench_cuda::WarpOp::op, mask, static_cast<uint32_t>(value), -1, site)); \
  }
KBENCH_REDUCE(__reduce_add_sync, unsigned, add)
KBENCH_REDUCE(__reduce_add_sync, int, add)
KBENCH_REDUCE(__reduce_min_sync, unsigned, min_unsigned)
KBENCH_REDUCE(__reduce_min_sync, int, min_signed)
KBENCH_REDUCE(__reduce_max_sync, unsigned, max_unsigned)
KBENCH_REDUCE(__reduce_max_sync, int, max_signed)
KBENCH_REDUCE(__reduce_and_sync, unsigned, bit_and)
KBENCH_REDUCE(__reduce_or_sync, unsigned, bit_or)
KBENCH_REDUCE(__reduce_xor_sync, unsigned, bit_xor)
#undef KBENCH_REDUCE

// --- atomics: the types are those that a device has ----------------------------------------------------------------

struct __half;
struct __half2;
struct __nv_bfloat16;
struct __nv_bfloat162;

// Half types, which may lack operators, have their own.
template <class T>
inline T kbench_sum(T a, T b) { return a + b; }

#define KBENCH_ATOMIC(name, result_of, ...) \
  template <class T> \
  inline T name(T* address, ::kbench_cuda::same<T> value, KBENCH_SITE) { \
    static_assert(::kbench_cuda::is_one_of<T, __VA_ARGS__>, "no " #name " of this type on a device"); \
    return ::kbench_cuda::update(address, [value](T old) -> T { return result_of; }, site); \
  } \
  template <class T> \
  inline T name##_block(T* address, ::kbench_cuda::same<T> value, KBENCH_SITE) { return name(address, value, site); } \
  template <class T> \
  inline T name##_system(T* address, ::kbench_cuda::same<T> value, KBENCH_SITE) { return name(address, value, site); }
KBENCH_ATOMIC(atomicAdd, kbench_sum(old, value), int, unsigned, unsigned long long, float, double, __half, __half2, __nv_bfloat16, __nv_bfloat162)
KBENCH_ATOMIC(atomicSub, old - value, int, unsigned)
KBENCH_ATOMIC(atomicExch, ((void)old, value), int, unsigned, unsigned long long, float)
KBENCH_ATOMIC(atomicMin, value < old ? value : old, int, unsigned, long long, unsigned long long)
KBENCH_ATOMIC(atomicMax, value > old ? value : old, int, unsigned, long long, unsigned long long)
KBENCH_ATOMIC(atomicInc, old >= value ? 0u : old + 1, unsigned)
KBENCH_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1, unsigned)
KBENCH_ATOMIC(atomicAnd, old & value, int, unsigned, unsigned long long)
KBENCH_ATOMIC(atomicOr, old | value, int, unsigned, unsigned long long)
KBENCH_ATOMIC(atomicXor, old ^ value, int, unsigned, unsigned long long)
#undef KBENCH_ATOMIC

template <class T>
inline T atomicCAS(T* address, ::kbench_cuda::same<T> compare, ::kbench_cuda::same<T> value, KBENCH_SITE) {
  static_assert(::kbench_cuda::is_one_of<T, int, unsigned, unsigned long long, unsigned short>, "no atomicCAS of this type on a device");
  return ::kbench_cuda::update(address, [compare, value](T old) -> T { return old == compare ? value : old; }, site, true);
}

// --- loads and stores with a cache hint ----------------------------------------------------------------------------

#define KBENCH_LOAD(name) \
  template <class T> \
  __attribute__((always_inline)) inline T name(const T* address) { return *address; }
KBENCH_LOAD(__ldg)
KBENCH_LOAD(__ldca)
KBENCH_LOAD(__ldcg)
KBENCH_LOAD(__ldcs)
KBENCH_LOAD(__ldlu)
KBENCH_LOAD(__ldcv)
#undef KBENCH_LOAD
#define KBENCH_STORE(name) \
  template <class T> \
  __attribute__((always_inline)) inline void name(T* address, ::kbench_cuda::same<T> value) { *address = value; }
KBENCH_STORE(__stwb)
KBENCH_STORE(__stcg)
KBENCH_STORE(__stcs)
KBENCH_STORE(__stwt)
#undef KBENCH_STORE

// --- the clock -----------------------------------------------------------------------------------------------------

KBENCH_DEVICE long long clock64() { return static_cast<long long>(std::clock()) * 1000; }

#include "kbench_cuda/math.h"
#include "kbench_cuda/host.h"
