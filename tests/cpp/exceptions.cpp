// What leaves a callback by an exception, or by the end of its thread, ends the process with a message that names the callback.
// Whoever asked cannot catch it: what it left behind nobody knows.
// needs: simulator
#include "blocks.h"
#include "process.h"

#include <csignal>
#include <cstdlib>
#include <pthread.h>
#include <stdexcept>
#include <string>

namespace {

// What a child wrote to stderr until it ended, and how it did.
struct ended {
    std::string said;
    int status;
};

template <class Body>
ended in_a_child(Body body)
{
    int ends[2];
    ended result{{}, -1};
    if (pipe(ends) != 0)
        return result;
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        try {
            if (warp_init(nullptr, nullptr) == WARP_SUCCESS)
                body();
        } catch (...) {
            _exit(77);
        }
        _exit(78);
    }
    close(ends[1]);
    char part[256];
    for (ssize_t count = 0; (count = read(ends[0], part, sizeof part)) > 0;)
        result.said.append(part, static_cast<std::size_t>(count));
    close(ends[0]);
    result.status = process_wait(child);
    return result;
}

void check_named(const ended &child, const char *what, const char *of = "")
{
    const std::string message = std::string("warpmem: ") + what + " let an exception escape, or its thread ended in it" + of + "; ";
    CHECK_EQ_I64(child.status, 128 + SIGABRT);
    CHECK_STR_CONTAINS(child.said.c_str(), message.c_str());
}

const char *const of_thrower = " (of the allocator \"thrower\")";

enum class where { allocate, deallocate, destroy, thread };

warp_status allocate(void *user, const warp_alloc_request *request, void **out)
{
    const where place = *static_cast<where *>(user);
    if (place == where::allocate)
        throw std::runtime_error("thrown");
    if (place == where::thread)
        pthread_exit(nullptr);
    *out = aligned_alloc(static_cast<std::size_t>(request->alignment), 4096);
    return WARP_SUCCESS;
}

warp_status deallocate(void *user, void *ptr, const warp_alloc_request *)
{
    free(ptr);
    if (*static_cast<where *>(user) == where::deallocate)
        throw 7;
    return WARP_SUCCESS;
}

void destroy(void *user)
{
    if (*static_cast<where *>(user) == where::destroy)
        throw std::string("thrown");
}

// Allocates, frees and releases, of which one throws.
void use(where place)
{
    warp_allocator_vtable vtable{};
    vtable.struct_size = sizeof vtable;
    vtable.name = "thrower";
    vtable.flags = WARP_ALLOCATOR_HOST_MEMORY;
    vtable.allocate = allocate;
    vtable.deallocate = deallocate;
    vtable.destroy = destroy;
    warp_allocator *allocator = nullptr;
    warp_device *device = nullptr;
    void *block = nullptr;
    warp_alloc_options options{};
    options.struct_size = sizeof options;
    CHECK_STATUS(warp_allocator_create(&vtable, &place, &allocator), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get("cpu", &device), WARP_SUCCESS);
    options.allocator = allocator;
    CHECK_STATUS(warp_alloc_with(device, 100, &options, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(allocator), WARP_SUCCESS);
}

} // namespace

PROCESS_TEST(an_exception_that_leaves_a_callback_of_an_allocator)
{
    check_named(in_a_child([] { use(where::allocate); }), "the allocate callback", of_thrower);
    check_named(in_a_child([] { use(where::deallocate); }), "the deallocate callback", of_thrower);
    check_named(in_a_child([] { use(where::destroy); }), "the destroy callback", of_thrower);
}

// As a thread of Python does that wants the interpreter when it is gone.
PROCESS_TEST(a_thread_that_ends_in_a_callback)
{
    check_named(in_a_child([] { use(where::thread); }), "the allocate callback", of_thrower);
}

PROCESS_TEST(an_exception_that_leaves_the_log_callback)
{
    check_named(in_a_child([] {
                    warp_log_callback thrown = [](void *, warp_log_level, const char *) { throw 1; };
                    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
                    CHECK_STATUS(warp_log_set_callback(thrown, nullptr, WARP_LOG_INFO), WARP_SUCCESS);
                    CHECK_STATUS(warp_init(nullptr, nullptr), WARP_SUCCESS);
                }),
                "the log callback");
}

PROCESS_TEST(an_exception_that_leaves_a_deleter)
{
    check_named(in_a_child([] {
                    static char memory[16];
                    const std::int64_t shape[] = {16};
                    warp_device *device = nullptr;
                    warp_array *array = nullptr;
                    warp_array_wrap_options options{};
                    options.struct_size = sizeof options;
                    options.deleter = [](void *, void *, std::uint64_t) { throw 1; };
                    CHECK_STATUS(warp_device_get("cpu", &device), WARP_SUCCESS);
                    CHECK_STATUS(warp_array_wrap(device, memory, warp_dtype_make(WARP_DTYPE_UINT, 8), 1, shape, &options, &array),
                                 WARP_SUCCESS);
                    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
                }),
                "the deleter of a wrapped array");
}

CHECK_MAIN()
