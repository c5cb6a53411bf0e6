// half, under CUDA's names.
#pragma once
#include "kbench_cuda/half.h"

#ifdef __CUDA_NO_HALF_CONVERSIONS__
#pragma push_macro("KBENCH_HALF_CONVERSIONS")
#undef KBENCH_HALF_CONVERSIONS
#define KBENCH_HALF_CONVERSIONS(T, from, to)                                     \
  explicit T(float value) : kbench_bits(::kbench_cuda::from(value)) {}           \
  explicit operator float() const { return ::kbench_cuda::to(kbench_bits); }
#endif
KBENCH_HALF_TYPE(__half, __half2, half_bits, half_value)
#ifdef __CUDA_NO_HALF_CONVERSIONS__
#pragma pop_macro("KBENCH_HALF_CONVERSIONS")
#endif
KBENCH_HALF_FUNCTIONS(__half, __half2)
#ifndef __CUDA_NO_HALF_OPERATORS__
KBENCH_HALF_OPERATORS(__half, __half2)
#endif

using half = __half;
using half2 = __half2;
using __nv_half = __half;
using __nv_half2 = __half2;

inline __half __float2half(float value) { return __half::kbench_of(value); }
inline __half __float2half_rn(float value) { return __half::kbench_of(value); }
inline __half __double2half(double value) { return __half::kbench_of(static_cast<float>(value)); }
inline float __half2float(__half value) { return value.kbench_value(); }
inline __half __int2half_rn(int value) { return __half::kbench_of(static_cast<float>(value)); }
inline int __half2int_rn(__half value) { return __float2int_rn(value.kbench_value()); }
inline int __half2int_rz(__half value) { return __float2int_rz(value.kbench_value()); }
inline __half2 __float2half2_rn(float value) { return {__float2half(value), __float2half(value)}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half(x), __float2half(y)}; }
inline __half2 __float22half2_rn(float2 value) { return __floats2half2_rn(value.x, value.y); }
inline float2 __half22float2(__half2 value) { return {value.x.kbench_value(), value.y.kbench_value()}; }
inline __half2 __half2half2(__half value) { return {value, value}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half __low2half(__half2 value) { return value.x; }
inline __half __high2half(__half2 value) { return value.y; }
inline float __low2float(__half2 value) { return value.x.kbench_value(); }
inline float __high2float(__half2 value) { return value.y.kbench_value(); }
inline __half2 __lowhigh2highlow(__half2 value) { return {value.y, value.x}; }
inline unsigned short __half_as_ushort(__half value) { return value.kbench_bits; }
inline short __half_as_short(__half value) { return static_cast<short>(value.kbench_bits); }
inline __half __ushort_as_half(unsigned short bits) { return __half::kbench_raw(bits); }
inline __half __short_as_half(short bits) { return __half::kbench_raw(static_cast<unsigned short>(bits)); }
