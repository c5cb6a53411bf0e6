#pragma once
#include "c10/cuda/CUDAStream.h"

namespace at::cuda {
struct CUDAEvent {
  explicit CUDAEvent(unsigned = 0) {}
  void record() {}
  void record(const c10::cuda::CUDAStream&) {}
  void block(const c10::cuda::CUDAStream&) {}
  bool query() const { return true; }
  void synchronize() const {}
};
}  // namespace at::cuda
