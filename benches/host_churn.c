/*
 * Host memory that comes and goes: a random one of the live blocks is freed and one of another size allocated, beside malloc, and
 * beside mimalloc where WARPMEM_BENCH_MIMALLOC names what peers/mimalloc builds, or the system has one.
 *
 *     host_churn [options of contest.h]
 */
#define _GNU_SOURCE
#include "contest.h"
#include "recording.h"

struct churn {
    uint32_t live;
    uint64_t smallest;
    uint32_t doublings;
};

enum { MOST_LIVE = 100000 };
static void *blocks[MOST_LIVE];

static void *(*mi_allocate)(size_t);
static void (*mi_release)(void *);

static void *malloc_allocate(size_t size, void *stream)
{
    (void)stream;
    return malloc(size);
}

/* With the alignment that the library gives to all blocks of the CPU. */
static void *aligned_allocate(size_t size, void *stream)
{
    void *ptr = NULL;
    (void)stream;
    return posix_memalign(&ptr, 64, size) == 0 ? ptr : NULL;
}

static void malloc_release(void *ptr, size_t size, void *stream)
{
    (void)size, (void)stream;
    free(ptr);
}

static void *mimalloc_allocate(size_t size, void *stream)
{
    (void)stream;
    return mi_allocate(size);
}

static void mimalloc_release(void *ptr, size_t size, void *stream)
{
    (void)size, (void)stream;
    mi_release(ptr);
}

static int mimalloc_begin(void)
{
    const char *named = getenv("WARPMEM_BENCH_MIMALLOC"), *paths[] = {named, "libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so"};
    for (size_t i = named == NULL; i < sizeof paths / sizeof *paths; i++) {
        void *file = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
        int is_ours = paths[i] == named;
        void *allocate = file ? dlsym(file, is_ours ? "mimalloc_peer_malloc" : "mi_malloc") : NULL;
        void *release = file ? dlsym(file, is_ours ? "mimalloc_peer_free" : "mi_free") : NULL;
        if (allocate != NULL && release != NULL) {
            memcpy(&mi_allocate, &allocate, sizeof allocate);
            memcpy(&mi_release, &release, sizeof release);
            return 0;
        }
    }
    return 1;
}

static void *host_allocate(size_t size, void *stream)
{
    void *ptr = NULL;
    (void)stream;
    return warp_alloc(host, size, &ptr) == WARP_SUCCESS ? ptr : NULL;
}

static warp_allocator *host_cache;

static int host_cache_begin(void) { return warp_allocator_get_caching(WARP_MEMORY_HOST, &host_cache) != WARP_SUCCESS; }

static void *host_cache_allocate(size_t size, void *stream)
{
    static warp_alloc_options options = {.struct_size = sizeof options};
    void *ptr = NULL;
    (void)stream;
    name_allocator(&options, host_cache);
    return warp_alloc_with(host, size, &options, &ptr) == WARP_SUCCESS ? ptr : NULL;
}

static const contestant CONTESTANTS[] = {
    {.name = "malloc", .allocate = malloc_allocate, .release = malloc_release},
    {.name = "malloc, aligned", .allocate = aligned_allocate, .release = malloc_release},
    {.name = "mimalloc", .begin = mimalloc_begin, .allocate = mimalloc_allocate, .release = mimalloc_release},
    {.name = "warpmem", .allocate = host_allocate, .release = our_release},
    {.name = "warpmem cache", .begin = host_cache_begin, .allocate = host_cache_allocate, .release = our_release},
};

static double turn(const entrant *who, size_t times, const void *with)
{
    const struct churn *churn = with;
    uint64_t state = 1;
    for (uint32_t i = 0; i < churn->live; i++)
        blocks[i] = who->is->allocate((size_t)churn->smallest, who->stream);
    double begin = now();
    for (size_t i = 0; i < times; i++) {
        uint64_t drawn = draw(&state);
        uint32_t slot = (uint32_t)(drawn % churn->live);
        uint64_t floor = churn->smallest << (drawn >> 40) % churn->doublings;
        size_t size = (size_t)(floor + (drawn >> 20) % floor);
        who->is->release(blocks[slot], 0, who->stream);
        unsigned char *ptr = who->is->allocate(size, who->stream);
        if (ptr == NULL)
            exit(1);
        *ptr = 1;
        blocks[slot] = ptr;
    }
    double took = now() - begin;
    for (uint32_t i = 0; i < churn->live; i++)
        who->is->release(blocks[i], 0, who->stream);
    return took;
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        struct churn churn;
    } KINDS[] = {
        {"16 B to 1 KiB, 1000 live", {1000, 16, 6}},
        {"16 B to 1 KiB, 100000 live", {100000, 16, 6}},
        {"256 B to 256 KiB, 1000 live", {1000, 256, 10}},
    };
    read_options(count, words, 51, 2e6);
    MUST(warp_init(NULL, NULL));
    MUST(warp_device_get("cpu", &host));
    for (size_t i = 0; i < sizeof CONTESTANTS / sizeof *CONTESTANTS; i++)
        enter(&CONTESTANTS[i], 0, 0);
    for (size_t k = 0; k < (asked.smoke ? 1 : sizeof KINDS / sizeof *KINDS); k++)
        contest("host churn", KINDS[k].name, "ns", turn, NULL, &KINDS[k].churn);
    MUST(warp_shutdown());
    return 0;
}
