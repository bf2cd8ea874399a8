/*
 * The life of a process: a forked child, the last shutdown, and blocks that outlive it.
 */
/* topology: h200x2 */
/* topology: - */
#define _POSIX_C_SOURCE 200809L
#include <warpmem.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void must(warp_status status)
{
    if (status != WARP_SUCCESS) {
        fprintf(stderr, "%s: %s\n", warp_status_get_name(status), warp_error_get_message());
        exit(1);
    }
}

/* Forked after warp_init(): the CPU works, GPUs say why they do not, and frees of inherited blocks do nothing. */
static void child(void *inherited)
{
    warp_device *cpu = NULL, *gpu = NULL;
    void *block = NULL;
    must(warp_device_get("cpu", &cpu));
    must(warp_alloc(cpu, 4096, &block));
    must(warp_free(block));
    must(warp_free(inherited));
    if (warp_device_get("cuda:0", &gpu) == WARP_SUCCESS && warp_alloc(gpu, 4096, &block) != WARP_ERROR_FORKED)
        _exit(1);
    _exit(0);
}

int main(void)
{
    void *block = NULL, *none = NULL;
    int status = 0;
    must(warp_init(NULL, NULL));
    must(warp_alloc(NULL, 1 << 20, &block));

    pid_t pid = fork();
    if (pid == 0)
        child(block);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        return 1;

    /* After the last shutdown nothing new can be had, and what is there can still be given back. */
    must(warp_shutdown());
    if (warp_alloc(NULL, 4096, &none) != WARP_ERROR_SHUT_DOWN)
        return 1;
    must(warp_free(block));
    printf("the child and the shutdown went as they should\n");
    return 0;
}
