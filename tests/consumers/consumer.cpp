// The same from C++, where the header must declare C functions.
#include <cstdio>
#include <warpmem.h>

int main()
{
    std::printf("compiled with %s\n", WARP_VERSION_STRING);
    return warp_version() != 0 ? 0 : 1;
}
