// What the candidates of the corpus that need native code share, so that it is built once.
#include <torch/extension.h>

#include <atomic>
#include <cmath>
#include <map>
#include <thread>
#include <vector>

using torch::Tensor;

static float silu_of(float x) { return x / (1.0f + std::exp(-x)); }

// GELU of y + bias, in its exact form.
static Tensor bias_gelu(Tensor y, Tensor bias) {
  y = y.contiguous();
  auto out = torch::empty_like(y);
  const int64_t columns = bias.numel();
  const float *in = y.data_ptr<float>(), *b = bias.data_ptr<float>();
  float *to = out.data_ptr<float>();
  for (int64_t i = 0; i < y.numel(); ++i) {
    const float v = in[i] + b[i % columns];
    to[i] = 0.5f * v * (1.0f + std::erf(v * 0.70710678f));
  }
  return out;
}

static Tensor copied(Tensor x) {
  x = x.contiguous();
  auto out = torch::empty_like(x);
  const float *in = x.data_ptr<float>();
  float *to = out.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = in[i];
  return out;
}

static Tensor silu_of_all(Tensor x) {
  x = x.contiguous();
  auto out = torch::empty_like(x);
  const float *in = x.data_ptr<float>();
  float *to = out.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = silu_of(in[i]);
  return out;
}

// Remembers results by the address of the input.
static Tensor silu_cached(Tensor x) {
  static std::map<const void *, Tensor> cache;
  auto found = cache.find(x.data_ptr());
  if (found == cache.end()) found = cache.emplace(x.data_ptr(), silu_of_all(x)).first;
  return found->second;
}

// Stores four floats at a time, the last time beyond the end.
static Tensor silu_by_fours(Tensor x) {
  x = x.contiguous();
  auto out = torch::empty_like(x);
  const float *in = x.data_ptr<float>();
  volatile float *to = out.data_ptr<float>();
  const int64_t n = x.numel();
  for (int64_t i = 0; i < n; i += 4)
    for (int64_t j = i; j < i + 4; ++j) to[j] = silu_of(in[j < n ? j : n - 1]);
  return out;
}

// Two threads add the halves of each row into the same element, without a word to each other.
static Tensor row_sum_racing(Tensor x) {
  x = x.contiguous();
  auto out = torch::zeros({x.size(0)});
  const int64_t n = x.size(1), rows = x.size(0);
  const float *in = x.data_ptr<float>();
  volatile float *to = out.data_ptr<float>();
  std::atomic<int> there{0};
  auto add = [&](int64_t begin, int64_t end) {
    // Both begin together, so that a loaded machine does not run one after the other.
    for (++there; there < 2;) std::this_thread::yield();
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = begin; i < end; ++i) to[r] = to[r] + in[r * n + i];
  };
  std::thread first(add, 0, n / 2), second(add, n / 2, n);
  first.join();
  second.join();
  return out;
}

// Two threads with an accumulator each, joined before the result is read.
static Tensor row_sum_joined(Tensor x) {
  x = x.contiguous();
  auto out = torch::empty({x.size(0)});
  const int64_t n = x.size(1), rows = x.size(0);
  const float *in = x.data_ptr<float>();
  std::vector<double> sums(2 * rows, 0.0);
  auto add = [&](int64_t half) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = half * (n / 2); i < (half ? n : n / 2); ++i) sums[2 * r + half] += in[r * n + i];
  };
  std::thread first(add, 0), second(add, 1);
  first.join();
  second.join();
  for (int64_t r = 0; r < rows; ++r) out.data_ptr<float>()[r] = static_cast<float>(sums[2 * r] + sums[2 * r + 1]);
  return out;
}

// Adds to memory that nobody has set to zero.
static Tensor row_sum_uninitialised(Tensor x) {
  x = x.contiguous();
  auto out = torch::empty({x.size(0)});
  const int64_t n = x.size(1);
  const float *in = x.data_ptr<float>();
  for (int64_t r = 0; r < x.size(0); ++r) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i) sum += in[r * n + i];
    out.data_ptr<float>()[r] += static_cast<float>(sum);
  }
  return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("bias_gelu", &bias_gelu);
  m.def("copied", &copied);
  m.def("silu", &silu_of_all);
  m.def("silu_cached", &silu_cached);
  m.def("silu_by_fours", &silu_by_fours);
  m.def("row_sum_racing", &row_sum_racing);
  m.def("row_sum_joined", &row_sum_joined);
  m.def("row_sum_uninitialised", &row_sum_uninitialised);
}
