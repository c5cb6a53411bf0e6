// What every file of the corpus needs, for nvcc and for the CPU alike.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>

#define API extern "C" int
constexpr unsigned kAll = 0xffffffffu;

// A fault on the CPU is an exception, on a device an error of the runtime: -1, or the error's number.
template <class F>
int finished(F launch) {
  try {
    launch();
  } catch (const std::exception&) {
    return -1;
  }
  const int error = cudaGetLastError();
  return error ? error : static_cast<int>(cudaDeviceSynchronize());
}
