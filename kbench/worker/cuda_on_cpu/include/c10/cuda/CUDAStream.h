// torch's streams: one of them, on which everything is done when the call returns.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "c10/cuda/CUDAFunctions.h"

namespace c10::cuda {
class CUDAStream {
 public:
  operator cudaStream_t() const { return nullptr; }
  cudaStream_t stream() const { return nullptr; }
  bool operator==(const CUDAStream&) const noexcept { return true; }
  bool operator!=(const CUDAStream&) const noexcept { return false; }
  DeviceIndex device_index() const { return 0; }
  Device device() const { return Device(DeviceType::CPU); }
  StreamId id() const { return 0; }
  bool query() const { return true; }
  void synchronize() const {}
};
inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) { return {}; }
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromPool(bool = false, DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromExternal(cudaStream_t, DeviceIndex) { return {}; }
inline void setCurrentCUDAStream(CUDAStream) {}
}  // namespace c10::cuda

namespace at::cuda {
using c10::cuda::CUDAStream;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getDefaultCUDAStream;
using c10::cuda::getStreamFromPool;
using c10::cuda::setCurrentCUDAStream;
}  // namespace at::cuda
