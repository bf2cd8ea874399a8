/*
 * A pair of an allocation and its free of page-locked host memory, by size.
 *
 *     pinned [options of contest.h]
 */
#define _GNU_SOURCE
#include "contest.h"

int main(int count, char **words)
{
    static const size_t SIZES[] = {4096, 65536, 1 << 20, 16 << 20};
    read_options(count, words, 21, 1e5);
    if (!start_contest(CONTESTANT_PINNED, CONTESTANT_SYNCHRONOUS))
        return 0;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        char what[64];
        snprintf(what, sizeof what, "%zu bytes", SIZES[i]);
        contest("pinned", what, "ns", pairs_turn, NULL, &SIZES[i]);
    }
    end_contest();
    return 0;
}
