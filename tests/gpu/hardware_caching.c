/*
 * hardware_caching.c: the caching allocator on a real GPU, where work goes on while its memory is freed and taken again: on one
 * stream and between streams, by many threads, beside captures, when memory runs out, and when streams, threads and the library end.
 * What blocks hold is compared byte for byte.
 *
 *     hardware_caching                                  all of it, less than a minute; needs 24 GiB of GPU memory
 *     WARPMEM_SOAK_SECONDS=600 hardware_caching soak    threads that use caches in every way at once, as long as one likes
 *
 * One GPU is enough; what needs two says so. All of it runs on the simulated driver as well, where blocks are smaller.
 *
 * topology: h200x2
 * topology: h200
 * valgrind: slow (a process for each promise, and sixteen threads; caching_threads.c is under it)
 */
#define _GNU_SOURCE
#include "../c/caches.h"

#include "../c/kernels.h"
#include "../c/process.h"
#include "hardware_calls.h"

#define UPLOAD(d, s, n, stream) CU((address, const void *, size_t, void *), "cuMemcpyHtoDAsync_v2")(d, s, n, stream)
#define DOWNLOAD(d, s, n, stream) CU((void *, address, size_t, void *), "cuMemcpyDtoHAsync_v2")(d, s, n, stream)
#define POOL_RESERVES(pool, out) CU((void *, int, void *), "cuMemPoolGetAttribute")(pool, POOL_RESERVED, out)

static const warp_memory_kind upstreams[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL};
#define UPSTREAMS (sizeof upstreams / sizeof *upstreams)

/* Of blocks that have a chunk for themselves: only such a one goes to another stream. */
static uint64_t large(void)
{
    return is_small() ? 2 * MIB : 8 * MIB;
}

/* What the driver loads by its first use is there afterwards; that may wait for all that works. */
static void call_all_once(void)
{
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    char *from = (char *)block_on(gpu(0), 64 * KIB, WARP_MEMORY_CUDA_DEVICE, stream);
    char *to = (char *)block_on(gpu(0), 64 * KIB, WARP_MEMORY_CUDA_MEMPOOL, stream);
    void *host = block_of(cpu(), 64 * KIB, WARP_MEMORY_PINNED);
    CHECK_STATUS(warp_memory_fill(from, 64 * KIB, "01234567", 8, stream), WARP_SUCCESS);
    fill(from, 64 * KIB, 1, stream);
    copy(to, from, 64 * KIB, stream);
    copy(host, to, 64 * KIB, stream);
    copy(from, host, 64 * KIB, stream);
    CHECK(device_holds(from, 64 * KIB, 1, stream));
    freed(from);
    freed(to);
    freed(host);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
}

/* A simulated GPU lags behind as a real one does, by a seed that WARPSIM_SEED may choose. */
static void begin_life(void)
{
    if (simulator_is_here() && getenv("WARPSIM_SEED") == NULL)
        SIMULATOR(warpsim_schedule)(5);
    if (simulator_is_here())
        SIMULATOR(warpsim_races)(1);
    REQUIRE(start());
    REQUIRE(gpu_count() > 0);
    use_first_gpu();
    call_all_once();
}

static address at(const void *ptr)
{
    return (address)(uintptr_t)ptr;
}

static warp_stream *stream_of_ones_own(void)
{
    return new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
}

static void let_stream_go(warp_stream *stream)
{
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
}

/* How long a stream is kept busy. The first time is longer: the blocks for it are made, and touched. */
static double busy_seconds(warp_stream *stream)
{
    double begun;
    keep_busy(stream);
    finish(stream);
    keep_busy(stream);
    begun = now();
    finish(stream);
    return now() - begun;
}

/* What took so long did not wait for the work of a busy stream, which is not done yet. A simulated stream is done once somebody
 * waits for it. */
static void check_no_wait(double took, double busy, warp_stream *stream)
{
    CHECK_EQ_I64(STREAM_QUERY(native(stream)), NOT_READY); /* else this shows nothing */
    CHECK(simulator_is_here() || took < busy / 4);
}

/* Whether nobody has anything of a cache any more, before PATIENCE is over. What was freed and still waits for streams or graphs is
 * looked at by calls that wait. */
static int comes_back(const warp_allocator *cache, warp_stream *stream)
{
    const double begun = now();
    while (measured(cache).used_bytes != 0) {
        if (now() - begun > PATIENCE)
            return 0;
        finish(stream);
        usleep(200);
    }
    return 1;
}

/* Nobody has a block of a cache, and all that it has of a device goes back: also what was a stream's that was released, once that
 * has come to its end. */
static void empty(warp_allocator *cache, warp_device *device)
{
    check_empty(cache);
    CHECK_STATUS(warp_device_synchronize(device), WARP_SUCCESS);
    (void)trimmed(cache, device);
    CHECK_EQ_U64(measured_on(cache, device).reserved_bytes, 0);
}

static void end_cache(warp_allocator *cache, warp_device *device)
{
    empty(cache, device);
    release(cache);
}

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

/* ---- Many threads ----------------------------------------------------------------------------------------------------- */

enum { THREADS = 16, SHARED = 4, TABLE = 32, WINDOW = 6 };

/* What was copied from a block and is looked at once that is done. */
struct download {
    unsigned char *seen;
    warp_event *done;
    uint64_t size, id;
};

struct worker {
    struct download window[WINDOW];
    warp_stream *own;
    uint64_t random, turns;
};

static struct {
    warp_allocator *blocks, *pinned;
    warp_device *gpu, *cpu;
    warp_stream *shared[SHARED];
    void *native_shared[2]; /* of the first ones, which other code uses too */
    void *table[TABLE];     /* blocks that another thread frees */
    double end;
    uint64_t turns, bytes, wrong, peaks[2];
} soak;

/* A word that is no other block's, all over; what is left behind the last whole word are its first bytes. */
static void fill_with(unsigned char *ptr, uint64_t size, uint64_t id, warp_stream *stream)
{
    const uint64_t words = size / 8 * 8, rest = size - words;
    if (words != 0)
        CHECK_STATUS(warp_memory_fill(ptr, words, &id, 8, stream), WARP_SUCCESS);
    if (rest != 0)
        CHECK_STATUS(warp_memory_fill(ptr + words, rest, &id, rest, stream), WARP_SUCCESS);
}

static void write_with(unsigned char *ptr, uint64_t size, uint64_t id)
{
    uint64_t i;
    for (i = 0; i + 8 <= size; i += 8)
        memcpy(ptr + i, &id, 8);
    memcpy(ptr + i, &id, size - i);
}

/* The first byte that is not of the pattern, or size. */
static uint64_t first_wrong(const unsigned char *ptr, uint64_t size, uint64_t id)
{
    const uint64_t head = size < 8 ? size : 8;
    uint64_t i;
    if (memcmp(ptr, &id, head) == 0 && memcmp(ptr, ptr + head, size - head) == 0)
        return size;
    for (i = 0; i < size; i++)
        if (ptr[i] != ((unsigned char *)&id)[i % 8])
            break;
    return i;
}

static void look_at(struct download *download)
{
    uint64_t wrong;
    if (download->seen == NULL)
        return;
    CHECK_STATUS(warp_event_synchronize(download->done), WARP_SUCCESS);
    wrong = first_wrong(download->seen, download->size, download->id);
    if (wrong != download->size && __atomic_fetch_add(&soak.wrong, 1, __ATOMIC_RELAXED) < 5)
        printf("\n    byte %" PRIu64 " of %" PRIu64 " is %02x, in a block of %016" PRIx64, wrong, download->size,
               download->seen[wrong], download->id);
    freed(download->seen);
    download->seen = NULL;
}

static warp_stream *some_stream(struct worker *me, int *shared)
{
    *shared = next_random(&me->random) % 4 ? SHARED : (int)(next_random(&me->random) % SHARED);
    return *shared == SHARED ? me->own : soak.shared[*shared];
}

/* One block: written, read by a copy that goes on when the block is freed here or elsewhere. */
static void take_a_turn(struct worker *me)
{
    const uint64_t size = log_uniform(&me->random, 0, is_small() ? 18 : 26), id = next_random(&me->random) | 1;
    const uint64_t rolled = next_random(&me->random);
    struct download *slot = &me->window[me->turns % WINDOW];
    int shared, of_reader;
    warp_stream *stream = some_stream(me, &shared), *reader = stream;
    unsigned char *ptr;
    look_at(slot);
    ptr = (unsigned char *)block_by(soak.gpu, soak.blocks, size, stream);
    slot->seen = (unsigned char *)block_by(soak.cpu, soak.pinned, size, NULL);
    if (ptr == NULL || slot->seen == NULL)
        return;
    slot->size = size;
    slot->id = id;
    if (rolled % 4 == 0) {
        /* What it is written from is freed under the copy. */
        unsigned char *source = (unsigned char *)block_by(soak.cpu, soak.pinned, size, NULL);
        if (source == NULL)
            return;
        write_with(source, size, id);
        copy(ptr, source, size, stream);
        freed(source);
    } else {
        fill_with(ptr, size, id, stream);
    }
    of_reader = shared;
    if (rolled / 4 % 4 == 0) {
        reader = some_stream(me, &of_reader);
        if (reader != stream)
            wait_for(reader, stream);
    }
    if (of_reader < 2 && rolled / 16 % 2 == 0) {
        CHECK_EQ_I64(DOWNLOAD(slot->seen, at(ptr), size, soak.native_shared[of_reader]), SUCCESS);
        CHECK_STATUS(warp_pointer_record_stream(ptr, reader), WARP_SUCCESS);
        CHECK_STATUS(warp_pointer_record_stream(slot->seen, reader), WARP_SUCCESS);
    } else {
        copy(slot->seen, ptr, size, reader);
    }
    if (rolled / 32 % 16 == 0) {
        /* Nobody will look, and who has it next must not meet the copy. */
        freed(slot->seen);
        slot->seen = NULL;
    } else {
        CHECK_STATUS(warp_event_record(slot->done, reader), WARP_SUCCESS);
    }
    if (rolled / 512 % 2 == 0)
        ptr = __atomic_exchange_n(&soak.table[rolled / 1024 % TABLE], ptr, __ATOMIC_ACQ_REL);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    __atomic_fetch_add(&soak.bytes, size, __ATOMIC_RELAXED);
}

static void *work(void *number)
{
    struct worker me = {.random = (uintptr_t)number * 7919, .own = stream_of_ones_own()};
    use_first_gpu();
    for (int i = 0; i < WINDOW; i++)
        CHECK_STATUS(warp_event_create(soak.gpu, NULL, &me.window[i].done), WARP_SUCCESS);
    for (; now() < soak.end && check_failure_count() == 0; me.turns++) {
        /* A driver's free waits for all that works, so on a real one they are rarer. */
        const uint64_t what = next_random(&me.random) % (is_small() ? 512 : 2048);
        if (what < 4) {
            (void)trimmed(soak.blocks, soak.gpu);
        } else if (what < 5) {
            (void)trimmed(soak.pinned, soak.cpu);
        } else if (what < 9) {
            warp_caching_info info = {.struct_size = sizeof info};
            CHECK_STATUS(warp_allocator_caching_measure(what % 2 ? soak.blocks : soak.pinned, NULL, &info), WARP_SUCCESS);
            CHECK(info.used_bytes <= info.reserved_bytes);
        } else if (what < 11) {
            /* With work in flight. */
            let_stream_go(me.own);
            me.own = stream_of_ones_own();
        }
        take_a_turn(&me);
    }
    for (int i = 0; i < WINDOW; i++) {
        look_at(&me.window[i]);
        CHECK_STATUS(warp_event_release(me.window[i].done), WARP_SUCCESS);
    }
    let_stream_go(me.own);
    __atomic_fetch_add(&soak.turns, me.turns, __ATOMIC_RELAXED);
    return NULL;
}

static void work_for(double seconds)
{
    pthread_t threads[THREADS];
    uintptr_t i;
    soak.end = now() + seconds;
    soak.turns = soak.bytes = 0;
    for (i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; i < TABLE; i++) {
        CHECK_STATUS(warp_free(soak.table[i]), WARP_SUCCESS);
        soak.table[i] = NULL;
    }
    for (i = 0; i < SHARED; i++)
        finish(soak.shared[i]);
    CHECK(comes_back(soak.blocks, soak.shared[0]));
    CHECK(comes_back(soak.pinned, soak.shared[0]));
    soak.peaks[0] = measured(soak.blocks).peak_reserved_bytes / MIB;
    soak.peaks[1] = measured(soak.pinned).peak_reserved_bytes / MIB;
    empty(soak.blocks, soak.gpu);
    empty(soak.pinned, soak.cpu);
}

static void use_caches_in_every_way(warp_memory_kind kind)
{
    uint64_t before;
    begin_life();
    if (simulator_is_here())
        SIMULATOR(warpsim_log_capacity)(0);
    soak.gpu = gpu(0);
    soak.cpu = cpu();
    soak.blocks = cache_over(builtin(kind), 0, 0);
    soak.pinned = cache_over(builtin(WARP_MEMORY_PINNED), 0, 0);
    for (int i = 0; i < SHARED; i++)
        soak.shared[i] = stream_of_ones_own();
    for (int i = 0; i < 2; i++)
        soak.native_shared[i] = native(soak.shared[i]);
    /* What the driver makes once for so many streams and threads is there by then. */
    work_for(is_small() ? 0.2 : 0.5);
    before = free_memory();
    work_for(soak_seconds(is_small() ? 2 : 8) / 2);
    CHECK_EQ_U64(soak.wrong, 0);
    CHECK_EQ_U64(live_of(soak.blocks) + live_of(soak.pinned), 0);
    printf("\n    %" PRIu64 " blocks, %.1f GiB; caches of up to %" PRIu64 " and %" PRIu64 " MiB; %" PRIu64 " MiB lost", soak.turns,
           (double)soak.bytes / (double)GIB, soak.peaks[0], soak.peaks[1], lost_since(before));
    CHECK(lost_since(before) <= 64);
    for (int i = 0; i < SHARED; i++)
        let_stream_go(soak.shared[i]);
    release(soak.blocks);
    release(soak.pinned);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(plain_memory_in_a_soak)
{
    use_caches_in_every_way(WARP_MEMORY_CUDA_DEVICE);
}

PROCESS_TEST(pool_memory_in_a_soak)
{
    use_caches_in_every_way(WARP_MEMORY_CUDA_MEMPOOL);
}

/* ---- When memory runs out --------------------------------------------------------------------------------------------- */

enum { PARTS = 6, END = 4096 };

static void write_ends(void *ptr, uint64_t size, int value, warp_stream *stream)
{
    fill(ptr, END, value, stream);
    fill((char *)ptr + size - END, END, value, stream);
}

static int ends_hold(const void *ptr, uint64_t size, unsigned char value, warp_stream *stream)
{
    return device_holds(ptr, END, value, stream) && device_holds((const char *)ptr + size - END, END, value, stream);
}

/* Has a cache keep so much that it is more than half of what was free; a stream still works on it if it is busy. */
static void have_kept(warp_allocator *cache, uint64_t most, warp_stream *stream, int is_busy)
{
    const uint64_t part = most / PARTS / (2 * MIB) * 2 * MIB;
    void *parts[PARTS];
    for (int i = 0; i < PARTS; i++)
        parts[i] = block_by(gpu(0), cache, part, stream);
    if (is_busy)
        keep_busy(stream);
    for (int i = 0; i < PARTS; i++) {
        if (parts[i] != NULL)
            write_ends(parts[i], part, i, stream);
        freed(parts[i]);
    }
    CHECK(measured(cache).free_bytes >= PARTS * part);
}

/* On a simulated driver no work goes on by itself. */
static void *go_on_soon(void *stream)
{
    usleep(20000);
    CHECK_EQ_U64(SIMULATOR(warpsim_release)((uint64_t)(uintptr_t)stream), 0);
    return NULL;
}

enum asker { FOR_PLAIN, FOR_POOL, FOR_A_CACHE, ASKERS };

static warp_status ask(enum asker asker, warp_allocator *other, uint64_t size, warp_stream *stream, void **out)
{
    warp_alloc_options options = options_of(asker == FOR_POOL ? WARP_MEMORY_CUDA_MEMPOOL : WARP_MEMORY_CUDA_DEVICE, stream);
    if (asker == FOR_A_CACHE)
        return try_by(gpu(0), other, size, stream, out);
    return warp_alloc_with(gpu(0), size, &options, out);
}

static uint64_t memory_in_all(void)
{
    uint64_t available = 0, total = 0;
    CHECK_STATUS(warp_device_query_memory(gpu(0), &available, &total), WARP_SUCCESS);
    return total;
}

/* What fits only when a cache gives up what it keeps is served; what fits nowhere is refused; and what is live stays as it is. */
PROCESS_TEST(what_a_cache_keeps_makes_room_for_others)
{
    warp_stream *stream, *other;
    uint64_t most, total;
    begin_life();
    stream = stream_of_ones_own();
    other = stream_of_ones_own();
    (void)busy_seconds(stream); /* which takes memory */
    total = memory_in_all();
    most = free_memory() / 10 * 6 / (2 * MIB) * 2 * MIB;
    for (int way = 0; way < (int)UPSTREAMS * ASKERS * 2; way++) {
        const warp_memory_kind kind = upstreams[way % UPSTREAMS];
        const int asker = way / (int)UPSTREAMS % ASKERS, is_busy = way / (int)UPSTREAMS / ASKERS;
        warp_allocator *cache = cache_over(builtin(kind), 0, 0), *next = cache_over(builtin(kind), 0, 0);
        void *live = block_by(gpu(0), cache, 100 * KIB, stream), *ptr = NULL;
        pthread_t thread;
        double begun;
        fill(live, 100 * KIB, 7, stream);
        have_kept(cache, most, stream, is_busy);
        if (is_busy && simulator_is_here())
            REQUIRE(pthread_create(&thread, NULL, go_on_soon, native(stream)) == 0);
        if (!is_busy)
            CHECK(free_memory() < most); /* else it fits anyway */
        begun = now();
        CHECK_STATUS(ask(asker, next, most, other, &ptr), WARP_SUCCESS);
        if (!simulator_is_here())
            printf("\n    %s%s for %s: %.0f ms", is_busy ? "busy " : "", kind_names[kind],
                   asker == FOR_PLAIN ? "plain memory" : asker == FOR_POOL ? "the pool" : "another cache", (now() - begun) * 1e3);
        if (is_busy && simulator_is_here())
            pthread_join(thread, NULL);
        if (ptr != NULL) {
            write_ends(ptr, most, 9, other);
            CHECK(ends_hold(ptr, most, 9, other));
        }
        CHECK(measured(cache).reserved_bytes < most / 2);
        CHECK(device_holds(live, 100 * KIB, 7, stream));
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);

        /* More than there is, while the one cache has a block out and the other keeps what was just freed. */
        CHECK_STATUS(ask(asker, next, total + GIB, other, &ptr), WARP_ERROR_OUT_OF_MEMORY);
        CHECK_EQ_PTR(ptr, NULL);
        CHECK_EQ_U64(measured(cache).live_blocks, 1);
        CHECK_EQ_U64(measured(next).live_blocks, 0);
        CHECK(device_holds(live, 100 * KIB, 7, stream));
        ptr = block_by(gpu(0), cache, 3 * MIB, stream);
        fill(ptr, 3 * MIB, 8, stream);
        CHECK(device_holds(ptr, 3 * MIB, 8, stream));
        freed(ptr);
        freed(live);
        end_cache(cache, gpu(0));
        end_cache(next, gpu(0));
        CHECK(free_memory() >= most);
        if (check_failure_count() != 0) {
            printf("\n    (%s, asker %d, %s)", kind_names[kind], asker, is_busy ? "busy" : "idle");
            return;
        }
    }
    let_stream_go(stream);
    let_stream_go(other);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(a_limit_holds_whatever_the_gpu_has)
{
    enum { BLOCKS = 8 };
    const uint64_t size = large(), limit = BLOCKS * size;
    warp_stream *stream, *other;
    begin_life();
    stream = stream_of_ones_own();
    other = stream_of_ones_own();
    for (size_t k = 0; k < UPSTREAMS; k++) {
        warp_allocator *cache = cache_over(builtin(upstreams[k]), limit, 0);
        void *result = block_on(gpu(0), size, WARP_MEMORY_CUDA_DEVICE, stream), *blocks[BLOCKS], *ptr = NULL;
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = block_by(gpu(0), cache, size, stream);
            fill(blocks[i], size, i, stream);
        }
        CHECK_STATUS(try_by(gpu(0), cache, size, stream, &ptr), WARP_ERROR_OUT_OF_MEMORY);
        CHECK_EQ_PTR(ptr, NULL);
        CHECK_STR_CONTAINS(warp_error_get_message(), "may reserve");
        for (int i = 0; i < BLOCKS; i++)
            CHECK(device_holds(blocks[i], size, (unsigned char)i, stream));
        /* One makes room for another one, on another stream too. */
        freed(blocks[0]);
        blocks[0] = block_by(gpu(0), cache, size, other);
        fill(blocks[0], size, 99, other);
        CHECK(device_holds(blocks[0], size, 99, other));
        CHECK(measured(cache).reserved_bytes <= limit);
        /* Also while its own stream works on it: then it goes back in the order of that, and other memory comes. */
        keep_busy(stream);
        copy(result, blocks[1], size, stream);
        freed(blocks[1]);
        blocks[1] = block_by(gpu(0), cache, size, other);
        fill(blocks[1], size, 98, other);
        CHECK(measured(cache).reserved_bytes <= limit);
        CHECK(device_holds(result, size, 1, stream));
        CHECK(device_holds(blocks[1], size, 98, other));
        /* And all for one of all that there may be. */
        for (int i = 0; i < BLOCKS; i++)
            freed(blocks[i]);
        finish(other);
        ptr = block_by(gpu(0), cache, limit, stream);
        fill(ptr, limit, 5, stream);
        CHECK(device_holds(ptr, limit, 5, stream));
        CHECK_EQ_U64(measured(cache).reserved_bytes, limit);
        CHECK_EQ_U64(measured(cache).peak_reserved_bytes, limit);
        CHECK_STATUS(try_by(gpu(0), cache, 1, other, &blocks[0]), WARP_ERROR_OUT_OF_MEMORY);
        freed(ptr);
        freed(result);
        finish(stream);
        end_cache(cache, gpu(0));
    }
    let_stream_go(stream);
    let_stream_go(other);
    CHECK_NOTHING_LEFT();
}

/* ---- What goes back --------------------------------------------------------------------------------------------------- */

static uint64_t pool_has(uint64_t *reserved)
{
    uint64_t used = 0;
    void *pool = NULL;
    CHECK_EQ_I64(DEFAULT_POOL(&pool, 0), SUCCESS);
    CHECK_EQ_I64(POOL_USED(pool, &used), SUCCESS);
    CHECK_EQ_I64(POOL_RESERVES(pool, reserved), SUCCESS);
    return used;
}

/* Held against what the driver says: its free memory, and what its pool has. */
PROCESS_TEST(what_goes_back_is_the_drivers_again)
{
    enum { BLOCKS = 16 };
    const uint64_t size = 64 * MIB, all = BLOCKS * size;
    warp_stream *stream;
    begin_life();
    stream = stream_of_ones_own();
    for (size_t k = 0; k < UPSTREAMS; k++)
        for (int keeps = 0; keeps < 2; keeps++) {
            const uint64_t keep = keeps ? 2 * size : 0;
            warp_allocator *cache = cache_over(builtin(upstreams[k]), 0, keep);
            void *blocks[BLOCKS];
            uint64_t before, used, reserved, now_reserved = 0, kept;
            freed(block_by(gpu(0), cache, size, stream)); /* what the driver makes once is there then */
            finish(stream);
            (void)trimmed(cache, gpu(0));
            before = free_memory();
            used = pool_has(&reserved);
            for (int i = 0; i < BLOCKS; i++) {
                blocks[i] = block_by(gpu(0), cache, size, stream);
                write_ends(blocks[i], size, i, stream);
            }
            CHECK_EQ_U64(measured(cache).reserved_bytes, all);
            CHECK(lost_since(before) + 4 >= all / MIB);
            for (int i = 0; i < BLOCKS; i++)
                CHECK(ends_hold(blocks[i], size, (unsigned char)i, stream));
            for (int i = 0; i < BLOCKS; i++)
                freed(blocks[i]);
            finish(stream);
            kept = measured(cache).reserved_bytes;
            CHECK_EQ_U64(measured(cache).free_bytes, kept);
            if (keeps) {
                /* In whole chunks, and at hand of one thread with one block more. */
                CHECK(kept >= keep && kept <= keep + 64 * MIB + size);
                CHECK(lost_since(before) <= kept / MIB + 64);
            } else {
                CHECK_EQ_U64(kept, all);
            }
            CHECK(lost_since(before) + 4 >= kept / MIB);
            if (upstreams[k] == WARP_MEMORY_CUDA_MEMPOOL)
                CHECK_EQ_U64(pool_has(&now_reserved), used + kept);

            CHECK_EQ_U64(trimmed(cache, gpu(0)), kept);
            CHECK_EQ_U64(measured(cache).reserved_bytes, 0);
            CHECK(lost_since(before) <= 64);
            CHECK_EQ_U64(pool_has(&now_reserved), used);
            CHECK(now_reserved <= reserved);
            end_cache(cache, gpu(0));
        }
    let_stream_go(stream);
    CHECK_NOTHING_LEFT();
}

/* Before it would have more than it ever had, a cache gives up what it has in other sizes and nobody works on. */
PROCESS_TEST(more_than_ever_is_had_only_after_what_lies_idle_went_back)
{
    enum { BLOCKS = 4 };
    const uint64_t size = 256 * MIB, more = (BLOCKS + 1) * size;
    warp_stream *stream;
    begin_life();
    stream = stream_of_ones_own();
    for (size_t k = 0; k < UPSTREAMS; k++) {
        warp_allocator *cache = cache_over(builtin(upstreams[k]), 0, 0);
        void *blocks[BLOCKS], *one;
        uint64_t before = free_memory();
        for (int i = 0; i < BLOCKS; i++)
            blocks[i] = block_by(gpu(0), cache, size, stream);
        for (int i = 0; i < BLOCKS; i++)
            freed(blocks[i]);
        finish(stream);
        one = block_by(gpu(0), cache, more, stream);
        write_ends(one, more, 6, stream);
        CHECK(ends_hold(one, more, 6, stream));
        CHECK_EQ_U64(measured(cache).reserved_bytes, more);
        CHECK_EQ_U64(measured(cache).peak_reserved_bytes, more);
        CHECK(lost_since(before) <= more / MIB + 64);
        freed(one);
        finish(stream);
        end_cache(cache, gpu(0));
        CHECK(lost_since(before) <= 64);
    }
    let_stream_go(stream);
    CHECK_NOTHING_LEFT();
}

/* ---- Captures --------------------------------------------------------------------------------------------------------- */

static struct {
    pthread_barrier_t met;
    warp_allocator *cache;
    warp_stream *stream;
} beside;

/* Another thread grows, trims and waits, which a capture in GLOBAL mode would not survive if the driver were asked plainly. */
static void *live_beside(void *unused)
{
    warp_stream *own = stream_of_ones_own();
    (void)unused;
    pthread_barrier_wait(&beside.met);
    for (int i = 0; i < 24; i++) {
        warp_stream *on = i % 2 ? own : beside.stream, *and_on = i % 2 ? beside.stream : own;
        const uint64_t size = (uint64_t)100 * KIB << i % 8;
        void *ptr = block_by(gpu(0), beside.cache, size, on);
        fill(ptr, size, i, on);
        if (i % 3 == 0)
            CHECK_STATUS(warp_pointer_record_stream(ptr, and_on), WARP_SUCCESS);
        if (i % 4 == 0)
            CHECK(device_holds(ptr, size, (unsigned char)i, on));
        freed(ptr);
        (void)trimmed(beside.cache, gpu(0));
    }
    let_stream_go(own);
    pthread_barrier_wait(&beside.met);
    return NULL;
}

static void live_beside_a_capture(warp_allocator *cache, warp_stream *elsewhere)
{
    pthread_t thread;
    beside.cache = cache;
    beside.stream = elsewhere;
    REQUIRE(pthread_barrier_init(&beside.met, NULL, 2) == 0);
    REQUIRE(pthread_create(&thread, NULL, live_beside, NULL) == 0);
    pthread_barrier_wait(&beside.met);
    pthread_barrier_wait(&beside.met);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&beside.met);
}

/* A cached block from before and one of the capture itself, both freed in it: each run reads the one and has the other. */
static void capture_and_run(warp_allocator *cache, warp_capture_mode mode, int value)
{
    enum { RUNS = 5, OTHERS = 4 };
    const uint64_t size = is_small() ? 64 * KIB : 3 * MIB;
    warp_stream *stream = stream_of_ones_own(), *elsewhere = stream_of_ones_own();
    unsigned char *result = (unsigned char *)block_on(gpu(0), size, WARP_MEMORY_CUDA_DEVICE, stream);
    void *before = block_by(gpu(0), cache, size, stream), *inside;
    warp_graph *graph;
    for (int i = 0; i < 3; i++) /* so that who serves the stream is remembered */
        freed(block_by(gpu(0), cache, size, stream));
    fill(before, size, value, stream);
    CHECK_STATUS(warp_capture_begin(stream, mode), WARP_SUCCESS);
    inside = block_by(gpu(0), cache, size, stream);
    CHECK(is_of_graph(inside) && !is_of_graph(before));
    copy(inside, before, size, stream);
    copy(result, inside, size, stream);
    freed(inside);
    freed(before);
    live_beside_a_capture(cache, elsewhere);
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
    graph = end(stream);
    for (int run = 0; run < RUNS && graph != NULL; run++) {
        void *others[OTHERS];
        fill(result, size, 0, stream);
        if (run % 2 == 0)
            keep_busy(stream);
        for (int i = 0; i < OTHERS; i++) {
            warp_stream *on = i % 2 ? elsewhere : stream;
            others[i] = block_by(gpu(0), cache, size, on);
            CHECK(others[i] != before && !is_of_graph(others[i]));
            fill(others[i], size, 0xE0 + i, on);
        }
        launch(graph, stream);
        for (int i = 0; i < OTHERS; i += 2)
            fill(others[i], size, 0xE0 + i, stream);
        CHECK(device_holds(result, size, (unsigned char)value, stream));
        for (int i = 0; i < OTHERS; i++) {
            CHECK(device_holds(others[i], size, (unsigned char)(0xE0 + i), i % 2 ? elsewhere : stream));
            freed(others[i]);
        }
    }
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    finish(stream);
    finish(elsewhere);
    CHECK(comes_back(cache, stream));
    freed(result);
    let_stream_go(stream);
    let_stream_go(elsewhere);
}

PROCESS_TEST(graphs_keep_what_they_use_while_the_cache_serves_others)
{
    uint64_t before = 0;
    begin_life();
    for (int way = -1; way < 6; way++) {
        /* The library's own has plain memory, and pool memory for captures; the other one has pool memory for both. */
        warp_allocator *own = way % 2 == 0 ? cache_over(builtin(WARP_MEMORY_CUDA_MEMPOOL), 0, 0) : NULL;
        warp_allocator *cache = own != NULL ? own : own_cache(WARP_MEMORY_UNKNOWN);
        capture_and_run(cache, (warp_capture_mode)(way < 0 ? 0 : way / 2), 1 + (way & 7));
        CHECK_EQ_U64(graph_memory_left(0), 0);
        empty(cache, gpu(0));
        if (own != NULL)
            release(own);
        if (way < 0) /* what is loaded once is there by now */
            before = free_memory();
        if (check_failure_count() != 0) {
            printf("\n    (way %d)", way);
            return;
        }
    }
    CHECK_MEMORY_BACK(0, before);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(captures_of_other_code_have_memory_of_their_own)
{
    const uint64_t size = is_small() ? 64 * KIB : 3 * MIB;
    begin_life();
    for (int mode = 0; mode < 3; mode++) {
        warp_allocator *cache = own_cache(WARP_MEMORY_UNKNOWN);
        warp_stream *stream = stream_of_ones_own(), *elsewhere = stream_of_ones_own();
        unsigned char *result = (unsigned char *)block_on(gpu(0), size, WARP_MEMORY_CUDA_DEVICE, stream);
        void *before = block_by(gpu(0), cache, size, stream), *inside, *graph = NULL, *exec = NULL;
        freed(block_by(gpu(0), cache, size, stream));
        freed(block_by(gpu(0), cache, size, stream));
        REQUIRE(BEGIN_CAPTURE(native(stream), mode) == SUCCESS);
        inside = block_by(gpu(0), cache, size, stream);
        CHECK(is_of_graph(inside));
        fill(inside, size, 11 + mode, stream);
        copy(result, inside, size, stream);
        freed(inside);
        freed(before); /* the capture has not used it */
        live_beside_a_capture(cache, elsewhere);
        REQUIRE(END_CAPTURE(native(stream), &graph) == SUCCESS && graph != NULL);
        REQUIRE(INSTANTIATE(&exec, graph, 0) == SUCCESS);
        for (int run = 0; run < 3; run++) {
            void *ptr = block_by(gpu(0), cache, size, stream);
            CHECK(!is_of_graph(ptr));
            fill(result, size, 0, stream);
            fill(ptr, size, 0xEE, stream);
            CHECK_EQ_I64(LAUNCH_NATIVE(exec, native(stream)), SUCCESS);
            CHECK(device_holds(result, size, (unsigned char)(11 + mode), stream));
            CHECK(device_holds(ptr, size, 0xEE, stream));
            freed(ptr);
        }
        CHECK_EQ_I64(EXEC_DESTROY(exec), SUCCESS);
        CHECK_EQ_I64(GRAPH_DESTROY(graph), SUCCESS);
        finish(stream);
        CHECK(comes_back(cache, stream));
        CHECK_EQ_U64(graph_memory_left(0), 0);
        freed(result);
        let_stream_go(stream);
        let_stream_go(elsewhere);
        empty(cache, gpu(0));
    }
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

/* ---- Ends ------------------------------------------------------------------------------------------------------------- */

/* A stream ends with work in flight on a block that was freed; the next stream asks for the same and writes into it. */
static void end_streams(warp_memory_kind kind, int is_wrapped)
{
    enum { ROUNDS = 4 };
    const uint64_t size = large();
    warp_allocator *cache = cache_over(builtin(kind), 0, 0);
    warp_stream *reader = stream_of_ones_own();
    unsigned char *results = (unsigned char *)block_on(gpu(0), ROUNDS * size, WARP_MEMORY_CUDA_DEVICE, reader);
    finish(reader);
    for (int round = 0; round < ROUNDS; round++) {
        warp_stream *stream = NULL, *next;
        void *foreign = NULL, *ptr, *other;
        if (is_wrapped) {
            CHECK_EQ_I64(CU((void **, unsigned), "cuStreamCreate")(&foreign, 1), SUCCESS);
            CHECK_STATUS(warp_stream_wrap(gpu(0), foreign, &stream), WARP_SUCCESS);
        } else {
            stream = stream_of_ones_own();
        }
        ptr = block_by(gpu(0), cache, size, stream);
        keep_busy(stream);
        fill(ptr, size, round + 1, stream);
        copy(results + (uint64_t)round * size, ptr, size, stream);
        freed(ptr);
        let_stream_go(stream);
        if (is_wrapped)
            CHECK_EQ_I64(CU((void *), "cuStreamDestroy_v2")(foreign), SUCCESS);
        next = stream_of_ones_own();
        other = block_by(gpu(0), cache, size, next);
        fill(other, size, 0xEE, next);
        CHECK(device_holds(other, size, 0xEE, next));
        freed(other);
        let_stream_go(next);
    }
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    for (int round = 0; round < ROUNDS; round++)
        CHECK(device_holds(results + (uint64_t)round * size, size, (unsigned char)(round + 1), reader));
    CHECK(comes_back(cache, reader));
    freed(results);
    let_stream_go(reader);
    end_cache(cache, gpu(0));
}

PROCESS_TEST(streams_end_under_the_work_on_cached_blocks)
{
    begin_life();
    for (size_t k = 0; k < UPSTREAMS; k++)
        for (int is_wrapped = 0; is_wrapped < 2; is_wrapped++) {
            end_streams(upstreams[k], is_wrapped);
            if (check_failure_count() != 0) {
                printf("\n    (%s, %s)", kind_names[upstreams[k]], is_wrapped ? "wrapped" : "of one's own");
                return;
            }
        }
    CHECK_NOTHING_LEFT();
}

enum { ENDING = 8 };

static struct {
    warp_allocator *cache;
    warp_stream *stream;
    void *left[ENDING];
} ending;

/* Has blocks at hand when it ends, and leaves one that is live. */
static void *end_with_blocks(void *number)
{
    const int me = (int)(uintptr_t)number;
    void *blocks[3];
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 3; i++)
            fill(blocks[i] = block_by(gpu(0), ending.cache, large(), ending.stream), large(), i, ending.stream);
        for (int i = 0; i < 3; i++)
            freed(blocks[i]);
    }
    ending.left[me] = block_by(gpu(0), ending.cache, large(), ending.stream);
    fill(ending.left[me], large(), 100 + me, ending.stream);
    return NULL;
}

PROCESS_TEST(threads_end_with_blocks_at_hand)
{
    enum { MOST = 8 * ENDING };
    begin_life();
    ending.stream = stream_of_ones_own();
    for (size_t k = 0; k < UPSTREAMS; k++) {
        void *blocks[MOST];
        uint64_t growths, count;
        ending.cache = cache_over(builtin(upstreams[k]), 0, 0);
        keep_busy(ending.stream);
        for (int round = 0; round < 2; round++) {
            pthread_t threads[ENDING];
            const int count = round == 0 ? ENDING : 1; /* from the last one nobody takes what it has */
            for (int i = 0; i < count; i++)
                REQUIRE(pthread_create(&threads[i], NULL, end_with_blocks, (void *)(uintptr_t)i) == 0);
            for (int i = 0; i < count; i++)
                pthread_join(threads[i], NULL);
            CHECK(round == 0 || measured(ending.cache).at_hand_bytes >= 2 * large());
            for (int i = 0; i < count; i++) {
                CHECK(device_holds(ending.left[i], large(), (unsigned char)(100 + i), ending.stream));
                freed(ending.left[i]);
            }
        }
        /* All that they had serves who asks next. */
        growths = measured(ending.cache).growths;
        count = measured(ending.cache).reserved_bytes / large();
        REQUIRE(count >= ENDING && count <= MOST);
        for (uint64_t i = 0; i < count; i++)
            blocks[i] = block_by(gpu(0), ending.cache, large(), ending.stream);
        CHECK_EQ_U64(measured(ending.cache).growths, growths);
        CHECK_EQ_U64(measured(ending.cache).free_bytes, 0);
        for (uint64_t i = 0; i < count; i++)
            freed(blocks[i]);
        end_cache(ending.cache, gpu(0));
    }
    let_stream_go(ending.stream);
    CHECK_NOTHING_LEFT();
}

static uint64_t drivers_free_memory(void)
{
    size_t bytes = 0, total = 0;
    CHECK_EQ_I64(CU((void), "cuCtxSynchronize")(), SUCCESS);
    CHECK_EQ_I64(CU((size_t *, size_t *), "cuMemGetInfo_v2")(&bytes, &total), SUCCESS);
    return bytes;
}

/* With blocks that are kept, that are live, and that a stream still works on; the context is other code's too, and lives on. */
PROCESS_TEST(the_library_ends_with_cached_blocks_and_begins_again)
{
    const uint64_t size = large(), kept = is_small() ? 64 * MIB : GIB;
    void *context = NULL;
    begin_life();
    CHECK_EQ_I64(CU((void **, int), "cuDevicePrimaryCtxRetain")(&context, 0), SUCCESS);
    for (int round = 0; round < 4; round++) {
        const warp_memory_kind kind = upstreams[round % UPSTREAMS];
        unsigned char *seen = malloc(size);
        warp_allocator *cache, *made;
        warp_stream *stream;
        void *live[2], *working;
        uint64_t before;
        if (round != 0)
            begin_life();
        stream = stream_of_ones_own();
        (void)busy_seconds(stream);
        before = drivers_free_memory();
        CHECK_STATUS(warp_allocator_set_caching_for_all(1), WARP_SUCCESS);
        cache = own_cache(WARP_MEMORY_UNKNOWN);
        made = cache_over(builtin(kind), 0, 0);
        live[0] = plain_alloc(gpu(0), size);
        live[1] = block_by(gpu(0), made, size, stream);
        CHECK_EQ_PTR(server_of(live[0]), cache);
        fill(live[0], size, 31, NULL);
        fill(live[1], size, 32, stream);
        freed(plain_alloc(gpu(0), kept));
        freed(block_by(gpu(0), made, kept, stream));
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        working = block_by(gpu(0), made, size, stream);
        keep_busy(stream);
        fill(working, size, 33, stream);
        freed(working);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc(NULL, 1000, &working), WARP_ERROR_SHUT_DOWN);

        /* What is live is as it was, and has its chunks; what was kept is the driver's. */
        for (int i = 0; i < 2; i++) {
            CHECK_EQ_I64(CU((void *, address, size_t), "cuMemcpyDtoH_v2")(seen, at(live[i]), size), SUCCESS);
            CHECK(all_are(seen, size, (unsigned char)(31 + i)));
        }
        if (round / 2 == 0)
            for (int i = 0; i < 2; i++)
                freed(live[i]);
        CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
        if (round / 2 == 1)
            for (int i = 0; i < 2; i++) {
                CHECK_EQ_U64(pointer_info(live[i]).size, size);
                freed(live[i]);
            }
        for (int i = 0; i < 2; i++)
            CHECK_STATUS(warp_free(live[i]), WARP_ERROR_DOUBLE_FREE);
        CHECK_STATUS(try_by(gpu(0), made, 1000, NULL, &working), WARP_ERROR_INVALID_HANDLE);
        /* Nothing is cached by default any more, and a call that waits looks at what is still to go. */
        working = plain_alloc(gpu(0), 1000);
        CHECK_EQ_PTR(server_of(working), NULL);
        freed(working);
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        CHECK(drivers_free_memory() + 64 * MIB >= before);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        free(seen);
        if (check_failure_count() != 0) {
            printf("\n    (round %d)", round);
            return;
        }
    }
    begin_life();
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
