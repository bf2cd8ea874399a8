/*
 * The tour: everything the library does with memory, on every device that is there.
 *
 * Prints the report; then, for each device and each kind of memory that it has: allocates a block, fills it, asks what
 * a pointer into its middle is, copies it to every other device and back to the host, reads it, and frees it.
 */
#include <warpmem.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *kind_names[] = {"UNKNOWN", "HOST", "PINNED", "CUDA_DEVICE", "CUDA_MEMPOOL", "CUDA_MANAGED"};
static const char *rule_names[] = {"unknown", "pageable", "pinned", "peer", "pool", "mapping", "graph", "managed"};

/* Every call that must work goes through this: a failure says what happened and how to go on. */
static void must(warp_status status, const char *what)
{
    if (status != WARP_SUCCESS) {
        fprintf(stderr, "%s: %s: %s\n", what, warp_status_get_name(status), warp_error_get_message());
        exit(1);
    }
}
#define MUST(call) must((call), #call)

static const char *alias_of(warp_device *device)
{
    static char alias[64];
    warp_device_info info = {.struct_size = sizeof info};
    MUST(warp_device_get_info(device, &info));
    memcpy(alias, info.alias, sizeof alias);
    return alias;
}

static void print_report(void)
{
    size_t needed = 0;
    MUST(warp_library_get_report(NULL, 0, &needed));
    char *report = malloc(needed);
    if (!report)
        exit(1);
    MUST(warp_library_get_report(report, needed, NULL));
    fputs(report, stdout);
    free(report);
}

/* Reads a block back through page-locked or ordinary host memory and compares it with what it should hold. */
static int holds(const void *block, size_t size, uint32_t expected, warp_device *home)
{
    warp_device *cpu = NULL;
    void *host = NULL;
    int good = 1;
    MUST(warp_device_get("cpu", &cpu));
    MUST(warp_alloc(cpu, size, &host));
    MUST(warp_memory_copy(host, block, size, NULL));
    MUST(warp_device_synchronize(home));
    for (size_t i = 0; i < size / sizeof expected; i++) {
        uint32_t got;
        memcpy(&got, (const char *)host + i * sizeof got, sizeof got);
        good &= got == expected;
    }
    MUST(warp_free(host));
    return good;
}

static void visit(warp_device *home, warp_memory_kind kind)
{
    const size_t size = 1 << 20;
    const uint32_t pattern = 0x5eed0000u + (uint32_t)kind;
    warp_alloc_options options = {.struct_size = sizeof options, .kind = kind, .tag = "tour"};
    void *block = NULL;

    warp_status status = warp_alloc_with(home, size, &options, &block);
    if (status == WARP_ERROR_NOT_SUPPORTED) {
        printf("   %-8s %-13s not there: %s\n", alias_of(home), kind_names[kind], warp_error_get_message());
        return;
    }
    must(status, "warp_alloc_with");
    MUST(warp_memory_fill(block, size, &pattern, sizeof pattern, NULL));

    /* An address from the middle is enough to find the block. */
    warp_pointer_info info = {.struct_size = sizeof info};
    MUST(warp_pointer_get_info((char *)block + size / 2, &info));
    printf("   %-8s %-13s %" PRIu64 " bytes, rule %s, stream %" PRIu64 ", tag \"%s\"; ", alias_of(home),
           kind_names[info.kind], info.size, rule_names[info.rule], info.stream_id, info.tag);
    if (info.base != block || info.size != size || info.kind != kind) {
        printf("which is WRONG\n");
        exit(1);
    }

    int good = holds(block, size, pattern, home);
    size_t count = 0, reached = 0;
    MUST(warp_device_get_count(&count));
    for (size_t i = 0; i < count; i++) {
        warp_device *other = NULL;
        void *copy = NULL;
        MUST(warp_device_get_at(i, &other));
        if (other == home)
            continue;
        MUST(warp_alloc(other, size, &copy));
        /* A copy is put on the destination's stream: what fills the source must have happened before. */
        MUST(warp_device_synchronize(home));
        MUST(warp_memory_copy(copy, block, size, NULL));
        MUST(warp_device_synchronize(home));
        MUST(warp_device_synchronize(other));
        good &= holds(copy, size, pattern, other);
        MUST(warp_free(copy));
        reached++;
    }
    MUST(warp_free(block));
    printf("read back %s, copied to %zu other device%s\n", good ? "right" : "WRONG", reached, reached == 1 ? "" : "s");
    if (!good)
        exit(1);
}

int main(void)
{
    MUST(warp_version_check(WARP_VERSION));
    MUST(warp_init(NULL, NULL));
    print_report();

    printf("\nEvery kind of memory on every device:\n");
    size_t count = 0;
    MUST(warp_device_get_count(&count));
    for (size_t i = 0; i < count; i++) {
        warp_device *device = NULL;
        warp_device_info info = {.struct_size = sizeof info};
        MUST(warp_device_get_at(i, &device));
        MUST(warp_device_get_info(device, &info));
        for (warp_memory_kind kind = WARP_MEMORY_HOST; kind <= WARP_MEMORY_CUDA_MANAGED; kind++)
            if ((kind <= WARP_MEMORY_PINNED) == (info.is_cpu != 0))
                visit(device, kind);
    }

    printf("\nWhat is left:\n");
    for (size_t i = 0; i < count; i++) {
        warp_device *device = NULL;
        warp_statistics counts = {.struct_size = sizeof counts};
        MUST(warp_device_get_at(i, &device));
        MUST(warp_statistics_get(device, WARP_MEMORY_UNKNOWN, &counts));
        printf("   %-8s %" PRIu64 " allocations, %" PRIu64 " frees, %" PRIu64 " bytes live, %" PRIu64 " at most\n",
               alias_of(device), counts.allocations, counts.frees, counts.live_bytes, counts.peak_bytes);
    }

    /* A mistake is found, explained and harmless. */
    int on_the_stack = 0;
    warp_status status = warp_free(&on_the_stack);
    printf("\nFreeing something foreign is %s:\n   %s\n", warp_status_get_name(status), warp_error_get_message());

    MUST(warp_shutdown());
    return 0;
}
