// torch's memory on the CPU, as a device has it: fresh memory that nobody has written is recognisable, and every
// tensor made after the candidate's library was loaded has a known end with nothing behind it.
#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <cstring>

#include "kbench_cuda/runtime.h"

namespace kbench_cuda {

namespace {

void free_memory(void* memory) { release(memory); }

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = bytes ? kbench_cuda::allocate(bytes) : nullptr;
    TORCH_CHECK(memory || !bytes, "no memory for ", bytes, " bytes");
    return {memory, memory, &free_memory, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

// Never destroyed: tensors may be freed after this library's own end.
Allocator& the_allocator = *new Allocator;

const bool installed = [] {
  c10::SetAllocator(c10::DeviceType::CPU, &the_allocator);
  return true;
}();

}  // namespace

}  // namespace kbench_cuda
