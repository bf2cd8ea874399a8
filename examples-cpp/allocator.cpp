// An allocator in C++: a class that keeps freed blocks for the next of the same size, up to a budget. No exception leaves a
// callback, and a handle that releases itself owns the allocator.
// topology: h200x2
// topology: vgpu
// topology: -
#include <warpmem.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <tuple>

struct failure : std::runtime_error {
    explicit failure(warp_status failed) : std::runtime_error(warp_error_get_message()), status(failed) {}
    warp_status status;
};

static void must(warp_status status)
{
    if (status == WARP_ERROR_OUT_OF_MEMORY)
        throw std::bad_alloc();
    if (status != WARP_SUCCESS)
        throw failure(status);
}

// Runs the body of a callback: what it throws becomes a status.
template <class Body>
static warp_status guarded(Body body) noexcept
{
    try {
        body();
        return WARP_SUCCESS;
    } catch (const std::bad_alloc &) {
        return WARP_ERROR_OUT_OF_MEMORY; // to be trimmed and asked once more
    } catch (const failure &error) {
        return error.status;
    } catch (...) {
        return WARP_ERROR_ALLOCATOR_FAILED;
    }
}

class recycler {
public:
    recycler(warp_memory_kind kind, std::uint64_t budget) : budget_(budget) { must(warp_allocator_get_builtin(kind, &below_)); }
    recycler(const recycler &) = delete;
    recycler &operator=(const recycler &) = delete;
    ~recycler() { give_back(); }

    void *allocate(const warp_alloc_request &request)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (auto found = kept_.find(key_of(request)); found != kept_.end()) {
            void *ptr = found->second;
            kept_.erase(found);
            hits++;
            return ptr;
        }
        if (request.size > budget_ - held_)
            throw std::bad_alloc();
        void *ptr = nullptr;
        must(warp_allocator_allocate(below_, &request, &ptr));
        held_ += request.size;
        return ptr;
    }

    void deallocate(void *ptr, const warp_alloc_request &request)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        try {
            if (!(request.flags & WARP_ALLOC_REQUEST_DEVICE_LOST)) {
                kept_.emplace(key_of(request), ptr);
                return;
            }
        } catch (const std::bad_alloc &) {
        }
        held_ -= request.size; // not to be kept
        must(warp_allocator_deallocate(below_, ptr, &request));
    }

    std::uint64_t trim(const warp_alloc_request &)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        return give_back();
    }

    int hits = 0;

private:
    using key = std::tuple<warp_device *, std::uint64_t, std::uint64_t>;
    static key key_of(const warp_alloc_request &request) { return {request.device, request.size, request.alignment}; }

    std::uint64_t give_back() noexcept
    {
        std::uint64_t freed = 0;
        for (const auto &[key, ptr] : kept_)
            if (warp_allocator_deallocate(below_, ptr, nullptr) == WARP_SUCCESS)
                freed += std::get<1>(key);
        kept_.clear();
        held_ -= freed;
        return freed;
    }

    std::mutex mutex_;
    warp_allocator *below_ = nullptr;
    std::uint64_t budget_, held_ = 0;
    std::multimap<key, void *> kept_;
};

struct releaser {
    void operator()(warp_allocator *allocator) const noexcept { warp_allocator_release(allocator); }
};
using handle = std::unique_ptr<warp_allocator, releaser>;

// Any class with allocate, deallocate and trim. The library owns the object from here on.
template <class T>
static handle make_allocator(std::unique_ptr<T> object, const char *name, warp_memory_kind kind)
{
    warp_allocator_vtable vtable{};
    vtable.struct_size = sizeof vtable;
    vtable.name = name;
    vtable.kind = kind;
    vtable.flags = kind == WARP_MEMORY_HOST ? WARP_ALLOCATOR_HOST_MEMORY : 0;
    vtable.allocate = [](void *user, const warp_alloc_request *request, void **out) {
        return guarded([&] { *out = static_cast<T *>(user)->allocate(*request); });
    };
    vtable.deallocate = [](void *user, void *ptr, const warp_alloc_request *request) {
        return guarded([&] { static_cast<T *>(user)->deallocate(ptr, *request); });
    };
    vtable.trim = [](void *user, const warp_alloc_request *request, std::uint64_t *out_freed) {
        return guarded([&] { *out_freed = static_cast<T *>(user)->trim(*request); });
    };
    vtable.destroy = [](void *user) { delete static_cast<T *>(user); };
    warp_allocator *allocator = nullptr;
    must(warp_allocator_create(&vtable, object.get(), &allocator));
    object.release();
    return handle(allocator);
}

static bool visit(warp_device *device, warp_memory_kind kind, const char *name)
{
    auto object = std::make_unique<recycler>(kind, 10 << 20);
    recycler &watched = *object;
    const handle allocator = make_allocator(std::move(object), "recycler", kind);
    warp_alloc_options from{};
    from.struct_size = sizeof from;
    from.allocator = allocator.get();
    void *first = nullptr, *second = nullptr, *third = nullptr;
    must(warp_alloc_with(device, 6 << 20, &from, &first));
    must(warp_free(first));
    must(warp_alloc_with(device, 6 << 20, &from, &second)); // the same again
    const bool recycled = first == second && watched.hits == 1;
    must(warp_free(second));
    must(warp_alloc_with(device, 8 << 20, &from, &third)); // above the budget until it is trimmed
    const warp_status status = warp_alloc_with(device, 4 << 20, &from, &first);
    std::printf("%-12s %s\n", name, warp_error_get_message());
    must(warp_free(third));
    return recycled && status == WARP_ERROR_OUT_OF_MEMORY;
}

int main()
{
    try {
        must(warp_init(nullptr, nullptr));
        warp_device *cpu = nullptr, *gpu = nullptr;
        must(warp_device_get("cpu", &cpu));
        bool passed = visit(cpu, WARP_MEMORY_HOST, "HOST");
        if (warp_device_get("cuda:0", &gpu) == WARP_SUCCESS)
            passed = visit(gpu, WARP_MEMORY_CUDA_DEVICE, "CUDA_DEVICE") && passed;
        must(warp_shutdown());
        return passed ? 0 : 1;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
