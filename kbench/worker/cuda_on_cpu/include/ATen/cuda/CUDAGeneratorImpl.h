// torch's CUDA generator, as a CPU generator that is never drawn from: its seed is the seed, and how far the offset
// has come is kept in two words of its engine's state. So Python sees one state, whoever draws, and may save,
// compare and copy it; `draws.py` reads and writes the same words.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/PhiloxCudaState.h>

#include <cstdlib>
#include <mutex>
#include <optional>

#include "curand_kernel.h"

namespace at {

// A generator that Python made is a plain CPUGeneratorImpl; of those, only what is not virtual here may be called.
struct CUDAGeneratorImpl : CPUGeneratorImpl {
  using CPUGeneratorImpl::CPUGeneratorImpl;

  uint64_t philox_offset_per_thread() {
    const auto now = engine().data().state_, fresh = mt19937(current_seed()).data().state_;
    return uint64_t{now[1] ^ fresh[1]} | uint64_t{now[2] ^ fresh[2]} << 32;
  }
  void set_philox_offset_per_thread(uint64_t offset) {
    mt19937 next = engine();
    mt19937_data_pod data = next.data();
    const auto fresh = mt19937(current_seed()).data().state_;
    data.state_[1] = fresh[1] ^ static_cast<uint32_t>(offset);
    data.state_[2] = fresh[2] ^ static_cast<uint32_t>(offset >> 32);
    next.set_data(data);
    set_engine(next);
  }
  PhiloxCudaState philox_cuda_state(uint64_t increment) {
    const uint64_t offset = philox_offset_per_thread();
    set_philox_offset_per_thread(offset + (increment + 3) / 4 * 4);
    return PhiloxCudaState(current_seed(), offset);
  }
  std::pair<uint64_t, uint64_t> philox_engine_inputs(uint64_t increment) {
    const PhiloxCudaState state = philox_cuda_state(increment);
    return {state.seed_.val, state.offset_.val};
  }

  void set_offset(uint64_t offset) override { set_philox_offset_per_thread(offset); }
  uint64_t get_offset() const override { return const_cast<CUDAGeneratorImpl*>(this)->philox_offset_per_thread(); }

 private:
  CUDAGeneratorImpl* clone_impl() const override {
    auto* self = const_cast<CUDAGeneratorImpl*>(this);
    auto* copy = new CUDAGeneratorImpl(current_seed());
    copy->set_engine(self->engine());
    return copy;
  }
};

namespace cuda::detail {

inline Generator createCUDAGenerator(DeviceIndex = -1) { return make_generator<CUDAGeneratorImpl>(default_rng_seed_val); }

// The one that Python knows as torch.cuda.default_generators[0], if Python said where it is.
inline const Generator& getDefaultCUDAGenerator(DeviceIndex = -1) {
  static const Generator generator = [] {
    const char* address = std::getenv("KBENCH_CUDA_GENERATOR");
    if (!address) return createCUDAGenerator();
    auto* known = reinterpret_cast<GeneratorImpl*>(std::strtoull(address, nullptr, 10));
    return Generator(c10::intrusive_ptr<GeneratorImpl>::reclaim_copy(known));
  }();
  return generator;
}

}  // namespace cuda::detail
}  // namespace at

namespace kbench_cuda {

// What torch's own kernels on a device draw into a tensor that lies densely in memory.
class Drawn {
 public:
  explicit Drawn(const at::Tensor& tensor) : tensor_(tensor) {}

  const at::Tensor& normal_(double mean = 0, double deviation = 1, const std::optional<at::Generator>& generator = std::nullopt) const {
    fill(generator, [=](uint4 words, unsigned which) {
      const float2 pair = which & 2 ? normals_of(words.z, words.w) : normals_of(words.x, words.y);
      return (which & 1 ? pair.y : pair.x) * static_cast<float>(deviation) + static_cast<float>(mean);
    });
    return tensor_;
  }
  const at::Tensor& uniform_(double from = 0, double to = 1, const std::optional<at::Generator>& generator = std::nullopt) const {
    fill(generator, [=](uint4 words, unsigned which) {
      const unsigned word = which == 0 ? words.x : which == 1 ? words.y : which == 2 ? words.z : words.w;
      const float value = uniform_of(word) * static_cast<float>(to - from) + static_cast<float>(from);
      return value == static_cast<float>(to) ? static_cast<float>(from) : value;
    });
    return tensor_;
  }

 private:
  template <class Value>
  void fill(const std::optional<at::Generator>& given, Value value_of) const {
    TORCH_CHECK(tensor_.scalar_type() == at::kFloat && tensor_.is_non_overlapping_and_dense(),
                "on the CPU, kernels draw dense float32 tensors only");
    const int64_t count = tensor_.numel(), block = 256;
    if (!count) return;
    const int64_t threads = std::min<int64_t>((count + block - 1) / block, 132 * (2048 / block)) * block;
    auto* generator = static_cast<at::CUDAGeneratorImpl*>(
        (given && given->defined() ? *given : at::cuda::detail::getDefaultCUDAGenerator()).unsafeGetGeneratorImpl());
    const auto [seed, offset] = generator->philox_engine_inputs(static_cast<uint64_t>((count - 1) / (threads * 4) + 1) * 4);
    auto* out = static_cast<float*>(tensor_.data_ptr());
    for (int64_t i = 0; i < count; i++) {
      const int64_t step = i / threads;
      const uint64_t counter = offset / 4 + static_cast<uint64_t>(step / 4);
      const uint4 words = philox({static_cast<unsigned>(counter), static_cast<unsigned>(counter >> 32), static_cast<unsigned>(i % threads), 0},
                                 {static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32)});
      out[i] = value_of(words, static_cast<unsigned>(step % 4));
    }
  }

  at::Tensor tensor_;
};

}  // namespace kbench_cuda
