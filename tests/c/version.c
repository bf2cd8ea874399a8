// topology: h200x2
// topology: none
// topology: -
/* The versions of the header and the library, and what can be asked before the library is started. */
#include "check.h"

TEST(the_library_is_of_the_version_of_the_header)
{
    CHECK_EQ_I64(warp_version_get_number(), WARP_VERSION);
    CHECK_EQ_STR(warp_version_get_string(), WARP_VERSION_STRING);
    CHECK_STATUS(warp_version_check(WARP_VERSION), WARP_SUCCESS);
}

TEST(another_series_is_refused_with_both_versions_in_the_message)
{
    CHECK_STATUS(warp_version_check(WARP_VERSION + 10000), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), WARP_VERSION_STRING);
    CHECK_STATUS(warp_version_check(WARP_VERSION + 1), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(warp_version_check(0), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(warp_version_check(INT32_MIN), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(warp_version_check(INT32_MAX), WARP_ERROR_NOT_SUPPORTED);
}

TEST(every_status_has_a_name_and_others_have_one_too)
{
    CHECK_EQ_STR(warp_status_get_name(WARP_SUCCESS), "WARP_SUCCESS");
    CHECK_EQ_STR(warp_status_get_name(WARP_ERROR_INVALID_HANDLE), "WARP_ERROR_INVALID_HANDLE");
    CHECK_EQ_STR(warp_status_get_name(-7), "WARP_ERROR_UNKNOWN");
}

TEST(the_report_has_the_version_and_fits_any_buffer)
{
    size_t needed = 0, index;
    char whole[4096], part[8];
    CHECK_STATUS(warp_library_get_report(NULL, 0, &needed), WARP_ERROR_NOT_INITIALIZED);
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_library_get_report(NULL, 0, &needed), WARP_SUCCESS);
    REQUIRE(needed > 0 && needed <= sizeof whole);
    CHECK_STATUS(warp_library_get_report(whole, sizeof whole, NULL), WARP_SUCCESS);
    CHECK_EQ_U64(strlen(whole) + 1, needed);
    CHECK_STR_CONTAINS(whole, "warpmem " WARP_VERSION_STRING " initialized:");
    for (index = 1; index <= sizeof part; ++index) {
        memset(part, 'x', sizeof part);
        CHECK_STATUS(warp_library_get_report(part, index, &needed), WARP_SUCCESS);
        CHECK_EQ_U64(strlen(part), index - 1);
        CHECK(memcmp(part, whole, index - 1) == 0);
    }
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

CHECK_MAIN()
