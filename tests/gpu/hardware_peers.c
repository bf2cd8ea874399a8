/*
 * hardware_peers.c: access between two GPUs as a real driver has it: what is told is what copies meet, captures go on, and access
 * that is taken under a running copy waits for it, and what is written directly arrives. One GPU has nothing to show.
 *
 * topology: h200x2
 */
#include "hardware.h"

#define SIZE (512 * MIB)

static warp_device *one, *two;

static int start_two(void)
{
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    if (gpus() < 2)
        return 0;
    one = device("cuda:0");
    two = device("cuda:1");
    return 1;
}

static int peer(warp_device *target, warp_device *accessing)
{
    uint8_t answer = 9;
    CHECK_STATUS(warp_peer_access_query_enabled(target, accessing, &answer), WARP_SUCCESS);
    return answer;
}

static int pool(warp_device *target, warp_device *accessing)
{
    uint8_t answer = 9;
    CHECK_STATUS(warp_mempool_access_query_enabled(target, accessing, &answer), WARP_SUCCESS);
    return answer;
}

/* Whether the second GPU can copy from there as other code does it. */
static int copies_from(void *from, void *to, warp_stream *stream)
{
    int code;
    void *context = NULL, *before = NULL;
    CHECK_STATUS(warp_device_get_native_context(two, &context), WARP_SUCCESS);
    GET_CURRENT(&before);
    SET_CURRENT(context);
    code = COPY((address)(uintptr_t)to, (address)(uintptr_t)from, 64, native(stream));
    CHECK_EQ_I64(STREAM_SYNC(native(stream)), SUCCESS);
    SET_CURRENT(before);
    return code == SUCCESS;
}

TEST(what_is_told_is_what_copies_meet)
{
    warp_stream *stream, *here;
    void *from, *to;
    int on;
    if (!start_two())
        SKIP("needs two GPUs");
    stream = new_stream(two, WARP_STREAM_NON_BLOCKING);
    here = new_stream(one, WARP_STREAM_NON_BLOCKING);
    from = block(one, 4096, WARP_MEMORY_CUDA_MEMPOOL, here);
    to = block(two, 4096, WARP_MEMORY_CUDA_MEMPOOL, stream);
    CHECK_STATUS(warp_stream_synchronize(here), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    for (on = 0; on < 4; ++on) {
        CHECK_STATUS(warp_mempool_access_set_enabled(one, two, on & 1), WARP_SUCCESS);
        CHECK_STATUS(warp_peer_access_set_enabled(one, two, !(on & 1)), WARP_SUCCESS);
        CHECK_EQ_I64(pool(one, two), on & 1);
        CHECK_EQ_I64(peer(one, two), !(on & 1));
        CHECK_EQ_I64(pool(two, one), 0);
        CHECK_EQ_I64(peer(two, one), 0);
        /* Memory of pools: peer access is no help. */
        CHECK_EQ_I64(copies_from(from, to, stream), on & 1);
    }
    CHECK_STATUS(warp_mempool_access_set_enabled(one, two, 0), WARP_SUCCESS);
    CHECK_STATUS(warp_peer_access_set_enabled(one, two, 0), WARP_SUCCESS);
    CHECK_STATUS(warp_free(from), WARP_SUCCESS);
    CHECK_STATUS(warp_free(to), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(here), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

TEST(access_that_is_taken_waits_for_copies_under_way)
{
    int pools, i;
    if (!start_two())
        SKIP("needs two GPUs");
    for (pools = 0; pools < 2; ++pools) {
        warp_memory_kind kind = pools ? WARP_MEMORY_CUDA_MEMPOOL : WARP_MEMORY_CUDA_DEVICE;
        warp_stream *stream = new_stream(two, WARP_STREAM_NON_BLOCKING), *here = new_stream(one, 0);
        uint64_t size = simulator_is_here() ? 4096 : SIZE;
        void *from = block(one, size, kind, here), *to = block(two, size, kind, stream);
        unsigned char seven = 7, last = 0;
        CHECK_STATUS(warp_memory_fill(from, size, &seven, 1, here), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(here), WARP_SUCCESS);
        if (pools)
            CHECK_STATUS(warp_mempool_access_set_enabled(one, two, 1), WARP_SUCCESS);
        else
            CHECK_STATUS(warp_peer_access_set_enabled(one, two, 1), WARP_SUCCESS);
        if (simulator_is_here())
            CHECK_EQ_U64(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native(stream)), SUCCESS);
        for (i = 0; i < (simulator_is_here() ? 1 : 100); ++i)
            CHECK_STATUS(warp_memory_copy(to, from, size, stream), WARP_SUCCESS);
        CHECK_EQ_I64(STREAM_QUERY(native(stream)), NOT_READY);
        if (pools)
            CHECK_STATUS(warp_mempool_access_set_enabled(one, two, 0), WARP_SUCCESS);
        else
            CHECK_STATUS(warp_peer_access_set_enabled(one, two, 0), WARP_SUCCESS);
        CHECK_EQ_I64(STREAM_QUERY(native(stream)), SUCCESS);
        CHECK_EQ_I64(pools ? pool(one, two) : peer(one, two), 0);
        CHECK_STATUS(warp_memory_copy(&last, (char *)to + size - 1, 1, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_EQ_U64(last, 7);
        CHECK_STATUS(warp_free(from), WARP_SUCCESS);
        CHECK_STATUS(warp_free(to), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(here), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static void *use_access(void *unused)
{
    int on;
    (void)unused;
    for (on = 1; on >= 0; --on) {
        warp_scope *scopes[2] = {NULL, NULL};
        CHECK_STATUS(warp_peer_access_set_enabled_for(one, NULL, 0, (uint8_t)on), WARP_SUCCESS);
        CHECK_STATUS(warp_mempool_access_set_enabled_for(two, NULL, 0, (uint8_t)on), WARP_SUCCESS);
        CHECK_EQ_I64(peer(one, two), on);
        CHECK_EQ_I64(pool(two, one), on);
        CHECK_STATUS(warp_scope_begin_peer_access(one, two, (uint8_t)!on, &scopes[0]), WARP_SUCCESS);
        CHECK_STATUS(warp_scope_begin_mempool_access(two, one, (uint8_t)!on, &scopes[1]), WARP_SUCCESS);
        CHECK_EQ_I64(peer(one, two), !on);
        CHECK_EQ_I64(pool(two, one), !on);
        CHECK_STATUS(warp_scope_end(scopes[1]), WARP_SUCCESS);
        CHECK_STATUS(warp_scope_end(scopes[0]), WARP_SUCCESS);
        CHECK_EQ_I64(peer(one, two), on);
        CHECK_EQ_I64(pool(two, one), on);
    }
    return NULL;
}

TEST(captures_go_on)
{
    int which, thread;
    if (!start_two())
        SKIP("needs two GPUs");
    for (which = 0; which < 4; ++which)
        for (thread = 0; thread < 2; ++thread) {
            warp_stream *stream = new_stream(which & 1 ? two : one, which & 2 ? 0 : WARP_STREAM_NON_BLOCKING);
            warp_graph *graph = NULL;
            int status = -1;
            CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_GLOBAL), WARP_SUCCESS);
            if (thread) {
                pthread_t other;
                REQUIRE(pthread_create(&other, NULL, use_access, NULL) == 0);
                pthread_join(other, NULL);
            } else {
                use_access(NULL);
            }
            CHECK_EQ_I64(IS_CAPTURING(native(stream), &status), SUCCESS);
            CHECK_EQ_I64(status, CAPTURE_ACTIVE);
            CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        }
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static void *verify_both(void *unused)
{
    int way;
    (void)unused;
    for (way = 0; way < 2; ++way) {
        uint8_t arrives = 9;
        CHECK_STATUS(warp_peer_access_verify(way ? two : one, way ? one : two, &arrives), WARP_SUCCESS);
        CHECK_EQ_U64(arrives, 1);
    }
    return NULL;
}

TEST(what_is_written_directly_arrives)
{
    /* PA-06, on a machine that is as it should be. */
    int on, which;
    void *before = NULL, *after = NULL;
    if (!start_two())
        SKIP("needs two GPUs");
    GET_CURRENT(&before);
    for (on = 0; on < 4; ++on) {
        CHECK_STATUS(warp_peer_access_set_enabled(one, two, on & 1), WARP_SUCCESS);
        CHECK_STATUS(warp_peer_access_set_enabled(two, one, on >> 1), WARP_SUCCESS);
        verify_both(NULL);
        CHECK_EQ_I64(peer(one, two), on & 1);
        CHECK_EQ_I64(peer(two, one), on >> 1);
    }
    CHECK_STATUS(warp_peer_access_set_enabled(one, two, 0), WARP_SUCCESS);
    CHECK_STATUS(warp_peer_access_set_enabled(two, one, 0), WARP_SUCCESS);
    /* Beside captures of this thread and of another. */
    for (which = 0; which < 4; ++which) {
        warp_stream *stream = new_stream(which & 1 ? two : one, which & 2 ? 0 : WARP_STREAM_NON_BLOCKING);
        warp_graph *graph = NULL;
        pthread_t other;
        int status = -1;
        CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_GLOBAL), WARP_SUCCESS);
        verify_both(NULL);
        REQUIRE(pthread_create(&other, NULL, verify_both, NULL) == 0);
        pthread_join(other, NULL);
        CHECK_EQ_I64(IS_CAPTURING(native(stream), &status), SUCCESS);
        CHECK_EQ_I64(status, CAPTURE_ACTIVE);
        CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    GET_CURRENT(&after);
    CHECK_EQ_PTR(after, before);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

CHECK_MAIN()
