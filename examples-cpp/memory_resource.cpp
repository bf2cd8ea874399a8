// An allocator under containers of the standard library: a std::pmr::memory_resource over host memory that a tracking and a
// limit adaptor watch; and memory of any device under a std::unique_ptr.
// topology: h200x2
// topology: -
#include <warpmem.h>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <vector>

static void must(warp_status status)
{
    if (status == WARP_ERROR_OUT_OF_MEMORY)
        throw std::bad_alloc();
    if (status != WARP_SUCCESS)
        throw std::runtime_error(warp_error_get_message());
}

class resource final : public std::pmr::memory_resource {
public:
    // A reference of its own: the caller may release theirs.
    explicit resource(warp_allocator *allocator) : allocator_(allocator) { must(warp_allocator_retain(allocator)); }
    resource(const resource &) = delete;
    resource &operator=(const resource &) = delete;
    ~resource() override { warp_allocator_release(allocator_); }

private:
    static warp_alloc_request request_of(std::size_t size, std::size_t alignment)
    {
        warp_alloc_request request{};
        request.struct_size = sizeof request;
        request.size = size == 0 ? 1 : size; // 0 bytes are NULL here, and an address there
        request.alignment = alignment;
        return request;
    }

    void *do_allocate(std::size_t size, std::size_t alignment) override
    {
        const warp_alloc_request request = request_of(size, alignment);
        void *ptr = nullptr;
        must(warp_allocator_allocate(allocator_, &request, &ptr));
        return ptr;
    }

    void do_deallocate(void *ptr, std::size_t size, std::size_t alignment) override
    {
        const warp_alloc_request request = request_of(size, alignment); // size and alignment are checked
        if (warp_allocator_deallocate(allocator_, ptr, &request) != WARP_SUCCESS)
            std::fprintf(stderr, "%s\n", warp_error_get_message()); // nobody expects a throw here
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        const auto *same = dynamic_cast<const resource *>(&other);
        return same != nullptr && same->allocator_ == allocator_;
    }

    warp_allocator *allocator_;
};

struct releaser {
    void operator()(warp_allocator *allocator) const noexcept { warp_allocator_release(allocator); }
};
using handle = std::unique_ptr<warp_allocator, releaser>;

// A block is known by its address alone, so its deleter has no state.
struct deleter {
    void operator()(void *ptr) const noexcept { warp_free(ptr); }
};

template <class T>
static std::unique_ptr<T[], deleter> make_block(warp_device *device, std::size_t count)
{
    void *ptr = nullptr;
    must(warp_alloc(device, count * sizeof(T), &ptr));
    return std::unique_ptr<T[], deleter>(static_cast<T *>(ptr));
}

static std::size_t out_of(const handle &tracking)
{
    std::size_t count = 0;
    must(warp_allocator_tracking_list(tracking.get(), nullptr, 0, 0, &count));
    return count;
}

static bool visit()
{
    warp_allocator *host = nullptr, *limited = nullptr, *tracked = nullptr;
    must(warp_allocator_get_builtin(WARP_MEMORY_HOST, &host));
    must(warp_allocator_create_limit(host, 4096, &limited));
    const handle limit(limited);
    must(warp_allocator_create_tracking(limit.get(), 0, &tracked));
    const handle tracking(tracked);

    resource memory(tracking.get());
    bool is_full = false;
    {
        std::pmr::vector<int> numbers(&memory);
        try {
            for (int i = 0; i < 10000; i++)
                numbers.push_back(i);
        } catch (const std::bad_alloc &) {
            is_full = true;
            std::printf("%zu numbers, then %s\n", numbers.size(), warp_error_get_message());
        }
        if (out_of(tracking) != 1)
            return false;
    }
    const auto block = make_block<float>(nullptr, 100); // of the default device
    must(warp_memory_fill(block.get(), 100 * sizeof(float), "", 1, nullptr));
    return is_full && out_of(tracking) == 0;
}

int main()
{
    try {
        must(warp_init(nullptr, nullptr));
        const bool passed = visit();
        must(warp_shutdown());
        return passed ? 0 : 1;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
