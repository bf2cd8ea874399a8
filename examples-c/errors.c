/*
 * Errors: a status for the program, a record for the reader, messages for what no call could report. Mistakes in frees
 * are found, and harmless.
 */
/* topology: h200x2 */
/* topology: - */
#include <warpmem.h>

#include <stdio.h>
#include <stdlib.h>

static void must(warp_status status)
{
    if (status != WARP_SUCCESS) {
        fprintf(stderr, "%s: %s\n", warp_status_get_name(status), warp_error_get_message());
        exit(1);
    }
}

static void expect(warp_status status, warp_status expected)
{
    if (status != expected)
        exit(1);
    /* The record is this thread's, and lasts until its next failing call. A success does not touch it. */
    warp_error error = {.struct_size = sizeof error};
    must(warp_error_get_last(&error));
    printf("%-28s (driver's code %d) %s\n", warp_status_get_name(error.status), (int)error.driver_code, error.message);
}

/* The library writes to neither stdout nor stderr: what it has to say beside a status comes here. */
static void on_message(void *user, warp_log_level level, const char *message)
{
    fprintf(user, "warpmem[%d]: %s\n", (int)level, message);
}

int main(void)
{
    warp_init_options options = {
        .struct_size = sizeof options, .log = on_message, .log_user = stdout, .log_level = WARP_LOG_INFO};
    must(warp_init(&options, NULL));

    char *block = NULL;
    int on_the_stack = 0;
    must(warp_alloc(NULL, 4096, (void **)&block));
    expect(warp_free(block + 64), WARP_ERROR_INTERIOR_POINTER);
    expect(warp_free(&on_the_stack), WARP_ERROR_UNKNOWN_POINTER);
    must(warp_free(block));
    expect(warp_free(block), WARP_ERROR_DOUBLE_FREE);
    must(warp_free(NULL)); /* nothing, successfully */

    warp_device *device = NULL;
    expect(warp_device_get("cuda:99", &device), WARP_ERROR_NO_SUCH_DEVICE); /* device is NULL now */
    expect(warp_device_synchronize((warp_device *)0x1234), WARP_ERROR_INVALID_HANDLE); /* not a crash */

    must(warp_shutdown());
    must(warp_log_set_callback(NULL, NULL, 0)); /* returns when no call of it is running any more */
    return 0;
}
