// The header and the harnesses of the tests from C++.
#include "check.h"
#include "simulator.h"
#include <stdexcept>
#include <type_traits>

static_assert(std::is_same<warp_status, std::int32_t>::value, "a status is a number of fixed size");

static void check(warp_status status)
{
    if (status != WARP_SUCCESS)
        throw std::runtime_error(warp_error_get_message());
}

TEST(a_status_becomes_an_exception_with_its_message)
{
    CHECK_THROWS(std::runtime_error, check(warp_version_check(0)));
    check(warp_version_check(WARP_VERSION));
}

TEST(a_failure_of_the_driver_leaves_the_cpu)
{
    if (!simulator_is_here())
        SKIP("needs the simulated driver");
    CHECK_EQ_U64(SIMULATOR(warpsim_fail)("cuInit", 1, 999), 0);
    check(warp_init(nullptr, nullptr));
    std::size_t gpus = 7;
    check(warp_device_get_cuda_count(&gpus));
    CHECK_EQ_U64(gpus, 0);
    check(warp_shutdown());
}

CHECK_MAIN()
