// CUDA's vector types, with the alignment that a device demands of them.
#pragma once
#include <cstddef>

#define KBENCH_VECTORS(name, type, two, four) \
  struct name##1 { type x; }; \
  struct alignas(two) name##2 { type x, y; }; \
  struct name##3 { type x, y, z; }; \
  struct alignas(four) name##4 { type x, y, z, w; }; \
  inline constexpr name##1 make_##name##1(type x) { return {x}; } \
  inline constexpr name##2 make_##name##2(type x, type y) { return {x, y}; } \
  inline constexpr name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
  inline constexpr name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

KBENCH_VECTORS(char, signed char, 2, 4)
KBENCH_VECTORS(uchar, unsigned char, 2, 4)
KBENCH_VECTORS(short, short, 4, 8)
KBENCH_VECTORS(ushort, unsigned short, 4, 8)
KBENCH_VECTORS(int, int, 8, 16)
KBENCH_VECTORS(uint, unsigned int, 8, 16)
KBENCH_VECTORS(long, long, 16, 16)
KBENCH_VECTORS(ulong, unsigned long, 16, 16)
KBENCH_VECTORS(longlong, long long, 16, 16)
KBENCH_VECTORS(ulonglong, unsigned long long, 16, 16)
KBENCH_VECTORS(float, float, 8, 16)
KBENCH_VECTORS(double, double, 16, 16)
#undef KBENCH_VECTORS

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
