/*
 * kernels.h: small kernels for tests, on real GPUs and on simulated ones: have a device touch an address, and see what comes
 * of it.
 *
 *     CHECK_EQ_U64(kernel_touch(1, address), 0);                       (GPU 1 adds 1 to the word there)
 *     CHECK_EQ_U64(kernel_in_child(touch_it, &address), 700);          (a fault ends the process's contexts)
 *
 * A fault is sticky: with the real driver everything fails in the process afterwards, on all GPUs, so what may fault belongs
 * into a child that was forked before anything called the driver. kernel_in_child makes one.
 *
 * The driver is found by name: the file that WARPMEM_LIBCUDA names, else libcuda.so.1.
 */
#ifndef WARPMEM_TESTS_KERNELS_H
#define WARPMEM_TESTS_KERNELS_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define KERNELS_UNUSED __attribute__((unused))

/* Of the language's version that a driver of CUDA 11 and a GPU of 2017 know. */
static const char kernels_ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    /* The word at an address, 1 added to it. */
    ".visible .entry touch(.param .u64 at) {\n"
    "  .reg .b64 %a; .reg .b32 %v;\n"
    "  ld.param.u64 %a, [at]; cvta.to.global.u64 %a, %a;\n"
    "  ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [%a], %v; ret;\n"
    "}\n"
    /* The word at an address is read, and kept from being thought of no use. */
    ".visible .entry look(.param .u64 at) {\n"
    "  .reg .b64 %a; .reg .b32 %v; .shared .align 4 .b8 seen[4];\n"
    "  ld.param.u64 %a, [at]; cvta.to.global.u64 %a, %a;\n"
    "  ld.volatile.global.u32 %v, [%a]; st.volatile.shared.u32 [seen], %v; ret;\n"
    "}\n"
    /* Words from an address on get a value, one a thread. */
    ".visible .entry fill(.param .u64 at, .param .u64 count, .param .u32 value) {\n"
    "  .reg .b64 %a, %n, %i, %s; .reg .b32 %b, %d, %t, %v; .reg .pred %p;\n"
    "  ld.param.u64 %a, [at]; ld.param.u64 %n, [count]; ld.param.u32 %v, [value];\n"
    "  mov.u32 %b, %ctaid.x; mov.u32 %d, %ntid.x; mov.u32 %t, %tid.x;\n"
    "  cvt.u64.u32 %s, %t; mad.wide.u32 %i, %b, %d, %s;\n"
    "  setp.ge.u64 %p, %i, %n; @%p ret;\n"
    "  shl.b64 %i, %i, 2; add.u64 %a, %a, %i; st.global.u32 [%a], %v; ret;\n"
    "}\n"
    /* The sum of words, added to what is at another address. */
    ".visible .entry sum(.param .u64 at, .param .u64 count, .param .u64 to) {\n"
    "  .reg .b64 %a, %n, %i, %o, %s; .reg .b32 %b, %d, %t, %v; .reg .pred %p;\n"
    "  ld.param.u64 %a, [at]; ld.param.u64 %n, [count]; ld.param.u64 %o, [to];\n"
    "  mov.u32 %b, %ctaid.x; mov.u32 %d, %ntid.x; mov.u32 %t, %tid.x;\n"
    "  cvt.u64.u32 %s, %t; mad.wide.u32 %i, %b, %d, %s;\n"
    "  setp.ge.u64 %p, %i, %n; @%p ret;\n"
    "  shl.b64 %i, %i, 2; add.u64 %a, %a, %i; ld.global.u32 %v, [%a];\n"
    "  cvt.u64.u32 %s, %v; red.global.add.u64 [%o], %s; ret;\n"
    "}\n"
    /* So many turns of a loop, to be busy. */
    ".visible .entry spin(.param .u64 turns) {\n"
    "  .reg .b64 %n; .reg .pred %p; .shared .align 8 .b8 kept[8];\n"
    "  ld.param.u64 %n, [turns];\n"
    "again:\n"
    "  st.volatile.shared.u64 [kept], %n; sub.u64 %n, %n, 1; setp.gt.s64 %p, %n, 0; @%p bra again; ret;\n"
    "}\n";

/* A function of the driver by its name; NULL for none. */
KERNELS_UNUSED static void *kernels_entry(const char *name)
{
    static void *driver;
    if (driver == NULL) {
        const char *path = getenv("WARPMEM_LIBCUDA");
        driver = dlopen(path != NULL && path[0] != '\0' ? path : "libcuda.so.1", RTLD_NOW);
    }
    return driver == NULL ? NULL : dlsym(driver, name);
}

/* Calls a function of the driver; without one the answer is that it is not found. */
#define KERNELS_CALL(name, type, ...) \
    (kernels_entry(name) == NULL ? 500u : ((uint32_t(*) type)kernels_entry(name))(__VA_ARGS__))

/* The module in the calling thread's current context; NULL, and the driver's code, where it cannot be had. */
KERNELS_UNUSED static void *kernels_load(uint32_t *code)
{
    void *module = NULL;
    *code = KERNELS_CALL("cuModuleLoadData", (void **, const void *), &module, kernels_ptx);
    return *code == 0 ? module : NULL;
}

/* A launch of one of the kernels on a stream of the current context, one thread for each of count. The driver's code. */
KERNELS_UNUSED static uint32_t kernels_launch_many(void *module, const char *name, uint64_t count, void *stream, void **params)
{
    void *function = NULL;
    uint32_t code = KERNELS_CALL("cuModuleGetFunction", (void **, void *, const char *), &function, module, name);
    unsigned threads = count < 256 ? (count == 0 ? 1 : (unsigned)count) : 256;
    unsigned blocks = (unsigned)((count + threads - 1) / threads);
    if (code != 0)
        return code;
    return KERNELS_CALL("cuLaunchKernel",
                        (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
                        function, blocks == 0 ? 1 : blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL);
}

/* touch or look, on a stream. */
KERNELS_UNUSED static uint32_t kernels_launch_at(void *module, const char *name, uint64_t address, void *stream)
{
    void *params[1];
    params[0] = &address;
    return kernels_launch_many(module, name, 1, stream, params);
}

/* Has a device run touch or look at an address in its primary context, waits for it, and says what came back: 0, or the code
 * of the first call that failed. The current context is the same afterwards. */
KERNELS_UNUSED static uint32_t kernels_at(const char *name, int32_t device, uint64_t address)
{
    void *before = NULL, *context = NULL, *module = NULL;
    uint32_t code = KERNELS_CALL("cuCtxGetCurrent", (void **), &before);
    if (code != 0)
        return code;
    code = KERNELS_CALL("cuDevicePrimaryCtxRetain", (void **, int32_t), &context, device);
    if (code != 0)
        return code;
    code = KERNELS_CALL("cuCtxSetCurrent", (void *), context);
    if (code == 0)
        module = kernels_load(&code);
    if (code == 0)
        code = kernels_launch_at(module, name, address, NULL);
    if (code == 0)
        code = KERNELS_CALL("cuCtxSynchronize", (void));
    if (module != NULL)
        KERNELS_CALL("cuModuleUnload", (void *), module);
    KERNELS_CALL("cuCtxSetCurrent", (void *), before);
    KERNELS_CALL("cuDevicePrimaryCtxRelease_v2", (int32_t), device);
    return code;
}

/* A device reads the word at an address, adds 1, and writes it back. */
KERNELS_UNUSED static uint32_t kernel_touch(int32_t device, uint64_t address)
{
    return kernels_at("touch", device, address);
}

/* A device reads the word at an address. */
KERNELS_UNUSED static uint32_t kernel_look(int32_t device, uint64_t address)
{
    return kernels_at("look", device, address);
}

/* What a body answers in a forked child, a code of the driver; 128 thousand and the signal where it died of one. The parent
 * must not have called the driver before. */
KERNELS_UNUSED static uint32_t kernel_in_child(uint32_t (*body)(void *), void *argument)
{
    int status = 0, ends[2];
    uint32_t code = 0;
    pid_t child;
    if (pipe(ends) != 0)
        return 999;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        ssize_t written;
        alarm(200);
        code = body(argument);
        written = write(ends[1], &code, sizeof code);
        fflush(stdout);
        _exit(written == (ssize_t)sizeof code ? 0 : 1);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &code, sizeof code) != (ssize_t)sizeof code)
        code = 999;
    close(ends[0]);
    while (child > 0 && waitpid(child, &status, 0) != child)
        ;
    return WIFSIGNALED(status) ? 128000u + (uint32_t)WTERMSIG(status) : code;
}

#endif
