// Memory from C++: owners that free themselves, containers, exceptions, threads, and the end of the process with blocks
// in static objects.
// topology: h200x2
// topology: mixed
// topology: none
// topology: -
#include "blocks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
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
template <class T>
using owned = std::unique_ptr<T, freer>;

std::runtime_error failure(const char *what)
{
    return std::runtime_error(std::string(what) + ": " + warp_error_get_message());
}

owned<std::byte> allocate(warp_device *device, std::uint64_t size, warp_memory_kind kind = WARP_MEMORY_UNKNOWN,
                          warp_stream *stream = nullptr)
{
    warp_alloc_options options{};
    options.struct_size = sizeof options;
    options.kind = kind;
    options.stream = stream;
    void *ptr = nullptr;
    if (warp_alloc_with(device, size, &options, &ptr) != WARP_SUCCESS)
        throw failure("allocate");
    return owned<std::byte>(static_cast<std::byte *>(ptr));
}

class stream {
public:
    explicit stream(warp_device *device)
    {
        if (warp_stream_create(device, nullptr, &handle_) != WARP_SUCCESS)
            throw failure("stream");
    }
    stream(const stream &) = delete;
    stream &operator=(const stream &) = delete;
    ~stream() { CHECK_STATUS(warp_stream_release(handle_), WARP_SUCCESS); }
    warp_stream *get() const { return handle_; }

private:
    warp_stream *handle_ = nullptr;
};

// The smallest allocator that a standard container takes, over page-locked or ordinary host memory.
template <class T, warp_memory_kind Kind>
struct host_allocator {
    using value_type = T;
    template <class U>
    struct rebind {
        using other = host_allocator<U, Kind>;
    };
    host_allocator() = default;
    template <class U>
    host_allocator(const host_allocator<U, Kind> &) {}
    T *allocate(std::size_t count)
    {
        warp_alloc_options options{};
        options.struct_size = sizeof options;
        options.kind = Kind;
        options.alignment = alignof(T);
        void *ptr = nullptr;
        if (warp_alloc_with(cpu(), count * sizeof(T), &options, &ptr) != WARP_SUCCESS)
            throw std::bad_alloc();
        return static_cast<T *>(ptr);
    }
    void deallocate(T *ptr, std::size_t count)
    {
        warp_free_options options{};
        options.struct_size = sizeof options;
        options.size = count * sizeof(T);
        options.alignment = alignof(T);
        CHECK_STATUS(warp_free_with(ptr, &options), WARP_SUCCESS);
    }
    friend bool operator==(const host_allocator &, const host_allocator &) { return true; }
    friend bool operator!=(const host_allocator &, const host_allocator &) { return false; }
};

std::vector<warp_device *> devices()
{
    std::size_t count = 0;
    CHECK_STATUS(warp_device_get_count(&count), WARP_SUCCESS);
    std::vector<warp_device *> all(std::min<std::size_t>(count, 3));
    for (std::size_t i = 0; i < all.size(); ++i)
        CHECK_STATUS(warp_device_get_at(i, &all[i]), WARP_SUCCESS);
    return all;
}

// Freed after main() has returned, and by then quietly.
owned<std::byte> of_the_process;

} // namespace

TEST(owners_free_what_they_own)
{
    REQUIRE(start());
    for (warp_device *device : devices()) {
        auto first = allocate(device, 1000);
        auto second = std::move(first);
        CHECK(first == nullptr);
        CHECK_EQ_PTR(pointer_info(second.get()).base, second.get());
        std::vector<owned<std::byte>> many;
        for (int i = 0; i < 100; ++i)
            many.push_back(allocate(device, 10 + static_cast<std::uint64_t>(i)));
        CHECK_EQ_U64(statistics_of(device, 0).live_blocks, 101);
        std::reverse(many.begin(), many.end());
        many.resize(50);
        CHECK_EQ_U64(statistics_of(device, 0).live_blocks, 51);
    }
    CHECK_NOTHING_LEFT();
}

TEST(an_exception_frees_what_was_taken_before_it)
{
    for (warp_device *device : devices()) {
        CHECK_THROWS(std::runtime_error, [&] {
            auto kept = allocate(device, 1000);
            auto also = allocate(device, 1000);
            (void)allocate(device, UINT64_MAX);
        }());
        CHECK_EQ_U64(statistics_of(device, 0).live_blocks, 0);
    }
    CHECK_NOTHING_LEFT();
}

TEST(an_owner_may_outlive_its_stream)
{
    if (gpu_count() == 0)
        SKIP("needs a GPU");
    owned<std::byte> survivor;
    {
        stream mine(gpu(0));
        survivor = allocate(gpu(0), 4096, WARP_MEMORY_UNKNOWN, mine.get());
        CHECK_STATUS(warp_memory_fill(survivor.get(), 4096, "\x42", 1, mine.get()), WARP_SUCCESS);
    }
    survivor.reset();
    CHECK_NOTHING_LEFT();
}

TEST(containers_in_host_memory)
{
    std::vector<double, host_allocator<double, WARP_MEMORY_HOST>> numbers;
    for (int i = 0; i < 10000; ++i)
        numbers.push_back(i);
    CHECK(numbers[9999] == 9999);
    CHECK_EQ_I64(pointer_info(&numbers[5000]).kind, WARP_MEMORY_HOST);
    CHECK_EQ_U64(statistics_of(cpu(), WARP_MEMORY_HOST).live_bytes, numbers.capacity() * sizeof(double));
    decltype(numbers)().swap(numbers);
    if (gpu_count() != 0) {
        std::vector<int, host_allocator<int, WARP_MEMORY_PINNED>> pinned(5000, 7);
        auto device = allocate(gpu(0), pinned.size() * sizeof(int));
        std::vector<int> back(pinned.size());
        CHECK_STATUS(warp_memory_copy(device.get(), pinned.data(), pinned.size() * sizeof(int), nullptr), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy(back.data(), device.get(), back.size() * sizeof(int), nullptr), WARP_SUCCESS);
        CHECK(std::all_of(back.begin(), back.end(), [](int value) { return value == 7; }));
    } else {
        auto make = [] { std::vector<int, host_allocator<int, WARP_MEMORY_PINNED>> pinned(5); };
        CHECK_THROWS(std::bad_alloc, make());
    }
    CHECK_NOTHING_LEFT();
}

TEST(blocks_travel_between_threads)
{
    for (warp_device *device : devices()) {
        std::vector<std::future<owned<std::byte>>> futures;
        for (unsigned i = 0; i < 8; ++i)
            futures.push_back(std::async(std::launch::async, [device, i] {
                auto block = allocate(device, 5000);
                put_pattern(block.get(), 5000, i);
                return block;
            }));
        std::vector<owned<std::byte>> blocks;
        for (auto &future : futures)
            blocks.push_back(future.get());
        CHECK_STATUS(warp_device_synchronize(device), WARP_SUCCESS);
        for (unsigned i = 0; i < blocks.size(); ++i)
            CHECK_EQ_U64(find_pattern(blocks[i].get(), 5000, i), 5000);
        std::vector<std::thread> threads;
        for (auto &block : blocks)
            threads.emplace_back([&block] { block.reset(); });
        for (auto &thread : threads)
            thread.join();
    }
    CHECK_NOTHING_LEFT();
}

TEST(a_chain_of_stages_each_on_its_own_thread)
{
    // Produced, doubled in place and consumed by three threads, on whatever device.
    for (warp_device *device : devices()) {
        constexpr int rounds = 100;
        std::array<std::atomic<std::byte *>, rounds> made{}, done{};
        std::thread producer([&] {
            for (int i = 0; i < rounds; ++i) {
                std::byte *ptr = allocate(device, 300).release();
                put_pattern(ptr, 300, static_cast<std::uint64_t>(i));
                CHECK_STATUS(warp_device_synchronize(device), WARP_SUCCESS);
                made[static_cast<std::size_t>(i)].store(ptr, std::memory_order_release);
            }
        });
        std::thread middle([&] {
            for (std::size_t i = 0; i < rounds; ++i) {
                std::byte *from = nullptr;
                while ((from = made[i].load(std::memory_order_acquire)) == nullptr)
                    std::this_thread::yield();
                std::byte *to = allocate(device, 600).release();
                CHECK_STATUS(warp_memory_copy(to, from, 300, nullptr), WARP_SUCCESS);
                CHECK_STATUS(warp_memory_copy(to + 300, from, 300, nullptr), WARP_SUCCESS);
                CHECK_STATUS(warp_free(from), WARP_SUCCESS); // at once: the free comes after the copies
                CHECK_STATUS(warp_device_synchronize(device), WARP_SUCCESS);
                done[i].store(to, std::memory_order_release);
            }
        });
        for (std::size_t i = 0; i < rounds; ++i) {
            std::byte *ptr = nullptr;
            while ((ptr = done[i].load(std::memory_order_acquire)) == nullptr)
                std::this_thread::yield();
            owned<std::byte> block(ptr);
            CHECK_EQ_U64(find_pattern(block.get(), 300, i), 300);
            CHECK_EQ_U64(find_pattern(block.get() + 300, 300, i), 300);
        }
        producer.join();
        middle.join();
    }
    CHECK_NOTHING_LEFT();
}

TEST(static_objects_free_after_main)
{
    of_the_process = allocate(gpu_count() == 0 ? cpu() : gpu(0), 100);
    CHECK(of_the_process != nullptr);
}

CHECK_MAIN()
