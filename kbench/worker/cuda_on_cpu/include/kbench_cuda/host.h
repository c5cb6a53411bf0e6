// The CUDA runtime's host calls that candidates make, answered as by one idle H200.
#pragma once
#include <cstring>
#include <string>
#include <utility>

enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidSymbol = 13,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotSupported = 801,
  cudaErrorNotReady = 600,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorIllegalAddress = 700,
  cudaErrorCooperativeLaunchTooLarge = 720,
  cudaErrorUnknown = 999,
};
using cudaError_t = cudaError;

enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };

namespace kbench_cuda {
struct Stream {};
struct Event {
  double at_s = 0;
};
}  // namespace kbench_cuda
using cudaStream_t = ::kbench_cuda::Stream*;
using cudaEvent_t = ::kbench_cuda::Event*;

constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2;
constexpr unsigned cudaHostAllocDefault = 0, cudaMemAttachGlobal = 1;
#define cudaStreamLegacy (static_cast<cudaStream_t>(nullptr))
#define cudaStreamPerThread (static_cast<cudaStream_t>(nullptr))

inline const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorCooperativeLaunchTooLarge: return "cudaErrorCooperativeLaunchTooLarge";
    default: return "cudaErrorUnknown";
  }
}
inline const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorCooperativeLaunchTooLarge: return "too many blocks in cooperative launch";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNotSupported: return "operation not supported";
    default: return "unknown error";
  }
}

inline cudaError_t cudaGetLastError() { return static_cast<cudaError_t>(::kbench_cuda::last_error(true)); }
inline cudaError_t cudaPeekAtLastError() { return static_cast<cudaError_t>(::kbench_cuda::last_error(false)); }

// --- the device ----------------------------------------------------------------------------------------------------

struct cudaDeviceProp {
  char name[256] = "NVIDIA H200 (on the CPU)";
  size_t totalGlobalMem = size_t{141} << 30;
  size_t sharedMemPerBlock = 48 << 10;
  size_t sharedMemPerBlockOptin = 227 << 10;
  size_t sharedMemPerMultiprocessor = 228 << 10;
  size_t reservedSharedMemPerBlock = 1024;
  size_t totalConstMem = 64 << 10;
  size_t textureAlignment = 512;
  int regsPerBlock = 65536, regsPerMultiprocessor = 65536;
  int warpSize = 32;
  int maxThreadsPerBlock = 1024;
  int maxThreadsDim[3] = {1024, 1024, 64};
  int maxGridSize[3] = {2147483647, 65535, 65535};
  int major = 9, minor = 0;
  int multiProcessorCount = 132;
  int maxThreadsPerMultiProcessor = 2048;
  int maxBlocksPerMultiProcessor = 32;
  int l2CacheSize = 60 << 20;
  int memoryBusWidth = 6144;
  int concurrentKernels = 1, cooperativeLaunch = 1, managedMemory = 1, unifiedAddressing = 1, canMapHostMemory = 1;
  int persistingL2CacheMaxSize = 0;
};

enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMaxRegistersPerBlock = 12,
  cudaDevAttrClockRate = 13,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxRegistersPerMultiprocessor = 82,
  cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrMaxBlocksPerMultiprocessor = 106,
  cudaDevAttrReservedSharedMemoryPerBlock = 111,
};

inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const cudaDeviceProp device;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = device.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(device.sharedMemPerBlock); break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = device.regsPerBlock; break;
    case cudaDevAttrClockRate: *value = 1980000; break;
    case cudaDevAttrMultiProcessorCount: *value = device.multiProcessorCount; break;
    case cudaDevAttrL2CacheSize: *value = device.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = device.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor: *value = device.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = device.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = static_cast<int>(device.sharedMemPerMultiprocessor); break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = device.regsPerMultiprocessor; break;
    case cudaDevAttrCooperativeLaunch: *value = 1; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(device.sharedMemPerBlockOptin); break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = device.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = static_cast<int>(device.reservedSharedMemPerBlock); break;
  }
  return cudaSuccess;
}

inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
// A tensor on the CPU gives -1 as its device.
inline cudaError_t cudaSetDevice(int device) { return device <= 0 ? cudaSuccess : cudaErrorInvalidDevice; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) { return *properties = cudaDeviceProp(), cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaDeviceReset() { return cudaSuccess; }
inline cudaError_t cudaFree(void* memory) { return ::kbench_cuda::release(memory), cudaSuccess; }
inline cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
inline cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = *total_bytes = cudaDeviceProp().totalGlobalMem;
  return cudaSuccess;
}

// --- streams and events: everything is done when the call returns ---------------------------------------------------

inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return *stream = new ::kbench_cuda::Stream, cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return cudaStreamCreate(stream); }
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete stream, cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
inline cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = new ::kbench_cuda::Event, cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return *ms = 0.0f, cudaSuccess; }
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive, cudaStreamCaptureStatusInvalidated };
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}

// --- memory --------------------------------------------------------------------------------------------------------

template <class T>
cudaError_t cudaMalloc(T** memory, size_t bytes) {
  *memory = static_cast<T*>(::kbench_cuda::allocate(bytes));
  return *memory || !bytes ? cudaSuccess : cudaErrorMemoryAllocation;
}
template <class T>
cudaError_t cudaMallocAsync(T** memory, size_t bytes, cudaStream_t) { return cudaMalloc(memory, bytes); }
template <class T>
cudaError_t cudaMallocManaged(T** memory, size_t bytes, unsigned = 1) { return cudaMalloc(memory, bytes); }
template <class T>
cudaError_t cudaMallocHost(T** memory, size_t bytes) { return cudaMalloc(memory, bytes); }
template <class T>
cudaError_t cudaHostAlloc(T** memory, size_t bytes, unsigned) { return cudaMalloc(memory, bytes); }
inline cudaError_t cudaFreeAsync(void* memory, cudaStream_t) { return cudaFree(memory); }
inline cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) { return std::memmove(to, from, bytes), cudaSuccess; }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t = nullptr) {
  return cudaMemcpy(to, from, bytes, kind);
}
inline cudaError_t cudaMemset(void* to, int value, size_t bytes) { return std::memset(to, value, bytes), cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t = nullptr) { return cudaMemset(to, value, bytes); }
template <class T>
cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, size_t bytes, size_t offset = 0, cudaMemcpyKind = cudaMemcpyHostToDevice) {
  if (offset + bytes > sizeof symbol) return cudaErrorInvalidValue;
  std::memcpy(reinterpret_cast<char*>(const_cast<std::remove_const_t<T>*>(&symbol)) + offset, from, bytes);
  return cudaSuccess;
}
template <class T>
cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind, cudaStream_t = nullptr) {
  return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0, cudaMemcpyKind = cudaMemcpyDeviceToHost) {
  if (offset + bytes > sizeof symbol) return cudaErrorInvalidValue;
  std::memcpy(to, reinterpret_cast<const char*>(&symbol) + offset, bytes);
  return cudaSuccess;
}
template <class P, class T>
cudaError_t cudaGetSymbolAddress(P** address, const T& symbol) { return *address = (P*)&symbol, cudaSuccess; }
template <class T>
T* __cvta_generic_to_global(T* address) { return address; }

// --- functions -----------------------------------------------------------------------------------------------------

enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 13,
};
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
constexpr int cudaSharedmemCarveoutMaxShared = 100;
struct cudaFuncAttributes {
  size_t sharedSizeBytes = 0, constSizeBytes = 0, localSizeBytes = 0;
  int maxThreadsPerBlock = 1024, numRegs = 32, ptxVersion = 90, binaryVersion = 90;
  int maxDynamicSharedSizeBytes = 48 << 10;
};
template <class F>
cudaError_t cudaFuncSetAttribute(F, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || value > (227 << 10)) return cudaErrorInvalidValue;
  ::kbench_cuda::allow_dynamic_shared(static_cast<size_t>(value));
  return cudaSuccess;
}
template <class F>
cudaError_t cudaFuncSetCacheConfig(F, cudaFuncCache) { return cudaSuccess; }
template <class F>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, F) { return *attributes = cudaFuncAttributes(), cudaSuccess; }
template <class F>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, F, int threads, size_t shared_bytes) {
  int by_threads = 2048 / ((threads + 31) / 32 * 32);
  int by_shared = static_cast<int>((228u << 10) / (shared_bytes + 1024));
  *blocks = std::min({32, by_threads, by_shared});
  return cudaSuccess;
}
template <class F>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, F, size_t = 0, int limit = 0) {
  *block = limit ? limit : 1024;
  *grid = 132 * (2048 / *block);
  return cudaSuccess;
}

namespace kbench_cuda {

template <class... P, size_t... i>
void launch_packed(const char* name, const Shape& shape, void (*kernel)(P...), void** arguments, std::index_sequence<i...>, Site site) {
  auto body = [&]() KBENCH_UNSEEN {
    auto call = [&](auto... a) KBENCH_UNSEEN {
      enter_kernel();
      kernel(a...);
      leave_kernel();
    };
    call(*static_cast<std::remove_reference_t<P>*>(arguments[i])...);
  };
  launch(name, shape, [](void* data) { (*static_cast<decltype(body)*>(data))(); }, &body, site);
}

}  // namespace kbench_cuda

template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, size_t shared_bytes = 0, cudaStream_t = nullptr, KBENCH_SITE) {
  ::kbench_cuda::launch_packed("cudaLaunchKernel", {grid, block, shared_bytes}, kernel, arguments, std::index_sequence_for<P...>(), site);
  return cudaPeekAtLastError();
}
template <class... P>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, size_t shared_bytes = 0, cudaStream_t = nullptr, KBENCH_SITE) {
  ::kbench_cuda::launch_packed("cudaLaunchCooperativeKernel", {grid, block, shared_bytes, true}, kernel, arguments, std::index_sequence_for<P...>(), site);
  return cudaPeekAtLastError();
}

// --- launches with attributes --------------------------------------------------------------------------------------

enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore = 0,
  cudaLaunchAttributeCooperative = 2,
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
  cudaLaunchAttributePriority = 8,
};
union cudaLaunchAttributeValue {
  char pad[64];
  int cooperative;
  int priority;
  int programmaticStreamSerializationAllowed;
  struct {
    unsigned x, y, z;
  } clusterDim;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A... arguments) {
  ::kbench_cuda::Shape shape = {config->gridDim, config->blockDim, config->dynamicSmemBytes};
  for (unsigned i = 0; i < config->numAttrs; i++) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeCooperative) shape.cooperative = attribute.val.cooperative != 0;
    if (attribute.id == cudaLaunchAttributeClusterDimension)
      shape.cluster = {attribute.val.clusterDim.x, attribute.val.clusterDim.y, attribute.val.clusterDim.z};
  }
  auto body = [kernel](auto... a) KBENCH_UNSEEN {
    ::kbench_cuda::enter_kernel();
    kernel(a...);
    ::kbench_cuda::leave_kernel();
  };
  const ::kbench_cuda::Site site = {__FILE__, __LINE__};
  ::kbench_cuda::ShapedKernel<decltype(body)>{"cudaLaunchKernelEx", body, site, shape}(static_cast<P>(arguments)...);
  return cudaPeekAtLastError();
}
