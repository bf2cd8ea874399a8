/*
 * What a contestant holds of the GPU's memory, at most, as a multiple of what was live at most, after work that leaves holes:
 *
 *     holes     blocks of 64 KiB to 16 MiB, half of them freed by chance, then blocks twice as large in their place
 *     drift     200 blocks that are replaced again and again by ones a little larger, as arrays that grow
 *     phases    all blocks of one size are freed, and as many bytes asked for in another size; five sizes in turn
 *
 *     fragmentation [options of contest.h]
 *
 * Each round has other blocks, the same for all contestants.
 */
#define _GNU_SOURCE
#include "contest.h"
#include "recording.h"

enum { MOST_BLOCKS = 8192 };

static struct {
    void *ptr;
    size_t size;
} blocks[MOST_BLOCKS];
static uint64_t live, most_live;
static int refused;

static void take(const entrant *who, int slot, size_t size)
{
    blocks[slot].ptr = refused ? NULL : who->is->allocate(size, who->stream);
    blocks[slot].size = size;
    if (blocks[slot].ptr == NULL) {
        refused = 1;
        return;
    }
    live += size;
    most_live = live > most_live ? live : most_live;
}

static void give(const entrant *who, int slot)
{
    if (blocks[slot].ptr == NULL)
        return;
    who->is->release(blocks[slot].ptr, blocks[slot].size, who->stream);
    live -= blocks[slot].size;
    blocks[slot].ptr = NULL;
}

/* Log-uniform from 64 KiB to 16 MiB. */
static size_t draw_block(uint64_t *state)
{
    for (;;) {
        uint64_t size = draw_size(state);
        if (size >= 65536 && size < (16 << 20))
            return (size_t)size;
    }
}

static void holes(const entrant *who, uint64_t seed)
{
    int all = asked.smoke ? 64 : 1024, next = all;
    uint64_t freed = 0;
    for (int i = 0; i < all; i++)
        take(who, i, draw_block(&seed));
    for (int i = 0; i < all; i++)
        if ((draw(&seed) & 1) != 0) {
            freed += blocks[i].size;
            give(who, i);
        }
    while (next < MOST_BLOCKS) {
        size_t size = 2 * draw_block(&seed);
        if (size > freed)
            break;
        freed -= size;
        take(who, next++, size);
    }
}

static void drift(const entrant *who, uint64_t seed)
{
    int all = asked.smoke ? 16 : 200, times = asked.smoke ? 4 : 40;
    for (int i = 0; i < all; i++)
        take(who, i, 65536 + (size_t)(draw(&seed) % (1 << 20)));
    for (int t = 0; t < times; t++)
        for (int i = 0; i < all; i++) {
            size_t size = blocks[i].size + blocks[i].size / 16 + 512;
            give(who, i);
            take(who, i, size);
        }
}

static void phases(const entrant *who, uint64_t seed)
{
    static const size_t SIZES[] = {1 << 20, 3 << 20, 700000, 40 << 20, 5 << 20};
    size_t bytes = (size_t)(asked.smoke ? 64 : 2048) << 20;
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++) {
        size_t size = SIZES[s] + (size_t)(draw(&seed) % 4096);
        int count = (int)(bytes / size);
        for (int i = 0; i < MOST_BLOCKS; i++)
            give(who, i);
        for (int i = 0; i < count && i < MOST_BLOCKS; i++)
            take(who, i, size);
    }
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void (*make)(const entrant *who, uint64_t seed);
    } KINDS[] = {{"holes", holes}, {"drift", drift}, {"phases", phases}};
    read_options(count, words, 21, 1);
    if (!start_contest(0, 0))
        return 0;
    double *values = calloc((size_t)(field_count * asked.rounds) + 1, sizeof *values);
    size_t kinds = sizeof KINDS / sizeof *KINDS;
    double start = now();
    for (size_t k = 0; k < kinds; k++) {
        /* Each kind has its share of the time. */
        double end = start + (asked.end - start) * (double)(k + 1) / (double)kinds;
        int made = 0;
        for (int round = 0; round < asked.rounds && (round == 0 || now() < end); round++, made++)
            for (int i = 0; i < field_count; i++) {
                entrant *who = &field[i];
                if (who->is_out || who->is->peak_reserved == NULL || who->is->reset == NULL)
                    continue;
                who->is->reset();
                live = most_live = 0;
                refused = 0;
                KINDS[k].make(who, (uint64_t)round + 1);
                for (int b = 0; b < MOST_BLOCKS; b++)
                    give(who, b);
                wait_for(who->is, who->stream);
                if (refused)
                    put_out(who, "fragmentation");
                values[i * asked.rounds + round] = (double)who->is->peak_reserved() / (double)most_live;
                who->is->reset();
            }
        for (int i = 0; i < field_count; i++)
            if (!field[i].is_out && field[i].is->peak_reserved != NULL && field[i].is->reset != NULL)
                report("fragmentation", field[i].is->name, KINDS[k].name, "times", values + i * asked.rounds, made);
    }
    free(values);
    end_contest();
    return 0;
}
