// RMM's resources as contestants: the driver's pool as RMM wraps it, its pool, its arena, its bins over the pool, and its pool of
// page-locked memory. What they hold of the GPU is counted between them and cudaMalloc; of the driver's pool the driver knows.
#include "contestant.h"

#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <optional>

namespace {

constexpr std::size_t MIB = std::size_t{1} << 20;
constexpr std::size_t ALIGNMENT = 256;

rmm::cuda_stream_view view(void* stream) { return rmm::cuda_stream_view{static_cast<cudaStream_t>(stream)}; }

// How each of them is made over a counted upstream.
struct pool {
  using resource = rmm::mr::pool_memory_resource;
  static resource make(rmm::mr::statistics_resource_adaptor upstream) { return resource{upstream, 256 * MIB}; }
};
struct arena {
  using resource = rmm::mr::arena_memory_resource;
  static resource make(rmm::mr::statistics_resource_adaptor upstream)
  {
    std::size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) free = 2 * MIB;
    return resource{upstream, std::min(free / 2, 16384 * MIB) / (2 * MIB) * (2 * MIB)};
  }
};
struct binning {
  using resource = rmm::mr::binning_memory_resource;
  static resource make(rmm::mr::statistics_resource_adaptor upstream)
  {
    return resource{rmm::mr::pool_memory_resource{upstream, 256 * MIB}, 8, 20};
  }
};

template <class Resource>
void* allocate_from(std::optional<Resource>& resource, std::size_t size, void* stream)
{
  try {
    return resource->allocate(view(stream), size, ALIGNMENT);
  } catch (...) {
    return nullptr;
  }
}

template <class Kind>
struct over_malloc {
  static inline std::optional<rmm::mr::statistics_resource_adaptor> counted;
  static inline std::optional<typename Kind::resource> made;

  static int begin()
  {
    try {
      counted.emplace(rmm::mr::cuda_memory_resource{});
      made.emplace(Kind::make(*counted));
      return 0;
    } catch (...) {
      return 1;
    }
  }
  static void end()
  {
    cudaDeviceSynchronize();
    made.reset();
    counted.reset();
  }
  static void* allocate(std::size_t size, void* stream) { return allocate_from(made, size, stream); }
  static void release(void* ptr, std::size_t size, void* stream) { made->deallocate(view(stream), ptr, size, ALIGNMENT); }
  static std::uint64_t reserved() { return static_cast<std::uint64_t>(counted->get_bytes_counter().value); }
  static std::uint64_t peak() { return static_cast<std::uint64_t>(counted->get_bytes_counter().peak); }
  static void reset()
  {
    end();
    begin();
  }
  static contestant as(const char* library)
  {
    return {library, 0, begin, end, nullptr, nullptr, nullptr, allocate, release, reserved, peak, reset};
  }
};

struct async {
  static inline std::optional<rmm::mr::cuda_async_memory_resource> made;

  static int begin()
  {
    try {
      made.emplace();
      return 0;
    } catch (...) {
      return 1;
    }
  }
  static void end()
  {
    cudaDeviceSynchronize();
    made.reset();
  }
  static void* allocate(std::size_t size, void* stream) { return allocate_from(made, size, stream); }
  static void release(void* ptr, std::size_t size, void* stream) { made->deallocate(view(stream), ptr, size, ALIGNMENT); }
  static std::uint64_t attribute(cudaMemPoolAttr which)
  {
    std::uint64_t value = 0;
    cudaMemPoolGetAttribute(made->pool_handle(), which, &value);
    return value;
  }
  static std::uint64_t reserved() { return attribute(cudaMemPoolAttrReservedMemCurrent); }
  static std::uint64_t peak() { return attribute(cudaMemPoolAttrReservedMemHigh); }
  static void reset()
  {
    std::uint64_t zero = 0;
    cudaDeviceSynchronize();
    cudaMemPoolTrimTo(made->pool_handle(), 0);
    cudaMemPoolSetAttribute(made->pool_handle(), cudaMemPoolAttrReservedMemHigh, &zero);
  }
};

struct pinned {
  static inline std::optional<rmm::mr::pool_memory_resource> made;

  static int begin()
  {
    try {
      made.emplace(rmm::mr::pinned_host_memory_resource{}, 64 * MIB);
      return 0;
    } catch (...) {
      return 1;
    }
  }
  static void end()
  {
    cudaDeviceSynchronize();
    made.reset();
  }
  static void* allocate(std::size_t size, void* stream) { return allocate_from(made, size, stream); }
  static void release(void* ptr, std::size_t size, void* stream) { made->deallocate(view(stream), ptr, size, ALIGNMENT); }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const contestant* warpmem_bench_contestants(std::size_t* count)
{
  static const contestant all[] = {
    {"RMM async", 0, async::begin, async::end, nullptr, nullptr, nullptr, async::allocate, async::release, async::reserved, async::peak,
     async::reset},
    over_malloc<pool>::as("RMM pool"),
    over_malloc<arena>::as("RMM arena"),
    over_malloc<binning>::as("RMM binning"),
    {"RMM pool", CONTESTANT_PINNED, pinned::begin, pinned::end, nullptr, nullptr, nullptr, pinned::allocate, pinned::release,
     nullptr, nullptr, nullptr},
  };
  *count = sizeof all / sizeof *all;
  return all;
}
