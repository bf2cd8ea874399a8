/* Allocators that give the driver hints for the managed memory that they hand on: sent to a device, read by many, kept somewhere.
 *
 * needs: simulator */
#define _GNU_SOURCE
#include "adaptors.h"
#include "process.h"

static warp_managed_state state_of(const void *ptr)
{
    warp_managed_state state = {.struct_size = sizeof state};
    CHECK_STATUS(warp_managed_query_state(ptr, 0, &state), WARP_SUCCESS);
    return state;
}

static unsigned warnings;

static void count_warnings(void *user, warp_log_level level, const char *message)
{
    (void)user;
    if (level == WARP_LOG_WARNING && strstr(message, "gives no hints") != NULL)
        ++warnings;
}

static void start_with(const char *topology)
{
    start_on(topology);
    warnings = 0;
    CHECK_STATUS(warp_log_set_callback(count_warnings, NULL, WARP_LOG_WARNING), WARP_SUCCESS);
}

PROCESS_TEST(new_memory_is_sent_where_it_is_wanted)
{
    warp_allocator *own = NULL, *host = NULL, *second = NULL, *any = NULL;
    void *ptr;
    start_with("h200x2");
    CHECK_STATUS(warp_allocator_create_prefetch(builtin(WARP_MEMORY_CUDA_MANAGED), NULL, &own), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_create_prefetch(builtin(WARP_MEMORY_CUDA_MANAGED), cpu(), &host), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_create_prefetch(builtin(WARP_MEMORY_CUDA_MANAGED), gpu(1), &second), WARP_SUCCESS);
    ptr = block_by(own, gpu(0), 3 * MIB, NULL);
    CHECK_EQ_PTR(state_of(ptr).last_prefetch, gpu(0));
    CHECK_EQ_I64(pointer_info(ptr).kind, WARP_MEMORY_CUDA_MANAGED);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    ptr = block_by(own, gpu(1), 3 * MIB, NULL);
    CHECK_EQ_PTR(state_of(ptr).last_prefetch, gpu(1));
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    ptr = block_by(host, gpu(0), 3 * MIB, NULL);
    CHECK_EQ_PTR(state_of(ptr).last_prefetch, cpu());
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    ptr = block_by(second, gpu(0), 3 * MIB, NULL);
    CHECK_EQ_PTR(state_of(ptr).last_prefetch, gpu(1));
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    /* Installed, it serves what names nothing; and it stands below and above others. */
    CHECK_STATUS(warp_allocator_create_limit(own, 4 * MIB, &any), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), any), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu(0), MIB, &ptr), WARP_SUCCESS);
    CHECK_EQ_PTR(state_of(ptr).last_prefetch, gpu(0));
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), NULL), WARP_SUCCESS);
    release(any);
    release(own);
    release(host);
    release(second);
    CHECK_EQ_U64(warnings, 0);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(new_memory_has_the_hint)
{
    warp_allocator *many = NULL, *kept = NULL, *mapped = NULL, *both = NULL;
    uint8_t accessed = 0;
    void *ptr;
    start_with("h200x2");
    CHECK_STATUS(warp_allocator_create_advise(builtin(WARP_MEMORY_CUDA_MANAGED), WARP_MANAGED_ADVICE_SET_READ_MOSTLY,
                                              NULL, &many), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_create_advise(builtin(WARP_MEMORY_CUDA_MANAGED), WARP_MANAGED_ADVICE_SET_PREFERRED_LOCATION,
                                              cpu(), &kept), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_create_advise(many, WARP_MANAGED_ADVICE_SET_ACCESSED_BY, gpu(1), &mapped), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_create_prefetch(kept, NULL, &both), WARP_SUCCESS);
    ptr = block_by(many, gpu(0), MIB, NULL);
    CHECK_EQ_U64(state_of(ptr).is_read_mostly, 1);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    ptr = block_by(mapped, gpu(0), MIB, NULL);
    CHECK_EQ_U64(state_of(ptr).is_read_mostly, 1);
    CHECK_STATUS(warp_managed_query_accessed_by(ptr, 0, gpu(1), &accessed), WARP_SUCCESS);
    CHECK_EQ_U64(accessed, 1);
    CHECK_STATUS(warp_managed_query_accessed_by(ptr, 0, gpu(0), &accessed), WARP_SUCCESS);
    CHECK_EQ_U64(accessed, 0);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    ptr = block_by(both, gpu(0), MIB, NULL);
    CHECK_EQ_PTR(state_of(ptr).preferred, cpu());
    CHECK_EQ_PTR(state_of(ptr).last_prefetch, gpu(0));
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    release(both);
    release(mapped);
    release(kept);
    release(many);
    CHECK_EQ_U64(warnings, 0);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(memory_without_a_hint_is_as_good_and_that_is_told_once)
{
    warp_allocator *sent = NULL;
    void *ptr, *again;
    start_with("wsl,gpus=1");
    CHECK_STATUS(warp_allocator_create_prefetch(builtin(WARP_MEMORY_CUDA_MANAGED), NULL, &sent), WARP_SUCCESS);
    ptr = block_by(sent, gpu(0), MIB, NULL);
    again = block_by(sent, gpu(0), MIB, NULL);
    CHECK_EQ_U64(warnings, 1);
    CHECK_EQ_U64(calls("cuMemPrefetchAsync") + calls("cuMemPrefetchAsync_v2"), 0);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(again), WARP_SUCCESS);
    release(sent);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(what_cannot_have_hints_is_refused)
{
    static const warp_memory_kind others[] = {WARP_MEMORY_HOST, WARP_MEMORY_PINNED, WARP_MEMORY_CUDA_DEVICE,
                                              WARP_MEMORY_CUDA_MEMPOOL};
    static const warp_managed_advice none[] = {WARP_MANAGED_ADVICE_UNSET_READ_MOSTLY,
                                               WARP_MANAGED_ADVICE_UNSET_PREFERRED_LOCATION,
                                               WARP_MANAGED_ADVICE_UNSET_ACCESSED_BY, 0, -1, 7};
    warp_allocator *managed, *out = (warp_allocator *)1;
    size_t i;
    start_with("h200x2");
    managed = builtin(WARP_MEMORY_CUDA_MANAGED);
    for (i = 0; i < 4; ++i) {
        out = (warp_allocator *)1;
        CHECK_STATUS(warp_allocator_create_prefetch(builtin(others[i]), NULL, &out), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_EQ_PTR(out, NULL);
        CHECK_STR_CONTAINS(warp_error_get_message(), "WARP_MEMORY_CUDA_MANAGED");
        CHECK_STATUS(warp_allocator_create_advise(builtin(others[i]), WARP_MANAGED_ADVICE_SET_READ_MOSTLY, NULL, &out),
                     WARP_ERROR_INVALID_ARGUMENT);
    }
    for (i = 0; i < sizeof none / sizeof *none; ++i) {
        out = (warp_allocator *)1;
        CHECK_STATUS(warp_allocator_create_advise(managed, none[i], NULL, &out), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_EQ_PTR(out, NULL);
        CHECK_STR_CONTAINS(warp_error_get_message(), "WARP_MANAGED_ADVICE_");
    }
    CHECK_STATUS(warp_allocator_create_prefetch(NULL, NULL, &out), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_allocator_create_prefetch(managed, (warp_device *)managed, &out), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_allocator_create_prefetch(managed, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_create_advise(managed, WARP_MANAGED_ADVICE_SET_READ_MOSTLY, NULL, NULL),
                 WARP_ERROR_INVALID_ARGUMENT);
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
