// What translated code and the device headers ask of the runtime; none of this is compiled with instrumentation.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kbench_cuda/vector_types.h"

#define KBENCH_HIDDEN __attribute__((visibility("hidden")))
// Code of the headers that touches the runtime's own memory must not report those accesses as the kernel's.
#define KBENCH_UNSEEN __attribute__((no_sanitize("thread"), no_sanitize("undefined")))
// The last parameter of a device function: where the candidate calls it.
#define KBENCH_SITE ::kbench_cuda::Site site = {__builtin_FILE(), __builtin_LINE()}

namespace kbench_cuda {

constexpr int kWarpSize = 32;
constexpr unsigned kFullMask = 0xffffffffu;

// A place in the candidate's own source.
struct Site {
  const char* file;
  int line;
};

// The indices of a thread do not change while its fiber lives, so the compiler may keep them over barriers.
KBENCH_HIDDEN uint3 thread_index() noexcept __attribute__((const));
KBENCH_HIDDEN uint3 block_index() noexcept __attribute__((const));
KBENCH_HIDDEN dim3 block_size() noexcept __attribute__((const));
KBENCH_HIDDEN dim3 grid_size() noexcept __attribute__((const));
KBENCH_HIDDEN unsigned lane() noexcept __attribute__((const));
KBENCH_HIDDEN unsigned thread_rank() noexcept __attribute__((const));
KBENCH_HIDDEN bool in_kernel() noexcept;

enum class Vote : uint8_t { none, count, all, any };
KBENCH_HIDDEN int block_barrier(Vote vote, int predicate, Site site);
KBENCH_HIDDEN void grid_barrier(Site site);
KBENCH_HIDDEN bool grid_is_cooperative() noexcept;
// A cluster's blocks see each other's shared memory; without one, a block is its own cluster.
KBENCH_HIDDEN void cluster_barrier(Site site);
KBENCH_HIDDEN unsigned cluster_rank() noexcept;
KBENCH_HIDDEN unsigned cluster_blocks() noexcept;
KBENCH_HIDDEN void* shared_of_rank(void* address, unsigned rank, Site site);

// What the lanes of a warp do together; it is complete when every living lane of `mask` asks for it.
enum class WarpOp : uint8_t {
  sync, shuffle, ballot, all, any, match_any, match_all,
  add, min_unsigned, max_unsigned, min_signed, max_signed, bit_and, bit_or, bit_xor,
};
// `value` is this lane's word and `source` the lane whose word it wants (shuffles only; -1 is its own).
KBENCH_HIDDEN uint64_t warp_op(WarpOp op, unsigned mask, uint64_t value, int source, Site site);
// The lanes that come to this place together: what `__activemask` and `coalesced_threads` answer.
KBENCH_HIDDEN unsigned active_mask(Site site);

// `compares`: an atomicCAS, which checks what its thread has read there before.
KBENCH_HIDDEN void note_atomic(const void* address, size_t size, bool compares, Site site);
KBENCH_HIDDEN void note_read(const void* address, size_t size, Site site);
KBENCH_HIDDEN void note_write(const void* address, size_t size, Site site);
KBENCH_HIDDEN void fence();
// Lets other threads go on; for loops that wait for memory to change.
KBENCH_HIDDEN void pause(Site site);
[[noreturn]] KBENCH_HIDDEN void fault(const char* reason, Site site, const char* detail);

// One `__shared__` variable of one kernel: its place in a block's shared memory is settled at first use.
class SharedVariable {
 public:
  KBENCH_HIDDEN void* address(size_t size, size_t alignment, Site site);

 private:
  uint64_t launch_ = 0;
  uint32_t offset_ = 0;
};
KBENCH_HIDDEN void* dynamic_shared() noexcept;
KBENCH_HIDDEN size_t dynamic_shared_bytes() noexcept;
KBENCH_HIDDEN void check_launch_bounds(unsigned threads, Site site);

// Memory that a kernel may touch. A range replaces older ones that it overlaps.
KBENCH_HIDDEN void note_memory(const void* address, size_t bytes);
KBENCH_HIDDEN void forget_memory(const void* address);
KBENCH_HIDDEN void* allocate(size_t bytes);
KBENCH_HIDDEN void release(void* address);

struct Shape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  bool cooperative = false;
  dim3 cluster = {};
};
// Runs `body(data)` once for each thread. Raises the first fault as std::runtime_error; a launch that a device
// refuses is not run and leaves its code for cudaGetLastError.
KBENCH_HIDDEN void launch(const char* kernel, const Shape& shape, void (*body)(void*), void* data, Site site);
// A thread's accesses count from here, when its arguments are in place, to there.
KBENCH_HIDDEN void enter_kernel() noexcept;
KBENCH_HIDDEN void leave_kernel() noexcept;

KBENCH_HIDDEN int last_error(bool clear) noexcept;
KBENCH_HIDDEN void set_last_error(int code) noexcept;
KBENCH_HIDDEN void allow_dynamic_shared(size_t bytes) noexcept;

// A `__device__` or `__constant__` variable, made known when the module loads.
struct GlobalVariable {
  GlobalVariable(const void* address, size_t bytes) { note_memory(address, bytes); }
};

}  // namespace kbench_cuda
