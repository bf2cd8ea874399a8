/*
 * A pair of an allocation and its free, by size: what a cached or pooled allocation costs when nothing else goes on.
 *
 *     pairs [options of contest.h]
 */
#define _GNU_SOURCE
#include "contest.h"

static double turn(const entrant *who, size_t times, const void *with)
{
    double took = pairs_turn(who, times, with);
    wait_for(who->is, who->stream);
    return took;
}

/* By warp_alloc() on the current stream: the device's pool, or the cache where it serves all devices. */
static double default_turn(const entrant *who, size_t times, const void *with)
{
    size_t size = *(const size_t *)with;
    int is_cache = strcmp(who->is->name, "warpmem cache") == 0;
    if (!is_cache && strcmp(who->is->name, "warpmem") != 0)
        return -1;
    MUST(warp_allocator_set_caching_for_all((uint8_t)is_cache));
    double begin = now();
    for (size_t i = 0; i < times; i++) {
        void *ptr = NULL;
        MUST(warp_alloc(gpu, size, &ptr));
        MUST(warp_free(ptr));
    }
    double took = now() - begin;
    MUST(warp_allocator_set_caching_for_all(0));
    MUST(warp_device_synchronize(gpu));
    return took;
}

int main(int count, char **words)
{
    static const size_t SIZES[] = {256, 2048, 16384, 65536, 262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20};
    read_options(count, words, 101, 5e5);
    if (!start_contest(0, CONTESTANT_SYNCHRONOUS | CONTESTANT_VARIANT))
        return 0;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        char what[64];
        snprintf(what, sizeof what, "%zu bytes", SIZES[i]);
        contest("pairs", what, "ns", turn, NULL, &SIZES[i]);
    }
    contest("pairs", "as the default, 65536 bytes", "ns", default_turn, NULL, &SIZES[3]);
    end_contest();
    return 0;
}
