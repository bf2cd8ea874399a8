/*
 * access.c: may code on this device touch this memory? The whole table of answers on every machine that the simulator can be, told
 * apart by what the devices say of themselves; arrays, views, wrapped arrays, indexed arrays, raw pointers. Cases PA-03, AC-01,
 * MG-01, MG-02, OM-04 and MP-06.
 *
 * valgrind: slow (machine after machine, and all of it rules; access_live.c and access_foreign.c ask there)
 * needs: simulator
 */
#define _GNU_SOURCE

#include "access.h"

#include "captures.h"

/* ---- The table, machine by machine ------------------------------------------------------------------------------- */

struct memory {
    const char *name;
    const void *ptr;
    int home; /* a GPU's number, -1: the CPU, -2: nobody's */
    enum origin origin;
    warp_memory_kind kind;
    warp_access_rule rule;
    uint32_t mapped[16]; /* of a mapping, for each GPU */
};

/* What of the access between two GPUs is given; back: in the other direction. */
static const struct {
    int peer, pool, peer_back, pool_back;
} settings[] = {{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {1, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}, {0, 0, 1, 1}};
#define SETTINGS (sizeof settings / sizeof *settings)

static struct memory memories[128];
static size_t memory_count;
static warp_device_info infos[16]; /* of GPUs */
static warp_device_info cpu_info;
static warp_device *gpus[16];
static int gpu_total;

static struct memory *add(const char *name, const void *ptr, int home, enum origin origin, warp_memory_kind kind,
                          warp_access_rule rule)
{
    struct memory *memory = &memories[memory_count++];
    if (memory_count > sizeof memories / sizeof *memories)
        abort();
    memset(memory, 0, sizeof *memory);
    memory->name = name;
    memory->ptr = ptr;
    memory->home = home;
    memory->origin = origin;
    memory->kind = kind;
    memory->rule = rule;
    return memory;
}

static void add_mappings(int home)
{
    int variant, other;
    /* For its own GPU, for the others, for all, for none, to be read by all. */
    for (variant = 0; variant < 5; ++variant) {
        void *mapping = mapping_of(home);
        struct memory *memory = add("mapping", mapping, home, OF_MAPPING, WARP_MEMORY_CUDA_DEVICE, WARP_ACCESS_RULE_MAPPING);
        for (other = 0; other < gpu_total; ++other) {
            static const uint32_t own[] = {3, 0, 3, 0, 1}, others[] = {0, 3, 3, 0, 1};
            uint32_t flags = other == home ? own[variant] : others[variant];
            if (other != home && !could_be_peers(&infos[home], &infos[other]))
                flags = 0;
            if (flags != 0)
                map_for(mapping, other, flags);
            memory->mapped[other] = flags;
        }
    }
}

/* On how many GPUs there is memory: of many that are alike two are enough. */
static int homes(void)
{
    return gpu_total > 4 ? 2 : gpu_total;
}

/* Memory of every origin, on the CPU and on GPUs. */
static void fill_machine(void)
{
    static char stack_like[64], registered[4096];
    int i;
    gpu_total = (int)gpu_count();
    memory_count = 0;
    cpu_info = info_of(cpu());
    for (i = 0; i < gpu_total; ++i) {
        gpus[i] = gpu(i);
        context_of(gpus[i]);
        infos[i] = info_of(gpus[i]);
    }
    add("host", block_of(cpu(), 100, WARP_MEMORY_HOST), -1, OF_HOST, WARP_MEMORY_HOST, WARP_ACCESS_RULE_PAGEABLE);
    add("unknown", stack_like, -2, OF_NOBODY, WARP_MEMORY_UNKNOWN, WARP_ACCESS_RULE_UNKNOWN);
    if (gpu_total == 0)
        return;
    add("pinned", block_of(cpu(), 100, WARP_MEMORY_PINNED), -1, OF_PINNED, WARP_MEMORY_PINNED, WARP_ACCESS_RULE_PINNED);
    add("foreign pinned", foreign_pinned(context_of(gpus[0]), 100), -1, OF_PINNED, WARP_MEMORY_PINNED, WARP_ACCESS_RULE_PINNED);
    IN(context_of(gpus[0]), DRIVER(cuMemHostRegister_v2, registered, sizeof registered, 3));
    /* Registered memory counts as page-locked where it has the same address on the GPU. */
    if (pointer_info(registered).kind == WARP_MEMORY_PINNED)
        add("registered", registered, -1, OF_PINNED, WARP_MEMORY_PINNED, WARP_ACCESS_RULE_PINNED);
    else
        add("registered", registered, -1, OF_HOST, WARP_MEMORY_HOST, WARP_ACCESS_RULE_PAGEABLE);
    for (i = 0; i < homes(); ++i) {
        warp_device *home = gpus[i];
        add("plain", block_of(home, 100, WARP_MEMORY_CUDA_DEVICE), i, OF_PLAIN, WARP_MEMORY_CUDA_DEVICE, WARP_ACCESS_RULE_PEER);
        add("foreign plain", foreign_plain(context_of(home), 100), i, OF_PLAIN, WARP_MEMORY_CUDA_DEVICE, WARP_ACCESS_RULE_PEER);
        if (infos[i].is_mempool_supported) {
            add("pool", block_of(home, 100, WARP_MEMORY_CUDA_MEMPOOL), i, OF_POOL, WARP_MEMORY_CUDA_MEMPOOL, WARP_ACCESS_RULE_POOL);
            add("foreign pool", foreign_pooled(context_of(home), NULL, 100), i, OF_POOL, WARP_MEMORY_CUDA_MEMPOOL,
                WARP_ACCESS_RULE_POOL);
        }
        if (infos[i].is_managed_memory_supported) {
            add("managed", block_of(home, 100, WARP_MEMORY_CUDA_MANAGED), i, OF_MANAGED, WARP_MEMORY_CUDA_MANAGED,
                WARP_ACCESS_RULE_MANAGED);
            add("foreign managed", foreign_managed(context_of(home), 100), i, OF_MANAGED, WARP_MEMORY_CUDA_MANAGED,
                WARP_ACCESS_RULE_MANAGED);
        }
        if (infos[i].is_virtual_memory_supported)
            add_mappings(i);
    }
}

/* Asks about one piece of memory from one device, first byte and last. */
static void ask(const struct memory *memory, warp_device *toucher, const warp_device_info *who, struct state state)
{
    const warp_device_info *home = memory->home == -2 ? NULL : memory->home == -1 ? &cpu_info : &infos[memory->home];
    warp_access_reason expected = table(who, home, memory->origin, state);
    char what[512];
    warp_access_info info;
    snprintf(what, sizeof what, "%s of %s from %s (peer %d, pool %d, mapped %u)", memory->name, home ? home->alias : "nobody",
             who->alias, state.peer, state.pool, state.mapped);
    expect_pointer_at(toucher, memory->ptr, expected, what, __LINE__);
    expect_pointer_at(toucher, (const char *)memory->ptr + 99 * (memory->origin != OF_NOBODY), expected, what, __LINE__);
    info = pointer_access(toucher, memory->ptr);
    CHECK_EQ_PTR(info.device, home == NULL ? NULL : home->is_cpu ? cpu() : gpus[memory->home]);
    CHECK_EQ_I64(info.kind, memory->kind);
    CHECK_EQ_I64(info.rule, memory->rule);
}

static int may_be_set(int target, int peer, int pool)
{
    return could_be_peers(&infos[target], &infos[peer]) && (!pool || infos[target].is_mempool_supported);
}

static void set(const struct access *access, int target, int peer, int on)
{
    if (may_be_set(target, peer, access == POOL))
        turn(access, gpus[target], gpus[peer], on);
}

static void check_machine(const char *topology)
{
    size_t m;
    int home, peer;
    start_on(topology);
    fill_machine();
    for (m = 0; m < memory_count; ++m) {
        struct state none = {0, 0, 0, 0};
        ask(&memories[m], cpu(), &cpu_info, none);
        for (peer = 0; peer < gpu_total; ++peer)
            if (memories[m].home < 0) {
                none.mapped = memories[m].mapped[peer];
                ask(&memories[m], gpus[peer], &infos[peer], none);
            }
    }
    for (home = 0; home < homes(); ++home)
        for (peer = 0; peer < gpu_total; ++peer) {
            size_t s;
            for (s = 0; s < SETTINGS; ++s) {
                const int same = home == peer;
                struct state state = {0, 0, 0, 0};
                if (!same) {
                    set(PEER, home, peer, settings[s].peer);
                    set(POOL, home, peer, settings[s].pool);
                    set(PEER, peer, home, settings[s].peer_back);
                    set(POOL, peer, home, settings[s].pool_back);
                    state.peer = settings[s].peer && may_be_set(home, peer, 0);
                    state.pool = settings[s].pool && may_be_set(home, peer, 1);
                }
                for (m = 0; m < memory_count; ++m)
                    if (memories[m].home == home) {
                        state.mapped = memories[m].mapped[peer];
                        ask(&memories[m], gpus[peer], &infos[peer], state);
                    }
                if (same)
                    break;
                set(PEER, home, peer, 0);
                set(POOL, home, peer, 0);
                set(PEER, peer, home, 0);
                set(POOL, peer, home, 0);
            }
        }
    CHECK_EQ_PTR(driver_current(), NULL);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

#define MACHINE(name, topology)  \
    PROCESS_TEST(name)           \
    {                            \
        check_machine(topology); \
    }

PROCESS_TEST(the_table_on_two_h200)
{
    check_machine("h200x2");
}

MACHINE(the_table_on_one_h200, "h200")
MACHINE(the_table_on_discrete_gpus, "discrete")
MACHINE(the_table_with_hmm, "hmm")
MACHINE(the_table_with_ats, "ats")
MACHINE(the_table_on_gb10, "gb10")
MACHINE(the_table_on_grace, "grace")
MACHINE(the_table_on_wsl, "wsl")
MACHINE(the_table_on_a_virtual_gpu, "vgpu")
MACHINE(the_table_on_a_mixed_machine, "mixed")
MACHINE(the_table_on_ten_gpus, "gpux10")
MACHINE(the_table_where_some_are_peers, "partial")
MACHINE(the_table_without_peers, "discrete,peers=0")
MACHINE(the_table_where_the_second_has_no_managed_memory, "h200x2,gpu1.managed=0")
MACHINE(the_table_without_unified_addressing, "discrete,uva=0")
MACHINE(the_table_without_unified_addressing_but_with_hmm, "hmm,uva=0")
MACHINE(the_table_where_registered_memory_moves, "discrete,registered_host_pointer=0")
MACHINE(the_table_without_concurrent_access, "h200x2,concurrent=0")
MACHINE(the_table_with_direct_access, "h200x2,concurrent=0,host_direct=1")
MACHINE(the_table_on_unlike_gpus, "h200x2,gpu0.pageable=1,gpu1.concurrent=0,gpu1.vmm=0")
MACHINE(the_table_without_gpus, "none")

PROCESS_TEST(the_table_without_a_driver)
{
    static char other[16];
    void *block;
    setenv("WARPMEM_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    block = block_of(cpu(), 100, WARP_MEMORY_HOST);
    EXPECT_POINTER(cpu(), block, SAME_DEVICE);
    EXPECT_POINTER(NULL, block, SAME_DEVICE);
    EXPECT_POINTER(cpu(), other, UNKNOWN_MEMORY);
    EXPECT_POINTER(cpu(), NULL, EMPTY);
    CHECK_EQ_I64(can_device(cpu(), cpu()), 1);
    CHECK_EQ_I64(can_device(NULL, NULL), 1);
    {
        warp_array *array = wrapped_on(cpu(), other, 4);
        EXPECT_ARRAY(cpu(), array, SAME_DEVICE);
        drop(array);
    }
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

/* ---- Memory of graphs -------------------------------------------------------------------------------------------- */

static void check_graph(warp_device *toucher, const warp_device_info *who, const warp_device_info *home, const void *block,
                        int given)
{
    struct state state = {0, 0, given, 0};
    expect_pointer_at(toucher, block, table(who, home, OF_GRAPH, state), who->alias, __LINE__);
}

PROCESS_TEST(memory_of_graphs_keeps_the_access_of_its_capture)
{
    int given;
    start_on("h200x2,gpus=3");
    for (given = 0; given < 3; ++given) {
        warp_device *home = gpu(0);
        warp_device_info who[3] = {info_of(gpu(0)), info_of(gpu(1)), info_of(gpu(2))}, host = info_of(cpu());
        warp_stream *stream = new_stream(home, 0);
        warp_graph *graph;
        void *block;
        int round, i;
        turn(POOL, home, gpu(1), given >= 1);
        turn(POOL, home, gpu(2), given >= 2);
        begin(stream);
        block = alloc_on("cuda:0", stream, 4096);
        graph = end(stream);
        /* Before its first launch, while it runs, and after; whatever becomes of the pool's access, and of peer access. */
        for (round = 0; round < 4; ++round) {
            turn(POOL, home, gpu(1), round & 1);
            turn(POOL, home, gpu(2), ~round & 1);
            turn(PEER, home, gpu(1), round & 1);
            for (i = 0; i < 3; ++i)
                check_graph(gpu(i), &who[i], &who[0], block, i <= given);
            check_graph(cpu(), &host, &who[0], block, 0);
            CHECK_EQ_I64(pointer_access(gpu(1), block).rule, WARP_ACCESS_RULE_GRAPH_FIXED);
            CHECK_EQ_PTR(pointer_access(gpu(1), block).device, home);
            if (round == 1)
                CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        }
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        turn(PEER, home, gpu(1), 0);
    }
    CHECK_GONE();
}

/* ---- Three facts, and the switch of pools (PA-03) ---------------------------------------------------------------------------- */

PROCESS_TEST(peers_and_pools_are_different_facts_and_blocks_keep_theirs)
{
    void *plain, *pooled;
    size_t s;
    int off;
    start_on("h200x2");
    plain = block_of(gpu(0), 4096, WARP_MEMORY_CUDA_DEVICE);
    pooled = block_of(gpu(0), 4096, WARP_MEMORY_UNKNOWN);
    CHECK_EQ_I64(pointer_info(pooled).kind, WARP_MEMORY_CUDA_MEMPOOL);
    for (off = 0; off < 2; ++off) {
        CHECK_STATUS(warp_mempool_set_enabled(gpu(0), !off), WARP_SUCCESS);
        for (s = 0; s < SETTINGS; ++s) {
            turn(PEER, gpu(0), gpu(1), settings[s].peer);
            turn(POOL, gpu(0), gpu(1), settings[s].pool);
            turn(PEER, gpu(1), gpu(0), settings[s].peer_back);
            turn(POOL, gpu(1), gpu(0), settings[s].pool_back);
            /* The check before a launch says the same. */
            expect_pointer_at(gpu(1), plain, EITHER(settings[s].peer, PEER_ACCESS, NO_PEER_ACCESS), "plain", __LINE__);
            expect_pointer_at(gpu(1), pooled, EITHER(settings[s].pool, POOL_ACCESS, NO_POOL_ACCESS), "pool", __LINE__);
            /* The rough question follows what default requests are served with now. */
            CHECK_EQ_I64(can_device(gpu(1), gpu(0)), off ? settings[s].peer : settings[s].pool);
            CHECK_EQ_I64(can_device(gpu(0), gpu(1)), settings[s].pool_back);
            turn(PEER, gpu(0), gpu(1), 0);
            turn(POOL, gpu(0), gpu(1), 0);
            turn(PEER, gpu(1), gpu(0), 0);
            turn(POOL, gpu(1), gpu(0), 0);
        }
    }
    /* So does a scope of this thread alone. */
    turn(PEER, gpu(0), gpu(1), 1);
    {
        warp_scope *scope = NULL;
        CHECK_EQ_I64(can_device(gpu(1), gpu(0)), 1);
        CHECK_STATUS(warp_scope_begin_mempool(gpu(0), 1, &scope), WARP_SUCCESS);
        CHECK_EQ_I64(can_device(gpu(1), gpu(0)), 0);
        CHECK_EQ_I64(can_pointer(gpu(1), pooled), 0);
        CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pooled), WARP_SUCCESS);
    CHECK_GONE();
}

static void check_rough(const char *topology)
{
    int a, b;
    start_on(topology);
    gpu_total = (int)gpu_count();
    CHECK_EQ_I64(can_device(cpu(), cpu()), 1);
    CHECK_EQ_I64(can_device(NULL, NULL), 1);
    for (a = 0; a < gpu_total; ++a) {
        infos[a] = info_of(gpu(a));
        gpus[a] = gpu(a);
        CHECK_EQ_I64(can_device(cpu(), gpus[a]), 0);
        CHECK_EQ_I64(can_device(gpus[a], cpu()), infos[a].is_cpu_memory_access_from_gpu_supported);
        CHECK_EQ_I64(can_device(gpus[a], gpus[a]), 1);
    }
    for (a = 0; a < gpu_total; ++a)
        for (b = 0; b < gpu_total; ++b)
            CHECK_EQ_I64(can_device(gpus[b], gpus[a]), a == b);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
    for (a = 0; a < gpu_total; ++a)
        for (b = 0; b < gpu_total; ++b) {
            const struct access *governs = infos[a].is_mempool_supported ? POOL : PEER;
            if (a == b || !may_be_set(a, b, 0))
                continue;
            set(governs, a, b, 1);
            CHECK_EQ_I64(can_device(gpus[b], gpus[a]), 1);
            set(governs, a, b, 0);
            CHECK_EQ_I64(can_device(gpus[b], gpus[a]), 0);
        }
}

#define ROUGH(name, topology) \
    PROCESS_TEST(name) { check_rough(topology); }

ROUGH(the_rough_question_on_two_h200, "h200x2")
ROUGH(the_rough_question_with_hmm, "hmm")
ROUGH(the_rough_question_with_ats, "ats")
ROUGH(the_rough_question_on_a_virtual_gpu, "vgpu")
ROUGH(the_rough_question_on_a_mixed_machine, "mixed")
ROUGH(the_rough_question_where_some_are_peers, "partial")
ROUGH(the_rough_question_without_peers, "discrete,peers=0")
ROUGH(the_rough_question_without_gpus, "none")

/* ---- Arrays ------------------------------------------------------------------------------------------------------ */

PROCESS_TEST(arrays_and_their_views_are_judged_by_their_memory)
{
    static const warp_memory_kind kinds_of_gpu[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    warp_device_info who[3];
    int k, on;
    start_on("h200x2,concurrent=0");
    who[0] = info_of(gpu(0));
    who[1] = info_of(gpu(1));
    who[2] = info_of(cpu());
    context_of(gpu(1));
    for (k = 0; k < 3; ++k)
        for (on = 0; on < 2; ++on) {
            static const enum origin origins[] = {OF_PLAIN, OF_POOL, OF_MANAGED};
            struct state state = {on, on, 0, 0};
            warp_array *array = array_of_kind(gpu(0), kinds_of_gpu[k], F32, 64), *views[5] = {array};
            const int64_t first[1] = {63}, last[1] = {64}, two[2] = {8, 8};
            size_t v;
            turn(PEER, gpu(0), gpu(1), on);
            turn(POOL, gpu(0), gpu(1), on);
            CHECK_STATUS(warp_array_slice(array, 1, first, last, NULL, &views[1]), WARP_SUCCESS);
            CHECK_STATUS(warp_array_reshape(array, 2, two, &views[2]), WARP_SUCCESS);
            CHECK_STATUS(warp_array_transpose(views[2], 2, NULL, &views[3]), WARP_SUCCESS);
            CHECK_STATUS(warp_array_reinterpret(array, I32, &views[4]), WARP_SUCCESS);
            for (v = 0; v < 5; ++v) {
                expect_array_at(gpu(0), views[v], WARP_ACCESS_REASON_SAME_DEVICE, "view", __LINE__);
                expect_array_at(gpu(1), views[v], table(&who[1], &who[0], origins[k], state), "view", __LINE__);
                expect_array_at(cpu(), views[v], table(&who[2], &who[0], origins[k], state), "view", __LINE__);
                CHECK_EQ_PTR(array_access(gpu(1), views[v]).device, gpu(0));
                CHECK_EQ_I64(array_access(gpu(1), views[v]).kind, kinds_of_gpu[k]);
            }
            /* A view lives longer than its array, and a wrapped array judges by what it is wrapped around. */
            drop(array);
            expect_array_at(gpu(1), views[1], table(&who[1], &who[0], origins[k], state), "last view", __LINE__);
            array = wrapped_on(gpu(0), data_of(views[1]), 1);
            expect_array_at(gpu(1), array, table(&who[1], &who[0], origins[k], state), "wrapped", __LINE__);
            expect_array_at(gpu(0), array, WARP_ACCESS_REASON_SAME_DEVICE, "wrapped", __LINE__);
            drop(array);
            for (v = 1; v < 5; ++v)
                drop(views[v]);
        }
    CHECK_GONE();
}

static int deleted;

static void delete(void *user, void *ptr, uint64_t size)
{
    (void)user;
    (void)ptr;
    (void)size;
    ++deleted;
}

PROCESS_TEST(wrapped_arrays_of_every_origin_with_and_without_a_deleter)
{
    static char host[64];
    CUmemoryPool mine;
    int with;
    start_on("h200x2");
    context_of(gpu(0));
    context_of(gpu(1));
    mine = foreign_pool(0, 0);
    for (with = 0; with < 2; ++with) {
        warp_array_wrap_options options = {.struct_size = sizeof options, .deleter = with ? delete : NULL};
        const int64_t count = 8;
        void *origins[7] = {
            host,
            foreign_pinned(context_of(gpu(0)), 64),
            foreign_plain(context_of(gpu(0)), 64),
            foreign_pooled(context_of(gpu(0)), NULL, 64),
            foreign_pooled(context_of(gpu(0)), mine, 64),
            foreign_managed(context_of(gpu(0)), 64),
            mapping_of(0),
        };
        warp_array *arrays[7];
        int i;
        map_for(origins[6], 0, 3);
        deleted = 0;
        for (i = 0; i < 7; ++i)
            CHECK_STATUS(warp_array_wrap(i < 2 ? cpu() : gpu(0), origins[i], F32, 1, &count, &options, &arrays[i]), WARP_SUCCESS);
        EXPECT_ARRAY(cpu(), arrays[0], SAME_DEVICE);
        EXPECT_ARRAY(cpu(), arrays[1], SAME_DEVICE);
        EXPECT_ARRAY(gpu(1), arrays[0], NO_PAGEABLE_ACCESS);
        EXPECT_ARRAY(gpu(1), arrays[1], PINNED_MAPPING);
        for (i = 2; i < 6; ++i)
            expect_array_at(gpu(0), arrays[i], WARP_ACCESS_REASON_SAME_DEVICE, "wrapped", __LINE__);
        EXPECT_ARRAY(gpu(0), arrays[6], MAPPED);
        EXPECT_ARRAY(gpu(1), arrays[2], NO_PEER_ACCESS);
        EXPECT_ARRAY(gpu(1), arrays[3], NO_POOL_ACCESS);
        EXPECT_ARRAY(gpu(1), arrays[4], NO_POOL_ACCESS);
        EXPECT_ARRAY(gpu(1), arrays[5], MANAGED_ON_BOTH);
        EXPECT_ARRAY(gpu(1), arrays[6], NOT_MAPPED);
        for (i = 2; i < 5; ++i)
            expect_array_at(cpu(), arrays[i], WARP_ACCESS_REASON_DEVICE_MEMORY, "wrapped", __LINE__);
        EXPECT_ARRAY(cpu(), arrays[5], MANAGED_CONCURRENT);
        /* Each follows its own rule; the pool that other code made is not the device's (13.2: the reference cannot tell). */
        turn(POOL, gpu(0), gpu(1), 1);
        EXPECT_ARRAY(gpu(1), arrays[2], NO_PEER_ACCESS);
        EXPECT_ARRAY(gpu(1), arrays[3], POOL_ACCESS);
        EXPECT_ARRAY(gpu(1), arrays[4], NO_POOL_ACCESS);
        turn(POOL, gpu(0), gpu(1), 0);
        grant_pool(mine, 1, 3);
        EXPECT_ARRAY(gpu(1), arrays[3], NO_POOL_ACCESS);
        EXPECT_ARRAY(gpu(1), arrays[4], POOL_ACCESS);
        grant_pool(mine, 1, 0);
        turn(PEER, gpu(0), gpu(1), 1);
        EXPECT_ARRAY(gpu(1), arrays[2], PEER_ACCESS);
        EXPECT_ARRAY(gpu(1), arrays[3], NO_POOL_ACCESS);
        EXPECT_ARRAY(gpu(1), arrays[6], NOT_MAPPED);
        turn(PEER, gpu(0), gpu(1), 0);
        map_for(origins[6], 1, 1);
        EXPECT_ARRAY(gpu(1), arrays[6], MAPPED_READ_ONLY);
        map_for(origins[6], 1, 3);
        EXPECT_ARRAY(gpu(1), arrays[6], MAPPED);
        map_for(origins[6], 0, 1);
        EXPECT_ARRAY(gpu(0), arrays[6], MAPPED_READ_ONLY);
        for (i = 0; i < 7; ++i)
            drop(arrays[i]);
        CHECK_EQ_I64(deleted, with ? 7 : 0);
        unmap(origins[6]);
    }
}

PROCESS_TEST(managed_memory_that_is_wrapped_elsewhere_is_judged_by_its_own_gpu)
{
    /* MG-01, MG-02: an array may say of managed memory that it is on any device; who may touch it is another matter. */
    void *owned, *foreign;
    int side, where;
    start_on("h200x2,concurrent=0,gpu1.managed=0");
    context_of(gpu(1));
    owned = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MANAGED);
    foreign = foreign_managed(context_of(gpu(0)), 64);
    for (side = 0; side < 2; ++side)
        for (where = 0; where < 3; ++where) {
            warp_array *array = wrapped_on(where == 0 ? cpu() : gpu(where - 1), side ? foreign : owned, 8);
            EXPECT_ARRAY(cpu(), array, MANAGED_NOT_CONCURRENT);
            EXPECT_ARRAY(gpu(0), array, SAME_DEVICE);
            EXPECT_ARRAY(gpu(1), array, MANAGED_NOT_SUPPORTED);
            drop(array);
        }
    CHECK_STATUS(warp_free(owned), WARP_SUCCESS);
}

static void check_managed(const char *topology, warp_access_reason from_cpu)
{
    warp_array *array;
    warp_launch_argument argument = {.name = "m", .kind = WARP_LAUNCH_ARRAY};
    start_on(topology);
    array = array_of_kind(gpu(0), WARP_MEMORY_CUDA_MANAGED, F32, 64);
    argument.value = array;
    expect_array_at(cpu(), array, from_cpu, topology, __LINE__);
    EXPECT_ARRAY(gpu(0), array, SAME_DEVICE);
    EXPECT_ARRAY(gpu(1), array, MANAGED_NOT_SUPPORTED);
    CHECK_STATUS(check_launch(cpu(), &argument, 1, WARP_LAUNCH_CHECKED),
                 from_cpu < 100 ? WARP_SUCCESS : WARP_ERROR_ACCESS_DENIED);
    drop(array);
    CHECK_GONE();
}

/* MG-01 and MG-02. */
#define MANAGED(name, topology, reason) \
    PROCESS_TEST(name) { check_managed(topology, WARP_ACCESS_REASON_##reason); }

MANAGED(managed_memory_with_neither, "h200x2,concurrent=0,host_direct=0,gpu1.managed=0", MANAGED_NOT_CONCURRENT)
MANAGED(managed_memory_with_concurrent_access, "h200x2,concurrent=1,host_direct=0,gpu1.managed=0", MANAGED_CONCURRENT)
MANAGED(managed_memory_with_direct_access, "h200x2,concurrent=0,host_direct=1,gpu1.managed=0", MANAGED_DIRECT)
MANAGED(managed_memory_with_both, "h200x2,concurrent=1,host_direct=1,gpu1.managed=0", MANAGED_CONCURRENT)
MANAGED(managed_memory_on_wsl, "wsl,gpus=2,gpu1.managed=0", MANAGED_NOT_CONCURRENT)

PROCESS_TEST(ordinary_memory_that_is_wrapped_on_a_gpu)
{
    /* The GPU reaches it; what it is nobody can be asked. */
    static char host[64];
    warp_array *array;
    start_on("hmm");
    array = wrapped_on(gpu(0), host, 8);
    EXPECT_ARRAY(gpu(0), array, SAME_DEVICE);
    EXPECT_ARRAY(cpu(), array, UNKNOWN_MEMORY);
    EXPECT_ARRAY(gpu(1), array, UNKNOWN_MEMORY);
    CHECK_EQ_PTR(array_access(cpu(), array).device, gpu(0));
    CHECK_EQ_I64(array_access(cpu(), array).kind, WARP_MEMORY_UNKNOWN);
    EXPECT_POINTER(gpu(0), host, UNKNOWN_MEMORY);
    /* Other code registers it while it is wrapped. */
    IN(context_of(gpu(0)), DRIVER(cuMemHostRegister_v2, host, sizeof host, 0));
    EXPECT_ARRAY(cpu(), array, SAME_DEVICE);
    EXPECT_ARRAY(gpu(1), array, PINNED_MAPPING);
    IN(context_of(gpu(0)), DRIVER(cuMemHostUnregister, host));
    EXPECT_ARRAY(cpu(), array, UNKNOWN_MEMORY);
    drop(array);
    array = wrapped_on(cpu(), host, 8);
    EXPECT_ARRAY(gpu(1), array, PAGEABLE_ACCESS);
    EXPECT_ARRAY(cpu(), array, SAME_DEVICE);
    CHECK_EQ_I64(array_access(gpu(1), array).kind, WARP_MEMORY_HOST);
    drop(array);
}

PROCESS_TEST(what_has_no_items_is_accessible_to_all)
{
    /* OM-04. */
    static const warp_memory_kind kinds_of_all[] = {WARP_MEMORY_UNKNOWN,      WARP_MEMORY_HOST,         WARP_MEMORY_PINNED,
                                                    WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    size_t k;
    int mode;
    uint64_t before;
    start_on("h200x2");
    before = calls("*");
    for (k = 0; k < 6; ++k) {
        warp_device *home = kinds_of_all[k] == WARP_MEMORY_HOST || kinds_of_all[k] == WARP_MEMORY_PINNED ? cpu() : gpu(0);
        warp_device *everyone[3] = {cpu(), gpu(0), gpu(1)};
        warp_array *array = array_of_kind(home, kinds_of_all[k], F32, 0), *view;
        warp_array *whole = array_of_kind(cpu(), WARP_MEMORY_HOST, F32, 4);
        const int64_t two[1] = {2};
        int i;
        CHECK_STATUS(warp_array_slice(whole, 1, two, two, NULL, &view), WARP_SUCCESS);
        for (i = 0; i < 3; ++i) {
            EXPECT_ARRAY(everyone[i], view, EMPTY);
            EXPECT_ARRAY(everyone[i], array, EMPTY);
            CHECK_EQ_PTR(array_access(everyone[i], array).device, home);
            for (mode = WARP_LAUNCH_RELAXED; mode <= WARP_LAUNCH_STRICT; ++mode) {
                warp_launch_argument given[2] = {{.name = "none", .value = array}, {.name = "view", .value = view}};
                CHECK_STATUS(warp_launch_check(everyone[i], "k", given, 2, sizeof *given, mode, NULL), WARP_SUCCESS);
            }
        }
        drop(view);
        drop(whole);
        drop(array);
    }
    CHECK_EQ_U64(calls("*"), before);
}

/* ---- Indexed arrays ---------------------------------------------------------------------------------------------- */

static warp_indexed_array *indexed_of(const warp_array *data, const warp_array *first, const warp_array *second)
{
    const warp_array *indices[2] = {first, second};
    warp_indexed_array *indexed = NULL;
    CHECK_STATUS(warp_indexed_array_create(data, indices, 2, &indexed), WARP_SUCCESS);
    return indexed;
}

static warp_array *grid_of_kind(warp_device *device, warp_memory_kind kind)
{
    warp_array_options options = {.struct_size = sizeof options, .kind = kind};
    const int64_t shape[2] = {4, 4};
    warp_array *array = NULL;
    CHECK_STATUS(warp_array_empty(device, F32, 2, shape, &options, &array), WARP_SUCCESS);
    return array;
}

PROCESS_TEST(of_the_parts_of_an_indexed_array_the_worst_counts)
{
    enum { PLAIN, POOLED, SHARED, READ_ONLY, MAPPED, PARTS };
    static const warp_memory_kind kinds_of_parts[PARTS] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL,
                                                           WARP_MEMORY_CUDA_MANAGED, WARP_MEMORY_CUDA_DEVICE,
                                                           WARP_MEMORY_CUDA_DEVICE};
    warp_array *grids[PARTS], *rows[PARTS], *columns[PARTS];
    void *mappings[PARTS] = {NULL};
    int i, d, a, b, peer, pool;
    start_on("h200x2");
    context_of(gpu(0));
    context_of(gpu(1));
    for (i = 0; i < PARTS; ++i) {
        const int64_t four = 4, grid[2] = {4, 4};
        if (i < READ_ONLY) {
            grids[i] = grid_of_kind(gpu(0), kinds_of_parts[i]);
            rows[i] = array_of_kind(gpu(0), kinds_of_parts[i], I32, 4);
            columns[i] = array_of_kind(gpu(0), kinds_of_parts[i], I32, 4);
            continue;
        }
        mappings[i] = mapping_of(0);
        map_for(mappings[i], 0, 3);
        map_for(mappings[i], 1, i == MAPPED ? 3 : 1);
        CHECK_STATUS(warp_array_wrap(gpu(0), mappings[i], F32, 2, grid, NULL, &grids[i]), WARP_SUCCESS);
        CHECK_STATUS(warp_array_wrap(gpu(0), (char *)mappings[i] + 4096, I32, 1, &four, NULL, &rows[i]), WARP_SUCCESS);
        CHECK_STATUS(warp_array_wrap(gpu(0), (char *)mappings[i] + 8192, I32, 1, &four, NULL, &columns[i]), WARP_SUCCESS);
    }
    for (peer = 0; peer < 2; ++peer)
        for (pool = 0; pool < 2; ++pool) {
            const warp_access_reason alone[PARTS] = {
                peer ? WARP_ACCESS_REASON_PEER_ACCESS : WARP_ACCESS_REASON_NO_PEER_ACCESS,
                pool ? WARP_ACCESS_REASON_POOL_ACCESS : WARP_ACCESS_REASON_NO_POOL_ACCESS,
                WARP_ACCESS_REASON_MANAGED_ON_BOTH,
                WARP_ACCESS_REASON_MAPPED_READ_ONLY,
                WARP_ACCESS_REASON_MAPPED,
            };
            turn(PEER, gpu(0), gpu(1), peer);
            turn(POOL, gpu(0), gpu(1), pool);
            for (d = 0; d < PARTS; ++d)
                for (a = -1; a < PARTS; ++a)
                    for (b = -1; b < PARTS; ++b) {
                        int parts[3] = {d, a, b}, p, worst = 0, mixed = 0;
                        static const int rank[] = {0, ACCESSIBLE, UNVERIFIED, INACCESSIBLE};
                        warp_indexed_array *indexed = indexed_of(grids[d], a < 0 ? NULL : rows[a], b < 0 ? NULL : columns[b]);
                        for (p = 1; p < 3; ++p)
                            if (parts[p] >= 0) {
                                if (rank[access_by(alone[parts[p]])] > rank[access_by(alone[parts[worst]])])
                                    worst = p;
                                mixed |= kinds_of_parts[parts[p]] != kinds_of_parts[d];
                            }
                        expect_indexed_at(gpu(1), indexed, alone[parts[worst]], "indexed", __LINE__);
                        CHECK_EQ_I64(indexed_access(gpu(1), indexed).kind, mixed ? WARP_MEMORY_UNKNOWN : kinds_of_parts[d]);
                        CHECK_EQ_PTR(indexed_access(gpu(1), indexed).device, gpu(0));
                        CHECK_EQ_I64(can_indexed(gpu(0), indexed), 1);
                        /* The CPU reaches what is managed, here, and nothing else of a GPU. */
                        CHECK_EQ_I64(can_indexed(cpu(), indexed), d == SHARED && (a < 0 || a == SHARED) && (b < 0 || b == SHARED));
                        CHECK_STATUS(warp_indexed_array_release(indexed), WARP_SUCCESS);
                    }
        }
    for (i = 0; i < PARTS; ++i) {
        drop(grids[i]);
        drop(rows[i]);
        drop(columns[i]);
    }
    unmap(mappings[READ_ONLY]);
    unmap(mappings[MAPPED]);
    CHECK_GONE();
}

PROCESS_TEST(indexed_arrays_on_the_cpu)
{
    warp_array *grid, *pinned, *host;
    warp_indexed_array *mixed, *all_pinned;
    start_on("h200x2");
    grid = grid_of_kind(cpu(), WARP_MEMORY_PINNED);
    pinned = array_of_kind(cpu(), WARP_MEMORY_PINNED, I32, 4);
    host = array_of_kind(cpu(), WARP_MEMORY_HOST, I32, 4);
    mixed = indexed_of(grid, pinned, host);
    all_pinned = indexed_of(grid, NULL, pinned);
    EXPECT_INDEXED(cpu(), mixed, SAME_DEVICE);
    EXPECT_INDEXED(gpu(0), mixed, NO_PAGEABLE_ACCESS);
    EXPECT_INDEXED(gpu(0), all_pinned, PINNED_MAPPING);
    CHECK_EQ_I64(indexed_access(gpu(0), mixed).kind, WARP_MEMORY_UNKNOWN);
    CHECK_EQ_I64(indexed_access(gpu(0), all_pinned).kind, WARP_MEMORY_PINNED);
    /* The handles of its parts may go first. */
    drop(grid);
    drop(pinned);
    drop(host);
    EXPECT_INDEXED(gpu(0), mixed, NO_PAGEABLE_ACCESS);
    CHECK_STATUS(warp_indexed_array_release(mixed), WARP_SUCCESS);
    CHECK_STATUS(warp_indexed_array_release(all_pinned), WARP_SUCCESS);
    CHECK_GONE();
}

/* ---- Raw pointers ------------------------------------------------------------------------------------------------ */

/* Where a function is. */
static const void *code(void)
{
    return (const void *)(uintptr_t)&warp_init;
}

PROCESS_TEST(any_address_has_an_answer)
{
    static char data[64];
    char stack[64];
    void *blocks[5];
    int i, j;
    start_on("h200x2");
    blocks[0] = block_of(cpu(), 1000, WARP_MEMORY_HOST);
    blocks[1] = block_of(cpu(), 1000, WARP_MEMORY_PINNED);
    for (i = 2; i < 5; ++i)
        blocks[i] = block_of(gpu(0), 1000, i + 1);
    for (j = 0; j < 3; ++j) {
        warp_device *device = j == 0 ? cpu() : gpu(j - 1);
        EXPECT_POINTER(device, NULL, EMPTY);
        EXPECT_POINTER(device, data, UNKNOWN_MEMORY);
        EXPECT_POINTER(device, stack, UNKNOWN_MEMORY);
        EXPECT_POINTER(device, code(), UNKNOWN_MEMORY);
        EXPECT_POINTER(device, at(1), UNKNOWN_MEMORY);
        EXPECT_POINTER(device, at(0x7fffffffffff), UNKNOWN_MEMORY);
        EXPECT_POINTER(device, at(0x8000000000000000), UNKNOWN_MEMORY);
        EXPECT_POINTER(device, at(UINT64_MAX), UNKNOWN_MEMORY);
        for (i = 0; i < 5; ++i) {
            warp_access_info first = pointer_access(device, blocks[i]);
            CHECK_EQ_I64(pointer_access(device, (char *)blocks[i] + 1).reason, first.reason);
            CHECK_EQ_I64(pointer_access(device, (char *)blocks[i] + 999).reason, first.reason);
        }
        /* One past the end is another's, or nobody's. */
        EXPECT_POINTER(device, (char *)blocks[0] + 1000, UNKNOWN_MEMORY);
        CHECK(pointer_access(device, (char *)blocks[0] + 1000).device == NULL);
    }
    for (i = 0; i < 5; ++i)
        CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    for (j = 0; j < 3; ++j)
        for (i = 0; i < 5; ++i) {
            warp_device *device = j == 0 ? cpu() : gpu(j - 1);
            EXPECT_POINTER(device, blocks[i], UNKNOWN_MEMORY);
            EXPECT_POINTER(device, (char *)blocks[i] + 10, UNKNOWN_MEMORY);
        }
    CHECK_EQ_PTR(driver_current(), NULL);
    CHECK_GONE();
}

/* ---- Reasons ----------------------------------------------------------------------------------------------------- */

TEST(reasons_have_names_and_stand_in_the_range_of_their_answer)
{
    size_t i;
    int32_t number, named = 0;
    for (i = 0; i < REASONS; ++i) {
        CHECK_EQ_STR(warp_access_reason_get_name(reasons[i].reason), reasons[i].name);
        CHECK_EQ_I64(access_by(reasons[i].reason), reasons[i].access);
    }
    /* None is missing from the list above. */
    for (number = -1000; number < 1000; ++number)
        named += strcmp(warp_access_reason_get_name(number), "WARP_ACCESS_REASON_UNKNOWN") != 0;
    CHECK_EQ_STR(warp_access_reason_get_name(WARP_ACCESS_REASON_NONE), "WARP_ACCESS_REASON_NONE");
    CHECK_EQ_I64(named, REASONS + 1);
    CHECK_EQ_STR(warp_access_reason_get_name(INT32_MIN), "WARP_ACCESS_REASON_UNKNOWN");
    CHECK_EQ_STR(warp_access_reason_get_name(INT32_MAX), "WARP_ACCESS_REASON_UNKNOWN");
}

CHECK_MAIN()
