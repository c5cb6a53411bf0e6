// An error of the runtime becomes torch's exception, with the words that a device's has.
#pragma once
#include <c10/util/Exception.h>

#include "kbench_cuda/device.h"

#define C10_CUDA_CHECK(expression)                                                     \
  do {                                                                                 \
    const cudaError_t kbench_error = (expression);                                     \
    if (kbench_error != cudaSuccess) cudaGetLastError();                               \
    TORCH_CHECK(kbench_error == cudaSuccess, "CUDA error: ", cudaGetErrorString(kbench_error)); \
  } while (0)
#define C10_CUDA_CHECK_WARN(expression) C10_CUDA_CHECK(expression)
#define C10_CUDA_ERROR_HANDLED(expression) (expression)
#define C10_CUDA_IGNORE_ERROR(expression) static_cast<void>(expression)
#define C10_CUDA_CLEAR_ERROR() static_cast<void>(cudaGetLastError())
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define AT_CUDA_CHECK(expression) C10_CUDA_CHECK(expression)
