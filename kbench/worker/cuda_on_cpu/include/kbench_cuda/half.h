// half and bfloat16: sixteen bits in memory, arithmetic in float, rounded once to nearest even.
#pragma once
#include "kbench_cuda/device.h"

namespace kbench_cuda {

inline uint16_t half_bits(float value) {
  uint32_t bits = bit_cast<uint32_t>(value);
  uint32_t sign = bits >> 16 & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return 0x7fff;
  if (bits >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  // Below the normal range, adding one half makes the processor round at the last bit of a subnormal half.
  if (bits < 0x38800000u)
    return static_cast<uint16_t>(sign | (bit_cast<uint32_t>(bit_cast<float>(bits) + 0.5f) - 0x3f000000u));
  bits += 0xc8000fffu + (bits >> 13 & 1);
  return static_cast<uint16_t>(sign | bits >> 13);
}

inline float half_value(uint16_t bits) {
  uint32_t sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  if (rest < 0x400u) {
    float value = static_cast<float>(rest) * 0x1p-24f;
    return sign ? -value : value;
  }
  return bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
}

inline uint16_t bfloat16_bits(float value) {
  uint32_t bits = bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

inline float bfloat16_value(uint16_t bits) { return bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

}  // namespace kbench_cuda

// One type T and its pair T2. `from` and `to` convert bits; `no_conversions` and `no_operators` are what torch's
// own flags switch off unless a candidate strikes them.
#define KBENCH_HALF_TYPE(T, T2, from, to)                                                        \
  struct T {                                                                                     \
    unsigned short kbench_bits;                                                                  \
    T() = default;                                                                               \
    KBENCH_HALF_CONVERSIONS(T, from, to)                                                         \
    static T kbench_of(float value) { return kbench_raw(::kbench_cuda::from(value)); }           \
    static T kbench_raw(unsigned short bits) {                                                   \
      T result;                                                                                  \
      result.kbench_bits = bits;                                                                 \
      return result;                                                                             \
    }                                                                                            \
    float kbench_value() const { return ::kbench_cuda::to(kbench_bits); }                        \
  };                                                                                             \
  struct alignas(4) T2 {                                                                         \
    T x, y;                                                                                      \
    T2() = default;                                                                              \
    T2(T low, T high) : x(low), y(high) {}                                                       \
  };                                                                                             \
  inline T kbench_sum(T a, T b) { return T::kbench_of(a.kbench_value() + b.kbench_value()); }    \
  inline T2 kbench_sum(T2 a, T2 b) { return {kbench_sum(a.x, b.x), kbench_sum(a.y, b.y)}; }      \
  inline T kbench_fma(T a, T b, T c) {                                                           \
    return T::kbench_of(std::fma(a.kbench_value(), b.kbench_value(), c.kbench_value()));         \
  }                                                                                              \
  inline T2 kbench_fma(T2 a, T2 b, T2 c) { return {kbench_fma(a.x, b.x, c.x), kbench_fma(a.y, b.y, c.y)}; }

#define KBENCH_HALF_BINARY(name, T, T2, expression)                                              \
  inline T name(T a_, T b_) {                                                                    \
    const float a = a_.kbench_value(), b = b_.kbench_value();                                    \
    return T::kbench_of(expression);                                                             \
  }                                                                                              \
  inline T2 name##2(T2 a, T2 b) { return {name(a.x, b.x), name(a.y, b.y)}; }
#define KBENCH_HALF_UNARY(name, name2, T, T2, expression)                                        \
  inline T name(T a_) {                                                                          \
    const float a = a_.kbench_value();                                                           \
    return T::kbench_of(expression);                                                             \
  }                                                                                              \
  inline T2 name2(T2 a) { return {name(a.x), name(a.y)}; }
#define KBENCH_HALF_COMPARE(name, T, T2, operation)                                              \
  inline bool __h##name(T a, T b) { return a.kbench_value() operation b.kbench_value(); }        \
  inline bool __hb##name##2(T2 a, T2 b) { return __h##name(a.x, b.x) && __h##name(a.y, b.y); }   \
  inline T2 __h##name##2(T2 a, T2 b) {                                                           \
    return {T::kbench_of(__h##name(a.x, b.x)), T::kbench_of(__h##name(a.y, b.y))};               \
  }

#define KBENCH_HALF_FUNCTIONS(T, T2)                                                             \
  KBENCH_HALF_BINARY(__hadd, T, T2, a + b)                                                       \
  KBENCH_HALF_BINARY(__hsub, T, T2, a - b)                                                       \
  KBENCH_HALF_BINARY(__hmul, T, T2, a * b)                                                       \
  inline T __hdiv(T a, T b) { return T::kbench_of(a.kbench_value() / b.kbench_value()); }        \
  inline T2 __h2div(T2 a, T2 b) { return {__hdiv(a.x, b.x), __hdiv(a.y, b.y)}; }                 \
  KBENCH_HALF_BINARY(__hmax, T, T2, std::fmax(a, b))                                             \
  KBENCH_HALF_BINARY(__hmin, T, T2, std::fmin(a, b))                                             \
  inline T __hfma(T a, T b, T c) { return kbench_fma(a, b, c); }                                 \
  inline T2 __hfma2(T2 a, T2 b, T2 c) { return kbench_fma(a, b, c); }                            \
  KBENCH_HALF_UNARY(__hneg, __hneg2, T, T2, -a)                                                  \
  KBENCH_HALF_UNARY(__habs, __habs2, T, T2, std::fabs(a))                                        \
  KBENCH_HALF_UNARY(hexp, h2exp, T, T2, std::exp(a))                                             \
  KBENCH_HALF_UNARY(hexp2, h2exp2, T, T2, std::exp2(a))                                          \
  KBENCH_HALF_UNARY(hlog, h2log, T, T2, std::log(a))                                             \
  KBENCH_HALF_UNARY(hlog2, h2log2, T, T2, std::log2(a))                                          \
  KBENCH_HALF_UNARY(hsqrt, h2sqrt, T, T2, std::sqrt(a))                                          \
  KBENCH_HALF_UNARY(hrsqrt, h2rsqrt, T, T2, 1.0f / std::sqrt(a))                                 \
  KBENCH_HALF_UNARY(hrcp, h2rcp, T, T2, 1.0f / a)                                                \
  KBENCH_HALF_UNARY(hsin, h2sin, T, T2, std::sin(a))                                             \
  KBENCH_HALF_UNARY(hcos, h2cos, T, T2, std::cos(a))                                             \
  KBENCH_HALF_UNARY(htanh, h2tanh, T, T2, std::tanh(a))                                          \
  KBENCH_HALF_UNARY(hfloor, h2floor, T, T2, std::floor(a))                                       \
  KBENCH_HALF_UNARY(hceil, h2ceil, T, T2, std::ceil(a))                                          \
  KBENCH_HALF_COMPARE(eq, T, T2, ==)                                                             \
  KBENCH_HALF_COMPARE(ne, T, T2, !=)                                                             \
  KBENCH_HALF_COMPARE(lt, T, T2, <)                                                              \
  KBENCH_HALF_COMPARE(le, T, T2, <=)                                                             \
  KBENCH_HALF_COMPARE(gt, T, T2, >)                                                              \
  KBENCH_HALF_COMPARE(ge, T, T2, >=)                                                             \
  inline bool __hisnan(T a) { return std::isnan(a.kbench_value()); }

#define KBENCH_HALF_OPERATORS(T, T2)                                                             \
  inline T operator+(T a, T b) { return __hadd(a, b); }                                          \
  inline T operator-(T a, T b) { return __hsub(a, b); }                                          \
  inline T operator*(T a, T b) { return __hmul(a, b); }                                          \
  inline T operator/(T a, T b) { return __hdiv(a, b); }                                          \
  inline T operator-(T a) { return __hneg(a); }                                                  \
  inline T& operator+=(T& a, T b) { return a = a + b; }                                          \
  inline T& operator-=(T& a, T b) { return a = a - b; }                                          \
  inline T& operator*=(T& a, T b) { return a = a * b; }                                          \
  inline T& operator/=(T& a, T b) { return a = a / b; }                                          \
  inline bool operator==(T a, T b) { return __heq(a, b); }                                       \
  inline bool operator!=(T a, T b) { return __hne(a, b); }                                       \
  inline bool operator<(T a, T b) { return __hlt(a, b); }                                        \
  inline bool operator<=(T a, T b) { return __hle(a, b); }                                       \
  inline bool operator>(T a, T b) { return __hgt(a, b); }                                        \
  inline bool operator>=(T a, T b) { return __hge(a, b); }                                       \
  inline T2 operator+(T2 a, T2 b) { return __hadd2(a, b); }                                      \
  inline T2 operator-(T2 a, T2 b) { return __hsub2(a, b); }                                      \
  inline T2 operator*(T2 a, T2 b) { return __hmul2(a, b); }                                      \
  inline T2 operator/(T2 a, T2 b) { return __h2div(a, b); }                                      \
  inline T2& operator+=(T2& a, T2 b) { return a = a + b; }                                       \
  inline T2& operator*=(T2& a, T2 b) { return a = a * b; }

#define KBENCH_HALF_CONVERSIONS(T, from, to)                                                     \
  T(float value) : kbench_bits(::kbench_cuda::from(value)) {}                                    \
  T(double value) : kbench_bits(::kbench_cuda::from(static_cast<float>(value))) {}               \
  T(int value) : kbench_bits(::kbench_cuda::from(static_cast<float>(value))) {}                  \
  T(unsigned value) : kbench_bits(::kbench_cuda::from(static_cast<float>(value))) {}             \
  T(long long value) : kbench_bits(::kbench_cuda::from(static_cast<float>(value))) {}            \
  operator float() const { return ::kbench_cuda::to(kbench_bits); }
