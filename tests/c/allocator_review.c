/* Allocators of other code where threads, forks and callbacks meet: what one thread does in the middle of another's callback,
 * and what a child finds of what its parent's threads were doing.
 *
 * topology: h200x2
 * needs: simulator
 * valgrind: no (what a thread held that the fork left behind is lost in the child)
 */
#define _GNU_SOURCE
#include "adaptors.h"
#include "forked.h"

#include "captures.h"

/* ---- forks -------------------------------------------------------------------------------------------------------- */

static void build_on_the_builtin(void *argument)
{
    int sort;
    (void)argument;
    for (sort = 0; sort < ADAPTORS; ++sort) {
        warp_allocator *adaptor = make_adaptor(sort, builtin(WARP_MEMORY_HOST));
        void *ptr = take(adaptor, cpu(), 4096);
        memset(ptr, 7, 4096);
        give(adaptor, ptr);
        ptr = block_by(adaptor, cpu(), 100, NULL);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        release(adaptor);
    }
}

PROCESS_TEST(a_child_builds_on_the_built_in_allocator_of_host_memory)
{
    CHECK(start());
    give(builtin(WARP_MEMORY_HOST), take(builtin(WARP_MEMORY_HOST), cpu(), 100));
    in_child(build_on_the_builtin, NULL, 30);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

CHECK_MAIN()
