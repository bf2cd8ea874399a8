/*
 * What an address is and whether a device may touch it, asked of random ones among 1 to 10^6 live blocks of a GPU; beside it what
 * the driver takes to answer for the same addresses, which are one block to it.
 *
 *     queries [options of contest.h]
 */
#define _GNU_SOURCE
#include "contest.h"
#include "recording.h"

enum { MOST_LIVE = 1000000, SIZE = 256 };

static char *range, **live;
static size_t taken, live_count;
static int (*attributes)(unsigned, int *, void **, uint64_t);
static uint64_t seen;

static warp_status take(void *user, const warp_alloc_request *request, void **out)
{
    (void)user;
    *out = range + taken;
    taken += request->size;
    return WARP_SUCCESS;
}

static warp_status give(void *user, void *ptr, const warp_alloc_request *request)
{
    (void)user, (void)ptr, (void)request;
    return WARP_SUCCESS;
}

static const contestant DRIVER = {.name = "driver"};
static const contestant OURS = {.name = "warpmem"};

static double ask_what(const entrant *who, size_t times, const void *with)
{
    static size_t at;
    (void)with;
    warp_pointer_info info;
    unsigned type = 0;
    int managed = 0, ordinal = 0;
    void *pool = NULL, *answers[] = {&type, &managed, &ordinal, &pool};
    int asked_for[] = {2 /* MEMORY_TYPE */, 8 /* IS_MANAGED */, 9 /* DEVICE_ORDINAL */, 17 /* MEMPOOL_HANDLE */};
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    double begin = now();
    for (size_t i = 0; i < times; i++) {
        if (++at >= live_count)
            at = 0;
        if (who->is == &DRIVER) {
            GOOD(attributes(4, asked_for, answers, (uintptr_t)live[at] + 8));
            seen += type;
        } else {
            MUST(warp_pointer_get_info(live[at] + 8, &info));
            seen += info.size;
        }
    }
    return now() - begin;
}

static double ask_whether(const entrant *who, size_t times, const void *with)
{
    static size_t at;
    (void)with;
    uint8_t answer = 0;
    if (who->is == &DRIVER)
        return -1;
    double begin = now();
    for (size_t i = 0; i < times; i++) {
        if (++at >= live_count)
            at = 0;
        MUST(warp_access_can_pointer(gpu, live[at], &answer));
        seen += answer;
    }
    return now() - begin;
}

int main(int count, char **words)
{
    warp_allocator *allocator = NULL;
    warp_allocator_vtable vtable = {.struct_size = sizeof vtable, .name = "a range", .allocate = take, .deallocate = give,
                                    .kind = WARP_MEMORY_CUDA_DEVICE,
                                    .flags = WARP_ALLOCATOR_STREAM_ORDERED | WARP_ALLOCATOR_MANAGES_CONTEXT};
    warp_alloc_options options = {.struct_size = sizeof options};
    uint64_t state = 1;
    read_options(count, words, 101, 3e5);
    if (!start_contest(~0u, 0))
        return 0;
    size_t most = asked.smoke ? 1000 : MOST_LIVE;
    uint64_t memory = 0;
    enter(&DRIVER, 0, 0);
    enter(&OURS, 0, 0);
    find_entry(&attributes, "cuPointerGetAttributes");
    /* Behind the library's back: an allocator may not hand out what is a block already. */
    GOOD(cu.alloc(&memory, most * SIZE));
    range = (char *)(uintptr_t)memory;
    live = calloc(most, sizeof *live);
    MUST(warp_allocator_create(&vtable, NULL, &allocator));
    options.allocator = allocator;
    for (size_t wanted = 1; wanted <= most; wanted *= 10) {
        char what[64];
        for (; live_count < wanted; live_count++) {
            void *ptr = NULL;
            MUST(warp_alloc_with(gpu, SIZE, &options, &ptr));
            live[live_count] = ptr;
        }
        for (size_t i = live_count - 1; i > 0; i--) {
            size_t j = (size_t)(draw(&state) % (i + 1));
            char *swapped = live[i];
            live[i] = live[j], live[j] = swapped;
        }
        snprintf(what, sizeof what, "what it is, %zu live", wanted);
        contest("queries", what, "ns", ask_what, NULL, NULL);
        snprintf(what, sizeof what, "who may, %zu live", wanted);
        contest("queries", what, "ns", ask_whether, NULL, NULL);
    }
    for (size_t i = 0; i < live_count; i++)
        MUST(warp_free(live[i]));
    MUST(warp_allocator_release(allocator));
    GOOD(cu.free(memory));
    free(live);
    end_contest();
    return seen == 0;
}
