/*
 * driver_without.h: a driver that lacks a name, as older ones do.
 *
 *     start_without("cuCtxRecordEvent");
 */
#ifndef WARPMEM_TESTS_DRIVER_WITHOUT_H
#define WARPMEM_TESTS_DRIVER_WITHOUT_H

#include "process.h"
#include "simulator.h"

/* Writes a copy of the simulated driver in which a name cannot be found. Whether that was possible. */
__attribute__((unused)) static int driver_without(const char *name, const char *copy)
{
    FILE *from = fopen(getenv("WARPMEM_LIBCUDA"), "rb"), *to = fopen(copy, "wb");
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

/* Starts the library on it. */
__attribute__((unused)) static void start_without(const char *name)
{
    char copy[4096];
    REQUIRE(process_make_file(copy, sizeof copy));
    REQUIRE(driver_without(name, copy));
    setenv("WARPMEM_LIBCUDA", copy, 1);
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    (void)simulator_is_here(); /* opened once more, before its name is gone */
    SIMULATOR(warpsim_log_clear)();
    unlink(copy);
}

#endif
