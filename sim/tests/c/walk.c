/* A walk through the simulated driver, loaded from the file given: every kind of memory once, used and freed. */
#include "warpsim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint32_t (*any)(uint64_t, uint64_t, uint64_t, uint64_t);

static void *driver;

/* Calls an entry point whose arguments are all integers or pointers. */
static uint32_t call(const char *name, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    void *symbol = dlsym(driver, name);
    any function;
    if (!symbol) {
        printf("%s is missing\n", name);
        exit(1);
    }
    memcpy(&function, &symbol, sizeof function);
    return function(a, b, c, d);
}

static void must(const char *name, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint32_t code = call(name, a, b, c, d);
    if (code) {
        printf("%s: %u\n", name, (unsigned)code);
        exit(1);
    }
}

#define P(x) ((uint64_t)(uintptr_t)(x))

int main(int count, char **arguments)
{
    uint64_t context = 0, stream = 0, plain = 0, pooled = 0, pinned = 0, managed = 0, event = 0, blocks[300];
    char data[5000], back[5000];
    size_t i;

    driver = dlopen(count > 1 ? arguments[1] : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) {
        printf("%s\n", dlerror());
        return 1;
    }
    for (i = 0; i < sizeof data; i++) data[i] = (char)i;
    must("cuInit", 0, 0, 0, 0);
    must("cuDevicePrimaryCtxRetain", P(&context), 0, 0, 0);
    must("cuCtxSetCurrent", context, 0, 0, 0);
    must("cuStreamCreate", P(&stream), 1, 0, 0);
    must("cuEventCreate", P(&event), 0, 0, 0);
    must("cuMemAlloc_v2", P(&plain), sizeof data, 0, 0);
    must("cuMemAllocAsync", P(&pooled), sizeof data, stream, 0);
    must("cuMemAllocHost_v2", P(&pinned), sizeof data, 0, 0);
    must("cuMemAllocManaged", P(&managed), sizeof data, 1, 0);
    memcpy((void *)(uintptr_t)pinned, data, sizeof data);
    must("cuMemcpyHtoDAsync_v2", plain, pinned, sizeof data, stream);
    must("warpsim_hold", stream, 0, 0, 0);
    must("cuMemcpyDtoDAsync_v2", pooled, plain, sizeof data, stream);
    must("cuMemcpyDtoDAsync_v2", managed, pooled, sizeof data, stream);
    must("cuEventRecord", event, stream, 0, 0);
    must("cuEventSynchronize", event, 0, 0, 0);
    must("cuMemcpyDtoH_v2", P(back), pooled, sizeof back, 0);
    if (memcmp(back, data, sizeof data) || memcmp((void *)(uintptr_t)managed, data, sizeof data)) {
        puts("the data is not what was written");
        return 1;
    }
    for (i = 0; i < 300; i++) must("cuMemAlloc_v2", P(&blocks[i]), 1 + i * 1000, 0, 0);
    for (i = 0; i < 300; i++) must("cuMemFree_v2", blocks[i], 0, 0, 0);
    must("cuMemFreeAsync", pooled, stream, 0, 0);
    must("cuMemFree_v2", plain, 0, 0, 0);
    must("cuMemFree_v2", managed, 0, 0, 0);
    must("cuMemFreeHost", pinned, 0, 0, 0);
    must("cuEventDestroy_v2", event, 0, 0, 0);
    must("cuStreamDestroy_v2", stream, 0, 0, 0);
    must("cuDevicePrimaryCtxRelease_v2", 0, 0, 0, 0);
    puts("done");
    return 0;
}
