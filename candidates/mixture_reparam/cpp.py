"""The whole forward in C++ for the CPU, with the very numbers that torch.multinomial and torch.randn draw.

The components come from torch's own softmax and exponential draw, of which torch.multinomial takes the largest
weight / draw; its checks and temporaries are what is left out. The noise is drawn here: the Mersenne Twister of
torch's generator is run a block of 624 words at a time, which vectorises, and left where torch would have left it;
Box and Muller's transform, sixteen numbers at a time as in torch, is part of the parallel pass over the samples.
Where torch draws in another way, for fewer than 16 numbers or into a transposed tensor, torch does it.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

DEVICES = ("cpu",)

CPP_SOURCE = r"""
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/extension.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kGroup = 16;  // normals that torch makes of as many uniforms: 8 pairs, 8 apart
constexpr float kHalfLog2Pi = 0.918938533f;
// Inputs that are worth a second thread: their exponentials take some ten microseconds.
constexpr int64_t kGrainElements = 16384;

typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(64), aligned(4), may_alias));
typedef float half_vec __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t half_ivec __attribute__((vector_size(32), aligned(4), may_alias));

inline vec broadcast(float value) { return value - vec{}; }

// The first `count` floats, zeros behind them; never reads past them.
inline vec load_head(const float* from, int64_t count) {
  if (count >= kLanes) return *reinterpret_cast<const vec*>(from);
  vec value{};
  std::memcpy(&value, from, count * sizeof(float));
  return value;
}

inline void store_head(float* to, vec value, int64_t count) {
  if (count >= kLanes) {
    *reinterpret_cast<vec*>(to) = value;
  } else {
    std::memcpy(to, &value, count * sizeof(float));
  }
}

inline float sum(vec value) {
  float total = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) total += value[lane];
  return total;
}

// e^x within 2 ulp, exactly 1 at 0: the zero padding of a tail adds nothing.
inline vec exponential(vec x) {
  const vec high = broadcast(89.0f), low = broadcast(-104.0f);
  x = x > high ? high : x;
  x = x < low ? low : x;
  // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
  const vec magic = broadcast(12582912.0f);
  const vec n = (x * 1.44269504088896341f + magic) - magic;
  const vec r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  vec p = broadcast(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // Two factors, because 2^n itself overflows or is subnormal at both ends of the range.
  const ivec whole = __builtin_convertvector(n, ivec);
  const ivec half = whole >> 1;
  const ivec first = (half + 127) << 23, second = (whole - half + 127) << 23;
  return p * reinterpret_cast<const vec&>(first) * reinterpret_cast<const vec&>(second);
}

// log(x) within 2 ulp for normal x: the mantissa in [sqrt(1/2), sqrt(2)) as 2 atanh((m - 1) / (m + 1)).
inline half_vec logarithm(half_vec x) {
  const half_ivec bits = reinterpret_cast<const half_ivec&>(x);
  const half_ivec exponent = (bits - 0x3f3504f3) >> 23;
  const half_ivec mantissa = bits - (exponent << 23);
  const half_vec f = reinterpret_cast<const half_vec&>(mantissa) - 1.0f;
  const half_vec s = f / (f + 2.0f), s2 = s * s;
  half_vec p = s2 * 0.2392f + 0.28498f;
  p = p * s2 + 0.4000097f;
  p = p * s2 + 0.66666666f;
  const half_vec n = __builtin_convertvector(exponent, half_vec);
  // f - s f = 2 s, so that the leading term is exact.
  return n * 0.693359375f + (f - (s * (f - s2 * p) + n * 2.12194440e-4f));
}

// Eight pairs of uniforms in [0, 1) become sixteen normals, as torch pairs them.
inline void box_muller(float* group) {
  const half_vec u1 = 1.0f - *reinterpret_cast<const half_vec*>(group);
  const half_vec turns = *reinterpret_cast<const half_vec*>(group + 8);
  half_vec radius = -2.0f * logarithm(u1);
  for (int lane = 0; lane < 8; ++lane) radius[lane] = std::sqrt(radius[lane]);

  // A quarter turn at a time; what is left lies within an eighth of a turn of zero.
  const half_vec magic = half_vec{} + 12582912.0f;
  const half_vec quarters = (turns * 4.0f + magic) - magic;
  const half_vec x = (turns - quarters * 0.25f) * 6.283185307f, x2 = x * x;
  half_vec sine = x2 * 2.7557319e-6f - 1.98412698e-4f;
  sine = sine * x2 + 8.33333333e-3f;
  sine = sine * x2 - 1.66666667e-1f;
  sine = sine * x2 * x + x;
  half_vec cosine = x2 * 2.48015873e-5f - 1.38888889e-3f;
  cosine = cosine * x2 + 4.16666667e-2f;
  cosine = cosine * x2 - 0.5f;
  cosine = cosine * x2 + 1.0f;
  const half_ivec quadrant = __builtin_convertvector(quarters, half_ivec);
  const half_ivec swapped = (quadrant & 1) != 0;
  const half_vec c = swapped ? sine : cosine, s = swapped ? cosine : sine;
  const half_ivec c_negative = ((quadrant + 1) & 2) != 0, s_negative = (quadrant & 2) != 0;
  *reinterpret_cast<half_vec*>(group) = radius * (c_negative ? -c : c);
  *reinterpret_cast<half_vec*>(group + 8) = radius * (s_negative ? -s : s);
}

// The Mersenne Twister of a generator of torch's, read in bulk; it is put back by `store`.
class Twister {
 public:
  explicit Twister(at::CPUGeneratorImpl& generator) : generator_(generator), data_(generator.engine().data()) {}

  // Uniform numbers in [0, 1) with 24 bits, torch's for float.
  void fill(float* to, int64_t count) {
    while (count > 0) {
      if (data_.left_ == 1) twist();
      const int64_t taken = std::min<int64_t>(count, data_.left_ - 1);
      const uint32_t* words = data_.state_.data() + data_.next_;
      for (int64_t i = 0; i < taken; ++i) {
        uint32_t y = words[i];
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c5680u;
        y ^= (y << 15) & 0xefc60000u;
        y ^= y >> 18;
        // As a signed integer, for which there is a vector conversion.
        to[i] = static_cast<float>(static_cast<int32_t>(y & 0xffffffu)) * 0x1p-24f;
      }
      data_.left_ -= taken;
      data_.next_ += taken;
      to += taken;
      count -= taken;
    }
  }

  void store() {
    at::mt19937 engine;
    engine.set_data(data_);
    generator_.set_engine(engine);
  }

 private:
  static uint32_t mixed(uint32_t high, uint32_t low) {
    return (((high & 0x80000000u) | (low & 0x7fffffffu)) >> 1) ^ (-(low & 1u) & 0x9908b0dfu);
  }

  // The next 624 words. torch counts the word that it takes at once as not yet taken, hence one more.
  void twist() {
    constexpr int n = at::MERSENNE_STATE_N, m = at::MERSENNE_STATE_M;
    uint32_t* p = data_.state_.data();
    for (int i = 0; i < n - m; ++i) p[i] = p[i + m] ^ mixed(p[i], p[i + 1]);
    for (int i = n - m; i < n - 1; ++i) p[i] = p[i + m - n] ^ mixed(p[i], p[i + 1]);
    p[n - 1] = p[m - 1] ^ mixed(p[n - 1], p[0]);
    data_.left_ = n + 1;
    data_.next_ = 0;
  }

  at::CPUGeneratorImpl& generator_;
  at::mt19937_data_pod data_;
};

// Standard normals as torch.randn_like fills them into `values`, finished group by group.
class Noise {
 public:
  explicit Noise(const at::Tensor& like) : values_(at::empty_like(like)), count_(values_.numel()) {
    is_raw_ = count_ >= kGroup && values_.is_contiguous();
    if (!is_raw_) {
      values_ = values_.normal_().contiguous();
      return;
    }
    at::CPUGeneratorImpl& generator =
        *at::get_generator_or_default<at::CPUGeneratorImpl>(std::nullopt, at::detail::getDefaultCPUGenerator());
    const std::lock_guard<std::mutex> lock(generator.mutex_);
    Twister twister(generator);
    twister.fill(values_.data_ptr<float>(), count_);
    if (count_ % kGroup != 0) {
      twister.fill(last_, kGroup);  // torch draws the last group anew
      box_muller(last_);
    }
    twister.store();
  }

  // Turns the uniforms from `begin`, a multiple of the group, up to `end` into normals.
  void finish(int64_t begin, int64_t end) const {
    if (!is_raw_) return;
    float* values = values_.data_ptr<float>();
    for (int64_t i = begin; i < end && i + kGroup <= count_; i += kGroup) box_muller(values + i);
    if (count_ % kGroup == 0) return;
    const int64_t last = count_ - kGroup;
    for (int64_t i = std::max(begin, last); i < end; ++i) values[i] = last_[i - last];
  }

  const at::Tensor& values() const { return values_; }

 private:
  at::Tensor values_;
  int64_t count_;
  bool is_raw_;
  alignas(64) float last_[kGroup];
};

// What the samples choose from: weights, their logarithms, and the scale of each sample's scores.
struct Mixture {
  at::Tensor weights;
  at::Tensor scales;
  std::vector<float> log_weights;

  Mixture(const at::Tensor& logits, int64_t samples)
      : weights(at::softmax(logits, 0)), scales(at::empty({samples, logits.numel()}, logits.options())) {
    scales.exponential_();
    const float* weight = weights.const_data_ptr<float>();
    for (int64_t k = 0; k < weights.numel(); ++k) log_weights.push_back(std::log(weight[k]));
  }

  // Of equal scores the first wins, as in argmax.
  int64_t component(int64_t sample) const {
    const float* weight = weights.const_data_ptr<float>();
    const float* scale = scales.const_data_ptr<float>() + sample * weights.numel();
    int64_t best = 0;
    for (int64_t k = 1; k < weights.numel(); ++k) {
      if (weight[k] / scale[k] > weight[best] / scale[best]) best = k;
    }
    return best;
  }
};

// `noise` becomes z; mu and log_var are those of the component that was drawn.
void reparameterise(float* noise, const float* mu, const float* log_var, int64_t dims) {
  for (int64_t d = 0; d < dims; d += kLanes) {
    const vec deviation = exponential(load_head(log_var + d, dims - d) * 0.5f);
    store_head(noise + d, load_head(mu + d, dims - d) + deviation * load_head(noise + d, dims - d), dims - d);
  }
}

float log_density(const float* z, const float* mu, const float* log_var, int64_t dims) {
  vec total{};
  for (int64_t d = 0; d < dims; d += kLanes) {
    const vec spread = load_head(log_var + d, dims - d);
    const vec distance =
        (load_head(z + d, dims - d) - load_head(mu + d, dims - d)) * exponential(spread * -0.5f);
    total += distance * distance + spread;
  }
  return -0.5f * sum(total) - dims * kHalfLog2Pi;
}

float log_sum_exp(const std::vector<float>& values) {
  float base = *std::max_element(values.begin(), values.end());
  if (std::isinf(base)) base = 0;  // infinities are not subtracted from one another
  float total = 0;
  for (const float value : values) total += std::exp(value - base);
  return base + std::log(total);
}

void check(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.is_cpu() && tensor.scalar_type() == at::kFloat, name, " must be float32 on the CPU, got ",
              tensor.toString());
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> mixture_forward(
    const at::Tensor& mu_in, const at::Tensor& log_var_in, const std::optional<at::Tensor>& logits) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  check(mu_in, "mu");
  check(log_var_in, "log_var");
  TORCH_CHECK((mu_in.dim() == 2 || mu_in.dim() == 3) && mu_in.sizes() == log_var_in.sizes(),
              "mu and log_var must agree in their 2 or 3 dimensions, got ", mu_in.sizes(), " and ",
              log_var_in.sizes());
  const at::Tensor mu = mu_in.contiguous(), log_var = log_var_in.contiguous();
  const int64_t samples = mu.size(0), dims = mu.size(-1), stride = mu.stride(0);
  std::optional<Mixture> mixture;
  if (logits.has_value() && mu.dim() == 3) {
    check(*logits, "logits");
    TORCH_CHECK(logits->numel() == mu.size(1), "mu has ", mu.size(1), " components, logits have ", logits->numel());
    mixture.emplace(*logits, samples);
  }
  const int64_t components = mixture ? mu.size(1) : 1;
  // The mixture's noise is like a gathered component, hence contiguous; else it is like the first one.
  const at::Tensor first = mixture ? mu.select(1, 0) : mu_in.dim() == 3 ? mu_in.select(1, 0) : mu_in;
  const Noise noise(first);
  at::Tensor log_q_z = at::empty({samples}, mu.options());

  const float* means = mu.const_data_ptr<float>();
  const float* log_vars = log_var.const_data_ptr<float>();
  float* z = noise.values().data_ptr<float>();
  float* log_q = log_q_z.data_ptr<float>();
  // A block of samples holds whole groups of noise.
  const int64_t block = kGroup / std::gcd(dims, kGroup), blocks = (samples + block - 1) / block;
  const int64_t grain = kGrainElements / std::max<int64_t>(1, block * components * dims) + 1;
  at::parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
    const int64_t from = begin * block, to = std::min(samples, end * block);
    noise.finish(from * dims, to * dims);
    std::vector<float> densities(components);
    for (int64_t sample = from; sample < to; ++sample) {
      const float* mean = means + sample * stride;
      const float* spread = log_vars + sample * stride;
      const int64_t own = mixture ? mixture->component(sample) * dims : 0;
      reparameterise(z + sample * dims, mean + own, spread + own, dims);
      for (int64_t k = 0; k < components; ++k) {
        densities[k] = log_density(z + sample * dims, mean + k * dims, spread + k * dims, dims);
        if (mixture) densities[k] += mixture->log_weights[k];
      }
      log_q[sample] = mixture ? log_sum_exp(densities) : densities[0];
    }
  });
  return {noise.values(), log_q_z};
}
"""

ops = load_inline(
    name="mixture_cpp",
    cpp_sources=CPP_SOURCE,
    functions=["mixture_forward"],
    # Without OpenMP, at::parallel_for is a plain loop; with errno, a square root is not vectorised.
    extra_cflags=["-O3", "-march=native", "-fopenmp", "-fno-math-errno"],
    verbose=False,
)


class ModelNew(nn.Module):
    """The reference's parameters; one C++ call does the forward."""

    def __init__(self, latent_dim: int, num_components: int = 1) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        self.num_components = num_components
        if num_components > 1:
            self.logits = nn.Parameter(torch.zeros(num_components))

    def forward(self, mu: torch.Tensor, log_var: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [batch, latent_dim] and log_q_z [batch]."""
        return ops.mixture_forward(mu, log_var, self._parameters.get("logits"))
