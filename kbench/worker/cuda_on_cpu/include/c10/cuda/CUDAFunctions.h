// Questions that torch's C++ asks the device.
#pragma once
#include <c10/core/Device.h>

#include "kbench_cuda/device.h"

namespace c10::cuda {
inline DeviceIndex device_count() noexcept { return 1; }
inline DeviceIndex current_device() { return 0; }
inline void set_device(DeviceIndex) {}
inline void device_synchronize() {}
inline int warp_size() { return 32; }
}  // namespace c10::cuda
