/*
 * Pairs of 64 KiB on many threads at once: each on a stream of its own, and all on one. A million pairs a second, of all threads
 * together; and how many times as many the most threads make as one does, both within a round, since a processor's clock changes.
 *
 *     threads [options of contest.h]
 *
 * The threads are there before the clock starts, the program's first among them; a round lasts from when all are let go until
 * the last is done.
 */
#define _GNU_SOURCE
#include "contest.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { MOST_THREADS = 16, SIZE = 65536 };

struct crowd {
    int threads, shares_stream;
    /* Nanoseconds of one thread's pair while the others slept; NULL where that is not asked. */
    double *alone;
};

/* What the threads are to do next. */
static struct {
    const contestant *is;
    size_t times;
} work;
static struct {
    void *native, *stream;
} own[MOST_CONTESTANTS][MOST_THREADS];
static void *streams[MOST_THREADS];
/* Changes when threads are to begin: its lowest bits say how many, the rest counts. */
static atomic_uint generation;
static atomic_int done, failed, stop, asleep;
enum { COUNTED = 256 };

static void wait_a_bit(int *spins)
{
    const struct timespec nap = {.tv_nsec = 200000};
    if (atomic_load_explicit(&asleep, memory_order_relaxed))
        nanosleep(&nap, NULL);
    else if (++*spins > 2000)
        sched_yield();
}

static void make_pairs(int me)
{
    const contestant *is = work.is;
    void *stream = streams[me];
    for (size_t i = 0; i < work.times; i++) {
        void *ptr = is->allocate(SIZE, stream);
        if (ptr == NULL) {
            atomic_store(&failed, 1);
            return;
        }
        is->release(ptr, SIZE, stream);
    }
}

static void *run(void *place)
{
    int me = (int)(intptr_t)place;
    GOOD(cu.set_current(cu.context));
    for (unsigned seen = 0, next = 0;; seen = next) {
        int spins = 0;
        while ((next = atomic_load_explicit(&generation, memory_order_acquire)) == seen)
            wait_a_bit(&spins);
        if (atomic_load(&stop))
            return NULL;
        if (me >= (int)(next % COUNTED))
            continue;
        make_pairs(me);
        atomic_fetch_add_explicit(&done, 1, memory_order_release);
    }
}

static void let_go(int threads)
{
    unsigned before = atomic_load(&generation);
    atomic_store_explicit(&generation, before - before % COUNTED + COUNTED + (unsigned)threads, memory_order_release);
}

static double turn(const entrant *who, size_t times, const void *with)
{
    const struct crowd *crowd = with;
    size_t index = (size_t)(who - field);
    int spins = 0;
    for (int t = 0; t < crowd->threads; t++)
        streams[t] = crowd->shares_stream ? who->stream : own[index][t].stream;
    work.is = who->is;
    work.times = times;
    atomic_store(&failed, 0);
    atomic_store(&done, 0);
    double begin = now();
    let_go(crowd->threads);
    make_pairs(0);
    while (atomic_load_explicit(&done, memory_order_acquire) < crowd->threads - 1)
        wait_a_bit(&spins);
    double took = now() - begin;
    for (int t = 0; t < crowd->threads; t++)
        wait_for(who->is, streams[t]);
    return atomic_load(&failed) ? -1 : took;
}

static double turn_beside_one(const entrant *who, size_t times, const void *with)
{
    const struct crowd *crowd = with;
    const struct crowd one = {1, crowd->shares_stream, NULL};
    const struct timespec nap = {.tv_nsec = 1000000};
    atomic_store(&asleep, 1);
    /* Until they do, and until they are awake again: threads that wait take from one that works. */
    nanosleep(&nap, NULL);
    *crowd->alone = turn(who, times, &one) / (double)times;
    atomic_store(&asleep, 0);
    nanosleep(&nap, NULL);
    return *crowd->alone < 0 ? -1 : turn(who, times, with);
}

/* From nanoseconds in which each thread makes one pair. */
static double to_ratio(double nanoseconds, const void *with)
{
    const struct crowd *crowd = with;
    return crowd->threads * *crowd->alone / nanoseconds;
}

/* As above. */
static double to_rate(double nanoseconds, const void *with)
{
    return 1e3 * ((const struct crowd *)with)->threads / nanoseconds;
}

static void with_threads(const struct crowd *crowd)
{
    pthread_t threads[MOST_THREADS];
    const char *of = crowd->shares_stream ? "one stream" : "own streams";
    char what[64];
    atomic_store(&generation, 0);
    atomic_store(&stop, 0);
    for (int t = 1; t < crowd->threads; t++)
        if (pthread_create(&threads[t], NULL, run, (void *)(intptr_t)t) != 0)
            exit(1);
    if (crowd->alone == NULL) {
        snprintf(what, sizeof what, "%s, %d thread%s", of, crowd->threads, crowd->threads == 1 ? "" : "s");
        contest("threads", what, "Mpairs/s", turn, to_rate, crowd);
    } else {
        snprintf(what, sizeof what, "%s, %d threads over one", of, crowd->threads);
        contest("threads", what, "times", turn_beside_one, to_ratio, crowd);
    }
    atomic_store(&stop, 1);
    let_go(crowd->threads);
    for (int t = 1; t < crowd->threads; t++)
        pthread_join(threads[t], NULL);
}

int main(int count, char **words)
{
    read_options(count, words, 21, 4e6);
    if (!start_contest(0, 0))
        return 0;
    for (int i = 0; i < field_count; i++)
        for (int t = 0; t < MOST_THREADS; t++) {
            const contestant *is = field[i].is;
            GOOD(cu.stream_create(&own[i][t].native, 1));
            own[i][t].stream = is->open_stream ? is->open_stream(own[i][t].native) : own[i][t].native;
        }
    for (int shares = 0; shares < 2; shares++) {
        double alone = 0;
        struct crowd both = {MOST_THREADS, shares, &alone};
        for (int t = 1; t <= MOST_THREADS; t *= 2) {
            struct crowd crowd = {t, shares, NULL};
            with_threads(&crowd);
        }
        with_threads(&both);
    }
    for (int i = 0; i < field_count; i++)
        for (int t = 0; t < MOST_THREADS; t++) {
            if (field[i].is->close_stream)
                field[i].is->close_stream(own[i][t].stream);
            GOOD(cu.stream_destroy(own[i][t].native));
        }
    end_contest();
    return 0;
}
