// statics.cpp: objects with static storage that hold blocks when the process ends, in every order with the library's start.
//
// needs: simulator
#include "check.h"
#include "driver.h"

#include <unistd.h>
#include <warpmem.h>

namespace {

// At exit a failure can be told by the exit status alone.
void require(bool holds, const char *what)
{
    if (!holds) {
        printf("\n    at exit: not true: %s\n", what);
        fflush(stdout);
        _exit(1);
    }
}

struct Holder {
    void *block = nullptr;
    void *host = nullptr;

    void fill()
    {
        warp_device *gpu = nullptr;
        if (warp_device_get("cuda:1", &gpu) == WARP_SUCCESS)
            (void)warp_alloc(gpu, 4096, &block);
        if (warp_device_get("cpu", &gpu) == WARP_SUCCESS)
            (void)warp_alloc(gpu, 4096, &host);
    }

    ~Holder()
    {
        require(warp_free(block) == WARP_SUCCESS, "a free of a GPU's block succeeds");
        require(warp_free(host) == WARP_SUCCESS, "a free of a host block succeeds");
        require(warp_free(nullptr) == WARP_SUCCESS, "a free of nothing succeeds");
    }
};

// Made before the library starts and destroyed behind its end.
Holder outer;

struct Starter {
    Starter() { started = warp_init(nullptr, nullptr); }
    ~Starter() { require(warp_shutdown() == WARP_SUCCESS, "a shutdown at exit succeeds"); }
    warp_status started;
};

Starter starter;

// Made by a started library and destroyed while it still works.
struct Inner : Holder {
    Inner() { fill(); }
};

Inner inner;

Holder &made_late()
{
    static Holder holder;
    return holder;
}

// Never destroyed: its blocks end with the process.
Holder *const leaked = new Holder;

// A thread's own object is destroyed with the main thread, before the statics.
thread_local Holder of_thread;

TEST(a_library_started_before_main_works)
{
    CHECK_STATUS(starter.started, WARP_SUCCESS);
    CHECK(inner.block != nullptr && inner.host != nullptr);
    CHECK(outer.block == nullptr);
    outer.fill();
    made_late().fill();
    leaked->fill();
    of_thread.fill();
    CHECK(outer.block != nullptr && made_late().block != nullptr && of_thread.block != nullptr);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 5);
}

__attribute__((destructor)) void last()
{
    require(warp_free(leaked->block) == WARP_SUCCESS, "a free in a destructor function succeeds");
    void *block = &block;
    require(warp_alloc(nullptr, 64, &block) != WARP_SUCCESS && block == nullptr, "nothing new is made at exit");
}

} // namespace

CHECK_MAIN()
