/*
 * warpsim.h - steering and watching the simulated CUDA driver.
 *
 * The functions are exported by libwarpsim.so beside the driver's own. A program that is linked to the simulated driver
 * calls them as they stand here; a program that loads it takes them with dlsym from the same library. None of them
 * counts as a driver call: they are neither logged nor counted, and need no initialisation. Unless it says otherwise a
 * function returns 0 (CUDA_SUCCESS) or a driver code. Every function may be called from any thread.
 *
 * What can be set before the library is loaded, by environment:
 *   WARPSIM_TOPOLOGY   the machine, as for warpsim_set_topology
 *   WARPSIM_FAIL       planned failures, entry:nth:code[,entry:nth:code...], e.g. cuMemAlloc_v2:3:2
 *   WARPSIM_LOG        lines kept by the call log (default 8192; 0 switches it off)
 *   WARPSIM_SEED       the schedule, as for warpsim_schedule (default 0)
 *   WARPSIM_RACES      1: as warpsim_races(1)
 */
#ifndef WARPSIM_H
#define WARPSIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The machine -------------------------------------------------------------------------------------------------
 *
 * A topology is a preset and changes to it: "h200x2", "discrete,pools=0", "h200x2,gpus=4,gpu1.pools=0,peer.0.1=0".
 *
 * Presets: h200x2 (default), h200, discrete, hmm, ats, gb10, grace, wsl, vgpu, mixed, gpux10, partial, none.
 *
 * Changes, applied from left to right:
 *   gpus=N                 as many GPUs, further ones like the last
 *   peers=0|1              no or all pairs can be peers
 *   peer.A.B=0|1|broken    A can (not) be allowed to touch memory of B; broken: direct copies lose their data silently
 *   peer_limit=N           peer connections a GPU can have (8)
 *   driver=13000           driver version; entry points that are newer are missing
 *   missing=NAME+NAME      entry points this driver does not have (see warpsim_symbol)
 *   init_code=CODE         what cuInit answers, a number or a name such as STUB_LIBRARY
 *   pinned_limit=SIZE      page-locked memory in all (1 TiB)
 *   dead_stream=crash|error   what a call with a destroyed stream does
 *   fault=process|context  whose calls fail after a kernel's fault: all, as with the real driver, or those of its context
 *   fresh=BYTE             what memory holds before it is written (0xCD)
 * For all GPUs, or for one with gpuN. in front:
 *   memory=SIZE  name=TEXT  and every device attribute by its driver name in lower case, by its number, or one of
 *   pools, handle_types, managed, concurrent, pageable, host_page_tables, host_direct, host_atomics, uva, vmm,
 *   registered_host_pointer, ipc, dma_buf
 * A SIZE is a number of bytes with an optional KiB, MiB, GiB or TiB.
 */

/* Chooses the machine; before cuInit. On failure the reason is written to message (length bytes, may be NULL, 0). */
uint32_t warpsim_set_topology(const char *topology, char *message, size_t length);

/* Forgets everything, memory and handles included, as if the library had just been loaded. No other thread may be in
 * a call, and addresses from before are gone. Also makes the simulated driver usable again in a forked child. */
void warpsim_reset(void);

/* The address of an exported name, or NULL where this driver is said not to have it. cuGetProcAddress honours
 * missing= too; dlsym cannot, but a hidden function answers CUDA_ERROR_NOT_FOUND (500). For a library that really
 * lacks a name see tools/hide_symbols.py. */
void *warpsim_symbol(const char *name);

/* ---- Failures ---------------------------------------------------------------------------------------------------- */

/* The nth next call of an entry point (1: the next one; 0: every one from now on) answers code and does nothing else.
 * Entry points go by their exported names, e.g. "cuMemAlloc_v2"; "*" is any. Plans add up, each is used once; the
 * call log marks such a call with "planned". */
uint32_t warpsim_fail(const char *entry, uint64_t nth, uint32_t code);

/* After as many more calls of anything, everything answers code. */
void warpsim_fail_after(uint64_t calls, uint32_t code);

/* Drops all plans, the memory limits below included. */
void warpsim_fail_clear(void);

/* Requests of so many bytes or more are out of memory; 0: none. */
void warpsim_out_of_memory_at_size(uint64_t bytes);

/* A request is out of memory that would bring the device memory in use, all GPUs together, above this; 0: no limit. */
void warpsim_out_of_memory_above_total(uint64_t bytes);

/* From now on every call answers CUDA_ERROR_DEINITIALIZED (4), as late in a process's exit. */
void warpsim_deinitialize(void);

/* ---- What other libraries in the process might do ---------------------------------------------------------------- */

/* Enables (on != 0) or disables peer access between the primary contexts of two devices: accessing may touch memory
 * of target. Being so already is success. */
uint32_t warpsim_external_peer(int32_t accessing, int32_t target, uint8_t on);

/* Sets the access (0 or 3) of a device on the current pool of another. */
uint32_t warpsim_external_pool_access(int32_t owner, int32_t accessing, uint32_t flags);

/* Destroys the primary context of a device, whoever holds it. */
uint32_t warpsim_reset_device(int32_t device);

/* ---- Streams ------------------------------------------------------------------------------------------------------ */

/* Keeps a stream busy: what is submitted from now on waits, and queries answer CUDA_ERROR_NOT_READY (600), until as
 * many releases. 0, 1 and 2 mean what they mean for the calling thread. */
uint32_t warpsim_hold(uint64_t stream);
uint32_t warpsim_release(uint64_t stream);
void warpsim_release_all(void);

/* Whether a call that waits releases the holds it waits for (the default), or waits for another thread to do so. Calls
 * that wait: every synchronise, copies and fills without a stream, copies to pageable memory, plain frees of device,
 * managed and page-locked memory, the end of a module. */
void warpsim_auto_release(uint8_t on);

/* ---- The schedule --------------------------------------------------------------------------------------------------
 *
 * Seed 0 is the eager schedule: work is done in the call that submits it, unless a held stream stands before it. With any
 * other seed work is only queued, and every driver call first runs some of it: often none, sometimes much, always in an
 * order that streams, events and the legacy stream's rules allow, and with streams that lag far behind others. A call that
 * waits runs what it waits for, in random order and with other work between. The same seed and the same single-threaded
 * program give the same run.
 *
 * Nothing runs between calls: a loop of cuStreamQuery or cuEventQuery comes to an end, but a program that waits for a host
 * function, or for memory to change, without a driver call needs warpsim_run. Host functions run in the thread whose call
 * happens to run them.
 *
 * A pool allocation has its turn in its stream too, and half of those that can are given the address of a block whose
 * cuMemFreeAsync is queued where this one comes after it: in the same stream, or by events.
 */

/* Chooses the schedule; the best time is before cuInit. What is queued when 0 is chosen runs at once. */
void warpsim_schedule(uint64_t seed);

/* Runs up to so many pieces of queued work, 0: all that can run. How many there were. */
uint64_t warpsim_run(uint64_t pieces);

/* Instructions that a kernel may run, all threads together, before it ends as CUDA_ERROR_LAUNCH_TIMEOUT (702); 0: the default,
 * 2^30. */
void warpsim_kernel_limit(uint64_t instructions);

/* Whether missing order is reported as a violation, in whatever order things happened to run: a free that nothing orders
 * behind a use or the allocation, a use that nothing orders behind the allocation. What the host saw done (a synchronise, a
 * question answered by "done", a host function) comes before all that any thread submits later. On with a seed, off without,
 * unless this was called. What really ran too late or too early is always reported. */
void warpsim_order_checks(uint8_t on);

/* Whether two pieces of work that touch the same bytes, one of them writing, are reported where nothing orders them (off). */
void warpsim_races(uint8_t on);

/* Faults of a program that a test plants, to see that they are found; a sum of
 *   1  frees in stream order go to a stream of their own that nothing orders: a free on the wrong stream
 *   2  cuStreamWaitEvent succeeds and does nothing: a missing join
 *   4  cuStreamQuery and cuEventQuery answer that all is done: a free too early
 */
void warpsim_misorder(uint32_t what);

/* Whether a call with a destroyed stream crashes, as with the real driver (the default), or is an invalid handle. */
void warpsim_dead_stream_crashes(uint8_t on);

/* ---- Watching ----------------------------------------------------------------------------------------------------- */

/* The call log, oldest line first: "[thread] entry(arguments) = CODE; note". warpsim_log_get writes a terminated line,
 * cut to length bytes, and returns the bytes that the whole line needs (0: there is no such line).
 * warpsim_log_count: lines that can be read; warpsim_log_total: lines since the last clear. */
void warpsim_log_capacity(size_t lines);
void warpsim_log_clear(void);
size_t warpsim_log_count(void);
uint64_t warpsim_log_total(void);
size_t warpsim_log_get(size_t index, char *buffer, size_t length);
int warpsim_log_contains(const char *text);

/* Calls of an entry point by its exported name; "*": of all together. Forked children do not count. */
uint64_t warpsim_call_count(const char *entry);

/* What is alive: blocks by kind (default, pool, pinned, registered, managed, mapping, imported, graph_block, or "*" for all
 * of them), and objects (physical, reservation, stream, event, mempool, context, graph, graph_exec, user_object, module; a
 * variable of a module counts by "variable" alone). A graph_block is memory that a launched graph gave and nothing has freed. A graph that is being captured counts, one that
 * a node of another graph owns does not. */
size_t warpsim_live_count(const char *kind);
uint64_t warpsim_live_bytes(const char *kind);

/* Bytes taken from a device: plain allocations, what pools and graphs hold, physical allocations. */
uint64_t warpsim_device_used(int32_t device);

/* What a program did that a real machine would punish later or not at all: uses of freed memory and of memory that is not
 * there yet, also by kernels, for which it is a fault as well; missing order (warpsim_order_checks, warpsim_races); uses of
 * dead streams and events. */
size_t warpsim_violation_count(void);
size_t warpsim_violation_get(size_t index, char *buffer, size_t length);

/* Reads simulated memory past all rules, freed memory too (which holds 0xDD where it was ever written). */
uint32_t warpsim_peek(uint64_t address, void *buffer, size_t length);

#ifdef __cplusplus
}
#endif

#endif /* WARPSIM_H */
