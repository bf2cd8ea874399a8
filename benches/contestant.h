/*
 * contestant.h: an allocator of GPU memory as the benchmarks see it. The driver's own and the library's are in contest.h; other
 * libraries' come in files of their own (peers/), which are loaded into the same process, so that all take turns there.
 *
 * Such a file exports
 *
 *     const contestant *warpmem_bench_contestants(size_t *count);
 *
 * All functions are called with GPU 0's primary context current. A failure is NULL or nonzero, and never an exception.
 */
#ifndef WARPMEM_BENCHES_CONTESTANT_H
#define WARPMEM_BENCHES_CONTESTANT_H

#include <stddef.h>
#include <stdint.h>

/* Not ordered by streams: what is freed has to be idle, or is waited for. */
#define CONTESTANT_SYNCHRONOUS 1u
/* It serves page-locked host memory, and not the GPU's. */
#define CONTESTANT_PINNED 2u
/* Another one in other surroundings: for the benchmark of pairs alone. */
#define CONTESTANT_VARIANT 4u

typedef struct contestant {
    /* The name in the results. */
    const char *name;
    uint32_t flags;
    /* Makes it ready; 0 for success. May be called again after `end`. */
    int (*begin)(void);
    void (*end)(void);
    /* What the functions below are to be given for a stream: made of a CUstream that is not used for anything else, or one of its
     * own. NULL: the CUstream, with `close_stream` and `wait` NULL too. */
    void *(*open_stream)(void *native);
    void (*close_stream)(void *stream);
    /* Waits for a stream. */
    void (*wait)(void *stream);
    void *(*allocate)(size_t size, void *stream);
    void (*release)(void *ptr, size_t size, void *stream);
    /* Bytes that it holds of the GPU's memory, and the most of that since the last `reset`. NULL: it cannot say. */
    uint64_t (*reserved)(void);
    uint64_t (*peak_reserved)(void);
    /* Gives back all that is not in use, and forgets the peak. Streams stay good. Nothing is live. */
    void (*reset)(void);
} contestant;

typedef const contestant *(*contestants_fn)(size_t *count);

#endif
