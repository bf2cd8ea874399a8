/* An outside program: it compares the library it was compiled with to the one it got, and brings it up and down. */
#include <stdio.h>
#include <warpmem.h>

int main(void)
{
    printf("compiled with %s\n", WARP_VERSION_STRING);
    return warp_version() != 0 ? 0 : 1;
}
