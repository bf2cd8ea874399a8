/*
 * process.h: tests in a process of their own.
 *
 *     PROCESS_TEST(a_stub_is_no_driver)
 *     {
 *         setenv("WARPSIM_TOPOLOGY", "h200x2,init_code=34", 1);
 *         REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
 *         ...
 *     }
 *
 * The body runs in a forked child, so that each test has a first warp_init() and an exit of its own; the parent must
 * never have initialised the library. A child ends through exit(), with whatever is still live. It fails by a check, by
 * a signal, by an exit status, by taking longer than PROCESS_PATIENCE seconds, and by writing anything to stderr. What it skips
 * is left out.
 */
#ifndef WARPMEM_TESTS_PROCESS_H
#define WARPMEM_TESTS_PROCESS_H

#include "check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* Enough for valgrind on a busy machine. */
#define PROCESS_PATIENCE 200

/* How many seconds a test in a process of its own is to go on that can as long as one likes: WARPMEM_SOAK_SECONDS, or as many as
 * usual. The process has that much more time. */
__attribute__((unused)) static double soak_seconds(double usual)
{
    const char *asked = getenv("WARPMEM_SOAK_SECONDS");
    const double seconds = asked != NULL ? atof(asked) : usual;
    alarm(PROCESS_PATIENCE + (unsigned)seconds);
    return seconds;
}

/* What the processes of tests write to stderr goes to this file. */
__attribute__((unused)) static FILE *process_errors(void)
{
    static FILE *file;
    if (file == NULL)
        file = tmpfile();
    return file;
}

/* Makes an empty file that the test removes; path gets its name. Whether that was possible. */
__attribute__((unused)) static int process_make_file(char *path, size_t size)
{
    const char *folder = getenv("TMPDIR");
    int file;
    if (folder == NULL || folder[0] == '\0')
        folder = "/tmp";
    if (snprintf(path, size, "%s/warpmem-test-XXXXXX", folder) >= (int)size)
        return 0;
    file = mkstemp(path);
    return file >= 0 && close(file) == 0;
}

/* Waits for a child of the running test: its exit status, or 128 and the signal. */
__attribute__((unused)) static int process_wait(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) != child)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Has the simulated driver in the process before it forks: valgrind reads a library's debug information when it is loaded, which
 * takes longer than most tests. It is not started by that. */
__attribute__((unused)) static void process_load_driver(void)
{
    static int loaded;
    const char *path = getenv("WARPMEM_LIBCUDA");
    if (!loaded && path != NULL && check_under("valgrind"))
        (void)dlopen(path, RTLD_NOW | RTLD_LOCAL);
    loaded = 1;
}

__attribute__((unused)) static void process_run(void (*body)(void))
{
    char said[512];
    const char *reason = NULL;
    size_t length;
    int status, ends[2];
    pid_t child;
    FILE *errors = process_errors();
    REQUIRE(errors != NULL);
    process_load_driver();
    fflush(stdout);
    rewind(errors);
    REQUIRE(ftruncate(fileno(errors), 0) == 0);
    REQUIRE(pipe(ends) == 0);
    child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        dup2(fileno(errors), STDERR_FILENO);
        alarm(PROCESS_PATIENCE);
        body();
        /* The reason is text of the program, which the parent has at the same place. */
        if (check_skip_reason != NULL)
            CHECK(write(ends[1], &check_skip_reason, sizeof check_skip_reason) == (ssize_t)sizeof check_skip_reason);
        /* The failures so far end the process; what exit() then runs may still fail by signal or by stderr. */
        exit(check_failure_count() == 0 ? 0 : 1);
    }
    status = process_wait(child);
    close(ends[1]);
    /* Others may have the other end: what is left of a test that forks. */
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && read(ends[0], &reason, sizeof reason) == (ssize_t)sizeof reason)
        check_skip_reason = reason;
    close(ends[0]);
    if (status == 1)
        check_note_failure(); /* the child has printed which checks failed */
    else if (status != 0)
        CHECK_EQ_I64(status, 0);
    rewind(errors);
    length = fread(said, 1, sizeof said - 1, errors);
    said[length] = '\0';
    CHECK_EQ_STR(said, "");
}

#define PROCESS_TEST(name)                    \
    static void process_body_##name(void);    \
    TEST(name) { process_run(process_body_##name); } \
    static void process_body_##name(void)

#endif
