"""The whole forward in C++ for the CPU: a tile of samples goes through all layers without leaving the cache.

Each call packs the weights into panels of 32 outputs, input by input, so that the inner loop is a broadcast
times a vector; a third of a megabyte takes some microseconds, and there is no copy that could go stale. The
draw is torch's own. Partial losses belong to a tile, never to a thread, so the result does not depend on
the threads.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

DEVICES = ("cpu",)

CPP_SOURCE = r"""
#include <ATen/Parallel.h>
#include <torch/extension.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <tuple>
#include <vector>

namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kRows = 8;  // samples of one register tile: 8 x 2 accumulators hide the latency of an FMA
constexpr int64_t kWidth = 32;  // outputs of one register tile and of one panel
constexpr int64_t kTileRows = 16;  // samples that share one pass over the weights

typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(64), aligned(4), may_alias));

inline vec broadcast(float value) { return value - vec{}; }

inline vec load(const float* from) { return *reinterpret_cast<const vec*>(from); }

inline void store(float* to, vec value) { *reinterpret_cast<vec*>(to) = value; }

// The first `count` floats, zeros behind them; never reads past them.
inline vec load_head(const float* from, int64_t count) {
  if (count >= kLanes) return load(from);
  vec value{};
  if (count > 0) std::memcpy(&value, from, count * sizeof(float));
  return value;
}

inline double sum(vec value) {
  double total = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) total += value[lane];
  return total;
}

// e^x within 2 ulp; exactly 1 at 0, so that the zero padding of a panel adds nothing to the KL divergence.
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

// Four perfect shuffles of sixteen rows transpose them.
inline void transpose(vec (&rows)[kLanes]) {
  const ivec low = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
  const ivec high = low + 8;
  for (int round = 0; round < 4; ++round) {
    vec next[kLanes];
    for (int64_t i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = __builtin_shuffle(rows[i], rows[i + 8], low);
      next[2 * i + 1] = __builtin_shuffle(rows[i], rows[i + 8], high);
    }
    std::copy(next, next + kLanes, rows);
  }
}

// A linear layer as panels of kWidth outputs: the biases, then one row of weights for each input,
// zero-padded.
struct Layer {
  const float* weight;
  const float* bias;
  int64_t outputs;
  int64_t inputs;
  float* packed = nullptr;

  Layer(const at::Tensor& w, const at::Tensor& b)
      : weight(w.const_data_ptr<float>()),
        bias(b.const_data_ptr<float>()),
        outputs(w.size(0)),
        inputs(w.size(1)) {}

  int64_t panels() const { return (outputs + kWidth - 1) / kWidth; }
  int64_t panel_size() const { return (inputs + 1) * kWidth; }
  const float* panel(int64_t index) const { return packed + index * panel_size(); }
};

void pack_panel(const Layer& layer, int64_t index) {
  float* panel = layer.packed + index * layer.panel_size();
  for (int64_t column = 0; column < kWidth; column += kLanes) {
    const int64_t output = index * kWidth + column;
    const int64_t outputs = std::clamp<int64_t>(layer.outputs - output, 0, kLanes);
    store(panel + column, load_head(layer.bias + output, outputs));
    for (int64_t input = 0; input < layer.inputs; input += kLanes) {
      const int64_t inputs = std::min(kLanes, layer.inputs - input);
      vec rows[kLanes] = {};
      for (int64_t i = 0; i < outputs; ++i)
        rows[i] = load_head(layer.weight + (output + i) * layer.inputs + input, inputs);
      transpose(rows);
      for (int64_t i = 0; i < inputs; ++i) store(panel + (1 + input + i) * kWidth + column, rows[i]);
    }
  }
}

// Rows of a matrix that a register tile reads; rows past the last repeat it, and what they give is dropped.
struct Rows {
  const float* base;
  int64_t stride;
  int64_t count;
  int64_t width;

  const float* row(int64_t index) const { return base + std::min(index, count - 1) * stride; }
  Rows from(int64_t first) const { return {base + first * stride, stride, count - first, width}; }
};

struct Tile {
  vec value[kRows][2];
};

inline void accumulate(Tile& tile, const Rows& rows, const float* weights) {
  const float* row[kRows];
  for (int64_t r = 0; r < kRows; ++r) row[r] = rows.row(r);
  for (int64_t k = 0; k < rows.width; ++k) {
    const vec first = load(weights + k * kWidth), second = load(weights + k * kWidth + kLanes);
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r) {
      const vec a = broadcast(row[r][k]);
      tile.value[r][0] += a * first;
      tile.value[r][1] += a * second;
    }
  }
}

// One panel of a layer for kRows samples whose input is `left` and `right` side by side.
inline Tile linear(const Rows& left, const Rows& right, const float* panel) {
  Tile tile;
  for (int64_t r = 0; r < kRows; ++r) {
    tile.value[r][0] = load(panel);
    tile.value[r][1] = load(panel + kLanes);
  }
  accumulate(tile, left, panel + kWidth);
  accumulate(tile, right, panel + (1 + left.width) * kWidth);
  return tile;
}

struct Network {
  Layer encoder, mu, logvar, decoder, output;

  std::vector<Layer*> layers() { return {&encoder, &mu, &logvar, &decoder, &output}; }

  bool fits(int64_t features, int64_t labels) const {
    return encoder.inputs == features + labels && mu.inputs == encoder.outputs &&
           logvar.inputs == encoder.outputs && logvar.outputs == mu.outputs &&
           decoder.inputs == mu.outputs + labels && decoder.outputs == encoder.outputs &&
           output.inputs == decoder.outputs && output.outputs == features;
  }
};

struct Losses {
  double recon = 0;
  double kl = 0;
};

// The layers of one tile of at most kTileRows samples, and its share of the losses.
class TilePass {
 public:
  explicit TilePass(const Network& network)
      : network_(network),
        hidden_stride_(network.encoder.panels() * kWidth),
        latent_stride_(network.mu.panels() * kWidth),
        hidden_(kTileRows * hidden_stride_),
        z_(kTileRows * latent_stride_) {}

  Losses run(const Rows& x, const Rows& y, const Rows& noise) {
    hidden_layer(network_.encoder, x, y);
    const Losses kl = {0, latent_layer(noise)};
    hidden_layer(network_.decoder, Rows{z_.data(), latent_stride_, x.count, noise.width}, y);
    return {reconstruction(x), kl.kl};
  }

 private:
  static constexpr Rows kNothing = {nullptr, 0, 1, 0};

  Rows hidden(int64_t count) const {
    return {hidden_.data(), hidden_stride_, count, network_.encoder.outputs};
  }

  void hidden_layer(const Layer& layer, const Rows& left, const Rows& right) {
    for (int64_t panel = 0; panel < layer.panels(); ++panel) {
      for (int64_t first = 0; first < left.count; first += kRows) {
        const Tile tile = linear(left.from(first), right.from(first), layer.panel(panel));
        float* to = hidden_.data() + first * hidden_stride_ + panel * kWidth;
        for (int64_t r = 0; r < kRows; ++r) {
          for (int half = 0; half < 2; ++half) {
            const vec v = tile.value[r][half];
            store(to + r * hidden_stride_ + half * kLanes,
                  v < 0.0f ? vec{} : v);  // keeps a NaN, as torch does
          }
        }
      }
    }
  }

  double latent_layer(const Rows& noise) {
    vec total{};
    for (int64_t panel = 0; panel < network_.mu.panels(); ++panel) {
      for (int64_t first = 0; first < noise.count; first += kRows) {
        const Rows input = hidden(noise.count).from(first);
        const Tile mu = linear(input, kNothing, network_.mu.panel(panel));
        const Tile logvar = linear(input, kNothing, network_.logvar.panel(panel));
        for (int64_t r = 0; r < std::min(kRows, noise.count - first); ++r) {
          for (int half = 0; half < 2; ++half) {
            const int64_t latent = panel * kWidth + half * kLanes;
            const vec draw = load_head(noise.row(first + r) + latent, noise.width - latent);
            const vec m = mu.value[r][half], v = logvar.value[r][half], deviation = exponential(v * 0.5f);
            total += v + 1.0f - m * m - deviation * deviation;
            store(z_.data() + (first + r) * latent_stride_ + latent, m + deviation * draw);
          }
        }
      }
    }
    return -0.5 * sum(total);
  }

  double reconstruction(const Rows& x) const {
    vec total{};
    for (int64_t panel = 0; panel < network_.output.panels(); ++panel) {
      for (int64_t first = 0; first < x.count; first += kRows) {
        const Tile tile = linear(hidden(x.count).from(first), kNothing, network_.output.panel(panel));
        for (int64_t r = 0; r < std::min(kRows, x.count - first); ++r) {
          for (int half = 0; half < 2; ++half) {
            const int64_t feature = panel * kWidth + half * kLanes;
            const vec error = tile.value[r][half] - load_head(x.row(first + r) + feature, x.width - feature);
            total += error * error;
          }
        }
      }
    }
    return sum(total);
  }

  const Network& network_;
  int64_t hidden_stride_, latent_stride_;
  std::vector<float> hidden_, z_;
};

// Tasks for whichever thread is free: an even split would wait for the thread that the machine took away.
class Queue {
 public:
  explicit Queue(int64_t count) : count_(count) {}
  bool take(int64_t& task) { return (task = next_++) < count_; }

 private:
  int64_t count_;
  std::atomic<int64_t> next_{0};
};

template <typename Draw>
at::Tensor pack_and(Network& network, const Draw& draw) {
  int64_t size = 0;
  std::vector<std::pair<const Layer*, int64_t>> panels;
  for (const Layer* layer : network.layers()) {
    size += layer->panels() * layer->panel_size();
    for (int64_t panel = 0; panel < layer->panels(); ++panel) panels.emplace_back(layer, panel);
  }
  at::Tensor packed = at::empty({size}, at::kFloat);
  float* next = packed.data_ptr<float>();
  for (Layer* layer : network.layers()) {
    layer->packed = next;
    next += layer->panels() * layer->panel_size();
  }
  Queue queue(panels.size());
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t begin, int64_t) {
    if (begin == 0) draw();  // on the calling thread, while the others pack
    for (int64_t i; queue.take(i);) pack_panel(*panels[i].first, panels[i].second);
  });
  return packed;
}

at::Tensor checked(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.is_cpu() && tensor.scalar_type() == at::kFloat, name,
              " must be float32 on the CPU, got ", tensor.scalar_type(), " on ", tensor.device());
  return tensor.contiguous();
}

Rows rows_of(const at::Tensor& matrix) {
  return {matrix.const_data_ptr<float>(), matrix.size(1), matrix.size(0), matrix.size(1)};
}

Rows tile_of(const Rows& rows, int64_t tile) {
  Rows part = rows.from(tile * kTileRows);
  part.count = std::min(part.count, kTileRows);
  return part;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> cvae_forward(const at::Tensor& x_in, const at::Tensor& y_in,
                                                            const std::vector<at::Tensor>& weights) {
  TORCH_CHECK(weights.size() == 10, "expected 5 weights and 5 biases, got ", weights.size(), " tensors");
  TORCH_CHECK(x_in.dim() == 2 && y_in.dim() == 2 && x_in.size(0) == y_in.size(0),
              "x and y must be matrices of one batch, got ", x_in.sizes(), " and ", y_in.sizes());
  std::vector<at::Tensor> held;
  for (const at::Tensor& weight : weights) held.push_back(checked(weight, "a weight"));
  const at::Tensor x = checked(x_in, "x"), y = checked(y_in, "y");
  Network network = {
      {held[0], held[1]}, {held[2], held[3]}, {held[4], held[5]}, {held[6], held[7]}, {held[8], held[9]}};
  TORCH_CHECK(network.fits(x.size(1), y.size(1)), "x and y of ", x.sizes(), " and ", y.sizes(),
              " do not fit the layers, or these not each other");

  const int64_t batch = x.size(0);
  at::Tensor noise;
  const at::Tensor packed =
      pack_and(network, [&] { noise = at::randn({batch, network.mu.outputs}, x.options()); });
  const Rows x_rows = rows_of(x), y_rows = rows_of(y), noise_rows = rows_of(noise);
  std::vector<Losses> losses((batch + kTileRows - 1) / kTileRows);
  Queue queue(losses.size());
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) {
    TilePass pass(network);
    for (int64_t tile; queue.take(tile);)
      losses[tile] = pass.run(tile_of(x_rows, tile), tile_of(y_rows, tile), tile_of(noise_rows, tile));
  });

  Losses total;
  for (const Losses& part : losses) {
    total.recon += part.recon;
    total.kl += part.kl;
  }
  const double recon = total.recon / batch, kl = total.kl / batch;
  const auto scalar = [&](double value) {
    at::Tensor result = at::empty({}, x.options());
    *result.data_ptr<float>() = static_cast<float>(value);
    return result;
  };
  return {scalar(recon + kl), scalar(recon), scalar(kl)};
}
"""

ops = load_inline(
    name="cvae_cpp",
    cpp_sources=CPP_SOURCE,
    functions=["cvae_forward"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],  # without OpenMP, at::parallel_for is a plain loop
    verbose=False,
)


class ModelNew(nn.Module):
    """The reference's layers and parameter names; one C++ call does the forward."""

    def __init__(self, input_dim: int, label_dim: int, hidden_dim: int, latent_dim: int) -> None:
        super().__init__()
        self.enc = nn.Sequential(
            nn.Linear(input_dim + label_dim, hidden_dim),
            nn.ReLU(),
        )
        self.enc_mu = nn.Linear(hidden_dim, latent_dim)
        self.enc_logvar = nn.Linear(hidden_dim, latent_dim)
        self.dec = nn.Sequential(
            nn.Linear(latent_dim + label_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, input_dim),
        )

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return loss, reconstruction loss and KL divergence as scalars."""
        return ops.cvae_forward(x, y, self._weights())

    def _weights(self) -> list[torch.Tensor]:
        """List weight and bias of the five layers, past nn.Module's lookups, a tenth of the forward."""
        modules = self._modules
        encoder, decoder = modules["enc"]._modules, modules["dec"]._modules
        layers = (encoder["0"], modules["enc_mu"], modules["enc_logvar"], decoder["0"], decoder["2"])
        return [layer._parameters[name] for layer in layers for name in ("weight", "bias")]
