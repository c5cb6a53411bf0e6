#include <curand_kernel.h>

#include "corpus.h"

__global__ void normals(float* y, unsigned long long seed, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  curandStatePhilox4_32_10_t state;
  curand_init(seed, i, 0, &state);
  const float4 four = curand_normal4(&state);
  if (4 * i + 3 < n) reinterpret_cast<float4*>(y)[i] = four;
}
API random_normals(float* y, int seed, int n) {
  return finished([&] { normals<<<(n / 4 + 127) / 128, 128>>>(y, seed, n); });
}
