/*
 * Every answer about access is held against a kernel: what is said to be accessible must work, what is said to be inaccessible must
 * fault. Memory of every sort, between two GPUs in both directions, with no access, peer access, pool access and both. Each case
 * has a process of its own, since a fault ends a process's contexts. Needs two GPUs; runs on simulated ones as well.
 *
 * valgrind: no (the CPU touches device memory)
 */
#include "hardware.h"

#include "../c/kernels.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum { PLAIN, POOL, OWN_POOL, MAPPING, MAPPING_FOR_BOTH, GRAPH, PINNED, REGISTERED, PAGEABLE, MANAGED, OTHER_CONTEXT, IMPORTED, SORTS };
static const char *const sorts[] = {"plain",  "pool",       "pool of one's own", "mapping", "mapping for both",        "graph",
                                    "pinned", "registered", "pageable",          "managed", "plain of another context", "imported"};
enum { WITH_PEER = 1, WITH_POOL = 2, SETTINGS = 4 };
static const char *const settings[] = {"nothing", "peer access", "pool access", "both"};
enum { CPU = -1, ILLEGAL_ADDRESS = 700, KILLED = 128000 };

struct question {
    int sort, setting, owner, toucher;
    /* Set by the child. */
    int asked;
    warp_access_info info;
    warp_status checked;
};

static warp_device *named(int gpu)
{
    char alias[16];
    if (gpu == CPU)
        return device("cpu");
    snprintf(alias, sizeof alias, "cuda:%d", gpu);
    return device(alias);
}

/* Virtual memory of a GPU, mapped for it, or for both. */
static void *map(int owner, int for_both)
{
    struct {
        int type, handles, place, id;
        void *attributes;
        uint8_t flags[8];
    } form = {1, 0, 1, owner, NULL, {0}};
    const size_t size = 2 * MIB;
    unsigned long long memory = 0;
    address at = 0;
    CHECK_EQ_U64(CU((unsigned long long *, size_t, const void *, unsigned long long), "cuMemCreate")(&memory, size, &form, 0), SUCCESS);
    CHECK_EQ_U64(CU((address *, size_t, size_t, address, unsigned long long), "cuMemAddressReserve")(&at, size, 0, 0, 0), SUCCESS);
    CHECK_EQ_U64(CU((address, size_t, size_t, unsigned long long, unsigned long long), "cuMemMap")(at, size, 0, memory, 0), SUCCESS);
    for (int gpu = 0; gpu < 2; gpu++) {
        const int access[3] = {1, gpu, 3};
        if (gpu == owner || for_both)
            CHECK_EQ_U64(CU((address, size_t, const void *, size_t), "cuMemSetAccess")(at, size, access, 1), SUCCESS);
    }
    return (void *)(uintptr_t)at;
}

static void *of_graph(warp_device *owner)
{
    warp_stream *stream = new_stream(owner, WARP_STREAM_NON_BLOCKING);
    warp_graph *graph = NULL;
    CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_THREAD_LOCAL), WARP_SUCCESS);
    void *ptr = block(owner, 4096, WARP_MEMORY_CUDA_MEMPOOL, stream);
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    return ptr;
}

static void *of_own_pool(warp_device *owner, warp_device *toucher, int with_access)
{
    warp_mempool *pool = NULL;
    warp_alloc_options options = {.struct_size = sizeof options};
    void *ptr = NULL;
    CHECK_STATUS(warp_mempool_create(owner, NULL, &pool), WARP_SUCCESS);
    options.mempool = pool;
    CHECK_STATUS(warp_alloc_with(owner, 4096, &options, &ptr), WARP_SUCCESS);
    if (with_access)
        CHECK_STATUS(warp_mempool_set_access(pool, toucher, 1), WARP_SUCCESS);
    return ptr;
}

static void *of_another_context(int owner)
{
    void *context = NULL, *before = NULL;
    warp_device *found = NULL;
    GET_CURRENT(&before);
    CHECK_EQ_U64(CU((void **, void *, unsigned, int), "cuCtxCreate_v4")(&context, NULL, 0, owner), SUCCESS);
    SET_CURRENT(before);
    CHECK_STATUS(warp_device_from_context(context, NULL, &found), WARP_SUCCESS);
    return block(found, 4096, WARP_MEMORY_CUDA_DEVICE, NULL);
}

/* Plain memory of another process, which is ended when this one is. Forked before this process has anything of the driver. */
static unsigned char imported_handle[64];
static void offer_from_another_process(int owner)
{
    int ends[2], ready;
    REQUIRE(pipe(ends) == 0);
    pid_t here = getpid(), child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        void *context = NULL;
        address ptr = 0;
        unsigned char offered[sizeof imported_handle] = {0};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ready = CU((unsigned), "cuInit")(0) == SUCCESS && CU((void **, int), "cuDevicePrimaryCtxRetain")(&context, owner) == SUCCESS
                && SET_CURRENT(context) == SUCCESS && CU((address *, size_t), "cuMemAlloc_v2")(&ptr, 4096) == SUCCESS
                && CU((void *, address), "cuIpcGetMemHandle")(offered, ptr) == SUCCESS;
        if (ready && write(ends[1], offered, sizeof offered) == (ssize_t)sizeof offered && getppid() == here)
            pause();
        _exit(1);
    }
    close(ends[1]);
    CHECK_EQ_I64(read(ends[0], imported_handle, sizeof imported_handle), sizeof imported_handle);
    close(ends[0]);
}

static void *imported(void)
{
    struct handle {
        unsigned char bytes[64];
    } handle;
    address ptr = 0;
    memcpy(handle.bytes, imported_handle, sizeof handle.bytes);
    CHECK_EQ_U64(CU((address *, struct handle, unsigned), "cuIpcOpenMemHandle_v2")(&ptr, handle, 1), SUCCESS);
    return (void *)(uintptr_t)ptr;
}

static void *memory(const struct question *question, warp_device *owner, warp_device *toucher)
{
    void *ptr = NULL;
    switch (question->sort) {
    case PLAIN: return block(owner, 4096, WARP_MEMORY_CUDA_DEVICE, NULL);
    case POOL: return block(owner, 4096, WARP_MEMORY_CUDA_MEMPOOL, NULL);
    case OWN_POOL: return of_own_pool(owner, toucher, (question->setting & WITH_POOL) != 0);
    case MAPPING: return map(question->owner, 0);
    case MAPPING_FOR_BOTH: return map(question->owner, 1);
    case GRAPH: return of_graph(owner);
    case PINNED: return block(device("cpu"), 4096, WARP_MEMORY_PINNED, NULL);
    case PAGEABLE: return block(device("cpu"), 4096, WARP_MEMORY_HOST, NULL);
    case MANAGED: return block(owner, 4096, WARP_MEMORY_CUDA_MANAGED, NULL);
    case OTHER_CONTEXT: return of_another_context(question->owner);
    case IMPORTED: return imported();
    default:
        ptr = aligned_alloc(4096, 4096);
        memset(ptr, 0, 4096);
        CHECK_EQ_U64(CU((void *, size_t, unsigned), "cuMemHostRegister_v2")(ptr, 4096, 0), SUCCESS);
        return ptr;
    }
}

/* In a child: asks, and then has it touched. */
static uint32_t ask_and_touch(void *shared)
{
    struct question *question = shared;
    warp_launch_argument argument = {.name = "memory", .kind = WARP_LAUNCH_POINTER};
    if (question->sort == IMPORTED)
        offer_from_another_process(question->owner);
    start();
    warp_device *owner = named(question->owner), *toucher = named(question->toucher);
    void *context = NULL, *ptr;
    CHECK_STATUS(warp_device_get_native_context(owner, &context), WARP_SUCCESS);
    CHECK_EQ_U64(SET_CURRENT(context), SUCCESS);
    if (question->toucher != CPU && question->toucher != question->owner) {
        if (question->setting & WITH_PEER)
            CHECK_STATUS(warp_peer_access_set_enabled(owner, toucher, 1), WARP_SUCCESS);
        if (question->setting & WITH_POOL)
            CHECK_STATUS(warp_mempool_access_set_enabled(owner, toucher, 1), WARP_SUCCESS);
    }
    ptr = memory(question, owner, toucher);
    CHECK_STATUS(warp_device_synchronize(owner), WARP_SUCCESS);
    question->info.struct_size = sizeof question->info;
    CHECK_STATUS(warp_access_get_pointer_status(toucher, ptr, &question->info), WARP_SUCCESS);
    argument.value = ptr;
    question->checked = warp_launch_check(toucher, "touch", &argument, 1, sizeof argument, WARP_LAUNCH_CHECKED, NULL);
    question->asked = check_failure_count() == 0;
    if (question->toucher == CPU) {
        *(volatile uint32_t *)ptr += 1;
        return SUCCESS;
    }
    return kernel_touch(question->toucher, (address)(uintptr_t)ptr);
}

/* Graphs may share what is mapped for one of them, so that their memory may be open to more than is told. */
static void hold_against_kernel(struct question *question)
{
    const int is_cpu = question->toucher == CPU;
    uint32_t came = kernel_in_child(ask_and_touch, question);
    const char *said = question->info.access == WARP_ACCESS_ACCESSIBLE     ? "accessible"
                       : question->info.access == WARP_ACCESS_INACCESSIBLE ? "inaccessible"
                                                                           : "unverified";
    int faulted = is_cpu ? came == KILLED + 11 : came == ILLEGAL_ADDRESS;
    printf("\n    %-24s of GPU %d from %s %d with %-11s: %s (%s), touched: %u", sorts[question->sort], question->owner,
           is_cpu ? "CPU" : "GPU", is_cpu ? 0 : question->toucher, settings[question->setting], said,
           warp_access_reason_get_name(question->info.reason) + strlen("WARP_ACCESS_REASON_"), came);
    REQUIRE(question->asked);
    CHECK(came == 0 || faulted);
    if (question->info.access == WARP_ACCESS_ACCESSIBLE) {
        CHECK_EQ_U64(came, 0);
        CHECK_EQ_I64(question->checked, WARP_SUCCESS);
    } else {
        CHECK_EQ_I64(question->info.access, WARP_ACCESS_INACCESSIBLE);
        CHECK_EQ_I64(question->checked, WARP_ERROR_ACCESS_DENIED);
        CHECK(faulted || question->sort == GRAPH);
    }
}

static struct question *shared_question(void)
{
    void *shared = mmap(NULL, sizeof(struct question), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? NULL : shared;
}

static uint32_t count_gpus(void *unused)
{
    (void)unused;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    return (uint32_t)gpus();
}

static void hold_all(int first_toucher, int last_toucher, int with_settings)
{
    struct question *question = shared_question();
    REQUIRE(question != NULL);
    for (int sort = 0; sort < SORTS; sort++)
        for (int setting = 0; setting < (with_settings ? SETTINGS : 1); setting++)
            for (int owner = 0; owner < 2; owner++)
                for (int toucher = first_toucher; toucher <= last_toucher; toucher++) {
                    if (with_settings ? toucher == owner : toucher != CPU && toucher != owner)
                        continue;
                    if (sort == IMPORTED && simulator_is_here())
                        continue; /* other processes are not simulated */
                    *question = (struct question){.sort = sort, .setting = setting, .owner = owner, .toucher = toucher};
                    hold_against_kernel(question);
                }
    munmap(question, sizeof *question);
}

TEST(what_is_said_of_another_gpu_is_what_its_kernel_meets)
{
    if (kernel_in_child(count_gpus, NULL) < 2)
        SKIP("there are not two GPUs");
    hold_all(0, 1, 1);
}

TEST(what_is_said_of_the_gpu_itself_and_of_the_cpu_is_what_they_meet)
{
    if (kernel_in_child(count_gpus, NULL) < 2)
        SKIP("there are not two GPUs");
    hold_all(CPU, 1, 0);
}

/* ---- Copies with and without ------------------------------------------------------------------------------------------ */

static double gigabytes_per_second(void *to, const void *from, uint64_t size, warp_stream *stream)
{
    double best = 0;
    for (int round = 0; round < 5; round++) {
        double before;
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        before = now();
        CHECK_STATUS(warp_memory_copy(to, from, size, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        before = (double)size / (now() - before) / 1e9;
        best = before > best ? before : best;
    }
    return best;
}

PROCESS_TEST(copies_between_gpus_are_right_with_and_without_access)
{
    const uint64_t size = simulator_is_here() ? 4 * MIB : 512 * MIB;
    start();
    if (gpus() < 2)
        SKIP("there are not two GPUs");
    warp_device *from = named(0), *to = named(1);
    warp_stream *stream = new_stream(to, 0);
    for (int pooled = 0; pooled < 2; pooled++) {
        const warp_memory_kind kind = pooled ? WARP_MEMORY_CUDA_MEMPOOL : WARP_MEMORY_CUDA_DEVICE;
        unsigned char *source = block(from, size, kind, NULL), *dest = block(to, size, kind, stream), value = 1;
        warp_stream *filler = NULL;
        CHECK_STATUS(warp_stream_get_current(from, &filler), WARP_SUCCESS);
        for (int access = 0; access < 3; access++) {
            const uint8_t on = access == 1;
            double speed;
            CHECK_STATUS(pooled ? warp_mempool_access_set_enabled(from, to, on) : warp_peer_access_set_enabled(from, to, on),
                         WARP_SUCCESS);
            value++;
            CHECK_STATUS(warp_memory_fill(source, size, &value, 1, filler), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_synchronize(filler), WARP_SUCCESS);
            speed = gigabytes_per_second(dest, source, size, stream);
            printf("\n    %s memory, GPU 0 to 1, %s: %.1f GB/s", pooled ? "pool" : "plain",
                   access == 0 ? "without access" : on ? "with access" : "access taken away again", speed);
            CHECK(device_holds(dest, size, value, stream));
        }
        CHECK_STATUS(warp_free(source), WARP_SUCCESS);
        CHECK_STATUS(warp_free(dest), WARP_SUCCESS);
    }
}

CHECK_MAIN()
