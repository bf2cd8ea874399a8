/*
 * First touch: from asking for memory until a fill of it is done, for memory that nobody had yet and for what was just freed.
 *
 *     touch [options of contest.h]
 */
#define _GNU_SOURCE
#include "contest.h"

struct touch {
    size_t size;
    int is_fresh;
};

static void fill(const entrant *who, void *ptr, size_t size)
{
    /* Streams of the library are its own to fill on. */
    if (who->is->open_stream == lane_open)
        MUST(warp_memory_fill(ptr, size, "", 1, ((lane *)who->stream)->stream));
    else
        GOOD(cu.fill((uintptr_t)ptr, 0, size, who->native));
}

static double turn(const entrant *who, size_t times, const void *with)
{
    const struct touch *touch = with;
    double took = 0;
    if (touch->is_fresh && who->is->reset == NULL && (who->is->flags & CONTESTANT_SYNCHRONOUS) == 0)
        return -1;
    for (size_t i = 0; i < times; i++) {
        if (touch->is_fresh && who->is->reset != NULL)
            who->is->reset();
        double begin = now();
        void *ptr = who->is->allocate(touch->size, who->stream);
        if (ptr == NULL)
            return -1;
        fill(who, ptr, touch->size);
        wait_for(who->is, who->stream);
        took += now() - begin;
        who->is->release(ptr, touch->size, who->stream);
        wait_for(who->is, who->stream);
    }
    return took;
}

static double to_microseconds(double nanoseconds, const void *with)
{
    (void)with;
    return nanoseconds / 1e3;
}

int main(int count, char **words)
{
    static const size_t SIZES[] = {1 << 20, 64 << 20};
    read_options(count, words, 21, 5e5);
    if (!start_contest(0, CONTESTANT_SYNCHRONOUS))
        return 0;
    for (size_t s = 0; s < (asked.smoke ? 1 : sizeof SIZES / sizeof *SIZES); s++)
        for (int is_fresh = 1; is_fresh >= 0; is_fresh--) {
            struct touch touch = {SIZES[s], is_fresh};
            char what[64];
            snprintf(what, sizeof what, "%zu MiB, %s", SIZES[s] >> 20, is_fresh ? "fresh" : "freed before");
            contest("touch", what, "us", turn, to_microseconds, &touch);
        }
    end_contest();
    return 0;
}
