/*
 * scope.c: what is so on a thread until a scope ends: its stream, its device; order, threads, and what goes away meanwhile.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "blocks.h"
#include "forked.h"
#include "process.h"

#include <pthread.h>
#include <warpmem.h>

static warp_scope *with_stream(warp_device *on, warp_stream *stream)
{
    warp_scope *scope = NULL;
    CHECK_STATUS(warp_scope_begin_stream(on, stream, &scope), WARP_SUCCESS);
    CHECK(scope != NULL);
    return scope;
}

static warp_scope *with_device(warp_device *device)
{
    warp_scope *scope = NULL;
    CHECK_STATUS(warp_scope_begin_device(device, &scope), WARP_SUCCESS);
    CHECK(scope != NULL);
    return scope;
}

static void end(warp_scope *scope)
{
    CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
}

static warp_device *default_device(void)
{
    warp_device *found = NULL;
    CHECK_STATUS(warp_device_get_default(&found), WARP_SUCCESS);
    return found;
}

static warp_device *thread_device(void)
{
    warp_device *found = NULL;
    CHECK_STATUS(warp_device_get_for_thread(&found), WARP_SUCCESS);
    return found;
}

PROCESS_TEST(a_stream_scope_puts_back_what_was_before)
{
    warp_stream *standard, *a, *b, *c;
    warp_scope *outer, *inner;
    start_on("h200x2");
    standard = stream_of(gpu(1));
    a = new_stream(gpu(1), 0);
    b = new_stream(gpu(1), 0);
    c = new_stream(gpu(1), 0);
    outer = with_stream(gpu(1), a);
    CHECK_EQ_PTR(stream_of(gpu(1)), a);
    CHECK(stream_of(gpu(0)) != a);
    inner = with_stream(gpu(1), b);
    CHECK_EQ_PTR(stream_of(gpu(1)), b);
    /* NULL is the device's default stream, whatever the thread had. */
    end(with_stream(gpu(1), NULL));
    {
        warp_scope *none = with_stream(gpu(1), NULL);
        CHECK_EQ_PTR(stream_of(gpu(1)), standard);
        end(none);
    }
    CHECK_EQ_PTR(stream_of(gpu(1)), b);
    /* What the thread chooses inside holds until the scope ends. */
    CHECK_STATUS(warp_stream_set_current(gpu(1), c), WARP_SUCCESS);
    CHECK_EQ_PTR(stream_of(gpu(1)), c);
    end(inner);
    CHECK_EQ_PTR(stream_of(gpu(1)), a);
    end(outer);
    CHECK_EQ_PTR(stream_of(gpu(1)), standard);
    /* Around a choice of the thread's. */
    CHECK_STATUS(warp_stream_set_current(gpu(1), c), WARP_SUCCESS);
    outer = with_stream(gpu(1), a);
    end(outer);
    CHECK_EQ_PTR(stream_of(gpu(1)), c);
    /* NULL is the default device. */
    CHECK_STATUS(warp_device_set_default(gpu(1)), WARP_SUCCESS);
    outer = with_stream(NULL, b);
    CHECK_EQ_PTR(stream_of(gpu(1)), b);
    end(outer);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(a_device_scope_puts_back_what_was_before)
{
    warp_scope *outer, *inner;
    start_on("h200x2");
    CHECK_EQ_PTR(default_device(), gpu(0));
    outer = with_device(gpu(1));
    CHECK_EQ_PTR(default_device(), gpu(1));
    CHECK_EQ_PTR(thread_device(), gpu(1));
    inner = with_device(cpu());
    CHECK_EQ_PTR(default_device(), cpu());
    /* The process's choice is seen when no scope lies over it. */
    CHECK_STATUS(warp_device_set_default(gpu(1)), WARP_SUCCESS);
    CHECK_EQ_PTR(default_device(), cpu());
    /* The thread's own holds until the scope ends. */
    CHECK_STATUS(warp_device_set_for_thread(gpu(0)), WARP_SUCCESS);
    CHECK_EQ_PTR(default_device(), gpu(0));
    end(inner);
    CHECK_EQ_PTR(default_device(), gpu(1));
    CHECK_STATUS(warp_device_set_default(gpu(0)), WARP_SUCCESS);
    /* NULL is what is the default now, and stays. */
    inner = with_device(NULL);
    end(inner);
    end(outer);
    CHECK_EQ_PTR(default_device(), gpu(0));
    CHECK_EQ_PTR(thread_device(), NULL);
    inner = with_device(NULL);
    CHECK_STATUS(warp_device_set_default(gpu(1)), WARP_SUCCESS);
    CHECK_EQ_PTR(default_device(), gpu(0));
    end(inner);
    CHECK_EQ_PTR(default_device(), gpu(1));
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
}

/* ---- Order ----------------------------------------------------------------------------------------------------------------- */

static void *end_elsewhere(void *scope)
{
    CHECK_STATUS(warp_scope_end(scope), WARP_ERROR_SCOPE_ORDER);
    CHECK_STR_CONTAINS(warp_error_get_message(), "another thread");
    return NULL;
}

PROCESS_TEST(only_the_last_scope_of_the_thread_can_be_ended_and_once)
{
    warp_scope *first, *second, *third;
    warp_stream *stream;
    pthread_t thread;
    start_on("h200x2");
    stream = new_stream(gpu(0), 0);
    first = with_device(gpu(1));
    second = with_stream(gpu(0), stream);
    third = with_device(cpu());
    CHECK(first != second && second != third && first != third);
    CHECK_STATUS(warp_scope_end(first), WARP_ERROR_SCOPE_ORDER);
    CHECK_STR_CONTAINS(warp_error_get_message(), "2 scopes");
    CHECK_STATUS(warp_scope_end(second), WARP_ERROR_SCOPE_ORDER);
    REQUIRE(pthread_create(&thread, NULL, end_elsewhere, third) == 0);
    pthread_join(thread, NULL);
    CHECK_EQ_PTR(default_device(), cpu());
    CHECK_EQ_PTR(stream_of(gpu(0)), stream);
    end(third);
    CHECK_STATUS(warp_scope_end(third), WARP_ERROR_SCOPE_ORDER);
    CHECK_STR_CONTAINS(warp_error_get_message(), "ended before");
    CHECK_EQ_PTR(default_device(), gpu(1));
    CHECK_EQ_PTR(stream_of(gpu(0)), stream);
    end(second);
    end(first);
    CHECK_STATUS(warp_scope_end(second), WARP_ERROR_SCOPE_ORDER);
    CHECK_EQ_PTR(default_device(), gpu(0));
    CHECK(stream_of(gpu(0)) != stream);
    CHECK_STATUS(warp_scope_end(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_end((warp_scope *)64), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_scope_end((warp_scope *)stream), WARP_ERROR_INVALID_HANDLE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "of type stream");
}

PROCESS_TEST(a_scope_that_cannot_begin_changes_nothing)
{
    warp_scope *scope = (warp_scope *)1, *open[64];
    warp_stream *other, *gone;
    size_t i;
    start_on("h200x2");
    other = new_stream(gpu(1), 0);
    gone = new_stream(gpu(0), 0);
    CHECK_STATUS(warp_stream_release(gone), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_begin_stream(gpu(0), other, &scope), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_PTR(scope, NULL);
    CHECK_STATUS(warp_scope_begin_stream(gpu(0), gone, &scope), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_scope_begin_stream((warp_device *)64, other, &scope), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_scope_begin_device((warp_device *)64, &scope), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_scope_begin_stream(gpu(1), other, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_scope_begin_device(gpu(1), NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_PTR(default_device(), gpu(0));
    CHECK(stream_of(gpu(1)) != other);
    for (i = 0; i < 64; ++i)
        open[i] = i & 1 ? with_stream(gpu(1), other) : with_device(gpu(1));
    CHECK_STATUS(warp_scope_begin_device(cpu(), &scope), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(warp_scope_begin_stream(gpu(1), NULL, &scope), WARP_ERROR_NOT_SUPPORTED);
    CHECK_EQ_PTR(scope, NULL);
    CHECK_EQ_PTR(default_device(), gpu(1));
    CHECK_EQ_PTR(stream_of(gpu(1)), other);
    for (i = 64; i-- > 0;)
        end(open[i]);
    CHECK_EQ_PTR(default_device(), gpu(0));
}

/* ---- What goes away inside ---------------------------------------------------------------------------------------------- */

PROCESS_TEST(a_stream_released_inside_its_scope_gives_way_to_the_default)
{
    warp_stream *standard, *before, *inside;
    warp_scope *scope;
    start_on("h200x2");
    standard = stream_of(gpu(0));
    before = new_stream(gpu(0), 0);
    inside = new_stream(gpu(0), 0);
    CHECK_STATUS(warp_stream_set_current(gpu(0), before), WARP_SUCCESS);
    scope = with_stream(gpu(0), inside);
    CHECK_STATUS(warp_stream_release(inside), WARP_SUCCESS);
    CHECK_EQ_PTR(stream_of(gpu(0)), standard);
    end(scope);
    CHECK_EQ_PTR(stream_of(gpu(0)), before);
    /* And one that is released outside of it while it is not seen. */
    inside = new_stream(gpu(0), 0);
    scope = with_stream(gpu(0), inside);
    CHECK_STATUS(warp_stream_release(before), WARP_SUCCESS);
    CHECK_EQ_PTR(stream_of(gpu(0)), inside);
    end(scope);
    CHECK_EQ_PTR(stream_of(gpu(0)), standard);
    CHECK_STATUS(warp_stream_release(inside), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

PROCESS_TEST(a_device_lost_inside_a_scope_counts_as_no_choice)
{
    warp_device *mine = NULL;
    warp_scope *outer, *inner;
    CUcontext context;
    start_on("h200x2");
    context = driver_foreign(1);
    CHECK_STATUS(warp_device_from_context(context, NULL, &mine), WARP_SUCCESS);
    outer = with_device(mine);
    inner = with_stream(mine, NULL);
    CHECK_STATUS(warp_device_remove(mine), WARP_SUCCESS);
    CHECK_EQ_PTR(default_device(), gpu(0));
    end(inner);
    end(outer);
    outer = with_device(gpu(1));
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(1), 0);
    end(with_device(cpu()));
    end(outer);
    CHECK_EQ_PTR(default_device(), gpu(0));
}

PROCESS_TEST(scopes_can_be_ended_after_the_library_and_begun_in_its_next_life)
{
    warp_scope *device_scope, *stream_scope, *scope = NULL;
    warp_stream *stream;
    start_on("h200x2");
    stream = new_stream(gpu(0), 0);
    device_scope = with_device(gpu(1));
    stream_scope = with_stream(gpu(0), stream);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_begin_device(NULL, &scope), WARP_ERROR_SHUT_DOWN);
    CHECK_STATUS(warp_scope_begin_stream(NULL, NULL, &scope), WARP_ERROR_SHUT_DOWN);
    end(stream_scope);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_EQ_PTR(default_device(), gpu(0));
    scope = with_device(cpu());
    CHECK_STATUS(warp_scope_end(device_scope), WARP_ERROR_SCOPE_ORDER);
    end(scope);
    end(device_scope);
    CHECK_EQ_PTR(default_device(), gpu(0));
}

PROCESS_TEST(before_the_start_there_is_no_scope)
{
    warp_scope *scope = (warp_scope *)1;
    CHECK_STATUS(warp_scope_begin_device(NULL, &scope), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_PTR(scope, NULL);
    CHECK_STATUS(warp_scope_end(NULL), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_scope_end((warp_scope *)64), WARP_ERROR_NOT_INITIALIZED);
}

/* ---- Threads and processes ----------------------------------------------------------------------------------------------- */

static void *leave_open(void *stream)
{
    warp_scope *scopes[3];
    /* Nothing of the thread that began it. */
    CHECK_EQ_PTR(default_device(), gpu(0));
    CHECK(stream_of(gpu(1)) != stream);
    scopes[0] = with_device(cpu());
    scopes[1] = with_stream(gpu(1), stream);
    scopes[2] = with_device(gpu(1));
    end(scopes[2]);
    return scopes[1];
}

PROCESS_TEST(threads_have_scopes_of_their_own_and_may_end_with_some_open)
{
    warp_stream *stream;
    warp_scope *mine;
    pthread_t thread;
    int i;
    start_on("h200x2");
    stream = new_stream(gpu(1), 0);
    mine = with_device(gpu(1));
    with_stream(gpu(1), stream);
    for (i = 0; i < 100; ++i) {
        void *theirs = NULL;
        REQUIRE(pthread_create(&thread, NULL, leave_open, stream) == 0);
        pthread_join(thread, &theirs);
        CHECK_STATUS(warp_scope_end(theirs), WARP_ERROR_SCOPE_ORDER);
    }
    CHECK_STATUS(warp_scope_end(mine), WARP_ERROR_SCOPE_ORDER);
    CHECK_EQ_PTR(default_device(), gpu(1));
}

static void end_in_child(void *scope)
{
    CHECK_EQ_PTR(default_device(), cpu());
    end(scope);
    end(with_device(cpu()));
}

PROCESS_TEST(a_forked_child_ends_what_its_thread_had_open)
{
    warp_scope *scope;
    start_on("h200x2");
    scope = with_device(cpu());
    in_child(end_in_child, scope, 60);
    end(scope);
}

CHECK_MAIN()
