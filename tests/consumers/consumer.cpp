// The same from C++, where a failure is an exception and the end is a destructor's.
#include <iostream>
#include <memory>
#include <stdexcept>
#include <warpmem.h>

static void check(warp_status status)
{
    if (status != WARP_SUCCESS)
        throw std::runtime_error(warp_error_get_message());
}

int main()
try {
    check(warp_version_check(WARP_VERSION));
    check(warp_init(nullptr, nullptr));
    int running = 1;
    const auto end = [](int *) { warp_shutdown(); };
    const std::unique_ptr<int, decltype(end)> session(&running, end);
    std::size_t count = 0;
    check(warp_device_get_count(&count));
    std::cout << "warpmem " << WARP_VERSION_STRING << ", " << count << " devices\n";
    return count == 0 ? 1 : 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
