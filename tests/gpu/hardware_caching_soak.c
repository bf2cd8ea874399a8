/*
 * hardware_caching_soak.c: caches in every way at once on a real GPU: sixteen threads, streams of their own and shared ones, blocks of
 * every size that are filled, copied, handed on and compared byte for byte, trims and measures beside.
 *
 *     WARPMEM_SOAK_SECONDS=600 hardware_caching_soak    as long as one likes; 8 seconds without, 2 on the simulated driver
 *
 * topology: h200x2
 * topology: h200
 * valgrind: slow (a process for each promise; caching_threads.c is under it)
 */
#include "hardware_caching.h"

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

CHECK_MAIN()
