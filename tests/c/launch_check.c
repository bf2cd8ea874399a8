/*
 * launch_check.c: the check before a launch: modes, what is refused, warned of and let pass, the words for it, the report,
 * structs and long lists of arguments, warnings that come once. Cases AC-01 and OM-04.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "access.h"

#include <pthread.h>

#define RELAXED WARP_LAUNCH_RELAXED
#define CHECKED WARP_LAUNCH_CHECKED
#define STRICT WARP_LAUNCH_STRICT
#define REFUSED WARP_ERROR_ACCESS_DENIED

static warp_launch_argument array_argument(const char *name, const void *array)
{
    warp_launch_argument argument = {.name = name, .value = array, .kind = WARP_LAUNCH_ARRAY};
    return argument;
}

static warp_launch_argument pointer_argument(const char *name, const void *ptr)
{
    warp_launch_argument argument = {.name = name, .value = ptr, .kind = WARP_LAUNCH_POINTER};
    return argument;
}

static warp_launch_argument struct_argument(const char *name, const warp_launch_argument *members, size_t count)
{
    warp_launch_argument argument = {.name = name, .value = members, .member_count = count, .kind = WARP_LAUNCH_STRUCT};
    return argument;
}

static warp_launch_report report_now;

/* A check with the report in report_now, and once more without one: the same outcome. */
static warp_status check(warp_device *device, const warp_launch_argument *arguments, size_t count, int mode)
{
    warp_status status;
    memset(&report_now, 0xEE, sizeof report_now);
    report_now.struct_size = sizeof report_now;
    status = warp_launch_check(device, "saxpy", arguments, count, sizeof *arguments, mode, NULL);
    CHECK_STATUS(warp_launch_check(device, "saxpy", arguments, count, sizeof *arguments, mode, &report_now), status);
    CHECK_EQ_U64(report_now.struct_size, sizeof report_now);
    CHECK_EQ_U64(report_now.reserved, 0);
    return status;
}

static warp_status check_one(warp_device *device, warp_launch_argument argument, int mode)
{
    return check(device, &argument, 1, mode);
}

static void report_is_zero(int line)
{
    warp_launch_report zero;
    memset(&zero, 0, sizeof zero);
    zero.struct_size = sizeof zero;
    if (memcmp(&zero, &report_now, sizeof zero) != 0) {
        check_note_failure();
        printf("\n    line %d: the report is not zero", line);
    }
}

static void says(const char *fragment)
{
    CHECK_STR_CONTAINS(warp_error_get_message(), fragment);
}

static void does_not_say(const char *fragment)
{
    if (strstr(warp_error_get_message(), fragment) != NULL) {
        check_note_failure();
        printf("\n    \"%s\"\n      has\n    \"%s\"", warp_error_get_message(), fragment);
    }
}

#define CHECKED_WORDS "memory is not accessible or cannot be verified"

/* ---- Modes ------------------------------------------------------------------------------------------------------- */

static void *read_mode(void *out)
{
    CHECK_STATUS(warp_launch_get_mode(out), WARP_SUCCESS);
    return NULL;
}

PROCESS_TEST(the_process_has_a_mode_and_a_call_may_have_another)
{
    static const int32_t unknown[] = {-1, -2, 3, 4, 100, INT32_MIN, INT32_MAX};
    warp_launch_mode mode = 9;
    warp_array *array;
    pthread_t thread;
    size_t i;
    int process, call;
    /* Before the start, too; and a launch that is not looked at needs no library that runs. */
    CHECK_STATUS(warp_launch_get_mode(&mode), WARP_SUCCESS);
    CHECK_EQ_I64(mode, RELAXED);
    CHECK_STATUS(warp_launch_set_mode(STRICT), WARP_SUCCESS);
    CHECK_STATUS(warp_launch_check(NULL, NULL, NULL, 0, 0, WARP_LAUNCH_PROCESS_MODE, NULL), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_launch_set_mode(RELAXED), WARP_SUCCESS);
    CHECK_STATUS(warp_launch_check(NULL, NULL, NULL, 0, 0, WARP_LAUNCH_PROCESS_MODE, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_launch_get_mode(NULL), WARP_ERROR_INVALID_ARGUMENT);
    start_on("h200x2");
    for (i = 0; i < sizeof unknown / sizeof *unknown; ++i) {
        char number[32];
        snprintf(number, sizeof number, "%" PRId32, unknown[i]);
        CHECK_STATUS(warp_launch_set_mode(CHECKED), WARP_SUCCESS);
        CHECK_STATUS(warp_launch_set_mode(unknown[i]), WARP_ERROR_INVALID_ARGUMENT);
        says(number);
        says("WARP_LAUNCH_");
        CHECK_STATUS(warp_launch_get_mode(&mode), WARP_SUCCESS);
        CHECK_EQ_I64(mode, CHECKED);
        if (unknown[i] != WARP_LAUNCH_PROCESS_MODE) {
            CHECK_STATUS(check(gpu(0), NULL, 0, unknown[i]), WARP_ERROR_INVALID_ARGUMENT);
            report_is_zero(__LINE__);
        }
    }
    array = array_of_kind(gpu(0), WARP_MEMORY_CUDA_MANAGED, F32, 8);
    for (process = RELAXED; process <= STRICT; ++process) {
        CHECK_STATUS(warp_launch_set_mode(process), WARP_SUCCESS);
        pthread_create(&thread, NULL, read_mode, &mode);
        pthread_join(thread, NULL);
        CHECK_EQ_I64(mode, process);
        for (call = WARP_LAUNCH_PROCESS_MODE; call <= STRICT; ++call) {
            const int effective = call == WARP_LAUNCH_PROCESS_MODE ? process : call;
            CHECK_STATUS(check_one(gpu(1), array_argument("a", array), call), effective == STRICT ? REFUSED : WARP_SUCCESS);
            CHECK_EQ_U64(report_now.accessible, effective == CHECKED);
            CHECK_EQ_U64(report_now.inaccessible, effective == STRICT);
        }
    }
    CHECK_STATUS(warp_launch_set_mode(RELAXED), WARP_SUCCESS);
    drop(array);
    CHECK_GONE();
}

PROCESS_TEST(in_relaxed_mode_nothing_is_looked_at)
{
    /* AC-01: no call of the driver. */
    warp_array *array;
    warp_launch_argument garbage[4];
    warp_device *device;
    uint64_t before;
    int way;
    start_on("h200x2");
    device = gpu(1);
    array = array_of_kind(gpu(0), WARP_MEMORY_CUDA_MEMPOOL, F32, 8);
    garbage[0] = array_argument("a", (void *)(uintptr_t)0xdeadbeef);
    garbage[1] = pointer_argument(NULL, (void *)(uintptr_t)1);
    garbage[2] = struct_argument("s", NULL, SIZE_MAX);
    garbage[3] = array_argument("d", array);
    garbage[1].kind = 77;
    before = calls("*");
    for (way = 0; way < 2; ++way) {
        const int mode = way ? RELAXED : WARP_LAUNCH_PROCESS_MODE;
        CHECK_STATUS(check(device, garbage, 4, mode), WARP_SUCCESS);
        report_is_zero(__LINE__);
        CHECK_STATUS(check(device, NULL, SIZE_MAX, mode), WARP_SUCCESS);
        CHECK_STATUS(warp_launch_check(device, "k", (const warp_launch_argument *)(uintptr_t)3, 5, 0, mode, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_launch_check((warp_device *)(uintptr_t)7, "k", garbage, 4, 0, mode, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_launch_check(NULL, NULL, garbage, 4, 0, mode, NULL), WARP_SUCCESS);
    }
    CHECK_EQ_U64(calls("*"), before);
    drop(array);
}

/* ---- What passes and what does not ------------------------------------------------------------------------------- */

PROCESS_TEST(each_mode_has_its_outcomes)
{
    /* AC-01. */
    static char unknown[8];
    warp_array *own, *accessible, *inaccessible, *host, *pinned;
    void *mapping;
    int mode;
    start_on("h200x2");
    context_of(gpu(1));
    own = array_of_kind(gpu(1), WARP_MEMORY_UNKNOWN, F32, 8);
    accessible = array_of_kind(gpu(0), WARP_MEMORY_CUDA_MANAGED, F32, 8);
    inaccessible = array_of_kind(gpu(0), WARP_MEMORY_CUDA_MEMPOOL, F32, 8);
    host = array_of_kind(cpu(), WARP_MEMORY_HOST, F32, 8);
    pinned = array_of_kind(cpu(), WARP_MEMORY_PINNED, F32, 8);
    mapping = mapping_of(0);
    map_for(mapping, 1, 1);
    for (mode = RELAXED; mode <= STRICT; ++mode) {
        const warp_status strict = mode == STRICT ? REFUSED : WARP_SUCCESS, looked_at = mode == RELAXED ? WARP_SUCCESS : REFUSED;
        CHECK_STATUS(check_one(gpu(1), array_argument("a", own), mode), WARP_SUCCESS);
        CHECK_STATUS(check_one(gpu(1), array_argument("a", NULL), mode), WARP_SUCCESS);
        CHECK_STATUS(check_one(gpu(1), pointer_argument("a", NULL), mode), WARP_SUCCESS);
        CHECK_STATUS(check_one(gpu(1), (warp_launch_argument){.kind = WARP_LAUNCH_INDEXED_ARRAY}, mode), WARP_SUCCESS);
        CHECK_STATUS(check_one(gpu(1), struct_argument("a", NULL, 0), mode), WARP_SUCCESS);
        CHECK_STATUS(check_one(gpu(1), array_argument("a", accessible), mode), strict);
        CHECK_STATUS(check_one(gpu(1), array_argument("a", pinned), mode), strict);
        CHECK_STATUS(check_one(gpu(1), array_argument("a", inaccessible), mode), looked_at);
        CHECK_STATUS(check_one(gpu(1), array_argument("a", host), mode), looked_at);
        CHECK_STATUS(check_one(cpu(), array_argument("a", inaccessible), mode), looked_at);
        CHECK_STATUS(check_one(cpu(), array_argument("a", host), mode), WARP_SUCCESS);
        CHECK_STATUS(check_one(cpu(), array_argument("a", accessible), mode), strict);
        CHECK_STATUS(check_one(gpu(1), pointer_argument("a", unknown), mode), strict);
        CHECK_STATUS(check_one(gpu(1), pointer_argument("a", mapping), mode), strict);
        /* Its own GPU's mapping that is not for it: at home, and not to be touched. */
        CHECK_STATUS(check_one(gpu(0), pointer_argument("a", mapping), mode), looked_at);
    }
    says(CHECKED_WORDS);
    says("cuMemSetAccess");
    drop(own);
    drop(accessible);
    drop(inaccessible);
    drop(host);
    drop(pinned);
    unmap(mapping);
    CHECK_GONE();
}

PROCESS_TEST(a_wrong_device_in_every_direction)
{
    /* AC-01: pageable memory with pageable access and without, page-locked memory, a pool pointer that is wrapped. */
    warp_array *host, *pinned, *wrapped;
    void *pooled;
    start_on("hmm,gpu1.pageable=0");
    context_of(gpu(1));
    host = array_of_kind(cpu(), WARP_MEMORY_HOST, F32, 8);
    pinned = array_of_kind(cpu(), WARP_MEMORY_PINNED, F32, 8);
    pooled = foreign_pooled(context_of(gpu(0)), NULL, 64);
    wrapped = wrapped_on(gpu(0), pooled, 8);
    CHECK_STATUS(check_one(gpu(0), array_argument("a", host), CHECKED), WARP_SUCCESS);
    CHECK_STATUS(check_one(gpu(1), array_argument("a", host), CHECKED), REFUSED);
    CHECK_STATUS(check_one(gpu(0), array_argument("a", pinned), CHECKED), WARP_SUCCESS);
    CHECK_STATUS(check_one(gpu(1), array_argument("a", pinned), CHECKED), WARP_SUCCESS);
    CHECK_STATUS(check_one(gpu(0), array_argument("a", wrapped), CHECKED), WARP_SUCCESS);
    CHECK_STATUS(check_one(gpu(1), array_argument("a", wrapped), CHECKED), REFUSED);
    CHECK_STATUS(check_one(cpu(), array_argument("a", wrapped), CHECKED), REFUSED);
    turn(POOL, gpu(0), gpu(1), 1);
    CHECK_STATUS(check_one(gpu(1), array_argument("a", wrapped), CHECKED), WARP_SUCCESS);
    drop(host);
    drop(pinned);
    drop(wrapped);
}

PROCESS_TEST(strict_mode_goes_by_where_memory_is_and_not_by_what_is_said_of_it)
{
    /* Managed memory may be wrapped on any device. */
    warp_array *data, *wrapped, *index = NULL, *mine;
    const warp_array *indices[1];
    warp_indexed_array *indexed = NULL;
    warp_launch_argument argument = {.name = "i", .kind = WARP_LAUNCH_INDEXED_ARRAY};
    const int64_t four = 4;
    void *managed, *mapping;
    uint32_t flags;
    start_on("h200x2");
    managed = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MANAGED);
    data = array_of_kind(gpu(1), WARP_MEMORY_UNKNOWN, F32, 8);
    mine = array_of_kind(gpu(1), WARP_MEMORY_UNKNOWN, I32, 4);
    wrapped = wrapped_on(gpu(1), managed, 8);
    CHECK_STATUS(warp_array_wrap(gpu(1), managed, I32, 1, &four, NULL, &index), WARP_SUCCESS);
    CHECK_STATUS(check_one(gpu(1), array_argument("a", wrapped), CHECKED), WARP_SUCCESS);
    CHECK_STATUS(check_one(gpu(1), array_argument("a", wrapped), STRICT), REFUSED);
    CHECK_EQ_PTR(report_now.device, gpu(0));
    CHECK_STATUS(check_one(gpu(0), array_argument("a", wrapped), STRICT), WARP_SUCCESS);
    indices[0] = mine;
    CHECK_STATUS(warp_indexed_array_create(data, indices, 1, &indexed), WARP_SUCCESS);
    argument.value = indexed;
    CHECK_STATUS(check_one(gpu(1), argument, STRICT), WARP_SUCCESS);
    CHECK_STATUS(warp_indexed_array_release(indexed), WARP_SUCCESS);
    indices[0] = index;
    CHECK_STATUS(warp_indexed_array_create(data, indices, 1, &indexed), WARP_SUCCESS);
    argument.value = indexed;
    CHECK_STATUS(check_one(gpu(1), argument, CHECKED), WARP_SUCCESS);
    CHECK_STATUS(check_one(gpu(1), argument, STRICT), REFUSED);
    CHECK_EQ_PTR(report_now.device, gpu(0));
    CHECK_STATUS(warp_indexed_array_release(indexed), WARP_SUCCESS);
    /* Also when another part is at home and the worse one to touch. */
    drop(data);
    context_of(gpu(1));
    mapping = mapping_of(1);
    CHECK_STATUS(warp_array_wrap(gpu(1), mapping, F32, 1, &four, NULL, &data), WARP_SUCCESS);
    CHECK_STATUS(warp_indexed_array_create(data, indices, 1, &indexed), WARP_SUCCESS);
    argument.value = indexed;
    for (flags = 0; flags < 2; ++flags) {
        map_for(mapping, 1, flags);
        CHECK_STATUS(check_one(gpu(1), argument, STRICT), REFUSED);
        CHECK_EQ_I64(report_now.reason, WARP_ACCESS_REASON_NOT_ON_LAUNCH_DEVICE);
        CHECK_EQ_PTR(report_now.device, gpu(0));
        CHECK_STATUS(check_one(gpu(1), argument, CHECKED), flags == 0 ? REFUSED : WARP_SUCCESS);
        CHECK_EQ_PTR(report_now.device, gpu(1));
        /* Alone it is at home, and may be touched as far as it is mapped. */
        CHECK_STATUS(check_one(gpu(1), array_argument("a", data), STRICT), flags == 0 ? REFUSED : WARP_SUCCESS);
        CHECK_EQ_I64(report_now.reason, EITHER(flags == 0, NOT_MAPPED, MAPPED_READ_ONLY));
    }
    CHECK_STATUS(warp_indexed_array_release(indexed), WARP_SUCCESS);
    drop(data);
    unmap(mapping);
    drop(mine);
    drop(wrapped);
    drop(index);
    CHECK_STATUS(warp_free(managed), WARP_SUCCESS);
    CHECK_GONE();
}

/* ---- Words ------------------------------------------------------------------------------------------------------- */

static void names_all(const char *launch, const char *home, const char *kind)
{
    char text[128];
    says("\"saxpy\"");
    says("\"x\"");
    snprintf(text, sizeof text, "\"%s\"", launch);
    says(text);
    snprintf(text, sizeof text, "\"%s\"", home);
    says(text);
    says(kind);
}

PROCESS_TEST(messages_name_the_kernel_the_argument_both_devices_and_the_kind)
{
    /* AC-01: strict mode has words of its own. */
    static const struct {
        warp_memory_kind kind;
        const char *text;
    } of_gpu[] = {{WARP_MEMORY_CUDA_DEVICE, "memory_kind=CUDA_DEVICE"},
                  {WARP_MEMORY_CUDA_MEMPOOL, "memory_kind=CUDA_MEMPOOL"},
                  {WARP_MEMORY_CUDA_MANAGED, "memory_kind=CUDA_MANAGED"}};
    warp_array *array;
    size_t i;
    start_on("h200x2,concurrent=0,gpu1.managed=0");
    for (i = 0; i < 3; ++i) {
        array = array_of_kind(gpu(0), of_gpu[i].kind, F32, 8);
        CHECK_STATUS(check_one(gpu(1), array_argument("x", array), CHECKED), REFUSED);
        names_all("cuda:1", "cuda:0", of_gpu[i].text);
        says(CHECKED_WORDS);
        CHECK_STATUS(check_one(cpu(), array_argument("x", array), CHECKED), REFUSED);
        names_all("cpu", "cuda:0", of_gpu[i].text);
        says(CHECKED_WORDS);
        CHECK_STATUS(check_one(gpu(1), array_argument("x", array), STRICT), REFUSED);
        names_all("cuda:1", "cuda:0", of_gpu[i].text);
        does_not_say(CHECKED_WORDS);
        does_not_say("not accessible");
        says("WARP_LAUNCH_CHECKED");
        drop(array);
    }
    for (i = 0; i < 2; ++i) {
        array = array_of_kind(cpu(), i ? WARP_MEMORY_PINNED : WARP_MEMORY_HOST, F32, 8);
        CHECK_STATUS(check_one(gpu(1), array_argument("x", array), STRICT), REFUSED);
        names_all("cuda:1", "cpu", i ? "memory_kind=PINNED" : "memory_kind=HOST");
        does_not_say(CHECKED_WORDS);
        drop(array);
    }
}

PROCESS_TEST(of_an_indexed_array_all_kinds_are_named_the_datas_first)
{
    const warp_memory_kind kinds_of_parts[3] = {WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MANAGED};
    static const char *const names[] = {"CUDA_MEMPOOL", "CUDA_DEVICE", "CUDA_MANAGED"};
    warp_array *grids[3], *rows[3];
    int a, b, c, mode;
    start_on("h200x2");
    for (a = 0; a < 3; ++a) {
        warp_array_options options = {.struct_size = sizeof options, .kind = kinds_of_parts[a]};
        const int64_t shape[2] = {4, 4};
        CHECK_STATUS(warp_array_empty(gpu(0), F32, 2, shape, &options, &grids[a]), WARP_SUCCESS);
        rows[a] = array_of_kind(gpu(0), kinds_of_parts[a], I32, 4);
    }
    for (a = 0; a < 3; ++a)
        for (b = 0; b < 3; ++b)
            for (c = 0; c < 3; ++c)
                for (mode = CHECKED; mode <= STRICT; ++mode) {
                    const warp_array *indices[2] = {rows[b], rows[c]};
                    warp_indexed_array *indexed = NULL;
                    warp_launch_argument argument = {.name = "x", .kind = WARP_LAUNCH_INDEXED_ARRAY};
                    char expected[128];
                    CHECK_STATUS(warp_indexed_array_create(grids[a], indices, 2, &indexed), WARP_SUCCESS);
                    argument.value = indexed;
                    if (a == b && b == c)
                        snprintf(expected, sizeof expected, "(memory_kind=%s)", names[a]);
                    else if (a == b || c == a || c == b)
                        snprintf(expected, sizeof expected, "(memory_kinds=[%s, %s])", names[a], names[b != a ? b : c]);
                    else
                        snprintf(expected, sizeof expected, "(memory_kinds=[%s, %s, %s])", names[a], names[b], names[c]);
                    if (mode == CHECKED && a == 2 && b == 2 && c == 2) {
                        CHECK_STATUS(check_one(gpu(1), argument, mode), WARP_SUCCESS);
                    } else {
                        CHECK_STATUS(check_one(gpu(1), argument, mode), REFUSED);
                        says(expected);
                        names_all("cuda:1", "cuda:0", expected);
                        CHECK_EQ_I64(report_now.kind, a == b && b == c ? kinds_of_parts[a] : WARP_MEMORY_UNKNOWN);
                    }
                    CHECK_STATUS(warp_indexed_array_release(indexed), WARP_SUCCESS);
                }
    for (a = 0; a < 3; ++a) {
        drop(grids[a]);
        drop(rows[a]);
    }
    CHECK_GONE();
}

/* The device of the nth name in quotes behind a word of the last message. */
static warp_device *named(const char *call, int nth)
{
    const char *from = strstr(warp_error_get_message(), call);
    char alias[64] = "";
    int i;
    if (from == NULL) {
        check_note_failure();
        printf("\n    \"%s\" has no %s", warp_error_get_message(), call);
        return NULL;
    }
    for (i = 0; i < 2 * nth + 1; ++i)
        from = strchr(from, '"') + 1;
    memcpy(alias, from, (size_t)(strchr(from, '"') - from));
    return device(alias);
}

PROCESS_TEST(to_do_what_a_message_says_makes_it_legal)
{
    warp_array *plain, *pooled, *host, *copy = NULL;
    warp_mempool *own = NULL;
    warp_device *target, *peer;
    void *block, *mapping;
    warp_alloc_options options;
    start_on("h200x2,concurrent=1");
    plain = array_of_kind(gpu(0), WARP_MEMORY_CUDA_DEVICE, F32, 8);
    pooled = array_of_kind(gpu(0), WARP_MEMORY_CUDA_MEMPOOL, F32, 8);
    host = array_of_kind(cpu(), WARP_MEMORY_HOST, F32, 8);
    /* Peer access. */
    CHECK_STATUS(check_one(gpu(1), array_argument("x", plain), CHECKED), REFUSED);
    target = named("warp_peer_access_set_enabled(", 0);
    peer = named("warp_peer_access_set_enabled(", 1);
    turn(PEER, target, peer, 1);
    CHECK_STATUS(check_one(gpu(1), array_argument("x", plain), CHECKED), WARP_SUCCESS);
    /* Access to the device's pool. */
    CHECK_STATUS(check_one(gpu(1), array_argument("x", pooled), CHECKED), REFUSED);
    target = named("warp_mempool_access_set_enabled(", 0);
    peer = named("warp_mempool_access_set_enabled(", 1);
    turn(POOL, target, peer, 1);
    CHECK_STATUS(check_one(gpu(1), array_argument("x", pooled), CHECKED), WARP_SUCCESS);
    /* To a pool of one's own. */
    CHECK_STATUS(warp_mempool_create(gpu(0), NULL, &own), WARP_SUCCESS);
    options = options_of(0, NULL);
    options.mempool = own;
    CHECK_STATUS(warp_alloc_with(gpu(0), 64, &options, &block), WARP_SUCCESS);
    CHECK_STATUS(check_one(gpu(1), pointer_argument("x", block), CHECKED), REFUSED);
    says("warp_mempool_set_access()");
    CHECK_STATUS(warp_mempool_set_access(own, gpu(1), 1), WARP_SUCCESS);
    CHECK_STATUS(check_one(gpu(1), pointer_argument("x", block), CHECKED), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_release(own), WARP_SUCCESS);
    /* A copy, and the other kinds that are named. */
    CHECK_STATUS(check_one(gpu(1), array_argument("x", host), CHECKED), REFUSED);
    says("WARP_MEMORY_PINNED");
    says("warp_array_clone()");
    CHECK_STATUS(warp_array_clone(host, gpu(1), NULL, &copy), WARP_SUCCESS);
    CHECK_STATUS(check_one(gpu(1), array_argument("x", copy), STRICT), WARP_SUCCESS);
    drop(copy);
    copy = array_of_kind(cpu(), WARP_MEMORY_PINNED, F32, 8);
    CHECK_STATUS(check_one(gpu(1), array_argument("x", copy), CHECKED), WARP_SUCCESS);
    drop(copy);
    CHECK_STATUS(check_one(cpu(), array_argument("x", pooled), CHECKED), REFUSED);
    says("WARP_MEMORY_CUDA_MANAGED");
    says("warp_array_clone()");
    CHECK_STATUS(warp_array_clone(pooled, cpu(), NULL, &copy), WARP_SUCCESS);
    CHECK_STATUS(check_one(cpu(), array_argument("x", copy), STRICT), WARP_SUCCESS);
    drop(copy);
    copy = array_of_kind(gpu(0), WARP_MEMORY_CUDA_MANAGED, F32, 8);
    CHECK_STATUS(check_one(cpu(), array_argument("x", copy), CHECKED), WARP_SUCCESS);
    drop(copy);
    /* A mapping is its maker's to open. */
    mapping = mapping_of(0);
    CHECK_STATUS(check_one(gpu(1), pointer_argument("x", mapping), CHECKED), REFUSED);
    says("cuMemSetAccess()");
    map_for(mapping, 1, 3);
    CHECK_STATUS(check_one(gpu(1), pointer_argument("x", mapping), CHECKED), WARP_SUCCESS);
    unmap(mapping);
    drop(plain);
    drop(pooled);
    drop(host);
}

PROCESS_TEST(where_there_is_no_way_but_a_copy_the_message_says_so)
{
    /* AC-01: page-locked memory without unified addressing, too. */
    warp_array *plain, *pooled, *pinned;
    start_on("discrete,peers=0,uva=0");
    plain = array_of_kind(gpu(0), WARP_MEMORY_CUDA_DEVICE, F32, 8);
    pooled = array_of_kind(gpu(0), WARP_MEMORY_CUDA_MEMPOOL, F32, 8);
    pinned = array_of_kind(cpu(), WARP_MEMORY_PINNED, F32, 8);
    CHECK_STATUS(check_one(gpu(1), array_argument("x", plain), CHECKED), REFUSED);
    CHECK_EQ_I64(report_now.reason, WARP_ACCESS_REASON_NOT_PEERS);
    says("cannot be peers");
    does_not_say("set_enabled");
    CHECK_STATUS(check_one(gpu(1), array_argument("x", pooled), CHECKED), REFUSED);
    CHECK_EQ_I64(report_now.reason, WARP_ACCESS_REASON_NOT_PEERS);
    does_not_say("set_enabled");
    CHECK_STATUS(check_one(gpu(0), array_argument("x", pinned), CHECKED), REFUSED);
    CHECK_EQ_I64(report_now.reason, WARP_ACCESS_REASON_NO_UNIFIED_ADDRESSING);
    says("warp_array_clone()");
    drop(plain);
    drop(pooled);
    drop(pinned);
}

/* ---- The report -------------------------------------------------------------------------------------------------- */

PROCESS_TEST(the_report_tells_the_first_of_the_worst_and_counts_all)
{
    static char unknown[3][8];
    warp_array *own, *plain, *pooled, *managed, *none;
    warp_launch_argument arguments[10];
    void *read_only;
    start_on("h200x2");
    context_of(gpu(1));
    own = array_of_kind(gpu(1), WARP_MEMORY_UNKNOWN, F32, 8);
    plain = array_of_kind(gpu(0), WARP_MEMORY_CUDA_DEVICE, F32, 8);
    pooled = array_of_kind(gpu(0), WARP_MEMORY_CUDA_MEMPOOL, F32, 8);
    managed = array_of_kind(gpu(0), WARP_MEMORY_CUDA_MANAGED, F32, 8);
    none = array_of_kind(gpu(0), WARP_MEMORY_CUDA_DEVICE, F32, 0);
    read_only = mapping_of(0);
    map_for(read_only, 1, 1);
    arguments[0] = array_argument("own", own);
    arguments[1] = array_argument("managed", managed);
    arguments[2] = array_argument("none", none);
    arguments[3] = array_argument("null", NULL);
    arguments[4] = pointer_argument("read only", read_only);
    arguments[5] = pointer_argument("unknown", unknown[0]);
    arguments[6] = array_argument("pooled", pooled);
    arguments[7] = pointer_argument("unknown too", unknown[1]);
    arguments[8] = array_argument("plain", plain);
    arguments[9] = array_argument("own again", own);
    /* All is well. */
    CHECK_STATUS(check(gpu(1), arguments, 4, CHECKED), WARP_SUCCESS);
    CHECK_EQ_U64(report_now.accessible, 4);
    CHECK_EQ_U64(report_now.unverified + report_now.inaccessible, 0);
    CHECK_EQ_I64(report_now.access, ACCESSIBLE);
    CHECK_EQ_I64(report_now.reason, 0);
    CHECK_EQ_U64(report_now.argument, 0);
    CHECK_EQ_PTR(report_now.device, NULL);
    CHECK_EQ_I64(report_now.kind, WARP_MEMORY_UNKNOWN);
    CHECK_EQ_STR(report_now.name, "");
    /* Nothing to look at. */
    CHECK_STATUS(check(gpu(1), NULL, 0, CHECKED), WARP_SUCCESS);
    CHECK_EQ_U64(report_now.accessible, 0);
    CHECK_EQ_I64(report_now.access, ACCESSIBLE);
    /* Unverified: it passes, and the first one is told. */
    CHECK_STATUS(check(gpu(1), arguments, 6, CHECKED), WARP_SUCCESS);
    CHECK_EQ_U64(report_now.accessible, 4);
    CHECK_EQ_U64(report_now.unverified, 2);
    CHECK_EQ_I64(report_now.access, UNVERIFIED);
    CHECK_EQ_I64(report_now.reason, WARP_ACCESS_REASON_MAPPED_READ_ONLY);
    CHECK_EQ_U64(report_now.argument, 4);
    CHECK_EQ_PTR(report_now.device, gpu(0));
    CHECK_EQ_I64(report_now.kind, WARP_MEMORY_CUDA_DEVICE);
    CHECK_EQ_STR(report_now.name, "read only");
    /* Inaccessible beats it, and the first of those is told; all are counted. */
    CHECK_STATUS(check(gpu(1), arguments, 10, CHECKED), REFUSED);
    CHECK_EQ_U64(report_now.accessible, 5);
    CHECK_EQ_U64(report_now.unverified, 3);
    CHECK_EQ_U64(report_now.inaccessible, 2);
    CHECK_EQ_I64(report_now.access, INACCESSIBLE);
    CHECK_EQ_I64(report_now.reason, WARP_ACCESS_REASON_NO_POOL_ACCESS);
    CHECK_EQ_U64(report_now.argument, 6);
    CHECK_EQ_PTR(report_now.device, gpu(0));
    CHECK_EQ_I64(report_now.kind, WARP_MEMORY_CUDA_MEMPOOL);
    CHECK_EQ_STR(report_now.name, "pooled");
    says("\"pooled\"");
    /* Strict: what is not here is refused, for that reason. What has no memory is nowhere. */
    CHECK_STATUS(check(gpu(1), arguments, 10, STRICT), REFUSED);
    CHECK_EQ_U64(report_now.accessible, 4);
    CHECK_EQ_U64(report_now.unverified, 0);
    CHECK_EQ_U64(report_now.inaccessible, 6);
    CHECK_EQ_I64(report_now.reason, WARP_ACCESS_REASON_NOT_ON_LAUNCH_DEVICE);
    CHECK_EQ_STR(report_now.name, "managed");
    CHECK_EQ_U64(report_now.argument, 1);
    /* Unknown memory has no home. */
    CHECK_STATUS(check_one(gpu(1), arguments[5], STRICT), REFUSED);
    CHECK_EQ_PTR(report_now.device, NULL);
    CHECK_EQ_I64(report_now.kind, WARP_MEMORY_UNKNOWN);
    says("no device that is known");
    drop(own);
    drop(plain);
    drop(pooled);
    drop(managed);
    drop(none);
    unmap(read_only);
    CHECK_GONE();
}

PROCESS_TEST(reports_of_other_sizes)
{
    struct {
        warp_launch_report report;
        unsigned char more[40];
    } newer;
    warp_launch_report report;
    unsigned char before[sizeof report];
    size_t size, i;
    start_on("h200x2");
    for (size = 0; size < sizeof report; ++size) {
        memset(&report, 0xEE, sizeof report);
        report.struct_size = size;
        memcpy(before, &report, sizeof report);
        CHECK_STATUS(warp_launch_check(gpu(0), "k", NULL, 0, 0, CHECKED, &report), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(warp_launch_check(gpu(0), "k", NULL, 0, 0, RELAXED, &report), WARP_ERROR_INVALID_ARGUMENT);
        CHECK(memcmp(before, &report, sizeof report) == 0);
    }
    memset(&newer, 0xEE, sizeof newer);
    newer.report.struct_size = sizeof newer;
    CHECK_STATUS(warp_launch_check(gpu(0), "k", NULL, 0, 0, CHECKED, &newer.report), WARP_SUCCESS);
    CHECK_EQ_I64(newer.report.access, ACCESSIBLE);
    for (i = 0; i < sizeof newer.more; ++i)
        CHECK_EQ_U64(newer.more[i], 0);
}

/* ---- Structs ----------------------------------------------------------------------------------------------------- */

PROCESS_TEST(members_of_structs_are_looked_at_and_named_by_their_path)
{
    warp_array *own, *other;
    warp_launch_argument inner[3], middle[2], arguments[4];
    start_on("h200x2");
    own = array_of_kind(gpu(1), WARP_MEMORY_UNKNOWN, F32, 8);
    other = array_of_kind(gpu(0), WARP_MEMORY_UNKNOWN, F32, 8);
    inner[0] = array_argument("velocities", own);
    inner[1] = array_argument("positions", other);
    inner[2] = pointer_argument("forces", NULL);
    middle[0] = array_argument("mass", own);
    middle[1] = struct_argument("state", inner, 3);
    arguments[0] = array_argument("a", own);
    arguments[1] = array_argument("b", own);
    arguments[2] = struct_argument("model", middle, 2);
    arguments[3] = struct_argument("nothing", NULL, 0);
    CHECK_STATUS(check(gpu(1), arguments, 4, CHECKED), REFUSED);
    CHECK_EQ_STR(report_now.name, "model.state.positions");
    CHECK_EQ_U64(report_now.argument, 2);
    CHECK_EQ_U64(report_now.accessible, 5);
    CHECK_EQ_U64(report_now.inaccessible, 1);
    says("\"model.state.positions\"");
    /* Without names their places serve. */
    inner[1].name = middle[1].name = arguments[2].name = NULL;
    CHECK_STATUS(check(gpu(1), arguments, 4, CHECKED), REFUSED);
    CHECK_EQ_STR(report_now.name, "#2.#1.#1");
    says("\"#2.#1.#1\"");
    inner[1].value = own;
    CHECK_STATUS(check(gpu(1), arguments, 4, STRICT), WARP_SUCCESS);
    CHECK_EQ_U64(report_now.accessible, 6);
    drop(own);
    drop(other);
}

PROCESS_TEST(arguments_that_are_longer_and_lie_anywhere)
{
    /* A later version's, and one that is not aligned. Members have the stride of the list. */
    enum { STRIDE = sizeof(warp_launch_argument) + 13, COUNT = 5 };
    unsigned char list[COUNT * STRIDE + 1], members[2 * STRIDE + 1];
    warp_array *own, *other;
    warp_launch_report report = {.struct_size = sizeof report};
    warp_launch_argument argument;
    int i;
    start_on("h200x2");
    own = array_of_kind(gpu(1), WARP_MEMORY_UNKNOWN, F32, 8);
    other = array_of_kind(gpu(0), WARP_MEMORY_UNKNOWN, F32, 8);
    memset(list, 0xEE, sizeof list);
    memset(members, 0xEE, sizeof members);
    argument = array_argument("own", own);
    for (i = 0; i < COUNT; ++i)
        memcpy(list + 1 + i * STRIDE, &argument, sizeof argument);
    memcpy(members + 1, &argument, sizeof argument);
    argument = array_argument("other", other);
    memcpy(members + 1 + STRIDE, &argument, sizeof argument);
    argument = struct_argument("s", (const warp_launch_argument *)(const void *)(members + 1), 2);
    memcpy(list + 1 + 3 * STRIDE, &argument, sizeof argument);
    CHECK_STATUS(warp_launch_check(gpu(1), "k", (const warp_launch_argument *)(const void *)(list + 1), COUNT, STRIDE, CHECKED,
                                   &report),
                 REFUSED);
    CHECK_EQ_STR(report.name, "s.other");
    CHECK_EQ_U64(report.argument, 3);
    CHECK_EQ_U64(report.accessible, 5);
    drop(own);
    drop(other);
}

PROCESS_TEST(structs_that_have_no_end)
{
    warp_launch_argument chain[40], self[2], wide[1];
    warp_array *own;
    int i, deep;
    start_on("h200x2");
    own = array_of_kind(gpu(0), WARP_MEMORY_UNKNOWN, F32, 8);
    /* As deep as it may be, and one deeper. */
    for (deep = 14; deep < 20; ++deep) {
        for (i = 0; i < deep; ++i)
            chain[i] = struct_argument("s", &chain[i + 1], 1);
        chain[deep] = array_argument("a", own);
        if (deep <= 16) {
            CHECK_STATUS(check(gpu(0), chain, 1, CHECKED), WARP_SUCCESS);
            CHECK_EQ_U64(report_now.accessible, 1);
        } else {
            CHECK_STATUS(check(gpu(0), chain, 1, CHECKED), WARP_ERROR_INVALID_ARGUMENT);
            says("16");
            says("contain itself");
            report_is_zero(__LINE__);
        }
    }
    self[0] = struct_argument("self", self, 1);
    CHECK_STATUS(check(gpu(0), self, 1, CHECKED), WARP_ERROR_INVALID_ARGUMENT);
    says("\"self.self.");
    self[0] = array_argument("a", own);
    self[1] = struct_argument("self", self, 2);
    CHECK_STATUS(check(gpu(0), self, 2, CHECKED), WARP_ERROR_INVALID_ARGUMENT);
    /* Too many in all: a million members take their time under valgrind. */
    if (!check_under("valgrind")) {
        warp_launch_argument *many = calloc(1 << 16, sizeof *many), *outer = calloc(20, sizeof *outer);
        for (i = 0; i < 20; ++i)
            outer[i] = struct_argument("s", many, 1 << 16);
        CHECK_STATUS(check(gpu(0), outer, 15, CHECKED), WARP_SUCCESS);
        CHECK_EQ_U64(report_now.accessible, 15 << 16);
        CHECK_STATUS(check(gpu(0), outer, 16, CHECKED), WARP_ERROR_INVALID_ARGUMENT);
        says("contain itself");
        report_is_zero(__LINE__);
        free(many);
        free(outer);
    }
    wide[0] = struct_argument("wide", NULL, 3);
    CHECK_STATUS(check(gpu(0), wide, 1, CHECKED), WARP_ERROR_INVALID_ARGUMENT);
    says("\"wide\"");
    says("NULL");
    wide[0] = struct_argument("wide", chain, SIZE_MAX);
    CHECK_STATUS(check(gpu(0), wide, 1, CHECKED), WARP_ERROR_INVALID_ARGUMENT);
    says("\"wide\"");
    drop(own);
}

PROCESS_TEST(lists_that_cannot_be)
{
    static const size_t strides[] = {0, 1, 8, sizeof(warp_launch_argument) - 1, 65537, SIZE_MAX, SIZE_MAX / 2};
    static const int32_t kinds_that_are_none[] = {-1, 4, 5, 1000, INT32_MIN, INT32_MAX};
    warp_launch_argument arguments[3];
    warp_array *own;
    size_t i;
    start_on("h200x2");
    own = array_of_kind(gpu(0), WARP_MEMORY_UNKNOWN, F32, 8);
    for (i = 0; i < 3; ++i)
        arguments[i] = array_argument("a", own);
    CHECK_STATUS(check(gpu(0), NULL, 0, CHECKED), WARP_SUCCESS);
    CHECK_STATUS(warp_launch_check(gpu(0), "k", NULL, 0, SIZE_MAX, STRICT, NULL), WARP_SUCCESS);
    CHECK_STATUS(check(gpu(0), NULL, 1, CHECKED), WARP_ERROR_INVALID_ARGUMENT);
    says("NULL");
    report_is_zero(__LINE__);
    CHECK_STATUS(check(gpu(0), arguments, SIZE_MAX, CHECKED), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(check(gpu(0), arguments, (1 << 20) + 1, CHECKED), WARP_ERROR_INVALID_ARGUMENT);
    says("1048577");
    for (i = 0; i < sizeof strides / sizeof *strides; ++i) {
        CHECK_STATUS(warp_launch_check(gpu(0), "k", arguments, 3, strides[i], CHECKED, NULL), WARP_ERROR_INVALID_ARGUMENT);
        says("stride");
    }
    for (i = 0; i < sizeof kinds_that_are_none / sizeof *kinds_that_are_none; ++i) {
        char number[32];
        arguments[1].kind = kinds_that_are_none[i];
        arguments[1].name = "odd";
        snprintf(number, sizeof number, "%" PRId32, kinds_that_are_none[i]);
        CHECK_STATUS(check(gpu(0), arguments, 3, CHECKED), WARP_ERROR_INVALID_ARGUMENT);
        says("\"odd\"");
        says(number);
        says("WARP_LAUNCH_ARRAY");
        report_is_zero(__LINE__);
    }
    /* A device that is none. */
    arguments[1] = arguments[0];
    CHECK_STATUS(check((warp_device *)(void *)own, arguments, 3, CHECKED), WARP_ERROR_INVALID_HANDLE);
    report_is_zero(__LINE__);
    /* NULL is the default device, and no name of a kernel is an empty one. */
    CHECK_STATUS(warp_launch_check(NULL, NULL, arguments, 3, sizeof *arguments, STRICT, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_launch_check(gpu(1), NULL, arguments, 3, sizeof *arguments, STRICT, NULL), REFUSED);
    drop(own);
}

PROCESS_TEST(a_handle_that_is_none_is_named)
{
    warp_array *own, *released;
    warp_launch_argument members[2], arguments[3];
    warp_stream *stream;
    int kind;
    start_on("h200x2");
    own = array_of_kind(gpu(0), WARP_MEMORY_UNKNOWN, F32, 8);
    released = array_of_kind(gpu(0), WARP_MEMORY_UNKNOWN, F32, 8);
    stream = stream_of(gpu(0));
    drop(released);
    for (kind = 0; kind < 4; ++kind) {
        members[0] = array_argument("fine", own);
        void *const none[4] = {released, stream, gpu(0), own};
        members[1] = array_argument("stale", none[kind]);
        members[1].kind = kind == 3 ? WARP_LAUNCH_INDEXED_ARRAY : WARP_LAUNCH_ARRAY;
        arguments[0] = array_argument("a", own);
        arguments[1] = struct_argument("s", members, 2);
        arguments[2] = array_argument("c", own);
        CHECK_STATUS(check(gpu(0), arguments, 3, CHECKED), WARP_ERROR_INVALID_HANDLE);
        says("\"s.stale\"");
        says("\"saxpy\"");
        report_is_zero(__LINE__);
        CHECK_STATUS(check(gpu(0), arguments, 3, STRICT), WARP_ERROR_INVALID_HANDLE);
        CHECK_STATUS(check(gpu(0), arguments, 3, RELAXED), WARP_SUCCESS);
    }
    drop(own);
}

PROCESS_TEST(thousands_of_arguments)
{
    enum { COUNT = 5000 };
    warp_launch_argument *arguments = calloc(COUNT, sizeof *arguments);
    warp_array *own, *other, *managed;
    size_t i;
    start_on("h200x2");
    own = array_of_kind(gpu(1), WARP_MEMORY_UNKNOWN, F32, 8);
    other = array_of_kind(gpu(0), WARP_MEMORY_UNKNOWN, F32, 8);
    managed = array_of_kind(gpu(0), WARP_MEMORY_CUDA_MANAGED, F32, 8);
    for (i = 0; i < COUNT; ++i)
        arguments[i] = array_argument(NULL, i % 2 ? own : managed);
    CHECK_STATUS(check(gpu(1), arguments, COUNT, CHECKED), WARP_SUCCESS);
    CHECK_EQ_U64(report_now.accessible, COUNT);
    arguments[4321].value = other;
    arguments[4999].value = other;
    CHECK_STATUS(check(gpu(1), arguments, COUNT, CHECKED), REFUSED);
    CHECK_EQ_U64(report_now.argument, 4321);
    CHECK_EQ_STR(report_now.name, "#4321");
    CHECK_EQ_U64(report_now.inaccessible, 2);
    free(arguments);
    drop(own);
    drop(other);
    drop(managed);
}

PROCESS_TEST(names_that_are_long_or_no_text)
{
    char name[1000], expected[256];
    warp_array *other;
    warp_launch_argument argument;
    size_t i;
    start_on("h200x2");
    other = array_of_kind(gpu(0), WARP_MEMORY_UNKNOWN, F32, 8);
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    argument = array_argument(name, other);
    CHECK_STATUS(check_one(gpu(1), argument, CHECKED), REFUSED);
    CHECK_EQ_U64(strlen(report_now.name), sizeof report_now.name - 1);
    CHECK(strncmp(report_now.name, name, sizeof report_now.name - 1) == 0);
    says("nnnnnnnn");
    /* Cut between letters, not inside of one. */
    for (i = 0; i + 1 < sizeof name; i += 2)
        memcpy(name + i, "\xc3\xa9", 2);
    name[998] = '\0';
    memcpy(expected, name, 254);
    expected[254] = '\0';
    CHECK_STATUS(check_one(gpu(1), argument, CHECKED), REFUSED);
    CHECK_EQ_STR(report_now.name, expected);
    strcpy(name, "\xff\xfe bytes");
    CHECK_STATUS(check_one(gpu(1), argument, CHECKED), REFUSED);
    says(" bytes");
    CHECK_STATUS(warp_launch_check(gpu(1), "\xff kernel", &argument, 1, sizeof argument, CHECKED, NULL), REFUSED);
    says(" kernel");
    strcpy(name, "");
    CHECK_STATUS(check_one(gpu(1), argument, CHECKED), REFUSED);
    CHECK_EQ_STR(report_now.name, "");
    drop(other);
}

/* ---- Warnings ---------------------------------------------------------------------------------------------------- */

static int warnings;
static char last_warning[1024];

static void count_warning(void *user, warp_log_level level, const char *message)
{
    (void)user;
    if (strstr(message, "cannot verify cross-device access") == NULL)
        return;
    CHECK_EQ_I64(level, WARP_LOG_WARNING);
    __atomic_fetch_add(&warnings, 1, __ATOMIC_SEQ_CST);
    snprintf(last_warning, sizeof last_warning, "%s", message);
}

static int warned(const char *kernel, const char *name, warp_device *device, const void *ptr)
{
    warp_launch_argument argument = pointer_argument(name, ptr);
    int before = warnings;
    CHECK_STATUS(warp_launch_check(device, kernel, &argument, 1, sizeof argument, CHECKED, NULL), WARP_SUCCESS);
    return warnings - before;
}

PROCESS_TEST(what_cannot_be_verified_is_warned_of_once)
{
    /* AC-01: the same kernel, argument, source and launch device twice. */
    static char unknown[8], another[8];
    void *read_only, *read_only_too;
    start_on("h200x2,gpus=3");
    CHECK_STATUS(warp_log_set_callback(count_warning, NULL, WARP_LOG_WARNING), WARP_SUCCESS);
    read_only = mapping_of(0);
    read_only_too = mapping_of(2);
    map_for(read_only, 1, 1);
    map_for(read_only, 2, 1);
    map_for(read_only_too, 1, 1);
    CHECK_EQ_I64(warned("k", "x", gpu(1), read_only), 1);
    CHECK_STR_CONTAINS(last_warning, "\"k\"");
    CHECK_STR_CONTAINS(last_warning, "\"x\"");
    CHECK_STR_CONTAINS(last_warning, "\"cuda:1\"");
    CHECK_STR_CONTAINS(last_warning, "\"cuda:0\"");
    CHECK_STR_CONTAINS(last_warning, "memory_kind=CUDA_DEVICE");
    CHECK_STR_CONTAINS(last_warning, "read it only");
    CHECK_STR_CONTAINS(last_warning, "cuMemSetAccess()");
    CHECK_EQ_I64(warned("k", "x", gpu(1), read_only), 0);
    /* Another kernel, another argument, another home, another launch device; and nothing else makes it new. */
    CHECK_EQ_I64(warned("k2", "x", gpu(1), read_only), 1);
    CHECK_EQ_I64(warned("k", "y", gpu(1), read_only), 1);
    CHECK_EQ_I64(warned("k", "x", gpu(1), read_only_too), 1);
    CHECK_EQ_I64(warned("k", "x", gpu(2), read_only), 1);
    CHECK_EQ_I64(warned("k", "x", gpu(1), unknown), 1);
    CHECK_EQ_I64(warned("k", "x", gpu(1), another), 0);
    CHECK_EQ_I64(warned("k", "x", cpu(), another), 1);
    CHECK_EQ_I64(warned("k", NULL, gpu(1), unknown), 1);
    CHECK_EQ_I64(warned("k", "#0", gpu(1), unknown), 0);
    CHECK_EQ_I64(warned(NULL, "x", gpu(1), unknown), 1);
    CHECK_EQ_I64(warned("", "x", gpu(1), unknown), 0);
    /* Where names end does matter. */
    CHECK_EQ_I64(warned("ab", "c", gpu(1), unknown), 1);
    CHECK_EQ_I64(warned("a", "bc", gpu(1), unknown), 1);
    /* Strict refuses, and has nothing to warn of. */
    {
        warp_launch_argument argument = pointer_argument("never", unknown);
        int before = warnings;
        CHECK_STATUS(check_launch(gpu(1), &argument, 1, STRICT), REFUSED);
        CHECK_EQ_I64(warnings, before);
        CHECK_EQ_I64(warned("k", "never", gpu(1), unknown), 1);
    }
    /* Each unverified argument of a launch, also when it is refused in the end. */
    {
        warp_array *other = array_of_kind(gpu(0), WARP_MEMORY_UNKNOWN, F32, 8);
        warp_launch_argument arguments[3] = {pointer_argument("u", unknown), array_argument("v", other),
                                             pointer_argument("w", another)};
        int before = warnings;
        CHECK_STATUS(warp_launch_check(gpu(1), "refused", arguments, 3, sizeof *arguments, CHECKED, NULL), REFUSED);
        CHECK_EQ_I64(warnings - before, 2);
        CHECK_STATUS(warp_launch_check(gpu(1), "refused", arguments, 3, sizeof *arguments, CHECKED, NULL), REFUSED);
        CHECK_EQ_I64(warnings - before, 2);
        drop(other);
    }
    CHECK_STATUS(warp_log_set_callback(NULL, NULL, 0), WARP_SUCCESS);
}

PROCESS_TEST(warnings_are_remembered_as_far_as_1024_go)
{
    static char unknown[8];
    char kernel[32];
    int i, again = 0;
    start_on("h200");
    CHECK_STATUS(warp_log_set_callback(count_warning, NULL, WARP_LOG_WARNING), WARP_SUCCESS);
    for (i = 0; i < 1024; ++i) {
        snprintf(kernel, sizeof kernel, "kernel %d", i);
        CHECK_EQ_I64(warned(kernel, "x", gpu(0), unknown), 1);
    }
    for (i = 0; i < 1024; ++i) {
        snprintf(kernel, sizeof kernel, "kernel %d", i);
        again += warned(kernel, "x", gpu(0), unknown);
    }
    CHECK_EQ_I64(again, 0);
    /* The first is met again and stays; the second was met longest ago and makes room. */
    CHECK_EQ_I64(warned("kernel 0", "x", gpu(0), unknown), 0);
    CHECK_EQ_I64(warned("one more", "x", gpu(0), unknown), 1);
    CHECK_EQ_I64(warned("kernel 0", "x", gpu(0), unknown), 0);
    CHECK_EQ_I64(warned("kernel 2", "x", gpu(0), unknown), 0);
    CHECK_EQ_I64(warned("kernel 1", "x", gpu(0), unknown), 1);
    CHECK_STATUS(warp_log_set_callback(NULL, NULL, 0), WARP_SUCCESS);
}

PROCESS_TEST(a_warning_that_nobody_gets_is_not_used_up)
{
    static char unknown[8];
    start_on("h200");
    /* Nobody listens. */
    CHECK_EQ_I64(warned("k", "x", gpu(0), unknown), 0);
    CHECK_STATUS(warp_log_set_callback(count_warning, NULL, WARP_LOG_ERROR), WARP_SUCCESS);
    CHECK_EQ_I64(warned("k", "x", gpu(0), unknown), 0);
    CHECK_STATUS(warp_log_set_callback(count_warning, NULL, WARP_LOG_INFO), WARP_SUCCESS);
    CHECK_EQ_I64(warned("k", "x", gpu(0), unknown), 1);
    CHECK_EQ_I64(warned("k", "x", gpu(0), unknown), 0);
    CHECK_STATUS(warp_log_set_callback(NULL, NULL, 0), WARP_SUCCESS);
}

static int calls_back;

static void call_back_in(void *user, warp_log_level level, const char *message)
{
    static char other[8];
    warp_launch_argument argument = pointer_argument("inside", other);
    void *block = NULL;
    (void)level;
    (void)message;
    if (++calls_back > 1)
        return;
    /* Anything may be called: another check, with a warning of its own, and the array that is looked at is let go. */
    CHECK_STATUS(warp_launch_check(gpu(0), "inside", &argument, 1, sizeof argument, CHECKED, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu(0), 64, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_launch_set_mode(CHECKED), WARP_SUCCESS);
    CHECK_STATUS(warp_launch_set_mode(RELAXED), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(user), WARP_SUCCESS);
}

PROCESS_TEST(whoever_gets_the_warning_may_call_back_in)
{
    static char host[64];
    warp_array *array;
    warp_launch_argument arguments[2];
    start_on("hmm");
    array = wrapped_on(gpu(1), host, 8);
    arguments[0] = array_argument("first", array);
    arguments[1] = pointer_argument("second", host);
    CHECK_STATUS(warp_log_set_callback(call_back_in, array, WARP_LOG_WARNING), WARP_SUCCESS);
    CHECK_STATUS(check_launch(gpu(0), arguments, 2, CHECKED), WARP_SUCCESS);
    CHECK(calls_back >= 2);
    CHECK_STATUS(warp_log_set_callback(NULL, NULL, 0), WARP_SUCCESS);
    CHECK_STATUS(check_launch(gpu(0), arguments, 1, CHECKED), WARP_ERROR_INVALID_HANDLE);
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

static warp_array *shared_own, *shared_other;
static int running;

static void *check_often(void *argument)
{
    static char unknown[8];
    int i;
    (void)argument;
    for (i = 0; i < 500; ++i) {
        char kernel[32];
        warp_launch_argument arguments[3] = {array_argument("a", shared_own), pointer_argument("u", unknown),
                                             array_argument("b", shared_other)};
        warp_launch_report report = {.struct_size = sizeof report};
        snprintf(kernel, sizeof kernel, "k%d", i);
        CHECK_STATUS(warp_launch_check(gpu(0), kernel, arguments, 2, sizeof *arguments, CHECKED, &report), WARP_SUCCESS);
        CHECK_EQ_U64(report.unverified, 1);
        CHECK_STATUS(warp_launch_check(gpu(0), kernel, arguments, 3, sizeof *arguments, CHECKED, &report), REFUSED);
        CHECK_EQ_STR(report.name, "b");
        says(kernel);
    }
    return NULL;
}

static void *change_the_mode(void *argument)
{
    int mode = 0;
    (void)argument;
    while (__atomic_load_n(&running, __ATOMIC_SEQ_CST)) {
        warp_array *array = array_of_kind(gpu(0), WARP_MEMORY_UNKNOWN, F32, 8);
        warp_launch_argument given = array_argument("a", array);
        warp_status status;
        CHECK_STATUS(warp_launch_set_mode(mode), WARP_SUCCESS);
        mode = (mode + 1) % 3;
        status = check_launch(gpu(1), &given, 1, WARP_LAUNCH_PROCESS_MODE);
        CHECK(status == WARP_SUCCESS || status == REFUSED);
        drop(array);
    }
    return NULL;
}

PROCESS_TEST(many_threads_check_at_once)
{
    pthread_t checking[4], changing[2];
    int i;
    start_on("h200x2");
    CHECK_STATUS(warp_log_set_callback(count_warning, NULL, WARP_LOG_WARNING), WARP_SUCCESS);
    shared_own = array_of_kind(gpu(0), WARP_MEMORY_UNKNOWN, F32, 8);
    shared_other = array_of_kind(gpu(1), WARP_MEMORY_UNKNOWN, F32, 8);
    running = 1;
    for (i = 0; i < 2; ++i)
        pthread_create(&changing[i], NULL, change_the_mode, NULL);
    for (i = 0; i < 4; ++i)
        pthread_create(&checking[i], NULL, check_often, NULL);
    for (i = 0; i < 4; ++i)
        pthread_join(checking[i], NULL);
    __atomic_store_n(&running, 0, __ATOMIC_SEQ_CST);
    for (i = 0; i < 2; ++i)
        pthread_join(changing[i], NULL);
    /* Once for each kernel, whichever thread was first. */
    CHECK_EQ_I64(warnings, 500);
    CHECK_STATUS(warp_log_set_callback(NULL, NULL, 0), WARP_SUCCESS);
    drop(shared_own);
    drop(shared_other);
    CHECK_GONE();
}

CHECK_MAIN()
