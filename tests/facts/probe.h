// probe.h: what the later probes share: the names of the driver's answers, and cases in processes of their own.
#ifndef WARPMEM_FACTS_PROBE_H
#define WARPMEM_FACTS_PROBE_H

#include <cuda.h>

#include <cstdio>
#include <functional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

static const char *name_of(CUresult code)
{
    const char *name = nullptr;
    cuGetErrorName(code, &name);
    return name ? name : "UNKNOWN";
}

static void must(const char *what, CUresult code)
{
    if (code)
        printf("!! %s -> %s\n", what, name_of(code));
}
#define MUST(call) must(#call, call)

// Each case in a process of its own: what dies there stays there.
static void in_child(const std::string &name, const std::function<void()> &body)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        MUST(cuInit(0));
        body();
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        printf("%s = SIGNAL %d\n", name.c_str(), WTERMSIG(status));
}

#endif
