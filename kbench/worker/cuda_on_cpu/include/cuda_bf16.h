// bfloat16, under CUDA's names.
#pragma once
#include "kbench_cuda/half.h"

KBENCH_HALF_TYPE(__nv_bfloat16, __nv_bfloat162, bfloat16_bits, bfloat16_value)
KBENCH_HALF_FUNCTIONS(__nv_bfloat16, __nv_bfloat162)
#ifndef __CUDA_NO_BFLOAT16_OPERATORS__
KBENCH_HALF_OPERATORS(__nv_bfloat16, __nv_bfloat162)
#endif

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16::kbench_of(value); }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return __nv_bfloat16::kbench_of(value); }
inline float __bfloat162float(__nv_bfloat16 value) { return value.kbench_value(); }
inline __nv_bfloat162 __float2bfloat162_rn(float value) { return {__float2bfloat16(value), __float2bfloat16(value)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__float2bfloat16(x), __float2bfloat16(y)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 value) { return __floats2bfloat162_rn(value.x, value.y); }
inline float2 __bfloat1622float2(__nv_bfloat162 value) { return {value.x.kbench_value(), value.y.kbench_value()}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 value) { return {value, value}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 value) { return value.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 value) { return value.y; }
inline float __low2float(__nv_bfloat162 value) { return value.x.kbench_value(); }
inline float __high2float(__nv_bfloat162 value) { return value.y.kbench_value(); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.kbench_bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16::kbench_raw(bits); }
