// Which memory may a thread touch, has anyone written it, and who else touched it without a barrier between?
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>

#include "state.h"

namespace kbench_cuda {

namespace {

// Between two variables of a block's shared memory, and round it: an index that is off by a row still lands here.
constexpr size_t kSharedGap = 4096;
constexpr size_t kSharedCapacity = 3 * kSharedGap + kSharedBytesOptIn + kSharedBytesOptIn;
// Round memory that a kernel may touch.
constexpr size_t kGuardBytes = 4096;
// What is remembered of accesses takes 64 bytes a cell; beyond this, races in a tensor are not looked for.
constexpr size_t kShadowLimitBytes = size_t{2} << 30;
// How far beyond a block's shared memory an address still counts as meant for it.
constexpr uintptr_t kNearBytes = 1 << 20;

std::mutex ranges_mutex;
// By their first byte; they do not overlap. Variables of the candidate are noted while the module loads, so this
// must stand before any of its own initialisers runs.
__attribute__((init_priority(101))) std::map<uintptr_t, std::unique_ptr<Range>> ranges;
size_t shadow_bytes = 0;

// Cells of global memory are shared by the workers; those of shared memory are one worker's.
constexpr unsigned kLocks = 4096;
std::atomic_flag cell_locks[kLocks];

template <bool needed>
struct CellLock {
  explicit CellLock(const Cell*) {}
  ~CellLock() {}
};
template <>
struct CellLock<true> {
  explicit CellLock(const Cell* cell) : flag(cell_locks[(reinterpret_cast<uintptr_t>(cell) / sizeof(Cell)) % kLocks]) {
    while (flag.test_and_set(std::memory_order_acquire)) {
    }
  }
  ~CellLock() { flag.clear(std::memory_order_release); }
  std::atomic_flag& flag;
};

unsigned shift_for(uintptr_t address, size_t size) {
  uintptr_t bits = address | size;
  return bits & 1 ? 0 : bits & 2 ? 1 : 2;
}

size_t cells_for(size_t bytes, unsigned shift) { return (bytes >> shift) + 2; }

void forget_cells(Range& range) {
  Cell* cells = range.cells.exchange(nullptr);
  if (!cells) return;
  size_t bytes = cells_for(range.high - range.low, range.shift) * sizeof(Cell);
  munmap(cells, bytes);
  shadow_bytes -= bytes;
}

void forget_overlaps(uintptr_t low, uintptr_t high) {
  auto next = ranges.lower_bound(low);
  if (next != ranges.begin() && std::prev(next)->second->high > low) next = std::prev(next);
  while (next != ranges.end() && next->second->low < high) {
    forget_cells(*next->second);
    next = ranges.erase(next);
  }
}

Range* find_range(uintptr_t address, size_t size) {
  std::lock_guard<std::mutex> lock(ranges_mutex);
  auto next = ranges.upper_bound(address);
  if (next == ranges.begin()) return nullptr;
  Range* range = std::prev(next)->second.get();
  return address + size <= range->high ? range : nullptr;
}

Cell* make_cells(Range& range, uintptr_t address, size_t size) {
  std::lock_guard<std::mutex> lock(ranges_mutex);
  if (Cell* cells = range.cells.load()) return cells;
  range.shift = shift_for(address, size);
  size_t bytes = cells_for(range.high - range.low, range.shift) * sizeof(Cell);
  if (shadow_bytes + bytes > kShadowLimitBytes) {
    range.unshadowed = true;
    return nullptr;
  }
  shadow_bytes += bytes;
  auto* cells = static_cast<Cell*>(map_memory(bytes));
  range.cells.store(cells);
  return cells;
}

std::string thread_text(const Fiber& fiber) {
  const uint3& t = fiber.index;
  const uint3& b = fiber.block->index;
  char text[96];
  std::snprintf(text, sizeof text, "thread (%u,%u,%u) of block (%u,%u,%u)", t.x, t.y, t.z, b.x, b.y, b.z);
  return text;
}

std::string count_text(size_t size) { return std::to_string(size) + (size == 1 ? " byte" : " bytes"); }

[[noreturn]] void fail_access(const char* reason, uint32_t place, bool writes, size_t size, const std::string& what) {
  const Fiber& fiber = *current;
  fail(reason, place, thread_text(fiber) + (writes ? " writes " : " reads ") + count_text(size) + what);
}

[[noreturn]] void fail_shared_bounds(const Arena& arena, uint32_t place, bool writes, uintptr_t address, size_t size) {
  const auto low = reinterpret_cast<uintptr_t>(arena.bytes);
  size_t offset = address - low;
  std::string what = " of shared memory outside every variable of the block";
  // Name the variable that ends nearest below.
  if (address >= low) {
    size_t end = std::min(offset, arena.size);
    while (end > 0 && arena.states[end - 1] == kNoVariable) end--;
    if (end > 0 && offset - end < kNearBytes)
      what = " of shared memory, " + count_text(offset - end) + " past the end of a shared variable";
    if (offset < arena.size && arena.states[offset] != kNoVariable) what = " that begin inside and end outside a shared variable";
  }
  fail_access("cuda:shared-bounds", place, writes, size, what);
}

[[noreturn]] void fail_global_bounds(uint32_t place, bool writes, uintptr_t address, size_t size) {
  if (address - (current->shared_low - kNearBytes) < 2 * kNearBytes + kSharedCapacity)
    fail_shared_bounds(current->block->arena, place, writes, address, size);
  if (address < 4096) fail_access("cuda:global-bounds", place, writes, size, " at a null pointer");
  std::string what = " of memory that is no tensor's and no allocation's";
  {
    std::lock_guard<std::mutex> lock(ranges_mutex);
    auto next = ranges.upper_bound(address);
    uintptr_t below = next == ranges.begin() ? UINTPTR_MAX : address - std::prev(next)->second->high;
    uintptr_t above = next == ranges.end() ? UINTPTR_MAX : next->second->low - address;
    if (next != ranges.begin() && std::prev(next)->second->high > address) {
      const Range& range = *std::prev(next)->second;
      what = " that begin inside and end outside memory of " + count_text(range.high - range.low);
    } else if (below <= above && below < kNearBytes) {
      const Range& range = *std::prev(next)->second;
      what = ", " + count_text(below) + " past the end of memory of " + count_text(range.high - range.low);
    } else if (above < kNearBytes) {
      what = ", " + count_text(above) + " before memory of " + count_text(next->second->high - next->second->low);
    }
  }
  fail_access("cuda:global-bounds", place, writes, size, what);
}

bool released_before(const Access& access, const Fiber& fiber) {
  Launch& launch = *fiber.block->launch;
  if (!launch.has_releases.load(std::memory_order_acquire)) return false;
  std::lock_guard<std::mutex> lock(launch.mutex);
  auto found = launch.releases.find(access.block);
  if (found == launch.releases.end()) return false;
  for (const Release& release : found->second)
    if (access.time < release.covers && release.at <= fiber.acquired) return true;
  return false;
}

// Whether barriers order an access before what the fiber does now. In shared memory,
// another block is an earlier one, or one of the cluster.
template <bool shared>
bool ordered_by_barriers(const Access& access, const Fiber& fiber) {
  const Block& block = *fiber.block;
  if (access.time < block.launch->start) return true;
  if (access.block != block.number) return shared ? access.clock < fiber.cluster_clock : access.time < fiber.grid_time;
  if (access.thread == fiber.thread || access.clock < fiber.barrier_clock) return true;
  return access.thread / kWarpSize == fiber.thread / kWarpSize && access.clock <= fiber.lane_clocks[access.thread % kWarpSize];
}

// Whether barriers, or fences and what was released behind them, do.
template <bool shared>
bool ordered(const Access& access, const Fiber& fiber) {
  if (ordered_by_barriers<shared>(access, fiber)) return true;
  return !(shared && access.block != fiber.block->number) && released_before(access, fiber);
}

template <bool shared>
bool collides(const Access& access, const Fiber& fiber, uint8_t bytes, bool atomic) {
  return (access.bytes & bytes) && !(access.atomic && atomic) && !ordered<shared>(access, fiber);
}

template <bool shared>
void remember_read(Cell& cell, const Access& access, const Fiber& fiber) {
  Access* slot = &cell.reads[1];
  for (Access& read : cell.reads) {
    if ((read.thread == access.thread && read.block == access.block) || !read.bytes || ordered_by_barriers<shared>(read, fiber)) {
      slot = &read;
      break;
    }
  }
  *slot = access;
}

// Fills in the access that this one collides with, if any; otherwise this one is remembered.
template <bool shared, bool writes>
bool visit(Cell& cell, const Access& access, const Fiber& fiber, Access* other) {
  bool atomic = access.atomic;
  if (collides<shared>(cell.write, fiber, access.bytes, atomic)) {
    *other = cell.write;
    return true;
  }
  if (!writes) {
    remember_read<shared>(cell, access, fiber);
    return false;
  }
  for (const Access& read : cell.reads) {
    if (collides<shared>(read, fiber, access.bytes, atomic)) {
      *other = read;
      return true;
    }
  }
  cell.write = access;
  return false;
}

[[noreturn]] void fail_race(const Fiber& fiber, bool shared, const Access& access, const Access& other, bool writes, bool other_writes) {
  Line line = line_of(other.place);
  char text[320];
  const dim3& size = fiber.block->launch->shape.block;
  unsigned t = other.thread;
  std::snprintf(text, sizeof text, " %s what thread (%u,%u,%u) of %s %s%s at line %d, with no barrier between",
                access.atomic ? "updates" : writes ? "writes" : "reads", t % size.x, t / size.x % size.y, t / size.x / size.y,
                other.block == access.block ? "the block" : "another block", other.atomic ? "updates" : other_writes ? "writes" : "reads",
                shared ? " in shared memory" : " in global memory", line.line);
  fail(shared ? "cuda:shared-race" : "cuda:global-race", access.place, thread_text(fiber) + text);
}

bool is_write(const Cell& cell, const Access& other) { return std::memcmp(&cell.write, &other, sizeof other) == 0; }

// What an access does. An update is an atomic that reads and writes at once; the other two atomics are volatile
// accesses of global memory.
enum class Kind { read, write, atomic_read, atomic_write, update };
constexpr bool reads_memory(Kind kind) { return kind == Kind::read || kind == Kind::atomic_read || kind == Kind::update; }
constexpr bool writes_memory(Kind kind) { return kind == Kind::write || kind == Kind::atomic_write || kind == Kind::update; }
constexpr bool is_atomic(Kind kind) { return kind != Kind::read && kind != Kind::write; }

// A read of shared memory that no one else has written since the last barrier, in one cell: by far the most frequent.
inline bool visit_quickly(Cell& cell, const Fiber& fiber, uint8_t bytes, uint32_t place) {
  if (cell.write.clock >= fiber.settled_clock && cell.write.thread != fiber.thread) return false;
  Access* slot = &cell.reads[0];
  if (slot->thread != fiber.thread && slot->clock >= fiber.settled_clock) {
    const unsigned warp = slot->thread / kWarpSize;
    const uint8_t known = slot->bytes;
    slot = &cell.reads[1];
    // Of two readers in two warps, every writer collides with one at least: a third need not be remembered.
    if (slot->clock >= fiber.settled_clock && slot->thread != fiber.thread && slot->thread / kWarpSize != warp &&
        (known & slot->bytes & bytes) == bytes)
      return true;
  }
  if (slot->clock == fiber.clock && slot->thread == fiber.thread && slot->bytes == bytes) return true;
  slot->time = the_time.load(std::memory_order_relaxed);
  slot->clock = fiber.clock;
  slot->block = fiber.block->number;
  slot->place = place;
  slot->thread = fiber.thread;
  slot->bytes = bytes;
  slot->atomic = 0;
  return true;
}

// The same for global memory that another launch has written: of two readers in two blocks, every writer collides
// with one. Looked at without the lock: what is torn is at worst remembered once more.
inline bool needs_no_visit(const Cell& cell, const Fiber& fiber, uint8_t bytes) {
  const uint32_t start = fiber.block->launch->start;
  const Access &one = cell.reads[0], &other = cell.reads[1];
  return cell.write.time < start && one.time >= start && other.time >= start && one.block != other.block &&
         (one.bytes & other.bytes & bytes) == bytes && !fiber.block->launch->has_releases.load(std::memory_order_relaxed);
}

template <bool shared, Kind kind>
void visit_cells(Fiber& fiber, Cell* cells, unsigned shift, uintptr_t offset, uintptr_t address, size_t size, uint32_t place) {
  constexpr bool writes = writes_memory(kind), atomic = is_atomic(kind);
  Access access;
  access.time = the_time.load(std::memory_order_relaxed);
  access.clock = fiber.clock;
  access.block = fiber.block->number;
  access.place = place;
  access.thread = fiber.thread;
  access.atomic = atomic;
  const size_t last = (offset + size - 1) >> shift;
  for (size_t i = offset >> shift; i <= last; i++) {
    size_t low = std::max(offset, i << shift) - (i << shift);
    size_t high = std::min(offset + size, (i + 1) << shift) - (i << shift);
    access.bytes = static_cast<uint8_t>((1u << high) - (1u << low));
    Access other;
    bool collision, other_writes;
    if (!shared && kind == Kind::read && needs_no_visit(cells[i], fiber, access.bytes)) continue;
    {
      CellLock<!shared> lock(&cells[i]);
      collision = visit<shared, writes>(cells[i], access, fiber, &other);
      other_writes = collision && is_write(cells[i], other);
    }
    if (!collision) continue;
    if (kind == Kind::read && other_writes && other.atomic) {
      // As every loop round atomicCAS begins; only the first of them is kept.
      if (fiber.doubtful_address) continue;
      fiber.doubtful_address = address;
      fiber.doubtful_other = other;
      fiber.doubtful_access = access;
      continue;
    }
    if (!writes || atomic || size > sizeof fiber.pending_old) fail_race(fiber, shared, access, other, writes, other_writes);
    fiber.pending_bytes = static_cast<uint8_t>(size);
    fiber.pending_address = address;
    std::memcpy(fiber.pending_old, reinterpret_cast<void*>(address), size);
    fiber.pending_other = other;
    fiber.pending_other.atomic |= other_writes ? 2 : 0;
    fiber.pending_access = access;
    return;
  }
}

// Smaller accesses than before: every cell becomes several.
void split_cells(Arena& arena, unsigned shift) {
  size_t factor = size_t{1} << (arena.shift - shift);
  size_t used = arena.size >> arena.shift;
  for (size_t i = used; i-- > 0;) {
    const Cell cell = arena.cells[i];
    for (size_t k = 0; k < factor; k++) arena.cells[i * factor + k] = cell;
    for (size_t k = 0; k < factor; k++) {
      Cell& part = arena.cells[i * factor + k];
      auto cut = [&](uint8_t bytes) {
        return static_cast<uint8_t>((bytes >> (k << shift)) & ((1u << (1u << shift)) - 1));
      };
      part.write.bytes = cut(part.write.bytes);
      for (Access& read : part.reads) read.bytes = cut(read.bytes);
    }
  }
  arena.shift = shift;
}

// The words are compared at once where they are one, two or four.
inline bool all_written(const uint8_t* states, size_t size) {
  constexpr uint64_t kAll = 0x0202020202020202u;
  uint64_t word = 0;
  if (size == 4) return std::memcpy(&word, states, 4), word == (kAll & 0xffffffffu);
  if (size == 8) return std::memcpy(&word, states, 8), word == kAll;
  if (size == 16) return all_written(states, 8) && all_written(states + 8, 8);
  for (size_t i = 0; i < size; i++)
    if (states[i] != kWritten) return false;
  return true;
}

// A read of unwritten memory is a race if another thread writes there before the next barrier, which only that
// write shows; so it is kept until the barrier, and reported if nothing else is.
void suspect_unwritten(Fiber& fiber, uint32_t place, size_t size, const char* where) {
  Block& block = *fiber.block;
  if (!block.suspicion.empty()) return;
  block.suspicion_place = place;
  block.suspicion = thread_text(fiber) + " reads " + count_text(size) + where;
}

template <Kind kind>
void shared_access(Fiber& fiber, Arena& arena, uintptr_t address, size_t size, uint32_t place) {
  constexpr bool writes = writes_memory(kind);
  size_t offset = address - reinterpret_cast<uintptr_t>(arena.bytes);
  if (offset + size > arena.size) fail_shared_bounds(arena, place, writes, address, size);
  if (!all_written(arena.states + offset, size)) {
    for (size_t i = offset; i < offset + size; i++)
      if (arena.states[i] == kNoVariable) fail_shared_bounds(arena, place, writes, address, size);
    if (reads_memory(kind)) suspect_unwritten(fiber, place, size, " of shared memory that no thread of the block has written");
    if (writes) std::memset(arena.states + offset, kWritten, size);
  }
  unsigned shift = arena.shift;
  if (kind == Kind::read && size == size_t{1} << shift && (offset & (size - 1)) == 0 &&
      visit_quickly(arena.cells[offset >> shift], fiber, static_cast<uint8_t>((1u << size) - 1), place))
    return;
  shift = shift_for(offset, size);
  if (shift < arena.shift) split_cells(arena, shift);
  visit_cells<true, kind>(fiber, arena.cells, arena.shift, offset, address, size, place);
}

bool is_unwritten(uintptr_t address, size_t size) {
  if (size < 4 || (address & 3)) {
    uintptr_t word = address & ~uintptr_t{3};
    return address + size <= word + 4 && *reinterpret_cast<const uint32_t*>(word) == kUnwritten;
  }
  const auto* words = reinterpret_cast<const uint32_t*>(address);
  if (size == 8) return words[0] == kUnwritten && words[1] == kUnwritten;
  for (size_t i = 0; i < size / 4; i++)
    if (words[i] == kUnwritten) return true;
  return false;
}

// Tables and literals of the module itself are no tensors, but a kernel may read them.
bool is_in_module(uintptr_t address) {
  return address >= reinterpret_cast<uintptr_t>(&__ehdr_start) && address < reinterpret_cast<uintptr_t>(&_end);
}

template <Kind kind>
void global_access(Fiber& fiber, uintptr_t address, size_t size, uint32_t place) {
  constexpr bool writes = writes_memory(kind);
  Range*& slot = worker->ranges[(address >> 12) % kRangeCache];
  Range* range = slot;
  if (!range || address < range->low || address + size > range->high) {
    range = find_range(address, size);
    if (!range && !writes && is_in_module(address)) return;
    if (!range) fail_global_bounds(place, writes, address, size);
    slot = range;
  }
  if (reads_memory(kind) && is_unwritten(address, size))
    suspect_unwritten(fiber, place, size, " of global memory that nobody has written");
  Cell* cells = range->cells.load(std::memory_order_acquire);
  if (!cells && writes && !range->unshadowed) cells = make_cells(*range, address, size);
  if (!cells) return;
  visit_cells<false, kind>(fiber, cells, range->shift, address - range->low, address, size, place);
}

template <Kind kind>
inline void access_memory(const void* pointer, size_t size, uint32_t place) {
  Fiber& fiber = *current;
  auto address = reinterpret_cast<uintptr_t>(pointer);
  if (fiber.pending_bytes) settle_pending(fiber);
  // The stack is the fiber's own; an atomic itself may use it before it is made.
  if (address - fiber.stack_low < kStackBytes) return;
  if (fiber.looked_at) acquire(fiber);
  if (address - fiber.shared_low < kSharedCapacity) return shared_access<kind>(fiber, fiber.block->arena, address, size, place);
  for (Block* peer : fiber.block->cluster) {
    if (address - reinterpret_cast<uintptr_t>(peer->arena.bytes) >= kSharedCapacity) continue;
    if (!fiber.block->joined)
      fail_access("cuda:barrier", place, writes_memory(kind), size, " of shared memory of a block that may not have begun: no barrier of the cluster came before");
    if (!peer->live) fail_access("cuda:shared-bounds", place, writes_memory(kind), size, " of shared memory of a block that has left its cluster");
    return shared_access<kind>(fiber, peer->arena, address, size, place);
  }
  global_access<kind>(fiber, address, size, place);
}

// What most reads come to, without a call: written memory that nobody else has touched of late.
template <size_t size>
inline bool read_quickly(const Fiber& fiber, uintptr_t address, uint32_t place) {
  if (fiber.pending_bytes || fiber.looked_at) return false;
  const size_t offset = address - fiber.shared_low;
  if (offset < kSharedCapacity) {
    const Arena& arena = *fiber.arena;
    if (size < 4 || offset % size || arena.shift != 2 || !all_written(arena.states + offset, size)) return false;
    for (size_t i = 0; i < size / 4; i++)
      if (!visit_quickly(arena.cells[offset / 4 + i], fiber, 0xf, place)) return false;
    return true;
  }
  if (address - fiber.stack_low < kStackBytes) return true;
  const Range* range = fiber.ranges[(address >> 12) % kRangeCache];
  return range && address >= range->low && address + size <= range->high && !range->cells.load(std::memory_order_acquire) &&
         !is_unwritten(address, size);
}

// Apart, so that the quick way saves no registers for it.
template <size_t size>
__attribute__((noinline)) void read_slowly(const void* pointer, uint32_t place) {
  access_memory<Kind::read>(pointer, size, place);
}

template <size_t size>
inline void read_memory(const void* pointer, uint32_t place) {
  if (current && !read_quickly<size>(*current, reinterpret_cast<uintptr_t>(pointer), place)) read_slowly<size>(pointer, place);
}

}  // namespace

void* map_memory(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

void settle_pending(Fiber& fiber) {
  size_t size = fiber.pending_bytes;
  fiber.pending_bytes = 0;
  if (std::memcmp(reinterpret_cast<void*>(fiber.pending_address), fiber.pending_old, size) == 0) return;
  Access other = fiber.pending_other;
  bool other_writes = other.atomic & 2;
  other.atomic &= 1;
  bool shared = fiber.pending_address - fiber.shared_low < kSharedCapacity;
  fail_race(fiber, shared, fiber.pending_access, other, true, other_writes);
}

void settle_doubt(Fiber& fiber) {
  bool shared = fiber.doubtful_address - fiber.shared_low < kSharedCapacity;
  fail_race(fiber, shared, fiber.doubtful_access, fiber.doubtful_other, false, true);
}

namespace {

// The thread's atomicCAS has checked what it read before: as if it had not been read.
void forget_own_reads(Fiber& fiber, uintptr_t address, size_t size) {
  if (fiber.doubtful_address == address) fiber.doubtful_address = 0;
  Cell* cells = nullptr;
  unsigned shift = 0;
  uintptr_t offset = address - fiber.shared_low;
  const bool shared = offset < kSharedCapacity;
  if (shared) {
    cells = fiber.arena->cells;
    shift = fiber.arena->shift;
  } else if (Range* range = find_range(address, size)) {
    cells = range->cells.load(std::memory_order_acquire);
    shift = range->shift;
    offset = address - range->low;
  }
  if (!cells) return;
  for (size_t i = offset >> shift; i <= (offset + size - 1) >> shift; i++) {
    CellLock<true> lock(&cells[i]);
    for (Access& read : cells[i].reads)
      if (!read.atomic && read.thread == fiber.thread && read.block == fiber.block->number) read = Access();
  }
}

}  // namespace

void note_read(const void* address, size_t size, Site site) {
  if (current && size) access_memory<Kind::read>(address, size, place_of(site));
}

void note_write(const void* address, size_t size, Site site) {
  if (current && size) access_memory<Kind::write>(address, size, place_of(site));
}

void note_atomic(const void* address, size_t size, bool compares, Site site) {
  if (!current) return;
  if (reinterpret_cast<uintptr_t>(address) % size) fault("cuda:misaligned", site, "an atomic on an address that is no multiple of its size");
  if (compares) forget_own_reads(*current, reinterpret_cast<uintptr_t>(address), size);
  access_memory<Kind::update>(address, size, place_of(site));
  synchronise(*current, reinterpret_cast<uintptr_t>(address));
}

void fence() {
  if (current) current->fenced = the_time.fetch_add(1) + 1;
}

// Before an atomic or a volatile access of global memory: releases what this thread has fenced, and remembers to
// acquire what others have released there, once the access is made.
void synchronise(Fiber& fiber, uintptr_t address) {
  fiber.looked_at = address;
  if (fiber.fenced <= fiber.released) return;
  Launch& launch = *fiber.block->launch;
  std::lock_guard<std::mutex> lock(launch.mutex);
  uint32_t now = the_time.fetch_add(1) + 1;
  launch.released_at[address] = now;
  launch.releases[fiber.block->number].push_back({fiber.fenced, now});
  launch.has_releases.store(true, std::memory_order_release);
  fiber.released = fiber.fenced;
}

// After it: who released at the address before, is ordered before this thread.
void acquire(Fiber& fiber) {
  uintptr_t address = fiber.looked_at;
  fiber.looked_at = 0;
  Launch& launch = *fiber.block->launch;
  if (!launch.has_releases.load(std::memory_order_acquire)) return;
  std::lock_guard<std::mutex> lock(launch.mutex);
  auto found = launch.released_at.find(address);
  if (found != launch.released_at.end()) fiber.acquired = std::max(fiber.acquired, found->second);
}

// --- shared memory -------------------------------------------------------------------------------------------------

void begin_block_memory(Block& block) {
  Arena& arena = block.arena;
  if (!arena.bytes) {
    arena.size = kSharedCapacity;
    arena.bytes = static_cast<uint8_t*>(map_memory(kSharedCapacity));
    arena.states = static_cast<uint8_t*>(map_memory(kSharedCapacity));
    arena.cells = static_cast<Cell*>(map_memory(cells_for(kSharedCapacity, 0) * sizeof(Cell)));
  }
  std::memset(arena.states, kNoVariable, std::max(arena.prepared_end, arena.dynamic_end));
  size_t dynamic_bytes = block.launch->shape.shared_bytes;
  std::memset(arena.states + kSharedGap, kFresh, dynamic_bytes);
  std::memset(arena.bytes + kSharedGap, kUnwritten & 0xff, dynamic_bytes);
  arena.dynamic_end = kSharedGap + dynamic_bytes;
  arena.prepared_end = 0;
}

void* SharedVariable::address(size_t size, size_t alignment, Site site) {
  Fiber& fiber = *current;
  Block& block = *fiber.block;
  Launch& launch = *block.launch;
  if (__atomic_load_n(&launch_, __ATOMIC_ACQUIRE) != launch.number) {
    std::lock_guard<std::mutex> lock(launch.mutex);
    if (launch_ != launch.number) {
      size_t begin = kSharedGap + launch.shape.shared_bytes + kSharedGap;
      if (launch.static_end) begin = launch.static_end + kSharedGap / 16;
      alignment = std::max(alignment, size_t{16});
      begin = (begin + alignment - 1) / alignment * alignment;
      offset_ = static_cast<uint32_t>(begin);
      launch.static_end = static_cast<uint32_t>(begin + size);
      __atomic_store_n(&launch_, launch.number, __ATOMIC_RELEASE);
    }
  }
  Arena& arena = block.arena;
  if (offset_ + size > arena.size - kSharedGap) fault("cuda:launch", site, "too much shared memory for one block");
  if (arena.states[offset_] == kNoVariable) {
    std::memset(arena.states + offset_, kFresh, size);
    std::memset(arena.bytes + offset_, kUnwritten & 0xff, size);
    arena.prepared_end = std::max(arena.prepared_end, offset_ + size);
  }
  return arena.bytes + offset_;
}

void* shared_of_rank(void* address, unsigned rank, Site site) {
  Block& block = *current->block;
  auto offset = reinterpret_cast<uintptr_t>(address) - current->shared_low;
  if (offset >= kSharedCapacity) fault("cuda:shared-bounds", site, "an address of no shared memory of this block is mapped to another");
  if (rank >= cluster_blocks()) fault("cuda:shared-bounds", site, "a rank that the cluster does not have");
  return block.cluster.empty() ? address : block.cluster[rank]->arena.bytes + offset;
}

void* dynamic_shared() noexcept { return current->block->arena.bytes + kSharedGap; }

size_t dynamic_shared_bytes() noexcept { return current->block->launch->shape.shared_bytes; }

// --- global memory -------------------------------------------------------------------------------------------------

void note_memory(const void* address, size_t bytes) {
  auto low = reinterpret_cast<uintptr_t>(address);
  if (!low || !bytes) return;
  std::lock_guard<std::mutex> lock(ranges_mutex);
  auto found = ranges.find(low);
  if (found != ranges.end() && found->second->high == low + bytes) return;
  forget_overlaps(low, low + bytes);
  auto range = std::make_unique<Range>();
  range->low = low;
  range->high = low + bytes;
  ranges[low] = std::move(range);
}

void forget_memory(const void* address) {
  std::lock_guard<std::mutex> lock(ranges_mutex);
  auto found = ranges.find(reinterpret_cast<uintptr_t>(address));
  if (found == ranges.end()) return;
  forget_cells(*found->second);
  ranges.erase(found);
}

void* allocate(size_t bytes) {
  size_t whole = (bytes + 63) / 64 * 64 + 2 * kGuardBytes;
  auto* memory = static_cast<char*>(std::aligned_alloc(kGuardBytes, (whole + kGuardBytes - 1) / kGuardBytes * kGuardBytes));
  if (!memory) return nullptr;
  auto* words = reinterpret_cast<uint32_t*>(memory);
  for (size_t i = 0; i < whole / 4; i++) words[i] = kUnwritten;
  note_memory(memory + kGuardBytes, bytes);
  return memory + kGuardBytes;
}

void release(void* address) {
  if (!address) return;
  forget_memory(address);
  std::free(static_cast<char*>(address) - kGuardBytes);
}

// --- what the compiler calls at every access ------------------------------------------------------------------------

#define KBENCH_CALLBACK extern "C" KBENCH_HIDDEN void
#define KBENCH_PLACE place_of(__builtin_return_address(0))
#define KBENCH_SIZED(size) \
  KBENCH_CALLBACK __tsan_read##size(void* p) { read_memory<size>(p, KBENCH_PLACE); } \
  KBENCH_CALLBACK __tsan_write##size(void* p) { if (current) access_memory<Kind::write>(p, size, KBENCH_PLACE); } \
  KBENCH_CALLBACK __tsan_unaligned_read##size(void* p) { if (current) access_memory<Kind::read>(p, size, KBENCH_PLACE); } \
  KBENCH_CALLBACK __tsan_unaligned_write##size(void* p) { if (current) access_memory<Kind::write>(p, size, KBENCH_PLACE); } \
  KBENCH_CALLBACK __tsan_volatile_read##size(void* p) { if (current) volatile_read(p, size, KBENCH_PLACE); } \
  KBENCH_CALLBACK __tsan_volatile_write##size(void* p) { if (current) volatile_write(p, size, KBENCH_PLACE); } \
  KBENCH_CALLBACK __tsan_unaligned_volatile_read##size(void* p) { if (current) volatile_read(p, size, KBENCH_PLACE); } \
  KBENCH_CALLBACK __tsan_unaligned_volatile_write##size(void* p) { if (current) volatile_write(p, size, KBENCH_PLACE); }

// In global memory a volatile access is how blocks talk to each other: atomic, and part of the order of fences. In
// shared memory it is an access as any other, except that waiting for it lets the others run.
static void volatile_read(void* p, size_t size, uint32_t place) {
  auto address = reinterpret_cast<uintptr_t>(p);
  poll(place);
  if (address - current->shared_low < kSharedCapacity) return access_memory<Kind::read>(p, size, place);
  access_memory<Kind::atomic_read>(p, size, place);
  synchronise(*current, address);
}

static void volatile_write(void* p, size_t size, uint32_t place) {
  auto address = reinterpret_cast<uintptr_t>(p);
  if (address - current->shared_low < kSharedCapacity) return access_memory<Kind::write>(p, size, place);
  access_memory<Kind::atomic_write>(p, size, place);
  synchronise(*current, address);
}

KBENCH_SIZED(1)
KBENCH_SIZED(2)
KBENCH_SIZED(4)
KBENCH_SIZED(8)
KBENCH_SIZED(16)

KBENCH_CALLBACK __tsan_read_range(void* p, unsigned long size) { if (current && size) access_memory<Kind::read>(p, size, KBENCH_PLACE); }
KBENCH_CALLBACK __tsan_write_range(void* p, unsigned long size) { if (current && size) access_memory<Kind::write>(p, size, KBENCH_PLACE); }
KBENCH_CALLBACK __tsan_init() {}
KBENCH_CALLBACK __tsan_func_entry(void*) {}
KBENCH_CALLBACK __tsan_func_exit() {}
KBENCH_CALLBACK __tsan_vptr_update(void**, void*) {}
KBENCH_CALLBACK __tsan_vptr_read(void**) {}

// Host code's own atomics (reference counts, once-flags) arrive here too.
#define KBENCH_ATOMIC(bits, type) \
  extern "C" KBENCH_HIDDEN type __tsan_atomic##bits##_load(const volatile type* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); } \
  extern "C" KBENCH_HIDDEN void __tsan_atomic##bits##_store(volatile type* p, type v, int) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); } \
  extern "C" KBENCH_HIDDEN type __tsan_atomic##bits##_exchange(volatile type* p, type v, int) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); } \
  extern "C" KBENCH_HIDDEN type __tsan_atomic##bits##_fetch_add(volatile type* p, type v, int) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); } \
  extern "C" KBENCH_HIDDEN type __tsan_atomic##bits##_fetch_sub(volatile type* p, type v, int) { return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST); } \
  extern "C" KBENCH_HIDDEN type __tsan_atomic##bits##_fetch_and(volatile type* p, type v, int) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); } \
  extern "C" KBENCH_HIDDEN type __tsan_atomic##bits##_fetch_or(volatile type* p, type v, int) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); } \
  extern "C" KBENCH_HIDDEN type __tsan_atomic##bits##_fetch_xor(volatile type* p, type v, int) { return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST); } \
  extern "C" KBENCH_HIDDEN type __tsan_atomic##bits##_fetch_nand(volatile type* p, type v, int) { return __atomic_fetch_nand(p, v, __ATOMIC_SEQ_CST); } \
  extern "C" KBENCH_HIDDEN int __tsan_atomic##bits##_compare_exchange_strong(volatile type* p, type* e, type v, int, int) { return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); } \
  extern "C" KBENCH_HIDDEN int __tsan_atomic##bits##_compare_exchange_weak(volatile type* p, type* e, type v, int, int) { return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); } \
  extern "C" KBENCH_HIDDEN type __tsan_atomic##bits##_compare_exchange_val(volatile type* p, type e, type v, int, int) { __atomic_compare_exchange_n(p, &e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); return e; }
KBENCH_ATOMIC(8, uint8_t)
KBENCH_ATOMIC(16, uint16_t)
KBENCH_ATOMIC(32, uint32_t)
KBENCH_ATOMIC(64, uint64_t)
KBENCH_CALLBACK __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
KBENCH_CALLBACK __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

// What -fsanitize=alignment,bounds calls once a check has failed; the layouts are the compiler's.
struct CheckedPlace {
  const char* file;
  uint32_t line;
  uint32_t column;
};
struct CheckedType {
  uint16_t kind;
  uint16_t info;
  char name[1];
};
struct AlignmentCheck {
  CheckedPlace place;
  const CheckedType* type;
  unsigned char log_alignment;
  unsigned char kind;
};
struct IndexCheck {
  CheckedPlace place;
  const CheckedType* array_type;
  const CheckedType* index_type;
};

KBENCH_CALLBACK __ubsan_handle_type_mismatch_v1(AlignmentCheck* check, void* address) {
  if (!current) return;
  char text[200];
  std::snprintf(text, sizeof text, "%s: a %s at an address that is no multiple of %u (it is %u more)", thread_text(*current).c_str(),
                check->type->name, 1u << check->log_alignment,
                static_cast<unsigned>(reinterpret_cast<uintptr_t>(address) & ((uintptr_t{1} << check->log_alignment) - 1)));
  fail("cuda:misaligned", place_of(Site{check->place.file, static_cast<int>(check->place.line)}), text);
}

KBENCH_CALLBACK __ubsan_handle_out_of_bounds(IndexCheck* check, void* index) {
  if (!current) return;
  char text[200];
  std::snprintf(text, sizeof text, "%s: index %lld of a variable of type %s", thread_text(*current).c_str(),
                static_cast<long long>(reinterpret_cast<intptr_t>(index)), check->array_type->name);
  fail("cuda:array-bounds", place_of(Site{check->place.file, static_cast<int>(check->place.line)}), text);
}

}  // namespace kbench_cuda
