/*
 * rounds.h: what the benchmarks share: the clock, calls that must not fail, the driver's own calls for comparison, and what is
 * told of many rounds.
 */
#ifndef WARPMEM_BENCHES_ROUNDS_H
#define WARPMEM_BENCHES_ROUNDS_H

#include <warpmem.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAYBE_UNUSED __attribute__((unused))

MAYBE_UNUSED static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

MAYBE_UNUSED static void must(warp_status status, const char *what)
{
    if (status != WARP_SUCCESS) {
        fprintf(stderr, "%s: %s: %s\n", what, warp_status_get_name(status), warp_error_get_message());
        exit(1);
    }
}
#define MUST(call) must((call), #call)

/* A function of the driver that the library finds too. Linked to nothing, as other code has it. */
MAYBE_UNUSED static void *driver_entry(const char *name)
{
    const char *path = getenv("WARPMEM_LIBCUDA");
    void *file = dlopen(path ? path : "libcuda.so.1", RTLD_NOW), *entry = file ? dlsym(file, name) : NULL;
    if (!entry) {
        fprintf(stderr, "%s: %s\n", file ? "the driver lacks it" : "no driver", dlerror());
        exit(1);
    }
    return entry;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

MAYBE_UNUSED static double quantile(const double *values, int n, double q)
{
    double *sorted = malloc((size_t)n * sizeof *sorted), found;
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    found = sorted[(int)(q * (n - 1) + 0.5)];
    free(sorted);
    return found;
}

#endif
