/*
 * cpu_capture_model.c: random programs of fills, copies, functions, captures inside of each other, pauses, graphs in graphs, frees
 * and launches on the CPU, against a model of their memory.
 *
 *     CPU_PROGRAMS=100000 cpu_capture_model        more of them
 *     CPU_FIRST=77 CPU_PROGRAMS=1 cpu_capture_model   one of them again
 *
 * topology: h200x2
 * topology: -
 */
#include "cpu_captures.h"
#include "dice.h"

#define SIZE 96
#define MOST_BLOCKS 10
#define MOST_GRAPHS 5
#define MOST_OPEN 3
#define MOST_STEPS 600
#define PLACES 400 /* blocks that a program ever has */

/* ---- the model ------------------------------------------------------------------------------------------------------- */

/* Memory of the program: a block, or memory of its own that the library knows nothing of. */
struct place {
    unsigned char *ptr;
    unsigned char now[SIZE];
    int is_freed, is_raw;
};

enum what { FILL, COPY, TAKE, CALL };

struct step {
    enum what what;
    struct place *to, *from;
    uint32_t at, of, size;
    unsigned char pattern[4], data[SIZE];
    uint32_t pattern_size;
};

struct steps {
    struct step *steps;
    int count;
};

struct graph {
    warp_graph *handle;
    struct steps steps;
    int calls_kept; /* functions whose release comes with it */
};

struct open {
    struct steps steps;
    int calls_kept, paused;
};

static struct place places[PLACES];
static int place_count;
static struct place *blocks[MOST_BLOCKS];
static struct graph graphs[MOST_GRAPHS];
static struct open open_captures[MOST_OPEN];
static int depth;
static int calls, expected_calls, releases, expected_releases;

static void count_call(void *user)
{
    (void)user;
    ++calls;
}

static void count_release(void *user)
{
    (void)user;
    ++releases;
}

static void perform(const struct step *step)
{
    uint32_t i;
    switch (step->what) {
    case FILL:
        for (i = 0; i < step->size; ++i)
            step->to->now[step->at + i] = step->pattern[i % step->pattern_size];
        break;
    case COPY: memmove(step->to->now + step->at, step->from->now + step->of, step->size); break;
    case TAKE: memcpy(step->to->now + step->at, step->data, step->size); break;
    case CALL: ++expected_calls; break;
    }
}

static void perform_all(const struct steps *steps)
{
    int i;
    for (i = 0; i < steps->count; ++i)
        perform(&steps->steps[i]);
}

static struct open *recording(void)
{
    return depth != 0 && !open_captures[depth - 1].paused ? &open_captures[depth - 1] : NULL;
}

static void add(struct steps *steps, const struct step *step)
{
    steps->steps = realloc(steps->steps, (size_t)(steps->count + 1) * sizeof *step);
    steps->steps[steps->count++] = *step;
}

/* It happens now, or is recorded. */
static void note(const struct step *step)
{
    struct open *open = recording();
    if (open != NULL)
        add(&open->steps, step);
    else
        perform(step);
}

static struct place *new_place(int is_raw)
{
    struct place *place = &places[place_count++];
    memset(place, 0, sizeof *place);
    place->is_raw = is_raw;
    place->ptr = is_raw ? malloc(SIZE) : host_block(SIZE);
    memset(place->ptr, 0x11, SIZE);
    memset(place->now, 0x11, SIZE);
    return place;
}

static void free_place(struct place *place)
{
    place->is_freed = 1;
    if (!place->is_raw)
        free_block(place->ptr);
}

/* Of the program's own memory the sum of what is written there is the caller's to keep, so it stays to the end. */
static struct place *some_place(int may_be_raw)
{
    struct place *found = blocks[roll(MOST_BLOCKS)];
    return found != NULL && (may_be_raw || !found->is_raw) ? found : NULL;
}

/* ---- programs -------------------------------------------------------------------------------------------------------- */

static void do_fill(void)
{
    struct step step = {.what = FILL, .to = some_place(1)};
    uint32_t i;
    if (step.to == NULL)
        return;
    step.pattern_size = 1 + roll(4);
    step.at = roll(SIZE / 2);
    step.size = (1 + roll(SIZE / 2 / step.pattern_size)) * step.pattern_size;
    for (i = 0; i < 4; ++i)
        step.pattern[i] = (unsigned char)roll(256);
    CHECK_STATUS(warp_memory_fill(step.to->ptr + step.at, step.size, step.pattern, step.pattern_size, NULL), WARP_SUCCESS);
    note(&step);
}

static void do_copy(void)
{
    struct step step = {.what = COPY, .to = some_place(1), .from = some_place(0)};
    if (step.to == NULL || step.from == NULL)
        return;
    step.size = 1 + roll(SIZE / 2);
    step.at = roll(SIZE - step.size + 1);
    step.of = roll(SIZE - step.size + 1);
    copy(step.to->ptr + step.at, step.from->ptr + step.of, step.size);
    note(&step);
}

/* From a temporary. */
static void do_take(void)
{
    struct step step = {.what = TAKE, .to = some_place(1)};
    unsigned char *temporary;
    uint32_t i;
    if (step.to == NULL)
        return;
    step.size = 1 + roll(SIZE / 2);
    step.at = roll(SIZE - step.size + 1);
    for (i = 0; i < step.size; ++i)
        step.data[i] = (unsigned char)roll(256);
    temporary = malloc(step.size);
    memcpy(temporary, step.data, step.size);
    copy(step.to->ptr + step.at, temporary, step.size);
    memset(temporary, 0xDD, step.size);
    free(temporary);
    note(&step);
}

static void do_call(void)
{
    struct step step = {.what = CALL};
    CHECK_STATUS(warp_stream_host_call(cpu_stream(), count_call, NULL, count_release), WARP_SUCCESS);
    if (recording() != NULL)
        ++recording()->calls_kept;
    else
        ++expected_releases;
    note(&step);
}

static void do_block(void)
{
    struct place **place = &blocks[roll(MOST_BLOCKS)];
    if (*place != NULL && (!(*place)->is_raw || depth == 0)) {
        free_place(*place);
        *place = NULL;
    }
    if (*place == NULL && place_count < PLACES)
        *place = new_place(roll(5) == 0);
}

static void forget(struct steps *steps)
{
    free(steps->steps);
    memset(steps, 0, sizeof *steps);
}

static void do_capture(void)
{
    struct open *open = depth != 0 ? &open_captures[depth - 1] : NULL;
    struct graph *graph = &graphs[roll(MOST_GRAPHS)];
    switch (roll(5)) {
    case 0:
    case 1:
        if (depth == MOST_OPEN)
            return;
        begin();
        memset(&open_captures[depth++], 0, sizeof open_captures[0]);
        return;
    case 2:
        if (open == NULL || graph->handle != NULL)
            return;
        graph->handle = end();
        graph->steps = open->steps;
        graph->calls_kept = open->calls_kept;
        --depth;
        return;
    case 3:
        if (open == NULL)
            return;
        if (open->paused)
            CHECK_STATUS(warp_capture_resume(cpu_stream()), WARP_SUCCESS);
        else
            CHECK_STATUS(warp_capture_pause(cpu_stream()), WARP_SUCCESS);
        open->paused = !open->paused;
        return;
    default:
        if (open == NULL || roll(3) != 0)
            return;
        CHECK_STATUS(warp_capture_abandon(cpu_stream()), WARP_SUCCESS);
        expected_releases += open->calls_kept;
        forget(&open->steps);
        --depth;
    }
}

/* How often a function is kept by several graphs makes its release hard to tell: the sum is looked at when all are gone. */
static int graphs_were_nested;

static void do_graph(void)
{
    struct graph *graph = &graphs[roll(MOST_GRAPHS)];
    struct open *open = recording();
    int i;
    if (graph->handle == NULL)
        return;
    if (roll(4) == 0) {
        release(graph->handle);
        expected_releases += graph->calls_kept;
        forget(&graph->steps);
        graph->handle = NULL;
        return;
    }
    if (open != NULL && open->steps.count + graph->steps.count > MOST_STEPS)
        return;
    launch(graph->handle);
    if (open == NULL) {
        perform_all(&graph->steps);
        return;
    }
    graphs_were_nested = 1;
    for (i = 0; i < graph->steps.count; ++i)
        add(&open->steps, &graph->steps.steps[i]);
}

static int compare(void)
{
    int i;
    for (i = 0; i < MOST_BLOCKS; ++i)
        if (blocks[i] != NULL && memcmp(blocks[i]->ptr, blocks[i]->now, SIZE) != 0)
            return 0;
    return calls == expected_calls && (graphs_were_nested || releases == expected_releases);
}

static void run(uint64_t seed)
{
    int i, turn;
    dice = seed;
    place_count = depth = calls = expected_calls = releases = expected_releases = graphs_were_nested = 0;
    for (i = 0; i < MOST_BLOCKS; ++i)
        blocks[i] = new_place(i % 5 == 0);
    for (turn = 0; turn < 120; ++turn) {
        switch (roll(12)) {
        case 0:
        case 1: do_fill(); break;
        case 2:
        case 3: do_copy(); break;
        case 4: do_take(); break;
        case 5: do_call(); break;
        case 6: do_block(); break;
        case 7:
        case 8: do_capture(); break;
        default: do_graph(); break;
        }
        if (!compare()) {
            check_note_failure();
            printf("\n    program %" PRIu64 " differs after turn %d (calls %d of %d, releases %d of %d)", seed, turn, calls,
                   expected_calls, releases, expected_releases);
            return;
        }
    }
    while (depth != 0) {
        CHECK_STATUS(warp_capture_abandon(cpu_stream()), WARP_SUCCESS);
        expected_releases += open_captures[--depth].calls_kept;
        forget(&open_captures[depth].steps);
    }
    for (i = 0; i < MOST_GRAPHS; ++i)
        if (graphs[i].handle != NULL) {
            release(graphs[i].handle);
            expected_releases += graphs[i].calls_kept;
            forget(&graphs[i].steps);
            graphs[i].handle = NULL;
        }
    CHECK_EQ_I64(releases, expected_releases);
    for (i = 0; i < MOST_BLOCKS; ++i)
        if (blocks[i] != NULL)
            free_place(blocks[i]);
    for (i = 0; i < place_count; ++i)
        if (places[i].is_raw)
            free(places[i].ptr);
    memset(blocks, 0, sizeof blocks);
    CHECK_EQ_U64(live_on_cpu(), 0);
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

TEST(memory_is_what_the_model_says)
{
    uint64_t first = number("CPU_FIRST", 1), count = number("CPU_PROGRAMS", check_under("valgrind") ? 100 : 4000), i;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    for (i = 0; i < count && check_failure_count() == 0; ++i)
        run(first + i);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

CHECK_MAIN()
