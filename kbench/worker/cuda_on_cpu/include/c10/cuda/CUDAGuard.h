// Guards of the current device and stream: there is only one of each.
#pragma once
#include <optional>

#include "c10/cuda/CUDAStream.h"

namespace c10::cuda {
struct CUDAGuard {
  explicit CUDAGuard(DeviceIndex) {}
  explicit CUDAGuard(Device) {}
  ~CUDAGuard() {}
  void set_device(Device) {}
  void reset_device(Device) {}
  void set_index(DeviceIndex) {}
};
struct OptionalCUDAGuard {
  OptionalCUDAGuard() {}
  explicit OptionalCUDAGuard(std::optional<Device>) {}
  explicit OptionalCUDAGuard(std::optional<DeviceIndex>) {}
  explicit OptionalCUDAGuard(Device) {}
  ~OptionalCUDAGuard() {}
  void set_device(Device) {}
  void reset() {}
};
struct CUDAStreamGuard {
  explicit CUDAStreamGuard(CUDAStream) {}
  ~CUDAStreamGuard() {}
};
using CUDAMultiStreamGuard = CUDAStreamGuard;
}  // namespace c10::cuda

namespace at::cuda {
using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStreamGuard;
using c10::cuda::OptionalCUDAGuard;
}  // namespace at::cuda
