/*
 * What the library adds to an allocator of other code: one that does nothing, whose callbacks hand out the next address of a
 * range and take any back, called through the library and directly. A million blocks of 4096 bytes are live in between. On the
 * CPU no driver is called; on a GPU, real or simulated, the library asks it for each pair twice whether the stream's context is
 * there and twice whether the stream is captured, which is in the figure and beside it.
 *
 *     allocators [rounds [blocks]]
 *
 * In order and reverse: the blocks are freed in the order of their addresses, or from the last on. Shuffled: in a random one,
 * where each free has to find its record in memory that no cache holds.
 */
#define _GNU_SOURCE
#include "rounds.h"

#include <sys/mman.h>

enum { SIZE = 4096 };

static int rounds = 21;
static size_t blocks = 1000000;
static char *range;
static size_t next;
static void **live;
static uint32_t *order;

static warp_status take(void *user, const warp_alloc_request *request, void **out)
{
    (void)user;
    *out = range + next;
    next += request->size;
    return WARP_SUCCESS;
}

static warp_status give(void *user, void *ptr, const warp_alloc_request *request)
{
    (void)user, (void)ptr, (void)request;
    return WARP_SUCCESS;
}

static warp_status (*volatile take_directly)(void *, const warp_alloc_request *, void **) = take;
static warp_status (*volatile give_directly)(void *, void *, const warp_alloc_request *) = give;

static double directly(void)
{
    warp_alloc_request request = {.struct_size = sizeof request, .size = SIZE, .alignment = 256};
    double start = now();
    next = 0;
    for (size_t i = 0; i < blocks; i++)
        MUST(take_directly(NULL, &request, &live[i]));
    for (size_t i = 0; i < blocks; i++)
        MUST(give_directly(NULL, live[order[i]], &request));
    return (now() - start) / (double)blocks;
}

static double through(warp_device *device, const warp_alloc_options *options)
{
    double start = now();
    next = 0;
    for (size_t i = 0; i < blocks; i++)
        MUST(warp_alloc_with(device, SIZE, options, &live[i]));
    for (size_t i = 0; i < blocks; i++)
        MUST(warp_free(live[order[i]]));
    return (now() - start) / (double)blocks;
}

static void row(const char *where, const char *how, warp_device *device, const warp_alloc_options *options, double most)
{
    double *over = calloc((size_t)rounds, sizeof *over), *plain = calloc((size_t)rounds, sizeof *plain);
    for (int round = -1; round < rounds; round++) {
        double direct = directly(), whole = through(device, options);
        if (round >= 0)
            over[round] = whole - direct, plain[round] = direct;
    }
    double median = quantile(over, rounds, .5);
    printf("%-4s %-9s  %7.1f ns a pair over a direct call (%.1f; p99 %.1f)", where, how, median, quantile(plain, rounds, .5),
           quantile(over, rounds, .99));
    if (most > 0)
        printf("   held to %.0f ns: %s", most, median <= most ? "met" : "MISSED");
    printf("\n");
    fflush(stdout);
    char what[64];
    snprintf(what, sizeof what, "over an allocator that does nothing, %s, %s", where, how);
    record("bookkeeping", "warpmem", what, "ns", over, rounds);
    free(over);
    free(plain);
}

static void rows(const char *where, warp_device *device, const warp_alloc_options *options, double most)
{
    uint64_t state = 1;
    for (size_t i = 0; i < blocks; i++)
        order[i] = (uint32_t)i;
    row(where, "in order", device, options, most);
    for (size_t i = 0; i < blocks; i++)
        order[i] = (uint32_t)(blocks - 1 - i);
    row(where, "reverse", device, options, most);
    for (size_t i = blocks - 1; i > 0; i--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t j = (size_t)(state >> 33) % (i + 1);
        uint32_t swapped = order[i];
        order[i] = order[j], order[j] = swapped;
    }
    row(where, "shuffled", device, options, 0);
}

/* What the driver is asked for a pair, by itself. */
static void questions(warp_device *device)
{
    unsigned (*context_id)(void *, unsigned long long *);
    unsigned (*is_capturing)(void *, int *);
    void *found = driver_entry("cuCtxGetId"), *context = NULL;
    unsigned long long id = 0;
    int capturing = 0, times = 1000000;
    warp_stream *stream = NULL;
    warp_stream_info info = {.struct_size = sizeof info};
    memcpy(&context_id, &found, sizeof found);
    found = driver_entry("cuStreamIsCapturing");
    memcpy(&is_capturing, &found, sizeof found);
    MUST(warp_device_get_native_context(device, &context));
    MUST(warp_stream_get_current(device, &stream));
    MUST(warp_stream_get_info(stream, &info));
    double start = now();
    for (int i = 0; i < times; i++)
        if (context_id(context, &id) != 0 || context_id(context, &id) != 0 || is_capturing(info.native, &capturing) != 0 ||
            is_capturing(info.native, &capturing) != 0)
            exit(1);
    printf("gpu  of which the driver's four answers: %.1f ns\n", (now() - start) / times);
}

int main(int count, char **words)
{
    warp_allocator_vtable vtable = {.struct_size = sizeof vtable, .name = "nothing", .allocate = take, .deallocate = give};
    warp_alloc_options options = {.struct_size = sizeof options};
    warp_allocator *of_cpu = NULL, *of_gpu = NULL;
    warp_device *device = NULL;
    size_t gpus = 0;
    if (count > 1)
        rounds = atoi(words[1]);
    if (count > 2)
        blocks = (size_t)atol(words[2]);
    MUST(warp_init(NULL, NULL));
    live = calloc(blocks, sizeof *live);
    order = calloc(blocks, sizeof *order);
    range = mmap(NULL, blocks * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
        return 1;

    vtable.kind = WARP_MEMORY_HOST;
    vtable.flags = WARP_ALLOCATOR_HOST_MEMORY;
    MUST(warp_allocator_create(&vtable, NULL, &of_cpu));
    MUST(warp_device_get("cpu", &device));
    options.allocator = of_cpu;
    rows("cpu", device, &options, 60);

    MUST(warp_device_get_cuda_count(&gpus));
    if (gpus != 0) {
        vtable.kind = WARP_MEMORY_CUDA_DEVICE;
        vtable.flags = WARP_ALLOCATOR_STREAM_ORDERED | WARP_ALLOCATOR_MANAGES_CONTEXT;
        MUST(warp_allocator_create(&vtable, NULL, &of_gpu));
        MUST(warp_device_get("cuda:0", &device));
        options.allocator = of_gpu;
        rows("gpu", device, &options, 60);
        questions(device);
    }
    MUST(warp_shutdown());
    return 0;
}
