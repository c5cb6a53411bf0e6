#pragma once
#include "c10/cuda/CUDAStream.h"
#include "c10/cuda/CUDAException.h"
#include "c10/cuda/CUDAFunctions.h"

namespace at::cuda {
inline const cudaDeviceProp* getCurrentDeviceProperties() {
  static const cudaDeviceProp properties;
  return &properties;
}
inline const cudaDeviceProp* getDeviceProperties(c10::DeviceIndex) { return getCurrentDeviceProperties(); }
inline int warp_size() { return 32; }
inline bool is_available() { return true; }
}  // namespace at::cuda
