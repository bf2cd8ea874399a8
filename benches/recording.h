/*
 * recording.h: a log of allocations (docs/replay.md has the format, `warpmem-replay` takes it too) as a list of steps; and one
 * that chance made, by a generator that gives the same log everywhere.
 *
 * The generator: splitmix64 (a state that grows by 0x9e3779b97f4a7c15, then two xor-shift-multiply steps), started with the
 * seed. Blocks are allocated until 1,000 are live; from then on one bit decides between an allocation, which is a free while
 * 1,000 are live, and a free, which is an allocation while none is. What is freed is drawn from the live ones. Sizes are
 * log-uniform from 256 bytes to 64 MiB: 18 doublings of which one is drawn, and a place in it by 16 bits, between whose 17
 * marks of 2^(i/16) the size is linear. Integers alone, and one draw of 64 bits for each decision.
 */
#ifndef WARPMEM_BENCHES_RECORDING_H
#define WARPMEM_BENCHES_RECORDING_H

#include "rounds.h"

#include <inttypes.h>

enum { RECORDED_STEPS = 100000, RECORDED_LIVE = 1000 };

typedef struct step {
    uint32_t slot;
    uint8_t is_free;
    uint64_t size;
} step;

typedef struct recording {
    step *steps;
    size_t count;
    /* Blocks that are live at once have slots of their own below this. */
    uint32_t slots;
    uint64_t peak_live;
} recording;

/* ---- Made ---------------------------------------------------------------------------------------------------------------- */

static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t draw_size(uint64_t *state)
{
    static const uint32_t MARKS[17] = {65536, 68438, 71468, 74632, 77936, 81386, 84990, 88752, 92682,
                                       96785, 101070, 105545, 110218, 115098, 120194, 125515, 131072};
    uint64_t drawn = draw(state), place = (drawn >> 16) & 0xffff, mark = place >> 12, rest = place & 0xfff;
    uint64_t power = 8 + (drawn >> 32) % 18;
    uint64_t factor = MARKS[mark] + ((MARKS[mark + 1] - MARKS[mark]) * rest >> 12);
    return (factor << power) >> 16;
}

MAYBE_UNUSED static int make_recording(uint64_t seed, const char *path)
{
    static uint64_t sizes[RECORDED_LIVE];
    static uint32_t live[RECORDED_LIVE], spare[RECORDED_LIVE];
    uint32_t live_count = 0, spare_count = RECORDED_LIVE;
    uint64_t state = seed;
    int filled = 0;
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return 1;
    for (uint32_t i = 0; i < RECORDED_LIVE; i++)
        spare[i] = RECORDED_LIVE - 1 - i;
    fprintf(file, "warpmem-allocation-log 1\nthread,time,action,pointer,size,alignment,device,stream,tag,status\n");
    for (int at = 0; at < RECORDED_STEPS; at++) {
        int allocates = !filled || (draw(&state) & 1) != 0;
        uint32_t slot;
        if (live_count == RECORDED_LIVE)
            allocates = 0;
        if (live_count == 0)
            allocates = 1;
        if (allocates) {
            slot = spare[--spare_count];
            live[live_count++] = slot;
            sizes[slot] = draw_size(&state);
            filled |= live_count == RECORDED_LIVE;
        } else {
            uint32_t index = (uint32_t)(draw(&state) % live_count);
            slot = live[index];
            live[index] = live[--live_count];
            spare[spare_count++] = slot;
        }
        fprintf(file, "1,%d,%s,0x%" PRIx64 ",%" PRIu64 ",256,0,1,\"\",0\n", at * 1000, allocates ? "allocate" : "deallocate",
                UINT64_C(0x7f0000000000) + ((uint64_t)slot << 27), sizes[slot]);
    }
    return fclose(file) != 0;
}

/* ---- Read ---------------------------------------------------------------------------------------------------------------- */

/* Addresses that are live, by open addressing; as many places as make it never full. */
typedef struct live_table {
    uint64_t *keys;
    uint32_t *slots;
    size_t mask;
} live_table;

static size_t place_of(const live_table *table, uint64_t key)
{
    size_t at = (size_t)((key >> 8) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & table->mask;
    while (table->keys[at] != 0 && table->keys[at] != key)
        at = (at + 1) & table->mask;
    return at;
}

static void take_out(live_table *table, size_t at)
{
    table->keys[at] = 0;
    /* Those behind it may stand where they do because of it. */
    for (size_t next = (at + 1) & table->mask; table->keys[next] != 0; next = (next + 1) & table->mask) {
        uint64_t key = table->keys[next];
        uint32_t slot = table->slots[next];
        table->keys[next] = 0;
        size_t better = place_of(table, key);
        table->keys[better] = key;
        table->slots[better] = slot;
    }
}

/* Reads a log; what failed in it, and frees of what it did not allocate, are not among the steps. */
MAYBE_UNUSED static recording read_recording(const char *path)
{
    recording made = {NULL, 0, 0, 0};
    char line[512];
    size_t room = 0, spare_count = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL || !fgets(line, sizeof line, file) || strncmp(line, "warpmem-allocation-log 1", 24) != 0) {
        fprintf(stderr, "%s: no log of allocations\n", path);
        exit(1);
    }
    while (fgets(line, sizeof line, file))
        room++;
    rewind(file);
    live_table table = {NULL, NULL, 1};
    while (table.mask < 2 * room + 1)
        table.mask = table.mask * 2 + 1;
    table.keys = (uint64_t *)calloc(table.mask + 1, sizeof *table.keys);
    table.slots = (uint32_t *)calloc(table.mask + 1, sizeof *table.slots);
    made.steps = (step *)calloc(room + 1, sizeof *made.steps);
    uint32_t *spare = (uint32_t *)calloc(room + 1, sizeof *spare);
    uint64_t *sizes = (uint64_t *)calloc(room + 1, sizeof *sizes), live = 0;
    if (table.keys == NULL || table.slots == NULL || made.steps == NULL || spare == NULL || sizes == NULL)
        exit(1);
    while (fgets(line, sizeof line, file)) {
        char action[24];
        uint64_t pointer, size;
        if (sscanf(line, "%*u,%*u,%23[a-z-],%" SCNx64 ",%" SCNu64, action, &pointer, &size) != 3 || pointer == 0)
            continue;
        size_t at = place_of(&table, pointer);
        if (strcmp(action, "allocate") == 0 && table.keys[at] == 0) {
            uint32_t slot = spare_count > 0 ? spare[--spare_count] : made.slots++;
            table.keys[at] = pointer;
            table.slots[at] = slot;
            sizes[slot] = size;
            live += size;
            made.peak_live = live > made.peak_live ? live : made.peak_live;
            made.steps[made.count++] = (step){slot, 0, size};
        } else if (strcmp(action, "deallocate") == 0 && table.keys[at] != 0) {
            uint32_t slot = table.slots[at];
            take_out(&table, at);
            spare[spare_count++] = slot;
            live -= sizes[slot];
            made.steps[made.count++] = (step){slot, 1, sizes[slot]};
        }
    }
    fclose(file);
    free(table.keys);
    free(table.slots);
    free(spare);
    free(sizes);
    return made;
}

#endif
