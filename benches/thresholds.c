/*
 * An allocation, its free and a wait for the stream, by the release threshold of the driver's pool: at 0 each wait gives the
 * memory back, and the next allocation pays for it. Contestants that keep what they have are the same at every threshold.
 *
 *     thresholds [options of contest.h]
 */
#define _GNU_SOURCE
#include "contest.h"

static double turn(const entrant *who, size_t times, const void *with)
{
    size_t size = *(const size_t *)with;
    double begin = now();
    for (size_t i = 0; i < times; i++) {
        void *ptr = who->is->allocate(size, who->stream);
        if (ptr == NULL)
            return -1;
        who->is->release(ptr, size, who->stream);
        wait_for(who->is, who->stream);
    }
    return now() - begin;
}

int main(int count, char **words)
{
    static const struct {
        uint64_t bytes;
        const char *name;
    } THRESHOLDS[] = {{0, "0"}, {16 << 20, "16 MiB"}, {1 << 30, "1 GiB"}, {UINT64_MAX, "all"}};
    static const size_t SIZES[] = {1 << 20, 64 << 20};
    read_options(count, words, 21, 1e6);
    if (!start_contest(0, 0))
        return 0;
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++)
        for (size_t t = 0; t < sizeof THRESHOLDS / sizeof *THRESHOLDS; t++) {
            char what[64];
            set_threshold(THRESHOLDS[t].bytes);
            snprintf(what, sizeof what, "%zu MiB and a wait, threshold %s", SIZES[s] >> 20, THRESHOLDS[t].name);
            contest("thresholds", what, "ns", turn, NULL, &SIZES[s]);
        }
    end_contest();
    return 0;
}
