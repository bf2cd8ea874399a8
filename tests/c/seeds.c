/*
 * seeds.c: random programs on a driver that runs their work late and in a random order. A program is right by the rules that
 * callers have to keep: what it does on a stream it has ordered behind what it needs. What the library has to order is all
 * the rest: frees behind every use, frees in graphs, memory that graphs keep. Nothing may run on memory that is not there, and
 * all data must be what a model of the program says.
 *
 *     seeds                            the tests, 2,000 programs
 *     WARPMEM_SEEDS=100000 seeds right   more of them
 *     WARPMEM_SEED_FIRST=77 WARPMEM_SEEDS=1 seeds right   one of them again
 *
 * topology: h200x2
 * needs: simulator
 */
#include "captures.h"
#include "dice.h"

#include <pthread.h>

#define STREAMS 6 /* 0 and 1 blocking, 2 to 4 not, on the first GPU; 5 on the second */
#define FAR 5
#define MOST_BLOCKS 14
#define MOST_GRAPHS 3
#define MOST_STEPS 40
#define SIZE 1536 /* a multiple of every pattern's length */

/* ---- The model -------------------------------------------------------------------------------------------------------- */

/* What a block holds: its bytes repeat the pattern value, value + step, value + 2 step. */
struct content {
    unsigned char value, step;
};

struct block {
    char *ptr;
    int gpu; /* -1: page-locked */
    warp_memory_kind kind;
    struct content now;
    uint32_t users;  /* streams with work on it since it was last written, the writer's included */
    uint32_t writer; /* the stream that wrote it last */
    uint32_t recorded_users, recorded_writer; /* the same of what the capture that goes on has recorded */
    int freed, exists, in_capture;
    struct block *next; /* of all that the program ever had */
};

/* What a graph does: dest becomes the content, or what src holds by then. */
struct step {
    struct block *dest, *src;
    struct content fill;
};

struct graph {
    warp_graph *handle;
    struct step steps[MOST_STEPS];
    int count;
};

static warp_stream *streams[STREAMS];
static struct block *blocks[MOST_BLOCKS];
static struct graph graphs[MOST_GRAPHS];
static struct block *all;
static uint32_t captured; /* streams of the capture that goes on */

static uint64_t native(int stream)
{
    return (uint64_t)(uintptr_t)native_of(streams[stream]);
}

static const char *gpu_alias(int gpu)
{
    return gpu < 0 ? "cpu" : gpu == 0 ? "cuda:0" : "cuda:1";
}

static int gpu_of(int stream)
{
    return stream == FAR;
}

/* ---- Order, as a caller makes it -------------------------------------------------------------------------------------- */

static void wait_for(int stream, int other)
{
    if (stream == other)
        return;
    if (roll(2)) {
        CHECK_STATUS(warp_stream_wait_stream(streams[stream], streams[other]), WARP_SUCCESS);
    } else {
        warp_event *event = NULL;
        CHECK_STATUS(warp_event_create(device(gpu_alias(gpu_of(other))), NULL, &event), WARP_SUCCESS);
        CHECK_STATUS(warp_event_record(event, streams[other]), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_wait_event(streams[stream], event), WARP_SUCCESS);
        CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    }
}

static void wait_for_all(int stream, uint32_t others)
{
    int other;
    for (other = 0; other < STREAMS; ++other)
        if (others >> other & 1)
            wait_for(stream, other);
}

static void before_reading(struct block *block, int stream)
{
    wait_for_all(stream, block->writer);
}

static void before_writing(struct block *block, int stream)
{
    wait_for_all(stream, block->users | block->writer);
}

static void was_read(struct block *block, int stream)
{
    block->users |= 1u << stream;
}

static void was_written(struct block *block, int stream, struct content content)
{
    block->users = block->writer = 1u << stream;
    block->now = content;
}

/* Nothing will be waited for on these streams any more: another one stands for them. */
static void stand_in(uint32_t gone)
{
    struct block *block;
    int stream = (int)roll(STREAMS);
    while (gone >> stream & 1)
        stream = (stream + 1) % STREAMS;
    wait_for_all(stream, gone);
    for (block = all; block != NULL; block = block->next) {
        if (block->users & gone)
            block->users = (block->users & ~gone) | 1u << stream;
        if (block->writer & gone)
            block->writer = (block->writer & ~gone) | 1u << stream;
    }
}

/* ---- Choosing --------------------------------------------------------------------------------------------------------- */

/* A stream that is not captured; of a GPU, or -1 for any. */
static int some_stream(int gpu)
{
    int stream;
    do {
        stream = (int)roll(STREAMS);
    } while (captured >> stream & 1 || (gpu >= 0 && gpu_of(stream) != gpu));
    return stream;
}

/* A live block that work outside of a capture may use. */
static struct block *some_block(void)
{
    struct block *block = blocks[roll(MOST_BLOCKS)];
    return block != NULL && block->exists && !block->in_capture ? block : NULL;
}

/* A stream that may work on a block: pool memory is within reach of its own GPU only. */
static int stream_for(const struct block *block)
{
    return some_stream(block->gpu < 0 || block->kind == WARP_MEMORY_CUDA_MANAGED ? -1 : block->gpu);
}

static struct content some_content(void)
{
    struct content content = {(unsigned char)roll(256), (unsigned char)(roll(3) == 0 ? roll(256) : 0)};
    return content;
}

/* ---- What is done ----------------------------------------------------------------------------------------------------- */

static void fill(struct block *block, struct content content, int stream)
{
    unsigned char pattern[3] = {content.value, (unsigned char)(content.value + content.step),
                                (unsigned char)(content.value + 2 * content.step)};
    CHECK_STATUS(warp_memory_fill(block->ptr, SIZE, pattern, content.step != 0 ? 3 : 1, streams[stream]), WARP_SUCCESS);
    memset(pattern, 0xee, sizeof pattern);
}

static struct block *new_block(int slot, int gpu, warp_memory_kind kind, int stream)
{
    warp_alloc_options options = {.struct_size = sizeof options, .kind = kind};
    struct block *block = calloc(1, sizeof *block);
    if (gpu >= 0)
        options.stream = streams[stream];
    /* Where a block begins in what the driver gave is the library's business. */
    options.alignment = roll(8) == 0 ? 4096 : 0;
    CHECK_STATUS(warp_alloc_with(device(gpu_alias(gpu)), SIZE, &options, (void **)&block->ptr), WARP_SUCCESS);
    block->gpu = gpu;
    block->kind = kind;
    block->exists = 1;
    block->next = all;
    all = block;
    blocks[slot] = block;
    return block;
}

static void allocate(int slot)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MEMPOOL,
                                             WARP_MEMORY_CUDA_DEVICE,  WARP_MEMORY_CUDA_MANAGED, WARP_MEMORY_PINNED};
    warp_memory_kind kind = kinds[roll(6)];
    struct content content = some_content();
    int stream = some_stream(-1);
    struct block *block;
    /* Page-locked memory is not to be had by a thread that captures. */
    if (kind == WARP_MEMORY_PINNED && captured != 0)
        kind = WARP_MEMORY_CUDA_MEMPOOL;
    block = new_block(slot, kind == WARP_MEMORY_PINNED ? -1 : gpu_of(stream), kind, stream);
    if (block->gpu < 0) {
        content.step = 0;
        memset(block->ptr, content.value, SIZE);
        block->now = content;
        return;
    }
    fill(block, content, stream);
    was_written(block, stream, content);
}

/* Work that the library does not see, and is told of. */
static void write_natively(struct block *block, int stream)
{
    struct content content = {(unsigned char)roll(256), 0};
    CHECK_EQ_U64(SIMULATOR(cuMemsetD8Async)((uint64_t)(uintptr_t)block->ptr, content.value, SIZE, (CUstream)(uintptr_t)native(stream)),
                 0);
    CHECK_STATUS(warp_pointer_record_stream(block->ptr, streams[stream]), WARP_SUCCESS);
    was_written(block, stream, content);
}

static void write_block(struct block *block)
{
    struct content content = some_content();
    int stream = stream_for(block);
    if (block->gpu < 0)
        return;
    before_writing(block, stream);
    if (roll(3) == 0) {
        write_natively(block, stream);
    } else {
        fill(block, content, stream);
        was_written(block, stream, content);
    }
}

static void copy_block(struct block *dest, struct block *src)
{
    int stream;
    if (dest == src || (dest->gpu < 0 && src->gpu < 0))
        return;
    stream = some_stream(roll(2) && src->gpu >= 0 ? src->gpu : dest->gpu >= 0 ? dest->gpu : src->gpu);
    before_reading(src, stream);
    before_writing(dest, stream);
    CHECK_STATUS(warp_memory_copy(dest->ptr, src->ptr, SIZE, streams[stream]), WARP_SUCCESS);
    was_read(src, stream);
    was_written(dest, stream, src->now);
}

static int is(const unsigned char *bytes, struct content content)
{
    int i, wrong = 0;
    for (i = 0; i < SIZE; ++i)
        wrong += bytes[i] != (unsigned char)(content.value + i % 3 * content.step);
    return wrong == 0;
}

static void look(struct block *block)
{
    unsigned char bytes[SIZE];
    int stream = stream_for(block);
    before_reading(block, stream);
    if (block->gpu < 0) {
        CHECK_STATUS(warp_stream_synchronize(streams[stream]), WARP_SUCCESS);
        CHECK(is((unsigned char *)block->ptr, block->now));
        return;
    }
    CHECK_STATUS(warp_memory_copy(bytes, block->ptr, SIZE, streams[stream]), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(streams[stream]), WARP_SUCCESS);
    CHECK(is(bytes, block->now));
    was_read(block, stream);
}

static void *free_elsewhere(void *ptr)
{
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    return NULL;
}

static void free_block(int slot)
{
    struct block *block = blocks[slot];
    if (roll(6) == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, free_elsewhere, block->ptr);
        pthread_join(thread, NULL);
    } else if (roll(6) == 0 && block->exists && block->gpu >= 0 && !block->in_capture) {
        /* The last work on it is told with the free. */
        warp_free_options options = {.struct_size = sizeof options};
        struct content ones = {1, 0};
        int stream = some_stream(block->gpu);
        before_writing(block, stream);
        CHECK_EQ_U64(SIMULATOR(cuMemsetD8Async)((uint64_t)(uintptr_t)block->ptr, 1, SIZE, (CUstream)(uintptr_t)native(stream)), 0);
        was_written(block, stream, ones);
        options.stream = streams[stream];
        CHECK_STATUS(warp_free_with(block->ptr, &options), WARP_SUCCESS);
    } else {
        CHECK_STATUS(warp_free(block->ptr), WARP_SUCCESS);
    }
    /* Graphs may go on using it, behind what came before. */
    block->freed = 1;
    blocks[slot] = NULL;
}

static void renew_stream(void)
{
    int stream = some_stream(-1);
    stand_in(1u << stream | captured);
    CHECK_STATUS(warp_stream_release(streams[stream]), WARP_SUCCESS);
    streams[stream] = make_stream(gpu_alias(gpu_of(stream)), stream < 2 ? 0 : WARP_STREAM_NON_BLOCKING);
}

static void something(void)
{
    int slot = (int)roll(MOST_BLOCKS);
    struct block *block;
    switch (roll(12)) {
    case 0:
    case 1:
    case 2:
        if (blocks[slot] == NULL)
            allocate(slot);
        break;
    case 3:
    case 4:
        if (blocks[slot] != NULL && !blocks[slot]->in_capture)
            free_block(slot);
        break;
    case 5:
    case 6:
        if ((block = some_block()) != NULL)
            write_block(block);
        break;
    case 7:
    case 8: {
        struct block *src = some_block();
        if ((block = some_block()) != NULL && src != NULL)
            copy_block(block, src);
        break;
    }
    case 9:
        if ((block = some_block()) != NULL)
            look(block);
        break;
    case 10:
        if (roll(4) == 0 && captured == 0)
            renew_stream();
        break;
    default:
        if (roll(4) == 0)
            CHECK_STATUS(warp_stream_synchronize(streams[some_stream(-1)]), WARP_SUCCESS);
    }
}

/* ---- Graphs ----------------------------------------------------------------------------------------------------------- */

/* A block that the capture may use: of the first GPU. */
static struct block *some_block_for_capture(void)
{
    struct block *block = blocks[roll(MOST_BLOCKS)];
    return block != NULL && block->gpu == 0 && (block->exists || block->in_capture) ? block : NULL;
}

/* As for live work, among the streams of the capture; what came before it is waited for by the launch. */
static void record_write(struct block *block, int stream)
{
    wait_for_all(stream, block->recorded_users | block->recorded_writer);
    block->recorded_users = block->recorded_writer = 1u << stream;
}

static void record_read(struct block *block, int stream)
{
    wait_for_all(stream, block->recorded_writer);
    block->recorded_users |= 1u << stream;
}

static void record_step(struct graph *graph, int stream)
{
    struct step *step = &graph->steps[graph->count];
    if (graph->count == MOST_STEPS || (step->dest = some_block_for_capture()) == NULL)
        return;
    step->src = roll(2) ? some_block_for_capture() : NULL;
    if (step->src == step->dest)
        return;
    if (step->src != NULL)
        record_read(step->src, stream);
    record_write(step->dest, stream);
    if (step->src != NULL) {
        CHECK_STATUS(warp_memory_copy(step->dest->ptr, step->src->ptr, SIZE, streams[stream]), WARP_SUCCESS);
    } else {
        step->fill = some_content();
        fill(step->dest, step->fill, stream);
    }
    ++graph->count;
}

static void allocate_in_capture(struct graph *graph, int slot, int stream)
{
    struct step *step = &graph->steps[graph->count];
    struct block *block;
    if (graph->count == MOST_STEPS)
        return;
    block = new_block(slot, 0, WARP_MEMORY_CUDA_MEMPOOL, stream);
    block->exists = 0;
    block->in_capture = 1;
    block->recorded_users = block->recorded_writer = 1u << stream;
    step->dest = block;
    step->src = NULL;
    step->fill = some_content();
    fill(block, step->fill, stream);
    ++graph->count;
}

static void end_of_capture(void)
{
    struct block *block;
    int slot;
    for (block = all; block != NULL; block = block->next)
        block->recorded_users = block->recorded_writer = 0;
    for (slot = 0; slot < MOST_BLOCKS; ++slot)
        if (blocks[slot] != NULL)
            blocks[slot]->in_capture = 0;
    captured = 0;
}

static void capture(struct graph *graph)
{
    int origin = (int)roll(5), branch = (int)roll(5), steps = 4 + (int)roll(14), forked = 0, step;
    uint32_t own = 1u << origin | 1u << branch;
    stand_in(own);
    graph->count = 0;
    CHECK_STATUS(warp_capture_begin(streams[origin], (int32_t)roll(3)), WARP_SUCCESS);
    captured = own;
    for (step = 0; step < steps; ++step) {
        int slot = (int)roll(MOST_BLOCKS), stream;
        if (!forked && branch != origin && roll(3) == 0) {
            wait_for(branch, origin);
            forked = 1;
        }
        stream = forked && roll(2) ? branch : origin;
        switch (roll(6)) {
        case 0:
            if (blocks[slot] == NULL)
                allocate_in_capture(graph, slot, stream);
            break;
        case 1:
            if (blocks[slot] != NULL && (blocks[slot]->in_capture || blocks[slot]->exists))
                free_block(slot);
            break;
        case 2:
            /* A stream that did not begin to take part is another program's, and goes on. */
            if (forked || branch == origin)
                something();
            break;
        default:
            record_step(graph, stream);
        }
        if (roll(20) == 0) {
            struct block *block;
            CHECK_STATUS(warp_capture_pause(streams[origin]), WARP_SUCCESS);
            CHECK_STATUS(warp_capture_resume(streams[origin]), WARP_SUCCESS);
            /* The pause has joined what was forked. */
            for (block = all; block != NULL; block = block->next)
                if (block->recorded_users != 0)
                    block->recorded_users = block->recorded_writer = 1u << origin;
            forked = 0;
            branch = origin;
        }
    }
    if (roll(10) == 0) {
        CHECK_STATUS(warp_capture_abandon(streams[origin]), WARP_SUCCESS);
        graph->handle = NULL;
    } else {
        if (forked && roll(2))
            wait_for(origin, branch);
        CHECK_STATUS(warp_capture_end(streams[origin], &graph->handle), WARP_SUCCESS);
    }
    end_of_capture();
}

static void launch(struct graph *graph)
{
    int stream = some_stream(0), i;
    for (i = 0; i < graph->count; ++i) {
        struct step *step = &graph->steps[i];
        before_writing(step->dest, stream);
        if (step->src != NULL)
            before_reading(step->src, stream);
    }
    CHECK_STATUS(warp_graph_launch(graph->handle, streams[stream]), WARP_SUCCESS);
    for (i = 0; i < graph->count; ++i) {
        struct step *step = &graph->steps[i];
        step->dest->now = step->src != NULL ? step->src->now : step->fill;
        was_written(step->dest, stream, step->dest->now);
        step->dest->exists = 1;
        if (step->src != NULL)
            was_read(step->src, stream);
    }
}

static void something_with_graphs(void)
{
    struct graph *graph = &graphs[roll(MOST_GRAPHS)];
    if (graph->handle == NULL) {
        capture(graph);
    } else if (roll(4) != 0) {
        launch(graph);
    } else {
        CHECK_STATUS(warp_graph_release(graph->handle), WARP_SUCCESS);
        graph->handle = NULL;
    }
}

/* ---- A program -------------------------------------------------------------------------------------------------------- */

static void run_program(uint64_t seed)
{
    int i, steps;
    dice = seed * 0x2545f4914f6cdd1du;
    SIMULATOR(warpsim_schedule)(seed);
    for (i = 0; i < STREAMS; ++i)
        streams[i] = make_stream(gpu_alias(gpu_of(i)), i < 2 ? 0 : WARP_STREAM_NON_BLOCKING);
    steps = 30 + (int)roll(90);
    for (i = 0; i < steps; ++i) {
        if (roll(6) == 0)
            something_with_graphs();
        else
            something();
    }
    for (i = 0; i < MOST_BLOCKS; ++i)
        if (blocks[i] != NULL && blocks[i]->exists)
            look(blocks[i]);
    /* The end, in any order. */
    for (i = 0; i < MOST_GRAPHS; ++i)
        if (graphs[i].handle != NULL && roll(2)) {
            CHECK_STATUS(warp_graph_release(graphs[i].handle), WARP_SUCCESS);
            graphs[i].handle = NULL;
        }
    for (i = 0; i < MOST_BLOCKS; ++i)
        if (blocks[i] != NULL)
            free_block(i);
    for (i = 0; i < MOST_GRAPHS; ++i)
        if (graphs[i].handle != NULL) {
            CHECK_STATUS(warp_graph_release(graphs[i].handle), WARP_SUCCESS);
            graphs[i].handle = NULL;
        }
    for (i = 0; i < STREAMS; ++i) {
        CHECK_STATUS(warp_stream_synchronize(streams[i]), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(streams[i]), WARP_SUCCESS);
    }
    SIMULATOR(warpsim_run)(0);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    while (all != NULL) {
        struct block *next = all->next;
        free(all);
        all = next;
    }
    SIMULATOR(warpsim_schedule)(0);
}

/* Whether the program of a seed did as it should. */
static int is_right(uint64_t seed)
{
    int before = check_failure_count();
    run_program(seed);
    check_clean();
    if (check_failure_count() == before)
        return 1;
    printf("\n    with seed %llu", (unsigned long long)seed);
    return 0;
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

PROCESS_TEST(right_programs_are_right_in_every_order)
{
    uint64_t first = number_of("WARPMEM_SEED_FIRST", 1);
    uint64_t count = number_of("WARPMEM_SEEDS", check_under("valgrind") ? 40 : check_under("sanitizer") ? 300 : 2000), seed;
    alarm(0);
    start_on("h200x2");
    for (seed = first; seed < first + count; ++seed)
        if (!is_right(seed))
            return;
}

/* ---- Mistakes that are planted are found ------------------------------------------------------------------------------ */

#define FOUND 42

/* In a process of its own, since nothing is what it should be afterwards. What it prints is thrown away. */
static int is_found(uint32_t mistake, uint64_t seed)
{
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        int before = check_failure_count();
        if (freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL)
            _exit(1);
        start_on("h200x2");
        SIMULATOR(warpsim_misorder)(mistake);
        run_program(seed);
        _exit(SIMULATOR(warpsim_violation_count)() != 0 || check_failure_count() != before ? FOUND : 0);
    }
    return process_wait(child) != 0;
}

PROCESS_TEST(planted_mistakes_in_the_order_are_found)
{
    static const struct {
        uint32_t bits;
        const char *name;
    } mistakes[] = {{1, "frees on a stream of their own"}, {2, "missing joins"}, {4, "frees too early"}};
    size_t i;
    if (check_under("valgrind"))
        return;
    for (i = 0; i < sizeof mistakes / sizeof *mistakes; ++i) {
        uint64_t seed = 1;
        while (seed <= 1000 && !is_found(mistakes[i].bits, seed))
            ++seed;
        printf("\n    %s: found with seed %llu", mistakes[i].name, (unsigned long long)seed);
        CHECK(seed <= 1000);
    }
    CHECK(!is_found(0, 1));
}

CHECK_MAIN()
