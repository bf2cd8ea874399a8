/*
 * simulator.h: reaching the simulated driver from a test, where it is the driver that the library has loaded.
 *
 *     if (!simulator_is_here())
 *         SKIP("needs the simulated driver");
 *     CHECK_EQ_U64(SIMULATOR(warpsim_fail)("cuMemAlloc_v2", 1, 2), 0);
 *
 * A test program is not linked to the simulator: the same program runs on a real driver. A function of warpsim.h is looked
 * up by its name in the file that WARPMEM_LIBCUDA names, and keeps its type.
 */
#ifndef WARPMEM_TESTS_SIMULATOR_H
#define WARPMEM_TESTS_SIMULATOR_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <warpsim.h>

__attribute__((unused)) static void *simulator_find(const char *name)
{
    const char *path = getenv("WARPMEM_LIBCUDA");
    /* Opened once more and never closed, as the library does: a driver is not unloaded. */
    void *driver = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    return driver != NULL ? dlsym(driver, name) : NULL;
}

__attribute__((unused)) static int simulator_is_here(void)
{
    return simulator_find("warpsim_reset") != NULL;
}

__attribute__((unused)) static void *simulator_symbol(const char *name)
{
    void *symbol = simulator_find(name);
    if (symbol == NULL) {
        fprintf(stderr, "the driver has no %s\n", name);
        abort();
    }
    return symbol;
}

#ifdef __cplusplus
#define SIMULATOR(name) (reinterpret_cast<decltype(&name)>(simulator_symbol(#name)))
#else
#define SIMULATOR(name) ((__typeof__(&name))simulator_symbol(#name))
#endif

#endif
