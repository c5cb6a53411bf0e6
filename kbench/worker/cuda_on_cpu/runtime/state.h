// The runtime's own types: a launch is worked off by workers (one OS thread each), a worker runs blocks, a block
// runs one fiber for each CUDA thread. Blocks stay with their worker and fibers with their block, so nothing of a
// block needs a lock; global memory and the launch do.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "kbench_cuda/runtime.h"

namespace kbench_cuda {

// Fresh memory holds this in every word. As float, half and bfloat16 it is a signalling NaN that no arithmetic
// makes, so a word that still has it was written by nobody.
constexpr uint32_t kUnwritten = 0x7fb37fb3u;

// Where a block's accesses of shared memory stand: no variable's, a variable's but not yet written, written.
enum : uint8_t { kNoVariable = 0, kFresh = 1, kWritten = 2 };

// Of one fiber; the lowest page is a guard, so that an overflow ends the process instead of spoiling a neighbour.
constexpr size_t kStackBytes = 128 << 10;

// An H200, as far as a launch can tell.
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxThreadsPerProcessor = 2048;
constexpr unsigned kMaxBlocksPerProcessor = 32;
constexpr unsigned kMaxClusterBlocks = 16;
constexpr unsigned kProcessors = 132;
constexpr size_t kSharedBytes = 48 << 10;
constexpr size_t kSharedBytesOptIn = 227 << 10;
constexpr size_t kSharedBytesPerProcessor = 228 << 10;

// One access of memory: by whom and when. `time` is the launch's count of fences, `clock` the worker's of barriers.
struct Access {
  uint32_t time = 0;
  uint32_t clock = 0;
  uint32_t block = 0;
  uint32_t place = 0;  // see places.cpp
  uint16_t thread = 0;
  uint8_t bytes = 0;  // which bytes of the cell
  uint8_t atomic = 0;
};

// What is remembered of one to four bytes: the last write and two of the readers since.
struct Cell {
  Access write;
  Access reads[2];
};

enum class State : uint8_t { ready, paused, at_block_barrier, at_grid_barrier, at_cluster_barrier, at_warp, at_active_mask, done };

struct Block;
struct Arena;
struct Range;

// Two cache lines have what every access and every switch need; the rest is for who asks.
struct alignas(64) Fiber {
  uintptr_t shared_low = 0;
  uintptr_t stack_low = 0;
  Arena* arena = nullptr;
  Range** ranges = nullptr;  // the worker's
  Block* block = nullptr;
  uint32_t clock = 0;
  uint32_t barrier_clock = 0;  // accesses before it, by any thread of the block, are ordered before this thread
  uint32_t settled_clock = 0;  // shared memory: accesses before it, by anyone, are ordered before this thread
  uint16_t thread = 0;
  uint8_t pending_bytes = 0;
  State state = State::ready;
  uintptr_t looked_at = 0;  // where the last atomic was, until what was released there is acquired

  void* stack_pointer = nullptr;
  uint64_t given = 0;
  uint64_t result = 0;
  Site site = {"", 0};
  unsigned mask = 0;
  int source = -1;
  WarpOp warp_op = WarpOp::sync;
  Vote vote = Vote::none;

  uint3 index = {0, 0, 0};
  uint32_t cluster_clock = 0;  // accesses before it, by any thread of the cluster, are ordered before this thread
  uint32_t grid_time = 0;      // likewise for any block of the grid
  uint32_t polls = 0;
  uint32_t poll_place = 0;
  uint32_t fenced = 0;    // writes before this time are out, for who acquires a later release
  uint32_t released = 0;  // the last fence that was released
  uint32_t acquired = 0;  // releases up to this time are seen
  uint32_t lane_clocks[kWarpSize] = {};  // up to which clock each lane of the warp is ordered before this thread

  // A write that collides, kept until it is known whether it changes memory: threads often write one same value.
  uintptr_t pending_address = 0;
  uint8_t pending_old[16] = {};
  Access pending_other;
  Access pending_access;

  // A plain read of what another thread updates atomically, kept until it is known whether an atomicCAS checks it.
  uintptr_t doubtful_address = 0;
  Access doubtful_other;
  Access doubtful_access;
};

// The shared memory of a block that runs: bytes, what is known of each, and who touched them.
struct Arena {
  uint8_t* bytes = nullptr;
  uint8_t* states = nullptr;
  Cell* cells = nullptr;
  size_t size = 0;
  unsigned shift = 2;       // a cell holds 1 << shift bytes
  size_t dynamic_end = 0;   // offsets into `bytes`
  size_t prepared_end = 0;  // variables below are set up for the present block
};

struct Launch;
struct Worker;

struct Block {
  Worker* worker = nullptr;
  Launch* launch = nullptr;
  uint32_t number = 0;
  uint3 index = {0, 0, 0};
  unsigned threads = 0;
  unsigned live = 0;
  uint32_t grid_generation = 0;
  bool at_grid_barrier = false;
  bool at_cluster_barrier = false;
  bool joined = false;  // a barrier of its cluster is behind it: all its blocks have begun
  unsigned rank = 0;           // in its cluster
  std::vector<Block*> cluster;  // by rank, itself included; empty without clusters
  uint64_t random = 0;
  std::string suspicion;  // a read of unwritten memory since the last barrier
  uint32_t suspicion_place = 0;
  std::vector<Fiber> fibers;
  std::vector<char*> stacks;
  Arena arena;
};

struct Range {
  uintptr_t low = 0;
  uintptr_t high = 0;
  std::atomic<Cell*> cells{nullptr};
  unsigned shift = 2;
  bool unshadowed = false;  // too large to remember who touched it
};

constexpr unsigned kRangeCache = 256;

// The places of sites that were asked for last.
struct KnownSite {
  Site site{nullptr, 0};
  uint32_t place = 0;
};
constexpr unsigned kKnownSites = 64;

struct Worker {
  Launch* launch = nullptr;
  Fiber* running = nullptr;
  void* stack_pointer = nullptr;
  uint32_t clock = 1;
  Range* ranges[kRangeCache] = {};
  KnownSite known_sites[kKnownSites];
  void* home = nullptr;  // the stack of the OS thread, to which the scheduler returns when done or failed
  std::vector<std::unique_ptr<Block>> active;
  std::vector<std::unique_ptr<Block>> spare;
};

// A release by one block: what came before `covers` is seen by who acquires at or after `at`.
struct Release {
  uint32_t covers;
  uint32_t at;
};

struct Launch {
  const char* kernel = "";
  Shape shape{};
  void (*body)(void*) = nullptr;
  void* data = nullptr;
  Site site{"", 0};
  uint64_t number = 0;
  uint32_t start = 0;  // time
  uint64_t seed = 0;
  uint64_t blocks = 0;
  uint64_t clusters = 0;  // each of one block where there are none
  std::atomic<uint64_t> next_cluster{0};
  std::atomic<uint64_t> progress{0};
  std::atomic<bool> failed{false};
  std::atomic<bool> has_releases{false};
  std::atomic<uint64_t> grid_arrived{0};
  std::atomic<uint32_t> grid_generation{0};
  std::atomic<uint32_t> grid_time{0};

  std::mutex mutex;  // for what follows
  std::string fault;
  uint32_t static_end = 0;
  std::unordered_map<uint32_t, std::vector<Release>> releases;
  std::unordered_map<uintptr_t, uint32_t> released_at;
};

// The ends of this module in memory, from the linker.
extern "C" const char __ehdr_start __attribute__((visibility("hidden")));
extern "C" const char _end __attribute__((visibility("hidden")));

// `__thread`: looked at by every access, so without the call that `thread_local` may make. These two are all that the
// library has of its kind: the room for such variables is small once a process has begun.
#define KBENCH_QUICK_THREAD_LOCAL __thread __attribute__((visibility("hidden"), tls_model("initial-exec")))
extern KBENCH_QUICK_THREAD_LOCAL Fiber* current;
extern KBENCH_QUICK_THREAD_LOCAL Worker* worker;
extern std::atomic<uint32_t> the_time __attribute__((visibility("hidden")));

// Leaves the running fiber; returns when the scheduler comes back to it.
void suspend();
[[noreturn]] void fail(const char* reason, uint32_t place, const std::string& detail);

// A place is a program counter of this module or, with the top bit set, a Site: 32 bits to keep with each access.
inline uint32_t place_of(const void* program_counter) {
  return static_cast<uint32_t>(static_cast<const char*>(program_counter) - &__ehdr_start);
}
uint32_t place_of(Site site);
struct Line {
  std::string file;
  int line;
};
Line line_of(uint32_t place);

void begin_block_memory(Block& block);
void* map_memory(size_t bytes);
void settle_pending(Fiber& fiber);
void settle_doubt(Fiber& fiber);
void synchronise(Fiber& fiber, uintptr_t address);
void acquire(Fiber& fiber);
void poll(uint32_t place);

}  // namespace kbench_cuda
