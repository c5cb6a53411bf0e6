// Asynchronous copies into shared memory. Here they are done when they are issued: a kernel that reads before it
// waits reads the right bytes, which a device does not promise.
#pragma once
#include "kbench_cuda/device.h"

inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0, KBENCH_SITE) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % bytes)
    ::kbench_cuda::fault("cuda:misaligned", site, "an asynchronous copy whose ends are no multiples of its size");
  ::kbench_cuda::copy_bytes(to, from, bytes - zeros, site);
  ::kbench_cuda::set_bytes(static_cast<char*>(to) + (bytes - zeros), 0, zeros, site);
}
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(size_t) {}
