// Fresh memory for a tensor, from the allocator that keeps what is unwritten recognisable.
#pragma once
#include <ATen/EmptyTensor.h>

namespace at::detail {
inline TensorBase empty_cuda(IntArrayRef size, ScalarType type, std::optional<Device> = std::nullopt,
                             std::optional<MemoryFormat> format = std::nullopt) {
  return empty_cpu(size, type, false, format);
}
}  // namespace at::detail
