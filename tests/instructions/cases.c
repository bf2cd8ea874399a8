/*
 * What the calls cost that programs make most often, for a tool that counts instructions: each case is a function, and the argument
 * says which one runs. `cargo xtask test instructions` runs them all under callgrind, on the simulated driver, and holds them to bounds.
 */
#include "../c/nothing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 1000

static void must(warp_status status)
{
    if (status != WARP_SUCCESS) {
        fprintf(stderr, "%s: %s\n", warp_status_get_name(status), warp_error_get_message());
        exit(1);
    }
}

static warp_device *gpu, *cpu;
static warp_stream *stream;
static warp_alloc_options options = {.struct_size = sizeof options};
static void *block, *second;
static warp_array *array;

static void pair(warp_device *device, uint64_t size)
{
    void *ptr = NULL;
    must(warp_alloc_with(device, size, &options, &ptr));
    must(warp_free(ptr));
}

/* Each case once without being counted, so that what the first one makes is there. */

void cache_pair(int rounds);
void cache_pair(int rounds)
{
    for (int i = 0; i < rounds; ++i)
        pair(gpu, 65536);
}

void pinned_cache_pair(int rounds);
void pinned_cache_pair(int rounds)
{
    for (int i = 0; i < rounds; ++i)
        pair(cpu, 65536);
}

void default_cache_pair(int rounds);
void default_cache_pair(int rounds)
{
    for (int i = 0; i < rounds; ++i) {
        void *ptr = NULL;
        must(warp_alloc(gpu, 65536, &ptr));
        must(warp_free(ptr));
    }
}

void cut_and_join(int rounds);
void cut_and_join(int rounds)
{
    /* More blocks than a thread has at hand of a size: each of the others is cut from a chunk and joined again. */
    static void *held[200];
    for (int i = 0; i < rounds / 200; ++i) {
        for (int k = 0; k < 200; ++k)
            must(warp_alloc_with(gpu, 3000, &options, &held[k]));
        for (int k = 0; k < 200; ++k)
            must(warp_free(held[k]));
    }
}

void pool_pair(int rounds);
void pool_pair(int rounds)
{
    for (int i = 0; i < rounds; ++i)
        pair(gpu, 65536);
}

void host_pair(int rounds);
void host_pair(int rounds)
{
    for (int i = 0; i < rounds; ++i) {
        void *ptr = NULL;
        must(warp_alloc(cpu, 4096, &ptr));
        must(warp_free(ptr));
    }
}

void other_code_host_pair(int rounds);
void other_code_host_pair(int rounds)
{
    for (int i = 0; i < rounds; ++i)
        pair(cpu, 4096);
}

void other_code_gpu_pair(int rounds);
void other_code_gpu_pair(int rounds)
{
    for (int i = 0; i < rounds; ++i)
        pair(gpu, 4096);
}

void small_copy(int rounds);
void small_copy(int rounds)
{
    for (int i = 0; i < rounds; ++i)
        must(warp_memory_copy(block, second, 4096, stream));
}

void small_fill(int rounds);
void small_fill(int rounds)
{
    const uint32_t pattern = 0x01010101;
    for (int i = 0; i < rounds; ++i)
        must(warp_memory_fill(block, 4096, &pattern, sizeof pattern, stream));
}

void event_record(int rounds);
void event_record(int rounds)
{
    static warp_event *event;
    if (event == NULL)
        must(warp_event_create(gpu, NULL, &event));
    for (int i = 0; i < rounds; ++i)
        must(warp_event_record(event, stream));
}

void pointer_info(int rounds);
void pointer_info(int rounds)
{
    warp_pointer_info info = {.struct_size = sizeof info};
    for (int i = 0; i < rounds; ++i)
        must(warp_pointer_get_info((char *)block + 100, &info));
}

void array_access(int rounds);
void array_access(int rounds)
{
    uint8_t can = 0;
    for (int i = 0; i < rounds; ++i)
        must(warp_access_can(gpu, array, &can));
}

void error_path(int rounds);
void error_path(int rounds)
{
    void *ptr = NULL;
    for (int i = 0; i < rounds; ++i)
        if (warp_alloc_with(gpu, UINT64_MAX, &options, &ptr) != WARP_ERROR_SIZE_OVERFLOW)
            exit(1);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(int);
        int serves; /* 1 the cache of device memory, 2 of page-locked; 3 other code's device memory, 4 host memory */
    } cases[] = {
        {"cache_pair", cache_pair, 1},     {"pinned_cache_pair", pinned_cache_pair, 2},
        {"cut_and_join", cut_and_join, 1}, {"default_cache_pair", default_cache_pair, 0},
        {"pool_pair", pool_pair, 0},       {"host_pair", host_pair, 0},
        {"pointer_info", pointer_info, 0}, {"array_access", array_access, 0},
        {"error_path", error_path, 0},     {"other_code_host_pair", other_code_host_pair, 4},
        {"small_copy", small_copy, 0},     {"other_code_gpu_pair", other_code_gpu_pair, 3},
        {"small_fill", small_fill, 0},     {"event_record", event_record, 0},
    };
    int64_t shape[1] = {1000};
    warp_dtype f32 = {2, 32, 1, 4};
    must(warp_init(NULL, NULL));
    must(warp_device_get("cuda:0", &gpu));
    must(warp_device_get("cpu", &cpu));
    must(warp_alloc(gpu, 4096, &block));
    must(warp_alloc(gpu, 4096, &second));
    must(warp_array_empty(gpu, f32, 1, shape, NULL, &array));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        if (argc < 2 || strcmp(cases[i].name, argv[1]) != 0)
            continue;
        must(warp_stream_create(gpu, NULL, &stream));
        if (cases[i].serves == 1 || cases[i].serves == 2)
            must(warp_allocator_get_caching(cases[i].serves == 2 ? WARP_MEMORY_PINNED : 0, &options.allocator));
        if (cases[i].serves == 3)
            must(make_nothing(WARP_MEMORY_CUDA_DEVICE, WARP_ALLOCATOR_STREAM_ORDERED | WARP_ALLOCATOR_MANAGES_CONTEXT,
                              (void *)0x100000000000, &options.allocator));
        if (cases[i].serves == 4)
            must(make_nothing(WARP_MEMORY_HOST, WARP_ALLOCATOR_HOST_MEMORY, (void *)0x200000000000, &options.allocator));
        if (cases[i].serves != 2 && cases[i].serves != 4)
            options.stream = stream;
        if (cases[i].run == default_cache_pair)
            must(warp_allocator_set_caching_for_all(1));
        cases[i].run(ROUNDS);
        return 0;
    }
    fprintf(stderr, "which case?\n");
    return 2;
}
