/*
 * copy_model.c: random copies of arrays of any strides, by index arrays, between all kinds of memory of two GPUs and the host,
 * beside a slow copy (copy_model.h). All runs together make more than 40,000 copies, and more than 100,000 with 40 seeds.
 *
 *     copy_model                            all of it
 *     WARPMEM_COPY_CASE=7:31 copy_model     one copy again, by its seed and number
 *     WARPMEM_COPY_SEEDS=40 ctest --test-dir build/cmake -R copy_model      all of it with 40 seeds
 *     WARPMEM_COPY_SEED_FIRST=1000 WARPMEM_COPY_SEEDS=5000 copy_model      more of them
 *
 * valgrind: no (copies by the ten thousand take minutes there)
 * topology: h200x2
 * topology: h200x2,peers=0
 * topology: discrete
 * topology: wsl
 * topology: mixed
 * topology: hmm
 * topology: none
 */
#define _POSIX_C_SOURCE 200809L
#include "copy_model.h"

#define SEEDS 15
#define COPIES 400
#define LARGE 2
#define LARGE_EVERY 9 /* seeds: the large copies take longer than all others together */

TEST(random_copies_are_what_a_slow_copy_makes)
{
    const uint64_t first = model_number_of("WARPMEM_COPY_SEED_FIRST", 1);
    const uint64_t seeds = model_number_of("WARPMEM_COPY_SEEDS", check_under("valgrind") ? 1 : check_under("sanitizer") ? 6 : SEEDS);
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    if (simulator_is_here())
        SIMULATOR(warpsim_races)(1);
    model_run(first, seeds, COPIES, LARGE, LARGE_EVERY);
    printf("\n    %" PRIu64 " copies of %" PRIu64 " items, %" PRIu64 " of them large, %" PRIu64 " denied", model.made, model.items, model.large,
           model.denied);
    if (getenv("WARPMEM_COPY_CASE") == NULL)
        CHECK(model.made >= seeds * COPIES);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    if (simulator_is_here()) {
        static const char *const kinds[] = {"pool", "pinned", "registered", "managed", "graph_block"};
        char text[512];
        size_t i;
        CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
        for (i = 0; i < 5 && SIMULATOR(warpsim_violation_get)(i, text, sizeof text) != 0; ++i)
            printf("\n    %s", text);
        for (i = 0; i < sizeof kinds / sizeof *kinds; ++i)
            CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(kinds[i]), 0);
    }
}

CHECK_MAIN()
