/*
 * A recorded trace of allocations, replayed identically through every contestant on one stream: what an operation costs when the
 * contestant starts from nothing (cold) and when it has served the same trace before (warm, everything freed in between), and
 * how much of the GPU's memory it took at most, as a multiple of what was live at most.
 *
 *     trace [options of contest.h] [LOG ...]
 *     trace --make SEED LOG
 *
 * A log is what warp_allocator_create_logging() writes; `--make` writes one by chance (recording.h says how). Without logs those
 * of the seeds 1, 2 and 3 are made and replayed. The logs take turns from round to round.
 */
#define _GNU_SOURCE
#include "contest.h"
#include "recording.h"

#include <unistd.h>

/* Nanoseconds of a step; below 0 when the contestant did not get through. */
static double replay(const entrant *who, const recording *log, void **blocks)
{
    const contestant *is = who->is;
    size_t done = log->count;
    double begin = now();
    for (size_t i = 0; i < log->count; i++) {
        const step *at = &log->steps[i];
        if (at->is_free) {
            is->release(blocks[at->slot], at->size, who->stream);
            blocks[at->slot] = NULL;
        } else {
            blocks[at->slot] = is->allocate(at->size, who->stream);
            if (blocks[at->slot] == NULL) {
                done = i;
                break;
            }
        }
    }
    double took = now() - begin;
    /* What the log leaves live; sizes are those of the last allocation in the slot. */
    for (size_t i = done; i-- > 0;) {
        const step *at = &log->steps[i];
        if (!at->is_free && blocks[at->slot] != NULL) {
            is->release(blocks[at->slot], at->size, who->stream);
            blocks[at->slot] = NULL;
        }
    }
    wait_for(who->is, who->stream);
    return done == log->count ? took / (double)log->count : -1;
}

static recording recorded(int index)
{
    const char *folder = getenv("TMPDIR");
    char path[4096];
    if (asked.file_count > 0)
        return read_recording(asked.files[index]);
    snprintf(path, sizeof path, "%s/warpmem-trace-XXXXXX", folder != NULL ? folder : P_tmpdir);
    int file = mkstemp(path);
    if (file < 0 || close(file) != 0 || make_recording((uint64_t)index + 1, path) != 0) {
        fprintf(stderr, "%s cannot be written\n", path);
        exit(1);
    }
    recording made = read_recording(path);
    unlink(path);
    return made;
}

int main(int count, char **words)
{
    if (count == 4 && strcmp(words[1], "--make") == 0)
        return make_recording(strtoull(words[2], NULL, 0), words[3]);
    read_options(count, words, 21, 1);
    if (!start_contest(0, 0))
        return 0;
    int logs = asked.file_count > 0 ? asked.file_count : 3;
    if (asked.smoke)
        logs = 1;
    int each = asked.smoke ? 1 : (asked.rounds + logs - 1) / logs, rounds = each * logs, made = 0;
    enum { COLD, WARM, PEAK, KINDS };
    double *values = calloc((size_t)(field_count * rounds * KINDS) + 1, sizeof *values);
    recording all[8];
    for (int l = 0; l < logs; l++) {
        all[l] = recorded(l);
        if (asked.smoke && all[l].count > 3000)
            all[l].count = 3000;
    }
    for (int i = 0; i < field_count; i++)
        if (field[i].is->reset)
            field[i].is->reset();
    for (; made < rounds && (made == 0 || now() < asked.end); made++) {
        const recording *log = &all[made % logs];
        void **blocks = calloc((size_t)log->slots + 1, sizeof *blocks);
        for (int k = 0; k < field_count; k++) {
            int i = (made + k) % field_count;
            entrant *who = &field[i];
            if (who->is_out)
                continue;
            double *to = values + i * rounds * KINDS + made;
            to[COLD * rounds] = replay(who, log, blocks);
            to[WARM * rounds] = replay(who, log, blocks);
            if (to[COLD * rounds] < 0 || to[WARM * rounds] < 0)
                put_out(who, "trace");
            if (who->is->peak_reserved)
                to[PEAK * rounds] = (double)who->is->peak_reserved() / (double)log->peak_live;
            /* It starts from nothing next time; nor must it hold what others are then said to hold, or lack it. */
            if (who->is->reset)
                who->is->reset();
        }
        free(blocks);
    }
    for (int i = 0; i < field_count; i++) {
        const double *of = values + i * rounds * KINDS;
        const char *library = field[i].is->name;
        if (field[i].is_out)
            continue;
        report("trace", library, "cold", "ns/operation", of + COLD * rounds, made);
        report("trace", library, "warm", "ns/operation", of + WARM * rounds, made);
        if (field[i].is->peak_reserved)
            report("trace", library, "peak reserved / peak live", "times", of + PEAK * rounds, made);
    }
    for (int l = 0; l < logs; l++)
        free(all[l].steps);
    free(values);
    end_contest();
    return 0;
}
