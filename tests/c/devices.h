/* devices.h: starting the library in a test, and finding a device. */
#ifndef WARPMEM_TESTS_DEVICES_H
#define WARPMEM_TESTS_DEVICES_H

#include "check.h"

/* Starts the library on a topology of the simulated driver. */
__attribute__((unused)) static void start_on(const char *topology)
{
    setenv("WARPSIM_TOPOLOGY", topology, 1);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
}

__attribute__((unused)) static warp_device *device(const char *alias)
{
    warp_device *found = NULL;
    CHECK_STATUS(warp_device_get(alias, &found), WARP_SUCCESS);
    return found;
}

/* Good until the next call. */
__attribute__((unused)) static const char *alias_of(warp_device *of)
{
    static char alias[64];
    warp_device_info info;
    memset(&info, 0, sizeof info); /* C++ has this header too */
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_device_get_info(of, &info), WARP_SUCCESS);
    strcpy(alias, info.alias);
    return alias;
}

#endif
