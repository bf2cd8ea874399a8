/*
 * report.h: the report of the library in a test: what it is to say, and what holds when it gives a reason for no GPU.
 */
#ifndef WARPMEM_TESTS_REPORT_H
#define WARPMEM_TESTS_REPORT_H

#include "check.h"

/* "model name" of the machine, as the report has it. */
__attribute__((unused)) static const char *cpu_name(void)
{
    static char name[512];
    FILE *file;
    if (name[0] != '\0')
        return name;
    strcpy(name, "CPU");
    file = fopen("/proc/cpuinfo", "r");
    if (file != NULL) {
        char line[512];
        while (fgets(line, sizeof line, file) != NULL) {
            char *value = strchr(line, ':');
            if (strncmp(line, "model name", 10) == 0 && value != NULL) {
                value += strspn(value, ": \t");
                value[strcspn(value, "\n")] = '\0';
                if (value[0] != '\0')
                    strcpy(name, value);
                break;
            }
        }
        fclose(file);
    }
    return name;
}

/* The report, to be compared at once. */
__attribute__((unused)) static const char *report(void)
{
    static char text[8192];
    size_t needed = 0;
    text[0] = '\0';
    CHECK_STATUS(warp_library_get_report(text, sizeof text, &needed), WARP_SUCCESS);
    CHECK_EQ_U64(needed, strlen(text) + 1);
    return text;
}

/* The report with the CPU's own line put in for %s. */
__attribute__((unused)) static void check_report(const char *expected)
{
    char text[8192];
    snprintf(text, sizeof text, expected, cpu_name());
    CHECK_EQ_STR(report(), text);
}

/* A library without a usable GPU: the report has the reason, once; the CPU serves; GPUs are refused with it. */
__attribute__((unused)) static void check_cpu_only(const char *reason)
{
    char expected[4096];
    const char *text = report();
    const char *found;
    size_t count = 0;
    warp_device *device = (warp_device *)1;
    void *block = NULL;
    warp_alloc_options pinned = {.struct_size = sizeof pinned, .kind = WARP_MEMORY_PINNED};

    CHECK_STR_CONTAINS(text, reason);
    found = strstr(text, reason);
    CHECK(found == NULL || strstr(found + 1, reason) == NULL);
    /* First line, reason, "Devices:", the CPU: no line more. */
    snprintf(expected, sizeof expected, "   Devices:\n     \"cpu\"      : \"%s\"\n", cpu_name());
    CHECK_STR_CONTAINS(text, expected);
    {
        size_t lines = 0;
        const char *at;
        for (at = text; *at != '\0'; ++at)
            lines += *at == '\n';
        CHECK_EQ_U64(lines, 4);
    }
    CHECK_STATUS(warp_device_get_count(&count), WARP_SUCCESS);
    CHECK_EQ_U64(count, 1);
    CHECK_STATUS(warp_device_get_cuda_count(&count), WARP_SUCCESS);
    CHECK_EQ_U64(count, 0);
    CHECK_STATUS(warp_device_get("cuda:0", &device), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK_EQ_PTR(device, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), reason);
    CHECK_STATUS(warp_device_get("cuda", &device), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK_STR_CONTAINS(warp_error_get_message(), reason);
    CHECK_STATUS(warp_device_from_context(&count, NULL, &device), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK_STR_CONTAINS(warp_error_get_message(), reason);
    CHECK_STATUS(warp_alloc_with(NULL, 64, &pinned, &block), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), reason);
    CHECK_STR_CONTAINS(warp_error_get_message(), "WARP_MEMORY_HOST");
    CHECK_EQ_PTR(block, NULL);
    CHECK_STATUS(warp_alloc(NULL, 4096, &block), WARP_SUCCESS);
    REQUIRE(block != NULL);
    memset(block, 1, 4096);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

#endif
