/*
 * hardware_caching.c: the caching allocator on a real GPU, where work goes on while its memory is freed and taken again: on one
 * stream and between streams, used elsewhere, page-locked, and by default. What blocks hold is compared byte for byte.
 *
 * topology: h200x2
 * topology: h200
 * valgrind: slow (a process for each promise; caching_threads.c is under it)
 */
#include "hardware_caching.h"

/* ---- The order of a stream -------------------------------------------------------------------------------------------- */

/* Writes a value in the order of a stream, by a fill, a kernel or a copy; which value. */
static unsigned char written(int round, void *ptr, uint64_t size, void *module, const void *threes, warp_stream *stream)
{
    const unsigned char value = (unsigned char)(round + 4);
    if (round % 3 == 0) {
        fill(ptr, size, value, stream);
    } else if (round % 3 == 1) {
        uint64_t to = at(ptr), count = size / 4;
        uint32_t word = value * 0x01010101u;
        void *params[] = {&to, &count, &word};
        CHECK_EQ_U64(kernels_launch_many(module, "fill", count, native(stream), params), SUCCESS);
    } else {
        copy(ptr, threes, size, stream);
        return 3;
    }
    return value;
}

PROCESS_TEST(a_busy_stream_uses_again_what_was_freed_on_it_and_nobody_waits)
{
    enum { ROUNDS = 60 };
    const uint64_t size = is_small() ? 16 * KIB : 4 * MIB;
    unsigned char values[ROUNDS], *results;
    warp_stream *stream;
    uint32_t code = 0;
    void *module, *threes;
    double busy;
    begin_life();
    stream = stream_of_ones_own();
    busy = busy_seconds(stream);
    module = kernels_load(&code);
    REQUIRE(module != NULL);
    results = (unsigned char *)block_on(gpu(0), ROUNDS * size, WARP_MEMORY_CUDA_DEVICE, stream);
    threes = block_on(gpu(0), size, WARP_MEMORY_CUDA_DEVICE, stream);
    fill(threes, size, 3, stream);
    for (size_t k = 0; k < UPSTREAMS; k++) {
        warp_allocator *cache = cache_over(builtin(upstreams[k]), 0, 0);
        /* First on an idle stream: what is loaded by its first use is there afterwards. */
        for (int is_busy = 0; is_busy < 2; is_busy++) {
            const int rounds = is_busy ? ROUNDS : 3;
            const uint64_t growths = measured(cache).growths;
            void *first = NULL;
            double begun, took;
            if (is_busy)
                keep_busy(stream);
            begun = now();
            for (int i = 0; i < rounds; i++) {
                void *ptr = block_by(gpu(0), cache, size, stream);
                if (i == 0)
                    first = ptr;
                CHECK_EQ_PTR(ptr, first);
                values[i] = written(i, ptr, size, module, threes, stream);
                copy(results + (uint64_t)i * size, ptr, size, stream);
                freed(ptr);
            }
            took = now() - begun;
            if (is_busy) {
                check_no_wait(took, busy, stream);
                CHECK_EQ_U64(measured(cache).growths, growths);
                printf("\n    %d rounds in %.0f us beside %.0f ms of work", rounds, took * 1e6, busy * 1e3);
            }
            for (int i = 0; i < rounds; i++)
                CHECK(device_holds(results + (uint64_t)i * size, size, values[i], stream));
        }
        end_cache(cache, gpu(0));
    }
    freed(results);
    freed(threes);
    CHECK_EQ_U64(KERNELS_CALL("cuModuleUnload", (void *), module), SUCCESS);
    let_stream_go(stream);
    CHECK_NOTHING_LEFT();
}

/* ---- From stream to stream -------------------------------------------------------------------------------------------- */

enum order { UNORDERED, BY_EVENT, BY_DRIVERS_EVENT, BY_STREAM, ORDERS };

static void put_behind(enum order how, warp_stream *later, warp_stream *earlier)
{
    warp_event *event = NULL;
    void *drivers = NULL;
    switch (how) {
    case BY_EVENT:
        CHECK_STATUS(warp_event_create(gpu(0), NULL, &event), WARP_SUCCESS);
        CHECK_STATUS(warp_event_record(event, earlier), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_wait_event(later, event), WARP_SUCCESS);
        CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
        break;
    case BY_DRIVERS_EVENT:
        CHECK_EQ_I64(CU((void **, unsigned), "cuEventCreate")(&drivers, 2), SUCCESS);
        CHECK_EQ_I64(EVENT_RECORD(drivers, native(earlier)), SUCCESS);
        CHECK_EQ_I64(CU((void *, void *, unsigned), "cuStreamWaitEvent")(native(later), drivers, 0), SUCCESS);
        CHECK_EQ_I64(CU((void *), "cuEventDestroy_v2")(drivers), SUCCESS);
        break;
    case BY_STREAM: wait_for(later, earlier); break;
    default: break;
    }
}

/* Three streams with a free block each, of which the first is busy: the second has two, and neither is the first's before its work
 * is done. So nobody asks the driver for memory, for which it may wait. */
static void lend(warp_memory_kind kind, enum order how)
{
    enum { STREAMS = 3 };
    const uint64_t size = large();
    warp_allocator *cache = cache_over(builtin(kind), 0, 0);
    warp_stream *streams[STREAMS], *busy, *other;
    unsigned char *results = (unsigned char *)block_of(gpu(0), 4 * size, WARP_MEMORY_CUDA_DEVICE);
    void *blocks[STREAMS], *mine;
    uint64_t growths;
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = stream_of_ones_own();
        blocks[i] = block_by(gpu(0), cache, size, streams[i]);
    }
    for (int i = 0; i < STREAMS; i++)
        freed(blocks[i]);
    busy = streams[0];
    other = streams[1];
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    growths = measured(cache).growths;
    CHECK_EQ_U64(growths, STREAMS);

    keep_busy(busy);
    mine = block_by(gpu(0), cache, size, busy);
    CHECK_EQ_PTR(mine, blocks[0]);
    fill(mine, size, 1, busy);
    copy(results, mine, size, busy);
    freed(mine);
    put_behind(how, other, busy);
    for (int i = 1; i < STREAMS; i++) {
        blocks[i] = block_by(gpu(0), cache, size, other);
        CHECK(how != UNORDERED || blocks[i] != mine);
        fill(blocks[i], size, 1 + i, other);
        copy(results + (uint64_t)i * size, blocks[i], size, other);
    }
    CHECK_EQ_I64(STREAM_QUERY(native(busy)), NOT_READY); /* else this shows nothing */
    CHECK_EQ_U64(measured(cache).growths, growths);
    finish(other);
    finish(busy);

    /* Done: the third one is what the first had. */
    blocks[0] = block_by(gpu(0), cache, size, other);
    CHECK(how != UNORDERED || blocks[0] == mine);
    fill(blocks[0], size, 4, other);
    copy(results + 3 * size, blocks[0], size, other);
    CHECK_EQ_U64(measured(cache).growths, growths);
    for (int i = 0; i < 4; i++)
        CHECK(device_holds(results + (uint64_t)i * size, size, (unsigned char)(i + 1), other));
    for (int i = 0; i < STREAMS; i++) {
        CHECK(device_holds(blocks[i], size, (unsigned char)(i == 0 ? 4 : i + 1), other));
        freed(blocks[i]);
    }
    for (int i = 0; i < STREAMS; i++)
        let_stream_go(streams[i]);
    freed(results);
    end_cache(cache, gpu(0));
}

PROCESS_TEST(no_other_stream_has_a_block_before_the_work_on_it_is_done)
{
    begin_life();
    for (size_t k = 0; k < UPSTREAMS; k++)
        for (int how = 0; how < ORDERS; how++) {
            lend(upstreams[k], how);
            if (check_failure_count() != 0) {
                printf("\n    (%s, order %d)", kind_names[upstreams[k]], how);
                return;
            }
        }
    CHECK_NOTHING_LEFT();
}

/* ---- Uses on other streams -------------------------------------------------------------------------------------------- */

enum use { BY_LIBRARY, BY_OTHER_CODE, NAMED_BY_THE_FREE, USES };

/* A block that a busy stream reads is freed, and its own stream does not have it again before that is done. The block's own stream
 * has another one free, so that nobody asks the driver for memory. */
static void use_elsewhere(warp_memory_kind kind, enum use how, double busy)
{
    const uint64_t size = large();
    warp_allocator *cache = cache_over(builtin(kind), 0, 0);
    warp_stream *own = stream_of_ones_own(), *other = stream_of_ones_own();
    unsigned char *results = (unsigned char *)block_on(gpu(0), 2 * size, WARP_MEMORY_CUDA_DEVICE, own);
    warp_free_options after = {.struct_size = sizeof after, .stream = other};
    void *mine = block_by(gpu(0), cache, size, own), *next = block_by(gpu(0), cache, size, own), *again[2];
    uint64_t growths;
    double begun;
    freed(next);
    freed(mine);
    finish(own);
    growths = measured(cache).growths;

    keep_busy(other);
    mine = block_by(gpu(0), cache, size, own);
    fill(mine, size, 1, own);
    wait_for(other, own);
    if (how == BY_LIBRARY)
        copy(results, mine, size, other);
    else
        CHECK_EQ_I64(COPY(at(results), at(mine), size, native(other)), SUCCESS);
    if (how == BY_OTHER_CODE)
        CHECK_STATUS(warp_pointer_record_stream(mine, other), WARP_SUCCESS);
    begun = now();
    CHECK_STATUS(how == NAMED_BY_THE_FREE ? warp_free_with(mine, &after) : warp_free(mine), WARP_SUCCESS);
    CHECK_STATUS(warp_free(mine), WARP_ERROR_DOUBLE_FREE);
    next = block_by(gpu(0), cache, size, own);
    CHECK(next != mine);
    fill(next, size, 2, own);
    copy(results + size, next, size, own);
    check_no_wait(now() - begun, busy, other);
    CHECK_EQ_U64(measured(cache).growths, growths);
    finish(other);
    CHECK(device_holds(results, size, 1, own));
    CHECK(device_holds(results + size, size, 2, own));
    CHECK(device_holds(next, size, 2, own));

    /* Done: both are good for the own stream again. */
    freed(next);
    CHECK(comes_back(cache, own));
    for (int i = 0; i < 2; i++)
        again[i] = block_by(gpu(0), cache, size, own);
    CHECK((again[0] == mine && again[1] == next) || (again[0] == next && again[1] == mine));
    CHECK_EQ_U64(measured(cache).growths, growths);
    freed(again[0]);
    freed(again[1]);
    freed(results);
    let_stream_go(own);
    let_stream_go(other);
    end_cache(cache, gpu(0));
}

PROCESS_TEST(a_use_on_another_stream_keeps_a_block_from_its_own)
{
    warp_stream *stream;
    double busy;
    begin_life();
    stream = stream_of_ones_own();
    busy = busy_seconds(stream);
    let_stream_go(stream);
    for (size_t k = 0; k < UPSTREAMS; k++)
        for (int how = 0; how < USES; how++) {
            use_elsewhere(upstreams[k], how, busy);
            if (check_failure_count() != 0) {
                printf("\n    (%s, use %d)", kind_names[upstreams[k]], how);
                return;
            }
        }
    CHECK_NOTHING_LEFT();
}

/* The other GPU reads behind work of the first. Whether the driver waits for a copy between GPUs is its own affair, so nothing is
 * said of time. */
PROCESS_TEST(a_use_by_another_gpu_keeps_a_block_from_its_own_stream)
{
    const uint64_t size = large();
    warp_stream *own, *busy, *far;
    begin_life();
    if (gpu_count() < 2)
        SKIP("needs two GPUs");
    own = stream_of_ones_own();
    busy = stream_of_ones_own();
    far = new_stream(gpu(1), WARP_STREAM_NON_BLOCKING);
    for (size_t k = 0; k < UPSTREAMS; k++) {
        warp_allocator *cache = cache_over(builtin(upstreams[k]), 0, 0);
        unsigned char *result = (unsigned char *)block_on(gpu(1), size, WARP_MEMORY_CUDA_DEVICE, far);
        void *mine = block_by(gpu(0), cache, size, own), *next = block_by(gpu(0), cache, size, own);
        freed(next);
        freed(mine);
        keep_busy(busy);
        mine = block_by(gpu(0), cache, size, own);
        fill(mine, size, 1, own);
        wait_for(far, busy);
        wait_for(far, own);
        copy(result, mine, size, far);
        freed(mine);
        next = block_by(gpu(0), cache, size, own);
        CHECK(next != mine || STREAM_QUERY(native(busy)) == SUCCESS);
        fill(next, size, 2, own);
        CHECK(device_holds(result, size, 1, far));
        CHECK(device_holds(next, size, 2, own));
        freed(next);
        freed(result);
        finish(busy);
        CHECK(comes_back(cache, own));
        end_cache(cache, gpu(0));
    }
    let_stream_go(own);
    let_stream_go(busy);
    let_stream_go(far);
    CHECK_NOTHING_LEFT();
}

/* ---- Page-locked memory ----------------------------------------------------------------------------------------------- */

/* Freed under copies from it and to it, and all that is free is taken meanwhile: nobody has what the copies still use. */
PROCESS_TEST(page_locked_memory_is_nobodys_while_copies_use_it)
{
    enum { KEPT = 8, OTHERS = KEPT - 2 };
    const uint64_t size = 2 * MIB;
    warp_stream *stream;
    double busy;
    begin_life();
    stream = stream_of_ones_own();
    busy = busy_seconds(stream);
    for (int how = BY_LIBRARY; how <= BY_OTHER_CODE; how++) {
        warp_allocator *cache = cache_over(builtin(WARP_MEMORY_PINNED), 0, 0);
        void *to = block_on(gpu(0), size, WARP_MEMORY_CUDA_DEVICE, stream);
        void *from = block_on(gpu(0), size, WARP_MEMORY_CUDA_DEVICE, stream);
        void *blocks[KEPT], *up, *down;
        uint64_t growths;
        double begun, took = 0;
        fill(from, size, 3, stream);
        for (int i = 0; i < KEPT; i++)
            memset(blocks[i] = block_by(cpu(), cache, size, NULL), 0xCC, size);
        for (int i = 0; i < KEPT; i++)
            freed(blocks[i]);
        growths = measured(cache).growths;

        keep_busy(stream);
        up = block_by(cpu(), cache, size, NULL);
        down = block_by(cpu(), cache, size, NULL);
        memset(up, 1, size);
        memset(down, 2, size);
        begun = now();
        if (how == BY_LIBRARY) {
            copy(to, up, size, stream);
            copy(down, from, size, stream);
        } else {
            CHECK_EQ_I64(UPLOAD(at(to), up, size, native(stream)), SUCCESS);
            CHECK_EQ_I64(DOWNLOAD(down, at(from), size, native(stream)), SUCCESS);
            CHECK_STATUS(warp_pointer_record_stream(up, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_pointer_record_stream(down, stream), WARP_SUCCESS);
        }
        freed(up);
        freed(down);
        took = now() - begun;
        for (int i = 0; i < OTHERS; i++) {
            begun = now();
            blocks[i] = block_by(cpu(), cache, size, NULL);
            took += now() - begun;
            CHECK(blocks[i] != up && blocks[i] != down);
            memset(blocks[i], 0xEE, size);
        }
        check_no_wait(took, busy, stream);
        CHECK_EQ_U64(measured(cache).growths, growths);
        finish(stream);
        CHECK(device_holds(to, size, 1, stream));
        for (int i = 0; i < OTHERS; i++) {
            CHECK(all_are(blocks[i], size, 0xEE));
            freed(blocks[i]);
        }

        /* Done: all of them serve again. */
        CHECK(comes_back(cache, stream));
        for (int i = 0; i < KEPT; i++)
            blocks[i] = block_by(cpu(), cache, size, NULL);
        CHECK_EQ_U64(measured(cache).growths, growths);
        for (int i = 0; i < KEPT; i++)
            freed(blocks[i]);
        freed(to);
        freed(from);
        end_cache(cache, cpu());
    }
    let_stream_go(stream);
    CHECK_NOTHING_LEFT();
}

/* ---- By default ------------------------------------------------------------------------------------------------------- */

static void *data_of(warp_array *array)
{
    warp_array_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_array_get_info(array, &info), WARP_SUCCESS);
    return info.data;
}

static warp_array *clone_on(const warp_array *array, warp_device *device)
{
    warp_array *made = NULL;
    CHECK_STATUS(warp_array_clone(array, device, NULL, &made), WARP_SUCCESS);
    return made;
}

static void drop(warp_array *array)
{
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
}

/* Up, through two arrays of a device, and down. */
static void send_through(warp_device *device, warp_allocator *cache, int64_t count, uint32_t first)
{
    warp_array *source = NULL, *there, *and_there, *back;
    uint32_t *numbers;
    const uint32_t *seen;
    int64_t i, wrong = 0;
    CHECK_STATUS(warp_array_empty(cpu(), warp_dtype_make(WARP_DTYPE_UINT, 32), 1, &count, NULL, &source), WARP_SUCCESS);
    numbers = (uint32_t *)data_of(source);
    CHECK_EQ_PTR(server_of(numbers), NULL);
    for (i = 0; i < count; i++)
        numbers[i] = first + (uint32_t)i * 2654435761u;
    there = clone_on(source, device);
    and_there = clone_on(there, device);
    CHECK_EQ_PTR(server_of(data_of(there)), cache);
    CHECK_EQ_PTR(server_of(data_of(and_there)), cache);
    drop(there); /* under the copy from it */
    back = clone_on(and_there, cpu());
    drop(and_there);
    CHECK_STATUS(warp_device_synchronize(device), WARP_SUCCESS);
    seen = (const uint32_t *)data_of(back);
    for (i = 0; i < count; i++)
        wrong += seen[i] != first + (uint32_t)i * 2654435761u;
    CHECK_EQ_I64(wrong, 0);
    drop(back);
    drop(source);
}

PROCESS_TEST(the_default_is_cached_for_a_while)
{
    uint64_t random = 3;
    warp_allocator *cache;
    begin_life();
    for (int life = 0; life < 2; life++) {
        void *kept[2], *plain;
        CHECK_STATUS(warp_allocator_set_caching_for_all(1), WARP_SUCCESS);
        cache = own_cache(WARP_MEMORY_UNKNOWN);
        for (int i = 0; i < (is_small() ? 20 : 100); i++)
            for (size_t g = 0; g < gpu_count(); g++)
                send_through(gpu((int)g), cache, (int64_t)log_uniform(&random, 0, is_small() ? 14 : 21), (uint32_t)i);
        kept[0] = plain_alloc(gpu(0), 3 * MIB);
        kept[1] = plain_alloc(NULL, 1000); /* the first GPU too */
        CHECK_EQ_PTR(server_of(kept[1]), cache);
        fill(kept[0], 3 * MIB, 21, NULL);
        fill(kept[1], 1000, 22, NULL);
        plain = plain_alloc(cpu(), 100 * KIB);
        CHECK_EQ_PTR(server_of(plain), NULL);
        memset(plain, 1, 100 * KIB);
        freed(plain);
        CHECK(measured(cache).live_blocks == 2 && measured(cache).served_at_hand != 0);

        /* And no more. What it gave stays its. */
        CHECK_STATUS(warp_allocator_set_caching_for_all(0), WARP_SUCCESS);
        send_through(gpu(0), NULL, 100000, 5);
        plain = plain_alloc(gpu(0), 3 * MIB);
        CHECK_EQ_PTR(server_of(plain), NULL);
        CHECK_EQ_PTR(server_of(kept[0]), cache);
        fill(plain, 3 * MIB, 23, NULL);
        CHECK(device_holds(kept[0], 3 * MIB, 21, stream_of(gpu(0))));
        CHECK(device_holds(kept[1], 1000, 22, stream_of(gpu(0))));
        CHECK(device_holds(plain, 3 * MIB, 23, stream_of(gpu(0))));
        freed(plain);
        freed(kept[0]);
        freed(kept[1]);
        for (size_t g = 0; g < gpu_count(); g++)
            empty(cache, gpu((int)g));
    }
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
