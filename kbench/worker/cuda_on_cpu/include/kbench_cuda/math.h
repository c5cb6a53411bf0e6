// The arithmetic that CUDA C++ has and C++ has not: intrinsics, conversions with a rounding mode, bits.
// Fast intrinsics are computed exactly here; a device rounds them more coarsely.
#pragma once
#include <cfenv>
#include <limits>

namespace kbench_cuda {

// One operation under another rounding mode; `volatile` keeps it between the two changes of mode.
template <class F>
KBENCH_OUT_OF_LINE auto rounded(int mode, F operation) {
  int before = fegetround();
  fesetround(mode);
  volatile auto result = operation();
  fesetround(before);
  return result;
}

template <class To, class From>
constexpr To bit_cast(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

// A float to an integer as a device converts: what does not fit is clamped, NaN is 0.
template <class To, class From>
inline To clamped(From value) {
  if (value != value) return 0;
  constexpr From low = static_cast<From>(std::numeric_limits<To>::min());
  constexpr From high = static_cast<From>(std::numeric_limits<To>::max());
  return value <= low ? std::numeric_limits<To>::min() : value >= high ? std::numeric_limits<To>::max() : static_cast<To>(value);
}

}  // namespace kbench_cuda

template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(std::fmin(static_cast<T>(a), static_cast<T>(b)));
  else return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(std::fmax(static_cast<T>(a), static_cast<T>(b)));
  else return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

#define KBENCH_F1(name, expression) inline float name(float x) { return expression; }
#define KBENCH_F2(name, expression) inline float name(float x, float y) { return expression; }
#define KBENCH_D1(name, expression) inline double name(double x) { return expression; }
KBENCH_F1(rsqrtf, 1.0f / std::sqrt(x))
KBENCH_D1(rsqrt, 1.0 / std::sqrt(x))
inline float rsqrt(float x) { return rsqrtf(x); }
KBENCH_F1(rcbrtf, 1.0f / std::cbrt(x))
KBENCH_D1(rcbrt, 1.0 / std::cbrt(x))
KBENCH_F1(sinpif, static_cast<float>(std::sin(M_PI * std::fmod(double{x}, 2.0))))
KBENCH_F1(cospif, static_cast<float>(std::cos(M_PI * std::fmod(double{x}, 2.0))))
KBENCH_D1(sinpi, std::sin(M_PI * std::fmod(x, 2.0)))
KBENCH_D1(cospi, std::cos(M_PI * std::fmod(x, 2.0)))
KBENCH_F1(normcdff, static_cast<float>(0.5 * std::erfc(-double{x} * M_SQRT1_2)))
KBENCH_D1(normcdf, 0.5 * std::erfc(-x * M_SQRT1_2))
KBENCH_F1(erfcxf, static_cast<float>(std::exp(double{x} * x) * std::erfc(double{x})))
KBENCH_F1(saturatef, x >= 1.0f ? 1.0f : x > 0.0f ? x : 0.0f)
KBENCH_F1(__saturatef, saturatef(x))
KBENCH_F1(__expf, std::exp(x))
KBENCH_F1(__exp10f, std::pow(10.0f, x))
KBENCH_F1(__logf, std::log(x))
KBENCH_F1(__log2f, std::log2(x))
KBENCH_F1(__log10f, std::log10(x))
KBENCH_F1(__sinf, std::sin(x))
KBENCH_F1(__cosf, std::cos(x))
KBENCH_F1(__tanf, std::tan(x))
KBENCH_F1(__tanhf, std::tanh(x))
KBENCH_F2(__powf, std::pow(x, y))
KBENCH_F2(__fdividef, x / y)
KBENCH_F2(fdividef, x / y)
KBENCH_F1(__frcp_rn, 1.0f / x)
KBENCH_F1(__frsqrt_rn, 1.0f / std::sqrt(x))
inline void __sincosf(float x, float* s, float* c) { *s = std::sin(x), *c = std::cos(x); }
inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
inline float norm3df(float a, float b, float c) { return std::sqrt(a * a + b * b + c * c); }
inline float rnorm3df(float a, float b, float c) { return 1.0f / norm3df(a, b, c); }
inline float norm4df(float a, float b, float c, float d) { return std::sqrt(a * a + b * b + c * c + d * d); }
inline float rhypotf(float x, float y) { return 1.0f / std::hypot(x, y); }

#define KBENCH_ROUNDED(suffix, mode) \
  inline float __fadd_##suffix(float x, float y) { return ::kbench_cuda::rounded(mode, [=] { return x + y; }); } \
  inline float __fsub_##suffix(float x, float y) { return ::kbench_cuda::rounded(mode, [=] { return x - y; }); } \
  inline float __fmul_##suffix(float x, float y) { return ::kbench_cuda::rounded(mode, [=] { return x * y; }); } \
  inline float __fdiv_##suffix(float x, float y) { return ::kbench_cuda::rounded(mode, [=] { return x / y; }); } \
  inline float __fsqrt_##suffix(float x) { return ::kbench_cuda::rounded(mode, [=] { return std::sqrt(x); }); } \
  inline float __fmaf_##suffix(float x, float y, float z) { return ::kbench_cuda::rounded(mode, [=] { return std::fma(x, y, z); }); } \
  inline double __dadd_##suffix(double x, double y) { return ::kbench_cuda::rounded(mode, [=] { return x + y; }); } \
  inline double __dmul_##suffix(double x, double y) { return ::kbench_cuda::rounded(mode, [=] { return x * y; }); } \
  inline double __ddiv_##suffix(double x, double y) { return ::kbench_cuda::rounded(mode, [=] { return x / y; }); } \
  inline double __fma_##suffix(double x, double y, double z) { return ::kbench_cuda::rounded(mode, [=] { return std::fma(x, y, z); }); } \
  inline float __double2float_##suffix(double x) { return ::kbench_cuda::rounded(mode, [=] { return static_cast<float>(x); }); } \
  inline float __int2float_##suffix(int x) { return ::kbench_cuda::rounded(mode, [=] { return static_cast<float>(x); }); } \
  inline float __uint2float_##suffix(unsigned x) { return ::kbench_cuda::rounded(mode, [=] { return static_cast<float>(x); }); } \
  inline float __ll2float_##suffix(long long x) { return ::kbench_cuda::rounded(mode, [=] { return static_cast<float>(x); }); } \
  inline float __ull2float_##suffix(unsigned long long x) { return ::kbench_cuda::rounded(mode, [=] { return static_cast<float>(x); }); }
KBENCH_ROUNDED(rn, FE_TONEAREST)
KBENCH_ROUNDED(rz, FE_TOWARDZERO)
KBENCH_ROUNDED(ru, FE_UPWARD)
KBENCH_ROUNDED(rd, FE_DOWNWARD)
#undef KBENCH_ROUNDED

#define KBENCH_TO_INTEGER(suffix, round) \
  inline int __float2int_##suffix(float x) { return ::kbench_cuda::clamped<int>(round(x)); } \
  inline unsigned __float2uint_##suffix(float x) { return ::kbench_cuda::clamped<unsigned>(round(x)); } \
  inline long long __float2ll_##suffix(float x) { return ::kbench_cuda::clamped<long long>(round(x)); } \
  inline unsigned long long __float2ull_##suffix(float x) { return ::kbench_cuda::clamped<unsigned long long>(round(x)); } \
  inline int __double2int_##suffix(double x) { return ::kbench_cuda::clamped<int>(round(x)); } \
  inline long long __double2ll_##suffix(double x) { return ::kbench_cuda::clamped<long long>(round(x)); }
KBENCH_TO_INTEGER(rn, std::nearbyint)
KBENCH_TO_INTEGER(rz, std::trunc)
KBENCH_TO_INTEGER(ru, std::ceil)
KBENCH_TO_INTEGER(rd, std::floor)
#undef KBENCH_TO_INTEGER
inline double __int2double_rn(int x) { return x; }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }

inline int __float_as_int(float x) { return ::kbench_cuda::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return ::kbench_cuda::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return ::kbench_cuda::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return ::kbench_cuda::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return ::kbench_cuda::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return ::kbench_cuda::bit_cast<double>(x); }
inline int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; i++) r |= (x >> i & 1u) << (31 - i);
  return r;
}
inline unsigned long long __brevll(unsigned long long x) {
  return (static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32) | __brev(static_cast<unsigned>(x >> 32));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  unsigned long long bytes = (static_cast<unsigned long long>(y) << 32) | x;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) r |= static_cast<unsigned>(bytes >> (8 * (s >> (4 * i) & 7)) & 0xff) << (8 * i);
  return r;
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) {
  return static_cast<unsigned>((((static_cast<unsigned long long>(hi) << 32) | lo) << (n & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) {
  return static_cast<unsigned>(((static_cast<unsigned long long>(hi) << 32) | lo) >> (n & 31));
}
inline int __mulhi(int x, int y) { return static_cast<int>((static_cast<long long>(x) * y) >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) { return static_cast<unsigned>((static_cast<unsigned long long>(x) * y) >> 32); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(x) * y) >> 64);
}
inline int __mul24(int x, int y) { return ((x << 8) >> 8) * ((y << 8) >> 8); }
inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffffu) * (y & 0xffffffu); }
inline unsigned __sad(int x, int y, unsigned z) { return z + static_cast<unsigned>(x > y ? x - y : y - x); }
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; i++) c += static_cast<signed char>(a >> (8 * i)) * static_cast<signed char>(b >> (8 * i));
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; i++) c += (a >> (8 * i) & 0xffu) * (b >> (8 * i) & 0xffu);
  return c;
}
