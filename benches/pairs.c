/*
 * A pair of an allocation and its free, by size: what a cached or pooled allocation costs when nothing else goes on.
 *
 *     pairs [options of contest.h]
 */
#define _GNU_SOURCE
#include "contest.h"

static double turn(const entrant *who, size_t times, const void *with)
{
    size_t size = *(const size_t *)with;
    const contestant *is = who->is;
    double begin = now();
    for (size_t i = 0; i < times; i++) {
        void *ptr = is->allocate(size, who->stream);
        if (ptr == NULL)
            return -1;
        is->release(ptr, size, who->stream);
    }
    double took = now() - begin;
    GOOD(cu.stream_sync(who->native));
    return took;
}

int main(int count, char **words)
{
    static const size_t SIZES[] = {256, 2048, 16384, 65536, 262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20};
    read_options(count, words, 101, 5e5);
    if (!start_contest(0, CONTESTANT_SYNCHRONOUS))
        return 0;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        char what[64];
        snprintf(what, sizeof what, "%zu bytes", SIZES[i]);
        contest("pairs", what, "ns", turn, NULL, &SIZES[i]);
    }
    end_contest();
    return 0;
}
