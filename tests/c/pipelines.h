/*
 * pipelines.h: what the tests of large copies share: contents that are quick to make and to compare, and what the library keeps
 * for such copies.
 */
#ifndef WARPMEM_TESTS_PIPELINES_H
#define WARPMEM_TESTS_PIPELINES_H

#include "blocks.h"
#include "process.h"

#include <dirent.h>

/* Copies with pageable memory go through page-locked buffers from this size on, those between GPUs from the other. */
#define PAGEABLE_FROM MIB
#define BETWEEN_FROM (8 * MIB)

/* Bytes that differ from place to place and from seed to seed, eight at a time. */
UNUSED void write_words(void *bytes, uint64_t size, uint64_t seed)
{
    unsigned char *at = (unsigned char *)bytes;
    uint64_t state = seed * 0x2545f4914f6cdd1dull + 1, word;
    for (; size >= 8; size -= 8, at += 8) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        memcpy(at, &state, 8);
    }
    word = state ^ seed << 32;
    memcpy(at, &word, (size_t)size);
}

UNUSED unsigned char *words_of(uint64_t size, uint64_t seed)
{
    unsigned char *bytes = (unsigned char *)malloc((size_t)size);
    write_words(bytes, size, seed);
    return bytes;
}

/* The first byte at which two ranges differ, or size. */
UNUSED uint64_t differ_at(const void *left, const void *right, uint64_t size)
{
    const unsigned char *a = (const unsigned char *)left, *b = (const unsigned char *)right;
    uint64_t i = 0;
    if (memcmp(a, b, (size_t)size) == 0)
        return size;
    while (a[i] == b[i])
        ++i;
    return i;
}

UNUSED void copy(void *dest, const void *src, uint64_t size, warp_stream *stream)
{
    CHECK_STATUS(warp_memory_copy(dest, src, size, stream), WARP_SUCCESS);
}

UNUSED void synchronize(warp_stream *stream)
{
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
}

UNUSED uint32_t threads(void)
{
    uint32_t count = 0;
    CHECK_STATUS(warp_copy_get_threads(&count), WARP_SUCCESS);
    return count;
}

UNUSED void set_threads(uint32_t count)
{
    CHECK_STATUS(warp_copy_set_threads(count), WARP_SUCCESS);
}

/* A copy of device memory by the driver's own means. */
UNUSED unsigned char *fetched(const void *device, uint64_t size, warp_stream *stream)
{
    unsigned char *bytes = (unsigned char *)malloc((size_t)size);
    uint64_t at, step = 512 * KIB;
    for (at = 0; at < size; at += step)
        copy(bytes + at, (const char *)device + at, size - at < step ? size - at : step, stream);
    synchronize(stream);
    return bytes;
}

/* And the other way. */
UNUSED void put(void *device, const unsigned char *bytes, uint64_t size, warp_stream *stream)
{
    uint64_t at, step = 512 * KIB;
    for (at = 0; at < size; at += step)
        copy((char *)device + at, bytes + at, size - at < step ? size - at : step, stream);
    synchronize(stream);
}

/* Page-locked blocks that there are, all of which are buffers for copies here. They are in no count of the library's, so that only
 * the simulated driver can tell. */
UNUSED uint64_t kept_buffers(void)
{
    return simulator_is_here() ? SIMULATOR(warpsim_live_count)("pinned") : 0;
}

/* Threads of this process whose names begin so. */
UNUSED int threads_named(const char *prefix)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int count = 0;
    while (tasks != NULL && (entry = readdir(tasks)) != NULL) {
        char path[300], name[64] = "";
        FILE *file;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        file = fopen(path, "r");
        if (file == NULL)
            continue;
        count += fgets(name, sizeof name, file) != NULL && strncmp(name, prefix, strlen(prefix)) == 0;
        fclose(file);
    }
    if (tasks != NULL)
        closedir(tasks);
    return count;
}

#define COPY_THREAD "warpmem-copy-"

#endif
