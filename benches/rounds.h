/*
 * rounds.h: what the benchmarks share: the clock, calls that must not fail, the driver's own calls for comparison, and what is
 * told of many rounds.
 *
 * With WARPMEM_BENCH_JSON in the environment each result is also a line of JSON: median, 99th percentile and quartiles over
 * the rounds. `cargo xtask bench` collects those lines, and takes no other line for a result.
 */
#ifndef WARPMEM_BENCHES_ROUNDS_H
#define WARPMEM_BENCHES_ROUNDS_H

#include <warpmem.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__GNUC__)
#define MAYBE_UNUSED __attribute__((unused))
#else
#define MAYBE_UNUSED
#endif

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

MAYBE_UNUSED static int writes_json(void)
{
    const char *wanted = getenv("WARPMEM_BENCH_JSON");
    return wanted != NULL && *wanted != '\0';
}

/* A line of JSON for what was measured in many rounds, where such lines are wanted. */
MAYBE_UNUSED static void record(const char *bench, const char *library, const char *what, const char *unit, const double *values,
                                int rounds)
{
    if (!writes_json() || rounds < 1)
        return;
    printf("{\"bench\": \"%s\", \"library\": \"%s\", \"case\": \"%s\", \"unit\": \"%s\", \"median\": %.6g, \"p99\": %.6g, "
           "\"low\": %.6g, \"high\": %.6g, \"rounds\": %d}\n",
           bench, library, what, unit, quantile(values, rounds, .5), quantile(values, rounds, .99), quantile(values, rounds, .25),
           quantile(values, rounds, .75), rounds);
    fflush(stdout);
}

/* The same, or a line for people. */
MAYBE_UNUSED static void report(const char *bench, const char *library, const char *what, const char *unit, const double *values,
                                int rounds)
{
    record(bench, library, what, unit, values, rounds);
    if (writes_json() || rounds < 1)
        return;
    printf("%-14s %-28s %-16s %12.4g %s (%.4g to %.4g, p99 %.4g)\n", bench, what, library, quantile(values, rounds, .5), unit,
           quantile(values, rounds, .25), quantile(values, rounds, .75), quantile(values, rounds, .99));
    fflush(stdout);
}

/* Says that a library is not among those that are measured, and why. */
MAYBE_UNUSED static void report_absent(const char *library, const char *reason)
{
    if (!writes_json()) {
        printf("absent: %s: %s\n", library, reason);
        return;
    }
    printf("{\"absent\": \"%s\", \"reason\": \"", library);
    for (const char *at = reason; *at != '\0'; at++)
        putchar(*at == '"' || *at == '\\' || (unsigned char)*at < ' ' ? '\'' : *at);
    printf("\"}\n");
    fflush(stdout);
}

#endif
