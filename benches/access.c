/*
 * What it costs to ask who may touch what, and to check a launch. Runs on GPUs or on the simulated driver, whichever is found;
 * what the driver is asked costs there what the simulation costs. The rows between GPUs need two.
 *
 *     access [rounds]
 *
 * Each row is timed in rounds of many calls; the median and the 99th percentile of the rounds are printed, and what the median
 * is held to.
 */
#define _GNU_SOURCE
#include "rounds.h"

enum { ARGUMENTS = 8 };

static int rounds = 101;
static warp_device *here, *there;
static warp_array *plain[ARGUMENTS], *pooled[ARGUMENTS];
static warp_launch_argument arguments[ARGUMENTS];
static const void *pointer;
static uint8_t answer;

typedef void (*call)(void);

static void row(const char *what, call call, int times, double most)
{
    double *took = calloc((size_t)rounds, sizeof *took);
    for (int round = -2; round < rounds; round++) {
        double start = now();
        for (int i = 0; i < times; i++)
            call();
        double each = (now() - start) / times;
        if (round >= 0)
            took[round] = each;
    }
    double median = quantile(took, rounds, .5);
    printf("%-58s %8.1f ns (p99 %.1f)", what, median, quantile(took, rounds, .99));
    if (most > 0)
        printf("   held to %.0f ns: %s", most, median <= most ? "met" : "MISSED");
    printf("\n");
    fflush(stdout);
    record("access", "warpmem", what, "ns", took, rounds);
    free(took);
}

static void can_own(void) { MUST(warp_access_can(here, pooled[0], &answer)); }
static void can_pointer(void) { MUST(warp_access_can_pointer(here, pointer, &answer)); }
static void status_own(void)
{
    warp_access_info info = {.struct_size = sizeof info};
    MUST(warp_access_get_status(here, pooled[0], &info));
}
static void can_pool_of_another(void) { MUST(warp_access_can(there, pooled[0], &answer)); }
static void can_plain_of_another(void) { MUST(warp_access_can(there, plain[0], &answer)); }
static void check_in(warp_launch_mode mode, warp_launch_report *report)
{
    MUST(warp_launch_check(here, "kernel", arguments, ARGUMENTS, sizeof arguments[0], mode, report));
}
static void check_relaxed(void) { check_in(WARP_LAUNCH_PROCESS_MODE, NULL); }
static void check_checked(void) { check_in(WARP_LAUNCH_CHECKED, NULL); }
static void check_strict(void) { check_in(WARP_LAUNCH_STRICT, NULL); }
static void check_reported(void)
{
    warp_launch_report report = {.struct_size = sizeof report};
    check_in(WARP_LAUNCH_CHECKED, &report);
}

/* The driver's own question, for comparison. */
static int (*pool_access)(int *, void *, int *);
static void *pool;
static void raw_pool_access(void)
{
    int flags = 0, place[2] = {1, 1};
    if (pool_access(&flags, pool, place) != 0)
        exit(1);
}

static void make(warp_array **arrays, warp_memory_kind kind)
{
    const int64_t shape[1] = {1000};
    warp_array_options options = {.struct_size = sizeof options, .kind = kind};
    for (int i = 0; i < ARGUMENTS; i++)
        MUST(warp_array_empty(here, warp_dtype_make(WARP_DTYPE_FLOAT, 32), 1, shape, &options, &arrays[i]));
}

int main(int count, char **words)
{
    size_t gpus = 0;
    if (count > 1)
        rounds = atoi(words[1]);
    MUST(warp_init(NULL, NULL));
    MUST(warp_device_get_cuda_count(&gpus));
    if (gpus == 0) {
        printf("there is no GPU\n");
        return 0;
    }
    MUST(warp_device_get("cuda:0", &here));
    make(plain, WARP_MEMORY_CUDA_DEVICE);
    make(pooled, WARP_MEMORY_CUDA_MEMPOOL);
    warp_array_info info = {.struct_size = sizeof info};
    MUST(warp_array_get_info(pooled[0], &info));
    pointer = info.data;
    for (int i = 0; i < ARGUMENTS; i++)
        arguments[i] = (warp_launch_argument){.name = "argument", .value = pooled[i]};

    row("warp_access_can, own memory", can_own, 100000, 15);
    row("warp_access_can_pointer, own memory", can_pointer, 100000, 0);
    row("warp_access_get_status, own memory", status_own, 100000, 0);
    row("warp_launch_check, relaxed", check_relaxed, 100000, 0);
    row("warp_launch_check, checked, 8 arrays of the device", check_checked, 20000, 40);
    row("warp_launch_check, checked, 8 arrays, with a report", check_reported, 20000, 0);
    row("warp_launch_check, strict, 8 arrays of the device", check_strict, 20000, 0);
    if (gpus < 2)
        return 0;
    MUST(warp_device_get("cuda:1", &there));
    warp_mempool *of_here = NULL;
    warp_mempool_info pool_info = {.struct_size = sizeof pool_info};
    MUST(warp_mempool_get(here, &of_here));
    MUST(warp_mempool_get_info(of_here, &pool_info));
    pool = pool_info.native;
    void *found = driver_entry("cuMemPoolGetAccess");
    memcpy(&pool_access, &found, sizeof found);
    row("cuMemPoolGetAccess, for comparison", raw_pool_access, 20000, 0);
    row("warp_access_can, pool memory of another GPU, without", can_pool_of_another, 20000, 100);
    MUST(warp_mempool_access_set_enabled(here, there, 1));
    row("warp_access_can, pool memory of another GPU, with access", can_pool_of_another, 20000, 100);
    row("warp_access_can, plain memory of another GPU, without", can_plain_of_another, 5000, 0);
    MUST(warp_peer_access_set_enabled(here, there, 1));
    row("warp_access_can, plain memory of another GPU, with access", can_plain_of_another, 5000, 0);
    return 0;
}
