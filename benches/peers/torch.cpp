// PyTorch's caching allocator as a contestant, from C++: no Python and no tensors in between.
#include "contestant.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <cuda_runtime_api.h>

namespace {

namespace cache = c10::cuda::CUDACachingAllocator;

constexpr auto ALL = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

void reset()
{
  cudaDeviceSynchronize();
  cache::emptyCache();
  cache::resetPeakStats(0);
}

int begin()
{
  try {
    if (!cache::get()->initialized()) {
      int count = 0;
      if (cudaGetDeviceCount(&count) != cudaSuccess) return 1;
      cache::init(count);
    }
    return 0;
  } catch (...) {
    return 1;
  }
}

void end() { reset(); }

void* allocate(std::size_t size, void* stream)
{
  try {
    return cache::raw_alloc_with_stream(size, static_cast<cudaStream_t>(stream));
  } catch (...) {
    return nullptr;
  }
}

void release(void* ptr, std::size_t, void*) { cache::raw_delete(ptr); }

std::uint64_t reserved() { return static_cast<std::uint64_t>(cache::getDeviceStats(0).reserved_bytes[ALL].current); }
std::uint64_t peak() { return static_cast<std::uint64_t>(cache::getDeviceStats(0).reserved_bytes[ALL].peak); }

}  // namespace

extern "C" __attribute__((visibility("default"))) const contestant* warpmem_bench_contestants(std::size_t* count)
{
  static const contestant all[] = {
    {"PyTorch", 0, begin, end, nullptr, nullptr, nullptr, allocate, release, reserved, peak, reset},
  };
  *count = 1;
  return all;
}
