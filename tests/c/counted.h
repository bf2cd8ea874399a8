/*
 * counted.h: the C library's functions for memory, counted in the whole process: those of the program stand before it. For one source
 * file of a program, after the headers that say which features are wanted (_GNU_SOURCE for who calls).
 *
 *     int before = allocations;
 *     … what is to allocate nothing …
 *     CHECK(!counts || allocations == before);
 *
 *     watch_library();
 *     before = library_allocations;   only those that libwarpmem itself asks for, and not its simulated driver
 */
#ifndef WARPMEM_TESTS_COUNTED_H
#define WARPMEM_TESTS_COUNTED_H

#include <errno.h>
#include <link.h>
#include <string.h>

#define WATCHED 16
static int allocations, library_allocations, frees;
static uintptr_t library_begin, library_end;
static struct {
    void *block;
    int freed;
} watched[WATCHED];

static int note_library(struct dl_phdr_info *info, size_t size, void *unused)
{
    int i;
    (void)size, (void)unused;
    if (strstr(info->dlpi_name, "libwarpmem.") == NULL)
        return 0;
    for (i = 0; i < info->dlpi_phnum; ++i)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X) != 0) {
            library_begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            library_end = library_begin + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

/* From now on library_allocations counts. */
CHECK_MAYBE_UNUSED static void watch_library(void)
{
    dl_iterate_phdr(note_library, NULL);
}

CHECK_MAYBE_UNUSED static void note_allocation(const void *caller)
{
    uintptr_t from = (uintptr_t)caller;
    __atomic_add_fetch(&allocations, 1, __ATOMIC_SEQ_CST);
    if (from >= library_begin && from < library_end)
        __atomic_add_fetch(&library_allocations, 1, __ATOMIC_SEQ_CST);
}

CHECK_MAYBE_UNUSED static void note_free(void *block)
{
    int i;
    __atomic_add_fetch(&frees, 1, __ATOMIC_SEQ_CST);
    for (i = 0; i < WATCHED; ++i)
        if (block != NULL && __atomic_load_n(&watched[i].block, __ATOMIC_SEQ_CST) == block)
            __atomic_add_fetch(&watched[i].freed, 1, __ATOMIC_SEQ_CST);
}

#if defined(__SANITIZE_ADDRESS__)
/* It stands there itself. */
static const int counts = 0;
#else
static const int counts = 1;
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);

#define COUNTED __attribute__((visibility("default")))

COUNTED void *malloc(size_t size)
{
    note_allocation(__builtin_return_address(0));
    return __libc_malloc(size);
}

COUNTED void *calloc(size_t count, size_t size)
{
    note_allocation(__builtin_return_address(0));
    return __libc_calloc(count, size);
}

COUNTED void *realloc(void *block, size_t size)
{
    note_allocation(__builtin_return_address(0));
    return __libc_realloc(block, size);
}

COUNTED int posix_memalign(void **out, size_t alignment, size_t size)
{
    note_allocation(__builtin_return_address(0));
    *out = __libc_memalign(alignment, size);
    return *out == NULL ? ENOMEM : 0;
}

COUNTED void *aligned_alloc(size_t alignment, size_t size)
{
    note_allocation(__builtin_return_address(0));
    return __libc_memalign(alignment, size);
}

COUNTED void free(void *block)
{
    note_free(block);
    __libc_free(block);
}
#endif

/* From now on it is told whether the block was freed. */
CHECK_MAYBE_UNUSED static int watch(void *block)
{
    static int next;
    int at = next++ % WATCHED;
    watched[at].block = block;
    watched[at].freed = 0;
    return at;
}

CHECK_MAYBE_UNUSED static int was_freed(int at)
{
    return __atomic_load_n(&watched[at].freed, __ATOMIC_SEQ_CST);
}

#endif
