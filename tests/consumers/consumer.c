/* An outside program: does the library that it got go with the header it was compiled with, and does it work? */
#include <stdio.h>
#include <warpmem.h>

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, warp_error_get_message());
    return 1;
}

int main(void)
{
    size_t count = 0;
    if (warp_version_check(WARP_VERSION) != WARP_SUCCESS)
        return failed("the version");
    if (warp_init(NULL, NULL) != WARP_SUCCESS)
        return failed("warp_init");
    if (warp_device_get_count(&count) != WARP_SUCCESS || count == 0)
        return failed("the devices");
    if (warp_shutdown() != WARP_SUCCESS)
        return failed("warp_shutdown");
    printf("warpmem %s, %zu devices\n", WARP_VERSION_STRING, count);
    return 0;
}
