// Cooperative groups: the block, tiles of a warp, coalesced lanes and the grid.
#pragma once
#include "kbench_cuda/device.h"

namespace cooperative_groups {

class thread_block {
 public:
  static void sync(KBENCH_SITE) { ::kbench_cuda::block_barrier(::kbench_cuda::Vote::none, 0, site); }
  static unsigned thread_rank() { return ::kbench_cuda::thread_rank(); }
  static unsigned size() { return num_threads(); }
  static unsigned num_threads() {
    dim3 shape = ::kbench_cuda::block_size();
    return shape.x * shape.y * shape.z;
  }
  static dim3 group_index() { return ::kbench_cuda::block_index(); }
  static dim3 thread_index() { return ::kbench_cuda::thread_index(); }
  static dim3 group_dim() { return ::kbench_cuda::block_size(); }
  static dim3 dim_threads() { return ::kbench_cuda::block_size(); }
};
inline thread_block this_thread_block() { return {}; }

// Lanes of one warp that are named by a mask; what tiles and coalesced groups are.
class lanes {
 public:
  explicit lanes(unsigned mask) : mask_(mask) {}
  unsigned thread_rank() const { return static_cast<unsigned>(__popc(mask_ & ((1u << ::kbench_cuda::lane()) - 1))); }
  unsigned num_threads() const { return static_cast<unsigned>(__popc(mask_)); }
  unsigned size() const { return num_threads(); }
  void sync(KBENCH_SITE) const { __syncwarp(mask_, site); }
  template <class T>
  T shfl(T value, int rank, KBENCH_SITE) const { return at(value, rank, site); }
  template <class T>
  T shfl_down(T value, unsigned delta, KBENCH_SITE) const {
    unsigned rank = thread_rank() + delta;
    return at(value, rank < num_threads() ? static_cast<int>(rank) : -1, site);
  }
  template <class T>
  T shfl_up(T value, unsigned delta, KBENCH_SITE) const {
    return at(value, thread_rank() >= delta ? static_cast<int>(thread_rank() - delta) : -1, site);
  }
  template <class T>
  T shfl_xor(T value, unsigned bits, KBENCH_SITE) const {
    unsigned rank = thread_rank() ^ bits;
    return at(value, rank < num_threads() ? static_cast<int>(rank) : -1, site);
  }
  int any(int predicate, KBENCH_SITE) const { return __any_sync(mask_, predicate, site); }
  int all(int predicate, KBENCH_SITE) const { return __all_sync(mask_, predicate, site); }
  unsigned ballot(int predicate, KBENCH_SITE) const { return packed(__ballot_sync(mask_, predicate, site)); }
  template <class T>
  unsigned match_any(T value, KBENCH_SITE) const { return packed(__match_any_sync(mask_, value, site)); }
  template <class T>
  unsigned match_all(T value, int& predicate, KBENCH_SITE) const { return packed(__match_all_sync(mask_, value, &predicate, site)); }

 protected:
  template <class T>
  T at(T value, int rank, ::kbench_cuda::Site site) const {
    return ::kbench_cuda::exchange(mask_, value, rank < 0 ? -1 : lane_of(rank), site);
  }
  // The lane of the rank-th thread of the group; 32, which no block has, where there is none.
  int lane_of(int rank) const {
    for (int lane = 0; lane < 32; lane++)
      if ((mask_ >> lane & 1) && rank-- == 0) return lane;
    return 32;
  }
  unsigned packed(unsigned warp_bits) const {
    unsigned bits = 0, rank = 0;
    for (int lane = 0; lane < 32; lane++) {
      if (!(mask_ >> lane & 1)) continue;
      bits |= (warp_bits >> lane & 1) << rank;
      rank++;
    }
    return bits;
  }
  unsigned mask_;
};

template <unsigned Size, class Parent = void>
class thread_block_tile : public lanes {
  static_assert(Size && Size <= 32 && (Size & (Size - 1)) == 0, "a tile is a power of two of at most 32 lanes");

 public:
  thread_block_tile() : lanes((Size == 32 ? ~0u : (1u << (Size % 32)) - 1) << (::kbench_cuda::lane() & ~(Size - 1))) {}
  unsigned thread_rank() const { return ::kbench_cuda::lane() & (Size - 1); }
  static constexpr unsigned num_threads() { return Size; }
  static constexpr unsigned size() { return Size; }
  unsigned meta_group_rank() const { return ::kbench_cuda::thread_rank() / Size; }
  unsigned meta_group_size() const { return (thread_block::num_threads() + Size - 1) / Size; }
};

class coalesced_group : public lanes {
 public:
  explicit coalesced_group(unsigned mask) : lanes(mask) {}
  unsigned meta_group_rank() const { return 0; }
  unsigned meta_group_size() const { return 1; }
};

template <unsigned Size, class Group>
thread_block_tile<Size, Group> tiled_partition(const Group&) { return {}; }
inline coalesced_group coalesced_threads(KBENCH_SITE) { return coalesced_group(__activemask(site)); }

class grid_group {
 public:
  void sync(KBENCH_SITE) const { ::kbench_cuda::grid_barrier(site); }
  bool is_valid() const { return ::kbench_cuda::grid_is_cooperative(); }
  unsigned long long size() const { return num_blocks() * thread_block::num_threads(); }
  unsigned long long num_threads() const { return size(); }
  unsigned long long num_blocks() const {
    dim3 grid = ::kbench_cuda::grid_size();
    return static_cast<unsigned long long>(grid.x) * grid.y * grid.z;
  }
  unsigned long long block_rank() const {
    dim3 grid = ::kbench_cuda::grid_size();
    uint3 block = ::kbench_cuda::block_index();
    return (static_cast<unsigned long long>(block.z) * grid.y + block.y) * grid.x + block.x;
  }
  unsigned long long thread_rank() const { return block_rank() * thread_block::num_threads() + thread_block::thread_rank(); }
  dim3 group_dim() const { return ::kbench_cuda::grid_size(); }
  dim3 dim_blocks() const { return ::kbench_cuda::grid_size(); }
  dim3 block_index() const { return ::kbench_cuda::block_index(); }
};
inline grid_group this_grid() { return {}; }

class cluster_group {
 public:
  void sync(KBENCH_SITE) const { ::kbench_cuda::cluster_barrier(site); }
  unsigned block_rank() const { return ::kbench_cuda::cluster_rank(); }
  unsigned num_blocks() const { return ::kbench_cuda::cluster_blocks(); }
  unsigned num_threads() const { return num_blocks() * thread_block::num_threads(); }
  unsigned size() const { return num_threads(); }
  unsigned thread_rank() const { return block_rank() * thread_block::num_threads() + thread_block::thread_rank(); }
  template <class T>
  T* map_shared_rank(T* address, unsigned rank, KBENCH_SITE) const {
    return static_cast<T*>(::kbench_cuda::shared_of_rank(address, rank, site));
  }
};
inline cluster_group this_cluster() { return {}; }

template <class Group>
void sync(const Group& group, KBENCH_SITE) { group.sync(site); }

template <class T = void>
struct plus { template <class U> U operator()(U a, U b) const { return a + b; } };
template <class T = void>
struct less { template <class U> U operator()(U a, U b) const { return b < a ? b : a; } };
template <class T = void>
struct greater { template <class U> U operator()(U a, U b) const { return a < b ? b : a; } };
template <class T = void>
struct bit_and { template <class U> U operator()(U a, U b) const { return a & b; } };
template <class T = void>
struct bit_or { template <class U> U operator()(U a, U b) const { return a | b; } };
template <class T = void>
struct bit_xor { template <class U> U operator()(U a, U b) const { return a ^ b; } };

// In the order of ranks; a device may add floats in another.
template <class Group, class T, class Operation>
T reduce(const Group& group, T value, Operation operation, KBENCH_SITE) {
  T total = group.shfl(value, 0, site);
  for (unsigned rank = 1; rank < group.num_threads(); rank++) total = operation(total, group.shfl(value, static_cast<int>(rank), site));
  return total;
}
template <class Group, class T, class Operation = plus<T>>
T inclusive_scan(const Group& group, T value, Operation operation = {}, KBENCH_SITE) {
  T total = value;
  for (unsigned delta = 1; delta < group.num_threads(); delta *= 2) {
    T below = group.shfl_up(total, delta, site);
    if (group.thread_rank() >= delta) total = operation(below, total);
  }
  return total;
}
template <class Group, class T, class Operation = plus<T>>
T exclusive_scan(const Group& group, T value, Operation operation = {}, KBENCH_SITE) {
  T below = group.shfl_up(inclusive_scan(group, value, operation, site), 1, site);
  return group.thread_rank() == 0 ? T{} : below;
}

// Copies are done when they are issued, each thread taking its part.
template <class Group, class T>
void memcpy_async(const Group& group, T* to, const T* from, size_t bytes, KBENCH_SITE) {
  auto* target = reinterpret_cast<char*>(to);
  auto* source = reinterpret_cast<const char*>(from);
  for (size_t at = group.thread_rank() * sizeof(T); at < bytes; at += group.num_threads() * sizeof(T))
    ::kbench_cuda::copy_bytes(target + at, source + at, bytes - at < sizeof(T) ? bytes - at : sizeof(T), site);
}
template <class Group>
void wait(const Group& group, KBENCH_SITE) { group.sync(site); }

}  // namespace cooperative_groups
