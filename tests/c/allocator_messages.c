/* What is said when a callback of an allocator fails: its name and its status by their names, and what a call inside of it had
 * failed with.
 *
 * topology: h200x2
 * needs: simulator */
#define _GNU_SOURCE
#include "adaptors.h"

#define TOO_MUCH (UINT64_C(1) << 50)

struct passing {
    warp_allocator *below;
    warp_status says;      /* returned instead of asking below; 0 to ask */
    uint64_t gives_back_at; /* beyond the address that it is given */
    int fails_unheard;     /* a call fails, and the callback thinks nothing of it */
    warp_allocator *itself;
};

static warp_status passing_allocate(void *user, const warp_alloc_request *request, void **out)
{
    struct passing *passing = user;
    if (passing->fails_unheard)
        CHECK_STATUS(warp_free((void *)passing_allocate), WARP_ERROR_UNKNOWN_POINTER);
    if (passing->says != 0)
        return passing->says;
    if (passing->itself != NULL)
        return try_block(passing->itself, request->device, request->size, NULL, out);
    return warp_allocator_allocate(passing->below, request, out);
}

static warp_status passing_deallocate(void *user, void *ptr, const warp_alloc_request *request)
{
    struct passing *passing = user;
    warp_status status = warp_allocator_deallocate(passing->below, (char *)ptr + passing->gives_back_at, request);
    if (passing->gives_back_at != 0)
        give(passing->below, ptr);
    return status;
}

static warp_status no_account(void *user, warp_allocator_statistics *out)
{
    (void)user, (void)out;
    return WARP_ERROR_BUSY;
}

static warp_allocator *make_passing(struct passing *passing, warp_memory_kind kind)
{
    warp_allocator *allocator = NULL;
    warp_allocator_vtable vtable = {.struct_size = sizeof vtable, .name = "passing", .kind = kind};
    passing->below = builtin(kind);
    vtable.flags = kind == WARP_MEMORY_HOST ? WARP_ALLOCATOR_HOST_MEMORY : 0;
    vtable.allocate = passing_allocate;
    vtable.deallocate = passing_deallocate;
    vtable.get_statistics = no_account;
    CHECK_STATUS(warp_allocator_create(&vtable, passing, &allocator), WARP_SUCCESS);
    return allocator;
}

static int says(const char *part)
{
    return strstr(warp_error_get_message(), part) != NULL;
}

TEST(what_failed_below_is_told)
{
    struct passing passing = {0};
    warp_allocator *allocator;
    void *none = (void *)1, *block;
    REQUIRE(start());
    allocator = make_passing(&passing, WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(try_block(allocator, gpu(0), TOO_MUCH, NULL, &none), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_EQ_PTR(none, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), "the allocate callback of the allocator \"passing\" is out of memory for "
                                                 "1125899906842624 bytes on \"cuda:0\": out of memory on \"cuda:0\": asked");

    /* An adaptor between tells it on. */
    {
        warp_allocator *tracking = NULL;
        CHECK_STATUS(warp_allocator_create_tracking(allocator, 0, &tracking), WARP_SUCCESS);
        CHECK_STATUS(try_block(tracking, gpu(1), TOO_MUCH, NULL, &none), WARP_ERROR_OUT_OF_MEMORY);
        CHECK_STR_CONTAINS(warp_error_get_message(), "on \"cuda:1\": out of memory on \"cuda:1\": asked");
        release(tracking);
    }

    block = block_by(allocator, gpu(0), 1000, NULL);
    passing.gives_back_at = 8;
    CHECK_STATUS(warp_free(block), WARP_ERROR_ALLOCATOR_FAILED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "the deallocate callback of the allocator \"passing\" failed with "
                                                 "WARP_ERROR_INTERIOR_POINTER (9) for 1000 bytes at ");
    CHECK_STR_CONTAINS(warp_error_get_message(), " lies 8 bytes inside the block ");
    CHECK_STR_CONTAINS(warp_error_get_message(), "; the block is forgotten and is not given to it again");
    release(allocator);
    CHECK_NOTHING_LEFT();
}

TEST(what_the_callback_thought_nothing_of_is_not_told)
{
    struct passing passing = {.fails_unheard = 1, .says = WARP_ERROR_BUSY};
    warp_allocator *allocator;
    void *none;
    REQUIRE(start());
    allocator = make_passing(&passing, WARP_MEMORY_HOST);
    /* Of another status than what it returns. */
    CHECK_STATUS(try_block(allocator, cpu(), 1000, NULL, &none), WARP_ERROR_ALLOCATOR_FAILED);
    CHECK_EQ_STR(warp_error_get_message(), "the allocate callback of the allocator \"passing\" failed with WARP_ERROR_BUSY (16) "
                                           "for 1000 bytes on \"cpu\"");
    /* Of the same status, but from before the call. */
    passing.fails_unheard = 0;
    passing.says = WARP_ERROR_UNKNOWN_POINTER;
    CHECK_STATUS(warp_free((void *)passing_allocate), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_STATUS(try_block(allocator, cpu(), 1000, NULL, &none), WARP_ERROR_ALLOCATOR_FAILED);
    CHECK_EQ_STR(warp_error_get_message(), "the allocate callback of the allocator \"passing\" failed with "
                                           "WARP_ERROR_UNKNOWN_POINTER (8) for 1000 bytes on \"cpu\"");
    release(allocator);
    CHECK_NOTHING_LEFT();
}

TEST(one_that_asks_itself_is_told_the_way_out)
{
    struct passing passing = {0};
    void *none;
    REQUIRE(start());
    passing.itself = make_passing(&passing, WARP_MEMORY_HOST);
    CHECK_STATUS(try_block(passing.itself, cpu(), 1000, NULL, &none), WARP_ERROR_ALLOCATOR_FAILED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "failed with WARP_ERROR_ALLOCATOR_FAILED (103) for 1000 bytes on \"cpu\": "
                                                 "callbacks of allocators are 10 deep");
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_allocator_allocate");
    release(passing.itself);
    CHECK_NOTHING_LEFT();
}

TEST(every_number_is_told_as_what_it_is)
{
    static const warp_status numbers[] = {1, 18, 99, 102, 104, 200, 900, -1, INT32_MIN, INT32_MAX};
    struct passing passing = {0};
    warp_allocator *allocator;
    warp_allocator_statistics account = {.struct_size = sizeof account};
    void *none;
    size_t i;
    REQUIRE(start());
    allocator = make_passing(&passing, WARP_MEMORY_HOST);
    for (i = 0; i < sizeof numbers / sizeof numbers[0]; ++i) {
        const char *name = warp_status_get_name(numbers[i]);
        int is_known = strcmp(name, "WARP_ERROR_UNKNOWN") != 0;
        passing.says = numbers[i];
        CHECK_STATUS(try_block(allocator, cpu(), 1000, NULL, &none), WARP_ERROR_ALLOCATOR_FAILED);
        CHECK(says("which is no warp_status") == !is_known);
        CHECK(says("WARP_SUCCESS or a WARP_ERROR_") == !is_known);
        if (is_known)
            CHECK_STR_CONTAINS(warp_error_get_message(), name);
    }
    CHECK_STATUS(warp_allocator_get_statistics(allocator, &account), WARP_ERROR_ALLOCATOR_FAILED);
    CHECK_EQ_STR(warp_error_get_message(), "the get_statistics callback of the allocator \"passing\" failed with WARP_ERROR_BUSY "
                                           "(16) for its account");
    release(allocator);
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
