/*
 * driver.h: the driver as other code in the process uses it, beside the library: contexts, streams and memory of their own.
 *
 *     SIMULATOR(cuCtxCreate_v2)(&context, 0, 1);
 *     CHECK_EQ_PTR(driver_current(), context);
 */
#ifndef WARPMEM_TESTS_DRIVER_H
#define WARPMEM_TESTS_DRIVER_H

#include "simulator.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Found by name and never linked; the names are the driver's. */
typedef void *CUcontext;
typedef void *CUstream;
typedef void *CUmemoryPool;
uint32_t cuInit(uint32_t flags);
uint32_t cuCtxGetCurrent(CUcontext *out);
uint32_t cuCtxSetCurrent(CUcontext context);
uint32_t cuCtxCreate_v2(CUcontext *out, uint32_t flags, int32_t device);
uint32_t cuCtxDestroy_v2(CUcontext context);
uint32_t cuCtxPopCurrent_v2(CUcontext *out);
uint32_t cuCtxSynchronize(void);
uint32_t cuCtxGetId(CUcontext context, unsigned long long *out);
uint32_t cuDevicePrimaryCtxRetain(CUcontext *out, int32_t device);
uint32_t cuDevicePrimaryCtxRelease_v2(int32_t device);
uint32_t cuDevicePrimaryCtxReset_v2(int32_t device);
uint32_t cuDevicePrimaryCtxGetState(int32_t device, uint32_t *flags, int32_t *active);
uint32_t cuStreamCreate(CUstream *out, uint32_t flags);
uint32_t cuStreamDestroy_v2(CUstream stream);
uint32_t cuStreamSynchronize(CUstream stream);
uint32_t cuStreamGetId(CUstream stream, unsigned long long *out);
uint32_t cuMemAlloc_v2(uint64_t *out, size_t size);
uint32_t cuMemFree_v2(uint64_t ptr);
uint32_t cuMemAllocManaged(uint64_t *out, size_t size, uint32_t flags);
uint32_t cuMemAllocAsync(uint64_t *out, size_t size, CUstream stream);
uint32_t cuMemFreeAsync(uint64_t ptr, CUstream stream);
uint32_t cuMemHostAlloc(void **out, size_t size, uint32_t flags);
uint32_t cuMemFreeHost(void *ptr);
uint32_t cuMemHostRegister_v2(void *ptr, size_t size, uint32_t flags);
uint32_t cuMemHostUnregister(void *ptr);
uint32_t cuDeviceGetMemPool(CUmemoryPool *out, int32_t device);
uint32_t cuMemPoolSetAttribute(CUmemoryPool pool, int32_t attribute, void *value);
uint32_t cuMemPoolGetAttribute(CUmemoryPool pool, int32_t attribute, void *value);

#ifdef __cplusplus
}
#endif

/* The calling thread's current context. */
__attribute__((unused)) static CUcontext driver_current(void)
{
    CUcontext context = NULL;
    SIMULATOR(cuCtxGetCurrent)(&context);
    return context;
}

/* The primary context of a GPU, held by other code from now on. */
__attribute__((unused)) static CUcontext driver_primary(int32_t ordinal)
{
    CUcontext context = NULL;
    SIMULATOR(cuDevicePrimaryCtxRetain)(&context, ordinal);
    return context;
}

/* A context that other code made, and left not current. */
__attribute__((unused)) static CUcontext driver_foreign(int32_t ordinal)
{
    CUcontext context = NULL, popped = NULL;
    SIMULATOR(cuCtxCreate_v2)(&context, 0, ordinal);
    SIMULATOR(cuCtxPopCurrent_v2)(&popped);
    return context;
}

#endif
