// The caching allocator from C++: owners in containers and on other threads, exceptions half-way, static objects that end after the
// last shutdown.
// topology: h200x2
// topology: mixed
#include "blocks.h"

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

struct freer {
    void operator()(void *ptr) const noexcept { CHECK_STATUS(warp_free(ptr), WARP_SUCCESS); }
};
using owned = std::unique_ptr<void, freer>;

class cache {
public:
    explicit cache(warp_memory_kind kind, std::uint64_t limit = 0)
    {
        warp_allocator *below = nullptr;
        warp_caching_options options{};
        options.struct_size = sizeof options;
        options.limit = limit;
        if (warp_allocator_get_builtin(kind, &below) != WARP_SUCCESS ||
            warp_allocator_create_caching(below, &options, &handle_) != WARP_SUCCESS)
            throw std::runtime_error(warp_error_get_message());
    }
    cache(const cache &) = delete;
    cache &operator=(const cache &) = delete;
    ~cache() { CHECK_STATUS(warp_allocator_release(handle_), WARP_SUCCESS); }

    owned allocate(warp_device *device, std::uint64_t size) const
    {
        warp_alloc_options options{};
        options.struct_size = sizeof options;
        options.allocator = handle_;
        void *ptr = nullptr;
        const warp_status status = warp_alloc_with(device, size, &options, &ptr);
        if (status == WARP_ERROR_OUT_OF_MEMORY)
            throw std::bad_alloc();
        if (status != WARP_SUCCESS)
            throw std::runtime_error(warp_error_get_message());
        return owned(ptr);
    }

    warp_caching_info measure() const
    {
        warp_caching_info info{};
        info.struct_size = sizeof info;
        CHECK_STATUS(warp_allocator_caching_measure(handle_, nullptr, &info), WARP_SUCCESS);
        return info;
    }

private:
    warp_allocator *handle_ = nullptr;
};

// Outlives main and the shutdown in it.
owned left_over;

} // namespace

TEST(owners_give_back_in_any_order)
{
    REQUIRE(start());
    {
        const cache device(WARP_MEMORY_CUDA_DEVICE);
        std::vector<owned> blocks;
        for (std::uint64_t i = 0; i < 100; ++i)
            blocks.push_back(device.allocate(gpu(0), 1000 * (i + 1)));
        CHECK_EQ_U64(device.measure().live_blocks, 100);
        CHECK_EQ_U64(device.measure().live_bytes, 1000 * 5050);
        for (std::size_t i = 0; i < 100; i += 3)
            blocks[i].reset();
        blocks.clear();
        CHECK_EQ_U64(device.measure().live_blocks, 0);
        CHECK_EQ_U64(device.measure().used_bytes, 0);
    }
    CHECK_NOTHING_LEFT();
}

TEST(an_exception_leaves_nothing_behind)
{
    REQUIRE(start());
    {
        const cache small(WARP_MEMORY_CUDA_DEVICE, 8 * MIB);
        bool thrown = false;
        try {
            const owned first = small.allocate(gpu(0), 6 * MIB);
            const owned second = small.allocate(gpu(0), 6 * MIB);
        } catch (const std::bad_alloc &) {
            thrown = true;
        }
        CHECK(thrown);
        CHECK_EQ_U64(small.measure().live_blocks, 0);
        // What the first one had serves the next, within the same limit.
        const owned again = small.allocate(gpu(0), 6 * MIB);
        CHECK(small.measure().reserved_bytes <= 8 * MIB);
    }
    CHECK_NOTHING_LEFT();
}

TEST(blocks_outlive_their_cache_and_go_on_other_threads)
{
    REQUIRE(start());
    std::vector<owned> blocks;
    {
        const cache brief(WARP_MEMORY_CUDA_DEVICE);
        for (int i = 0; i < 20; ++i)
            blocks.push_back(brief.allocate(gpu(0), 4096));
    }
    std::thread([moved = std::move(blocks)]() mutable { moved.clear(); }).join();
    CHECK_NOTHING_LEFT();
}

TEST(static_owners_end_after_the_shutdown)
{
    REQUIRE(start());
    const cache device(WARP_MEMORY_CUDA_DEVICE);
    left_over = device.allocate(gpu(0), 100);
    CHECK(left_over != nullptr);
}

CHECK_MAIN()
