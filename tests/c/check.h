/*
 * check.h: the harness of the C and C++ tests, one header and no library.
 *
 *     #include "check.h"
 *     #include <warpmem.h>
 *
 *     TEST(a_null_free_is_a_success) { CHECK_STATUS(warp_free(NULL), WARP_SUCCESS); }
 *
 *     CHECK_MAIN()
 *
 * Tests register themselves and run in the order they are written. `CHECK...` notes a failure and goes on; `REQUIRE...`
 * notes it and returns from the function it stands in (which must return void). Checks may be made from any thread.
 * Arguments given to the program choose the tests whose names contain one of them; `--list` names them all. The last
 * line of the output is `N passed, N failed`, and the program's exit status is zero when nothing failed.
 *
 * A test that cannot run where it is says so with SKIP("reason"): it counts neither as passed nor as failed, and is named
 * in the output.
 *
 * Where a program runs, it says in comment lines of its own near its top (cmake/programs.cmake reads them): `topology: mixed`
 * for another simulated machine, `topology: -` for no driver at all, each line a run; `valgrind: no (reason)` or `valgrind: slow
 * (reason)`; `needs: simulator` keeps it out of the kit for machines with a GPU, and `needs: hardware` has it run only there.
 *
 * check_under("valgrind") and check_under("sanitizer") say whether the program is being watched, for the few tests that a
 * watcher cannot serve (an alignment of a gibibyte) or that would take too long.
 *
 * A failed CHECK_STATUS prints the names of the two statuses and the message of the thread's last error. A program without
 * warpmem defines CHECK_WITHOUT_WARPMEM before it includes this header, and has the numbers alone.
 */
#ifndef WARPMEM_TESTS_CHECK_H
#define WARPMEM_TESTS_CHECK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
#include <exception>
#endif

#ifdef CHECK_WITHOUT_WARPMEM
#define CHECK_STATUS_NAME(status) check_no_name(status)
#define CHECK_STATUS_DETAIL() ""
#else
#include <warpmem.h>
#define CHECK_STATUS_NAME(status) warp_status_get_name(status)
#define CHECK_STATUS_DETAIL() warp_error_get_message()
#endif

#define CHECK_MAYBE_UNUSED __attribute__((unused))

struct check_test {
    const char *name;
    void (*body)(void);
    struct check_test *next;
};

/* One program is one translation unit with CHECK_MAIN(), so file-scope state is the whole state. */
static struct check_test *check_first;
static struct check_test **check_end = &check_first;
static int check_failures; /* of the running test; atomic, since threads may check */
static const char *check_skip_reason;

CHECK_MAYBE_UNUSED static const char *check_no_name(int64_t status)
{
    (void)status;
    return "";
}

CHECK_MAYBE_UNUSED static int check_under(const char *watcher)
{
    const char *under = getenv("WARPMEM_TEST_UNDER");
    return under != NULL && strcmp(under, watcher) == 0;
}

CHECK_MAYBE_UNUSED static void check_register(struct check_test *test)
{
    *check_end = test;
    check_end = &test->next;
}

/* Failures of the running test so far: for a forked child, which passes it on through its exit status. */
CHECK_MAYBE_UNUSED static int check_failure_count(void)
{
    return __atomic_load_n(&check_failures, __ATOMIC_SEQ_CST);
}

CHECK_MAYBE_UNUSED static void check_note_failure(void)
{
    __atomic_fetch_add(&check_failures, 1, __ATOMIC_SEQ_CST);
}

CHECK_MAYBE_UNUSED static int check_that(int holds, const char *file, int line, const char *text)
{
    if (!holds) {
        check_note_failure();
        printf("\n    %s:%d: not true: %s", file, line, text);
    }
    return holds;
}

CHECK_MAYBE_UNUSED static int check_u64(uint64_t left, uint64_t right, const char *file, int line, const char *text)
{
    if (left != right) {
        check_note_failure();
        printf("\n    %s:%d: %s: %" PRIu64 " (0x%" PRIx64 ") is not %" PRIu64 " (0x%" PRIx64 ")", file, line, text, left,
               left, right, right);
    }
    return left == right;
}

CHECK_MAYBE_UNUSED static int check_i64(int64_t left, int64_t right, const char *file, int line, const char *text)
{
    if (left != right) {
        check_note_failure();
        printf("\n    %s:%d: %s: %" PRId64 " is not %" PRId64, file, line, text, left, right);
    }
    return left == right;
}

CHECK_MAYBE_UNUSED static int check_ptr(const void *left, const void *right, const char *file, int line, const char *text)
{
    if (left != right) {
        check_note_failure();
        printf("\n    %s:%d: %s: %p is not %p", file, line, text, left, right);
    }
    return left == right;
}

CHECK_MAYBE_UNUSED static int check_str(const char *left, const char *right, const char *file, int line,
                                        const char *text)
{
    int same = left != NULL && right != NULL && strcmp(left, right) == 0;
    if (!same) {
        check_note_failure();
        printf("\n    %s:%d: %s:\n        \"%s\"\n      is not\n        \"%s\"", file, line, text,
               left ? left : "(null)", right ? right : "(null)");
    }
    return same;
}

CHECK_MAYBE_UNUSED static int check_contains(const char *hay, const char *needle, const char *file, int line,
                                             const char *text)
{
    int found = hay != NULL && needle != NULL && strstr(hay, needle) != NULL;
    if (!found) {
        check_note_failure();
        printf("\n    %s:%d: %s:\n        \"%s\"\n      has no\n        \"%s\"", file, line, text, hay ? hay : "(null)",
               needle ? needle : "(null)");
    }
    return found;
}

CHECK_MAYBE_UNUSED static void check_wrong_status(int64_t got, const char *got_name, int64_t expected,
                                                  const char *expected_name, const char *detail, const char *file,
                                                  int line, const char *text)
{
    check_note_failure();
    printf("\n    %s:%d: %s: status %" PRId64 " %s is not %" PRId64 " %s", file, line, text, got,
           got_name ? got_name : "", expected, expected_name ? expected_name : "");
    if (detail != NULL && detail[0] != '\0')
        printf("\n        %s", detail);
}

/* The macros are variadic where a C++ argument may hold a comma. */
#define CHECK(...) ((void)check_that((__VA_ARGS__) ? 1 : 0, __FILE__, __LINE__, #__VA_ARGS__))
#define CHECK_EQ_U64(a, b) ((void)check_u64((uint64_t)(a), (uint64_t)(b), __FILE__, __LINE__, #a " == " #b))
#define CHECK_EQ_I64(a, b) ((void)check_i64((int64_t)(a), (int64_t)(b), __FILE__, __LINE__, #a " == " #b))
#define CHECK_EQ_PTR(a, b) ((void)check_ptr((a), (b), __FILE__, __LINE__, #a " == " #b))
#define CHECK_EQ_STR(a, b) ((void)check_str((a), (b), __FILE__, __LINE__, #a " == " #b))
#define CHECK_STR_CONTAINS(hay, needle) \
    ((void)check_contains((hay), (needle), __FILE__, __LINE__, #hay " contains " #needle))
#define CHECK_STATUS(expr, status)                                                                                \
    do {                                                                                                          \
        int64_t check_got_ = (int64_t)(expr), check_expected_ = (int64_t)(status);                                \
        if (check_got_ != check_expected_)                                                                        \
            check_wrong_status(check_got_, CHECK_STATUS_NAME((int32_t)check_got_), check_expected_,               \
                               CHECK_STATUS_NAME((int32_t)check_expected_), CHECK_STATUS_DETAIL(), __FILE__,      \
                               __LINE__, #expr);                                                                  \
    } while (0)

#define REQUIRE(...)                                                                         \
    do {                                                                                     \
        if (!check_that((__VA_ARGS__) ? 1 : 0, __FILE__, __LINE__, #__VA_ARGS__)) \
            return;                                                                          \
    } while (0)
#define REQUIRE_STATUS(expr, status)                                                                                \
    do {                                                                                                            \
        int64_t require_got_ = (int64_t)(expr), require_expected_ = (int64_t)(status);                              \
        if (require_got_ != require_expected_) {                                                                    \
            check_wrong_status(require_got_, CHECK_STATUS_NAME((int32_t)require_got_), require_expected_,           \
                               CHECK_STATUS_NAME((int32_t)require_expected_), CHECK_STATUS_DETAIL(), __FILE__,      \
                               __LINE__, #expr);                                                                    \
            return;                                                                                                 \
        }                                                                                                           \
    } while (0)

/* Ends the running test as left out, with the reason. Only in the body of a TEST or another void function. */
#define SKIP(reason)                  \
    do {                              \
        check_skip_reason = (reason); \
        return;                       \
    } while (0)

#ifdef __cplusplus
#define CHECK_THROWS(exception_type, ...)                                                         \
    do {                                                                                          \
        bool check_thrown_ = false;                                                               \
        try {                                                                                     \
            (void)(__VA_ARGS__);                                                                  \
        } catch (const exception_type &) {                                                        \
            check_thrown_ = true;                                                                 \
        }                                                                                         \
        check_that(check_thrown_ ? 1 : 0, __FILE__, __LINE__, #__VA_ARGS__ " throws " #exception_type); \
    } while (0)
#endif

#define TEST(name)                                                                           \
    static void check_body_##name(void);                                                     \
    static struct check_test check_test_##name = {#name, check_body_##name, NULL};           \
    __attribute__((constructor)) static void check_register_##name(void)                     \
    {                                                                                        \
        check_register(&check_test_##name);                                                  \
    }                                                                                        \
    static void check_body_##name(void)

CHECK_MAYBE_UNUSED static int check_chosen(const char *name, int argc, char **argv)
{
    int index;
    if (argc < 2)
        return 1;
    for (index = 1; index < argc; ++index)
        if (strstr(name, argv[index]) != NULL)
            return 1;
    return 0;
}

CHECK_MAYBE_UNUSED static void check_run_body(const struct check_test *test)
{
#ifdef __cplusplus
    try {
        test->body();
    } catch (const std::exception &error) {
        check_note_failure();
        printf("\n    an exception left the test: %s", error.what());
    } catch (...) {
        check_note_failure();
        printf("\n    an exception of unknown type left the test");
    }
#else
    test->body();
#endif
}

CHECK_MAYBE_UNUSED static int check_run_all(int argc, char **argv)
{
    int passed = 0, failed = 0, skipped = 0;
    struct check_test *test;
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (test = check_first; test != NULL; test = test->next)
            printf("%s\n", test->name);
        return 0;
    }
    for (test = check_first; test != NULL; test = test->next) {
        if (!check_chosen(test->name, argc, argv))
            continue;
        /* The name goes out before the body runs, so that a crash or a hang says whose it is; and nothing may stay
         * buffered for a forked child to print again. */
        printf("%s ...", test->name);
        fflush(stdout);
        __atomic_store_n(&check_failures, 0, __ATOMIC_SEQ_CST);
        check_skip_reason = NULL;
        check_run_body(test);
        if (check_failure_count() != 0) {
            ++failed;
            printf("\n%s FAILED\n", test->name);
        } else if (check_skip_reason != NULL) {
            ++skipped;
            printf(" left out: %s\n", check_skip_reason);
        } else {
            ++passed;
            printf(" ok\n");
        }
        fflush(stdout);
    }
    if (skipped != 0)
        printf("%d left out\n", skipped);
    /* A program in which nothing was found to run has shown nothing. */
    if (passed + failed + skipped == 0) {
        printf("no test was chosen\n");
        failed = 1;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}

#define CHECK_MAIN()                    \
    int main(int argc, char **argv)     \
    {                                   \
        return check_run_all(argc, argv); \
    }

#endif
