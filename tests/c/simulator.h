/*
 * simulator.h: the simulated driver, taken from the file that the library loads.
 *
 *     SIM(warpsim_fail)("cuMemAlloc_v2", 1, 2);
 *     SIM(cuCtxGetCurrent)(&context);
 *
 * The file is the one that WARPMEM_LIBCUDA names; opening it again joins the copy that is mapped already. A name that
 * is not there ends the process with a message, since no test could go on.
 */
#ifndef WARPMEM_TESTS_SIMULATOR_H
#define WARPMEM_TESTS_SIMULATOR_H

#include "warpsim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#define SIM(name) (reinterpret_cast<decltype(&name)>(simulator_symbol(#name)))
#else
#define SIM(name) ((__typeof__(&name))simulator_symbol(#name))
#endif

/* The driver's functions that tests call as other code in the process would; never linked, only found. */
typedef void *CUcontext;
typedef void *CUstream;
uint32_t cuInit(uint32_t flags);
uint32_t cuCtxGetCurrent(CUcontext *out);
uint32_t cuCtxSetCurrent(CUcontext context);
uint32_t cuCtxCreate_v2(CUcontext *out, uint32_t flags, int32_t device);
uint32_t cuCtxDestroy_v2(CUcontext context);
uint32_t cuCtxPopCurrent_v2(CUcontext *out);
uint32_t cuCtxGetId(CUcontext context, unsigned long long *out);
uint32_t cuDevicePrimaryCtxRetain(CUcontext *out, int32_t device);
uint32_t cuDevicePrimaryCtxRelease_v2(int32_t device);
uint32_t cuDevicePrimaryCtxGetState(int32_t device, uint32_t *flags, int32_t *active);
uint32_t cuStreamCreate(CUstream *out, uint32_t flags);
uint32_t cuStreamDestroy_v2(CUstream stream);
uint32_t cuStreamGetId(CUstream stream, unsigned long long *out);
uint32_t cuMemAlloc_v2(uint64_t *out, size_t size);
uint32_t cuMemFree_v2(uint64_t ptr);

__attribute__((unused)) static const char *simulator_path(void)
{
    const char *path = getenv("WARPMEM_LIBCUDA");
    return path != NULL ? path : "";
}

/* Whether this run has a simulated driver. */
__attribute__((unused)) static int simulator_is_here(void)
{
    void *file = dlopen(simulator_path(), RTLD_NOW | RTLD_LOCAL);
    return file != NULL && dlsym(file, "warpsim_set_topology") != NULL;
}

__attribute__((unused)) static void *simulator_symbol(const char *name)
{
    static void *file;
    void *symbol = NULL;
    if (file == NULL)
        file = dlopen(simulator_path(), RTLD_NOW | RTLD_LOCAL);
    if (file != NULL)
        symbol = dlsym(file, name);
    if (symbol == NULL) {
        printf("\n    %s is not in %s\n", name, simulator_path());
        fflush(stdout);
        abort();
    }
    return symbol;
}

/* The calling thread's current context. */
__attribute__((unused)) static CUcontext simulator_current(void)
{
    CUcontext context = NULL;
    SIM(cuCtxGetCurrent)(&context);
    return context;
}

/* Writes a copy of the simulated driver in which a name cannot be found. Whether that was possible. */
__attribute__((unused)) static int simulator_without(const char *name, const char *copy)
{
    FILE *from = fopen(simulator_path(), "rb"), *to = fopen(copy, "wb");
    char *bytes = NULL;
    long size = 0;
    int hidden = 0;
    size_t length = strlen(name) + 2, at;
    if (from != NULL && to != NULL && fseek(from, 0, SEEK_END) == 0 && (size = ftell(from)) > 0) {
        rewind(from);
        bytes = (char *)malloc((size_t)size);
        if (bytes != NULL && fread(bytes, 1, (size_t)size, from) == (size_t)size) {
            char *pattern = (char *)calloc(1, length);
            if (pattern != NULL) {
                memcpy(pattern + 1, name, length - 2);
                /* The name in the table of dynamic symbols: whole, between two NULs. */
                for (at = 0; at + length <= (size_t)size; ++at) {
                    if (bytes[at] == 0 && memcmp(bytes + at, pattern, length) == 0) {
                        bytes[at + 1] = '_';
                        hidden = 1;
                    }
                }
                free(pattern);
            }
            hidden = hidden && fwrite(bytes, 1, (size_t)size, to) == (size_t)size;
        }
    }
    free(bytes);
    if (from != NULL)
        fclose(from);
    if (to != NULL && fclose(to) != 0)
        hidden = 0;
    return hidden;
}

#ifdef __cplusplus
}
#endif

#endif
