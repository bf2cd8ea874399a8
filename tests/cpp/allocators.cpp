// Allocators written in C++: a class behind a vtable, a mutex that is held while the allocator below is asked, containers that
// outlive it; and exceptions that leave a callback, which end the process with a message.
// topology: h200x2
// topology: mixed
// needs: simulator
#include "blocks.h"
#include "process.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

std::runtime_error failure(const char *what)
{
    return std::runtime_error(std::string(what) + ": " + warp_error_get_message());
}

void require(warp_status status, const char *what)
{
    if (status != WARP_SUCCESS)
        throw failure(what);
}

warp_allocator *built_in(warp_memory_kind kind)
{
    warp_allocator *allocator = nullptr;
    require(warp_allocator_get_builtin(kind, &allocator), "built-in");
    return allocator;
}

struct releaser {
    void operator()(warp_allocator *allocator) const noexcept { CHECK_STATUS(warp_allocator_release(allocator), WARP_SUCCESS); }
};
using allocator = std::unique_ptr<warp_allocator, releaser>;

// Keeps blocks that are given back and hands them out again, under one lock for everything, which is held while the allocator
// below is asked. Owned by the library from its creation: destroy deletes it.
class cache {
public:
    static std::atomic<int> alive;

    static allocator create(warp_memory_kind below)
    {
        warp_allocator_vtable vtable{};
        vtable.struct_size = sizeof vtable;
        vtable.name = "cache";
        vtable.flags = WARP_ALLOCATOR_STREAM_ORDERED;
        vtable.allocate = [](void *user, const warp_alloc_request *request, void **out) {
            return static_cast<cache *>(user)->allocate(*request, *out);
        };
        vtable.deallocate = [](void *user, void *ptr, const warp_alloc_request *request) {
            return static_cast<cache *>(user)->deallocate(ptr, *request);
        };
        vtable.destroy = [](void *user) { delete static_cast<cache *>(user); };
        vtable.trim = [](void *user, const warp_alloc_request *, std::uint64_t *freed) {
            return static_cast<cache *>(user)->trim(*freed);
        };
        auto made = std::unique_ptr<cache>(new cache(built_in(below)));
        warp_allocator *handle = nullptr;
        require(warp_allocator_create(&vtable, made.get(), &handle), "create");
        made.release();
        return allocator(handle);
    }

    ~cache()
    {
        std::uint64_t freed = 0;
        CHECK_STATUS(trim(freed), WARP_SUCCESS);
        --alive;
    }

private:
    // By stream too: memory is used again on the stream that gave it back.
    using key = std::pair<std::uint64_t, std::uint64_t>;

    explicit cache(warp_allocator *below) : below_(below) { ++alive; }

    warp_status allocate(const warp_alloc_request &request, void *&out)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        auto kept = kept_.find(key(request.size, request.stream_id));
        if (kept != kept_.end()) {
            out = kept->second;
            kept_.erase(kept);
            return WARP_SUCCESS;
        }
        return warp_allocator_allocate(below_, &request, &out);
    }

    warp_status deallocate(void *ptr, const warp_alloc_request &request)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (request.stream == nullptr)
            return warp_allocator_deallocate(below_, ptr, &request);
        try {
            kept_.emplace(key(request.size, request.stream_id), ptr);
            return WARP_SUCCESS;
        } catch (const std::exception &) {
            return warp_allocator_deallocate(below_, ptr, &request);
        }
    }

    warp_status trim(std::uint64_t &freed)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        warp_status last = WARP_SUCCESS;
        for (const auto &kept : kept_) {
            warp_status status = warp_allocator_deallocate(below_, kept.second, nullptr);
            if (status == WARP_SUCCESS)
                freed += kept.first.first;
            else
                last = status;
        }
        kept_.clear();
        return last;
    }

    std::mutex mutex_;
    std::multimap<key, void *> kept_;
    warp_allocator *below_;
};

std::atomic<int> cache::alive{0};

bool has_pools()
{
    return info_of(gpu(0)).is_mempool_supported;
}

}  // namespace

// ---- Exceptions -----------------------------------------------------------------------------------------------------------

namespace {

enum thrower { allocating, deallocating, trimming, counting, recording, destroying };

struct throwing {
    thrower where;
    warp_allocator *below;

    void at(thrower here) const
    {
        if (here == where)
            throw std::runtime_error("not for C");
    }
};

warp_allocator *create_throwing(throwing *user)
{
    warp_allocator_vtable vtable{};
    vtable.struct_size = sizeof vtable;
    vtable.flags = WARP_ALLOCATOR_STREAM_ORDERED;
    vtable.allocate = [](void *of, const warp_alloc_request *request, void **out) {
        static_cast<throwing *>(of)->at(allocating);
        return warp_allocator_allocate(static_cast<throwing *>(of)->below, request, out);
    };
    vtable.deallocate = [](void *of, void *ptr, const warp_alloc_request *request) {
        static_cast<throwing *>(of)->at(deallocating);
        return warp_allocator_deallocate(static_cast<throwing *>(of)->below, ptr, request);
    };
    vtable.destroy = [](void *of) { static_cast<throwing *>(of)->at(destroying); };
    vtable.trim = [](void *of, const warp_alloc_request *, std::uint64_t *) -> warp_status {
        static_cast<throwing *>(of)->at(trimming);
        return WARP_SUCCESS;
    };
    vtable.get_statistics = [](void *of, warp_allocator_statistics *) -> warp_status {
        static_cast<throwing *>(of)->at(counting);
        return WARP_SUCCESS;
    };
    vtable.record_stream = [](void *of, void *, const warp_alloc_request *) -> warp_status {
        static_cast<throwing *>(of)->at(recording);
        return WARP_SUCCESS;
    };
    warp_allocator *made = nullptr;
    require(warp_allocator_create(&vtable, user, &made), "create");
    return made;
}

// What of it reaches the callback that throws; the process must not come back from it.
void call_all(thrower where)
{
    require(warp_init(nullptr, nullptr), "init");
    static throwing user;
    user.where = where;
    user.below = built_in(WARP_MEMORY_CUDA_DEVICE);
    warp_allocator *made = create_throwing(&user);
    warp_alloc_options options = options_of(WARP_MEMORY_UNKNOWN, nullptr);
    options.allocator = made;
    warp_stream *other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    void *ptr = nullptr;
    try {
        warp_alloc_with(gpu(0), 64, &options, &ptr);
        warp_pointer_record_stream(ptr, other);
        warp_free(ptr);
        warp_allocator_trim(made, gpu(0), nullptr);
        warp_allocator_statistics statistics{};
        statistics.struct_size = sizeof statistics;
        warp_allocator_get_statistics(made, &statistics);
        warp_allocator_release(made);
    } catch (...) {
        _exit(77); // it came through the library
    }
    _exit(78);
}

}  // namespace

// The first test: its children begin before the library has.
TEST(an_exception_ends_the_process)
{
    static const char *const names[] = {"allocate", "deallocate", "trim", "get_statistics", "record_stream", "destroy"};
    for (int where = allocating; where <= destroying; ++where) {
        int out[2];
        REQUIRE(pipe(out) == 0);
        std::fflush(stdout);
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            dup2(out[1], STDERR_FILENO);
            alarm(PROCESS_PATIENCE);
            call_all(static_cast<thrower>(where));
        }
        close(out[1]);
        std::string said;
        char bytes[256];
        for (ssize_t got; (got = read(out[0], bytes, sizeof bytes)) > 0;)
            said.append(bytes, static_cast<std::size_t>(got));
        close(out[0]);
        CHECK_EQ_I64(process_wait(child), 128 + 6);
        std::string message = std::string("warpmem: the ") + names[where] + " callback let an exception escape";
        CHECK_STR_CONTAINS(said.c_str(), message.c_str());
        CHECK_STR_CONTAINS(said.c_str(), "return a status");
    }
}

// ---- A class ---------------------------------------------------------------------------------------------------------------

TEST(a_lock_over_the_allocator_below)
{
    require(warp_init(nullptr, nullptr), "init");
    {
        allocator made = cache::create(WARP_MEMORY_CUDA_DEVICE);
        require(warp_allocator_set_for_all(made.get()), "set");
        std::vector<std::thread> threads;
        for (int number = 0; number < 6; ++number)
            threads.emplace_back([number] {
                warp_stream *stream = new_stream(gpu(number & 1), WARP_STREAM_NON_BLOCKING);
                for (int round = 0; round < (check_under("valgrind") ? 30 : 300); ++round) {
                    std::vector<void *> blocks;
                    for (std::uint64_t size = 256; size < 2000; size += 256)
                        blocks.push_back(block_on(gpu(number & 1), size, WARP_MEMORY_UNKNOWN, stream));
                    for (void *ptr : blocks) {
                        CHECK_STATUS(warp_memory_fill(ptr, 256, "c", 1, stream), WARP_SUCCESS);
                        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
                    }
                    if (round % 50 == 0)
                        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
                }
                CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
            });
        for (std::thread &thread : threads)
            thread.join();
        std::uint64_t freed = 0, blocks = 0, bytes = 0;
        CHECK_STATUS(warp_allocator_measure(made.get(), &blocks, &bytes), WARP_SUCCESS);
        CHECK_EQ_U64(blocks, 0);
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        CHECK_STATUS(warp_allocator_trim(made.get(), nullptr, &freed), WARP_SUCCESS);
        CHECK(freed >= 6 * (256 + 512 + 768 + 1024 + 1280 + 1536 + 1792));
        require(warp_allocator_set_for_all(nullptr), "set");
        CHECK_EQ_I64(cache::alive, 1);
    }
    CHECK_EQ_I64(cache::alive, 0);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

// The pool below runs out while the lock is held: it makes room without calling back, and the second try comes after the trim.
TEST(memory_runs_out_under_the_lock)
{
    require(warp_init(nullptr, nullptr), "init");
    if (has_pools()) {
        allocator made = cache::create(WARP_MEMORY_CUDA_MEMPOOL);
        warp_alloc_options options = options_of(WARP_MEMORY_UNKNOWN, nullptr);
        options.allocator = made.get();
        void *ptr = nullptr;
        CHECK_STATUS(warp_alloc_with(gpu(0), 1 * MIB, &options, &ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        SIMULATOR(warpsim_out_of_memory_above_total)(64 * MIB);
        CHECK_STATUS(warp_alloc_with(gpu(0), 64 * MIB, &options, &ptr), WARP_SUCCESS); // what was kept made the room
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc_with(gpu(0), 65 * MIB, &options, &ptr), WARP_ERROR_OUT_OF_MEMORY);
        CHECK_EQ_PTR(ptr, nullptr);
        SIMULATOR(warpsim_fail_clear)();
        CHECK_STATUS(warp_alloc_with(gpu(0), 65 * MIB, &options, &ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    }
    CHECK_EQ_I64(cache::alive, 0);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

// Owners that outlive the allocator's own.
TEST(blocks_keep_it)
{
    struct freer {
        void operator()(void *ptr) const noexcept { CHECK_STATUS(warp_free(ptr), WARP_SUCCESS); }
    };
    require(warp_init(nullptr, nullptr), "init");
    std::vector<std::unique_ptr<void, freer>> blocks;
    {
        allocator made = cache::create(WARP_MEMORY_CUDA_DEVICE);
        require(warp_allocator_set_for_device(gpu(0), made.get()), "set");
        for (int i = 0; i < 5; ++i) {
            void *ptr = nullptr;
            require(warp_alloc(gpu(0), 1000, &ptr), "alloc");
            blocks.emplace_back(ptr);
        }
        require(warp_allocator_set_for_device(gpu(0), nullptr), "set");
    }
    CHECK_EQ_I64(cache::alive, 1);
    blocks.resize(1);
    CHECK_EQ_I64(cache::alive, 1);
    blocks.clear();
    CHECK_EQ_I64(cache::alive, 0);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

CHECK_MAIN()
