/*
 * warpmem: the memory system of a GPU runtime.
 *
 * One library owns the table of devices (the CPU and every CUDA GPU), decides which allocator serves each request, knows
 * every allocation that it made, and answers whether code on one device may touch memory that lives on another. It needs
 * no GPU and no CUDA toolkit: the driver is looked for when warp_init() is called, and without one there is the CPU.
 *
 * What holds in every chapter:
 *
 * Status. A function that can fail returns a warp_status, and WARP_SUCCESS is 0. Its results go through its last
 * parameters, which are NULL or zero after a failure. What went wrong is kept, in words, for the calling thread.
 *
 * Scalars. An enumeration is an int32_t with named constants beside it, and an unknown value is an invalid argument.
 * Sizes, offsets, counts and strides are 64-bit and, unless said otherwise, in bytes. A boolean is one byte; any value but
 * zero is true.
 *
 * Handles. A pointer to an opaque struct is a handle. It is not an address: a stale one, one of another type or garbage is
 * WARP_ERROR_INVALID_HANDLE, never a crash.
 *
 * Structs. A struct that begins with struct_size is filled in by the caller with sizeof the struct it was compiled with.
 * Zero in every other field means the default. Later versions only add fields at the end.
 *
 * Callbacks are called with no lock of the library held and may call back in. They must not throw, unwind or longjmp.
 *
 * Threads. Every function may be called from any thread at any time. The caller's current CUDA context is the same after a
 * call as before it.
 */
/* Written by cbindgen from src/ffi: change it there. */

#ifndef WARPMEM_H
#define WARPMEM_H

#include <stddef.h>
#include <stdint.h>

/* The version of this header. Give WARP_VERSION to warp_version_check() to compare it with the library that was loaded. */
#define WARP_VERSION_MAJOR 0
#define WARP_VERSION_MINOR 1
#define WARP_VERSION_PATCH 0
#define WARP_VERSION_STRING "0.1.0"
#define WARP_VERSION (10000 * WARP_VERSION_MAJOR + 100 * WARP_VERSION_MINOR + WARP_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/* Types that are named before the chapter that describes them. */
typedef struct warp_allocator warp_allocator;
typedef struct warp_graph warp_graph;
typedef struct warp_ipc_memory warp_ipc_memory;

/* ================================================================================================
 * Status and errors
 *
 * Every function that can fail says so by its status, and keeps a record of the failure for the thread that
 * called it: the status, the driver's own code where there was one, and a sentence that names the way out.
 * ================================================================================================ */

/**
 * The outcome of a call. 0 is success; 1 to 99 are the caller's doing, 100 to 199 the machine's, 200 to 299 the
 * driver's, 900 a defect of the library. Numbers never change their meaning.
 */
typedef int32_t warp_status;

/** It worked. */
#define WARP_SUCCESS 0
/** warp_init() was not called. */
#define WARP_ERROR_NOT_INITIALIZED 1
/** The library was shut down, or the process is exiting. */
#define WARP_ERROR_SHUT_DOWN 2
/** An argument is NULL, unknown or contradicts another. */
#define WARP_ERROR_INVALID_ARGUMENT 3
/** A handle is stale, of another type, of another copy of the library, or none at all. */
#define WARP_ERROR_INVALID_HANDLE 4
/** There is no device of that name, or no usable GPU. */
#define WARP_ERROR_NO_SUCH_DEVICE 5
/** A size, a shape or a sum of sizes is more than any address space has. */
#define WARP_ERROR_SIZE_OVERFLOW 6
/** An alignment is no power of two, or not what the block has. */
#define WARP_ERROR_BAD_ALIGNMENT 7
/** An address lies in no live block of the library. */
#define WARP_ERROR_UNKNOWN_POINTER 8
/** An address lies inside a block where the block's first address is needed. */
#define WARP_ERROR_INTERIOR_POINTER 9
/** A block was freed before. */
#define WARP_ERROR_DOUBLE_FREE 10
/** A size or an element size is not the one that the memory has. */
#define WARP_ERROR_SIZE_MISMATCH 11
/** A device may not touch this memory. */
#define WARP_ERROR_ACCESS_DENIED 12
/** What was asked cannot be part of a graph, and a capture is under way. */
#define WARP_ERROR_ILLEGAL_IN_CAPTURE 13
/** A device has as many peers as it can have. */
#define WARP_ERROR_PEER_LIMIT 14
/** A scope was ended out of order, twice, or on another thread. */
#define WARP_ERROR_SCOPE_ORDER 15
/** Somebody else is using what would be changed, or it is not done yet. */
#define WARP_ERROR_BUSY 16
/** The process was forked after the library was initialised; GPUs cannot be used in it. */
#define WARP_ERROR_FORKED 17
/** This device, driver or version of the library cannot do it. */
#define WARP_ERROR_NOT_SUPPORTED 100
/** There is not enough memory of the kind that was asked for. */
#define WARP_ERROR_OUT_OF_MEMORY 101
/** A device's context was destroyed, or a kernel's fault made it unusable. */
#define WARP_ERROR_DEVICE_LOST 102
/** A custom allocator failed, or broke its contract. */
#define WARP_ERROR_ALLOCATOR_FAILED 103
/** The driver refused; its code is in the record. */
#define WARP_ERROR_DRIVER 200
/** A defect of the library; its state is intact. */
#define WARP_ERROR_INTERNAL 900
/** The bytes of an error's message, its terminating NUL included. */
#define WARP_ERROR_MESSAGE_SIZE 1024

/** A failure, as it was kept for the thread that met it. */
typedef struct warp_error {
    /** sizeof(warp_error), set by the caller. */
    size_t struct_size;
    /** The status that the failing call returned; WARP_SUCCESS if no call of this thread has failed yet. */
    warp_status status;
    /** The driver's own code (a CUresult), 0 when the driver was not what failed. */
    int32_t driver_code;
    /** What happened, with names, sizes and the way out; UTF-8, always terminated, cut when it is longer. */
    char message[1024];
} warp_error;

/**
 * Copies the record of the calling thread's last failure. It lasts until that thread's next failing call;
 * a success does not touch it, so use it to explain a failure and not to detect one.
 *
 * @param out  filled as far as its struct_size goes.
 * @return WARP_SUCCESS, or WARP_ERROR_INVALID_ARGUMENT when out is NULL or its struct_size is not set.
 */
warp_status warp_error_get_last(warp_error *out);

/**
 * The message of the calling thread's last failure, as in warp_error_get_last(). Never NULL, empty before the
 * first failure. The text belongs to the library and lasts until this thread's next failing call.
 */
const char *warp_error_get_message(void);

/**
 * The name of a status, such as "WARP_ERROR_BUSY"; "WARP_ERROR_UNKNOWN" for a number that is none. The text is
 * static. Any thread, before warp_init() too.
 */
const char *warp_status_get_name(warp_status status);

/* ================================================================================================
 * The library
 *
 * Starting and ending, versions, the report, and messages. warp_init() works on every machine: without a GPU, or
 * without a driver that can be used, there is the CPU, and the report says why.
 * ================================================================================================ */

/** How grave a message is. A callback is given its level and everything graver. */
typedef int32_t warp_log_level;

/** Something failed that no call could report. */
#define WARP_LOG_ERROR 1
/** Something is probably wrong, and work goes on. */
#define WARP_LOG_WARNING 2
/** Worth knowing. */
#define WARP_LOG_INFO 3
/** For those who look for a fault. */
#define WARP_LOG_DEBUG 4

/**
 * Receives a message: UTF-8, one line, valid during the call. Called on whichever thread had something to say,
 * with no lock held that another call could want; it may call back into the library. It must not throw.
 */
typedef void (*warp_log_callback)(void *user, warp_log_level level, const char *message);

/** Do not look for a CUDA driver: CPU only. */
#define WARP_INIT_DISABLE_CUDA 1u
/** Start with stream-ordered pools off, whatever the environment says. */
#define WARP_INIT_DISABLE_MEMPOOLS 2u

/** How to start. All zero but struct_size is the default. */
typedef struct warp_init_options {
    /** sizeof(warp_init_options), set by the caller. */
    size_t struct_size;
    /**
     * Path of the CUDA driver's file. NULL: the environment variable WARPMEM_LIBCUDA, else "libcuda.so.1".
     */
    const char *driver_path;
    /** WARP_INIT_… bits. */
    uint32_t flags;
    /** For log: the least grave level that is wanted. 0 means WARP_LOG_WARNING. */
    warp_log_level log_level;
    /** Where messages go from the start; NULL leaves what warp_log_set_callback() has set. */
    warp_log_callback log;
    /** Passed to log. */
    void *log_user;
} warp_init_options;

/**
 * Starts the library in this process, and counts: each call is matched by a warp_shutdown(). Only the first one
 * looks at its options. Looks for the driver and lists the devices; makes no CUDA context.
 *
 * @param options  how to start; NULL for the defaults.
 * @param out_options_ignored  1 when the library was started already, so that these options had no effect; may
 *     be NULL.
 * @return WARP_SUCCESS also when there is no GPU; WARP_ERROR_INVALID_ARGUMENT for unknown flags, an unknown log
 *     level or a struct_size that is not set; WARP_ERROR_SHUT_DOWN when the process is exiting.
 */
warp_status warp_init(const warp_init_options *options, uint8_t *out_options_ignored);

/**
 * Ends what a warp_init() began. With the last one all handles become stale and nothing new can be made. Arrays
 * that were not released are released now: their memory is freed, their deleters are called, on this thread. Blocks
 * of warp_alloc() that are still live stay valid and can be freed. Allocators lose all their references; those with blocks that
 * live are named in messages (a warning each) and live on until the last of them is freed.
 *
 * @return WARP_SUCCESS, also for one call too many; WARP_ERROR_NOT_INITIALIZED if there never was a warp_init().
 */
warp_status warp_shutdown(void);

/**
 * Whether the library is started.
 *
 * @param out  1 between the first warp_init() and the last warp_shutdown(), else 0.
 */
warp_status warp_library_is_initialized(uint8_t *out);

/**
 * The version of the library that is loaded, as WARP_VERSION counts: 10000 * major + 100 * minor + patch. Any
 * thread, before warp_init() too.
 */
int32_t warp_version_get_number(void);

/** The version of the library that is loaded, such as "0.1.0". The text is static. */
const char *warp_version_get_string(void);

/**
 * Whether a program that was compiled with one version of the header can use the library that is loaded: before
 * 1.0 the minor number must be the same and the library's patch not older, after it the major number and the
 * library not older.
 *
 * @param header_version  WARP_VERSION of the header.
 * @return WARP_SUCCESS, or WARP_ERROR_NOT_SUPPORTED with both versions in the message. Any thread, before
 *     warp_init() too.
 */
warp_status warp_version_check(int32_t header_version);

/**
 * A number that tells copies of the library in one process apart: the same number is the same copy, with the
 * same devices and blocks. Any thread, before warp_init() too.
 *
 * @param out  the number, never 0.
 */
warp_status warp_library_get_instance_id(uint64_t *out);

/**
 * Writes the report of what was found: the driver or the reason why there is none, the devices, and which GPUs
 * reach which.
 *
 * @param buffer  receives the text, UTF-8 and terminated, cut when it does not fit; may be NULL with capacity 0.
 * @param capacity  bytes of the buffer.
 * @param out_needed  the bytes that the whole text takes, its NUL included; may be NULL.
 * @return WARP_ERROR_NOT_INITIALIZED before warp_init().
 */
warp_status warp_library_get_report(char *buffer, size_t capacity, size_t *out_needed);

/**
 * Sets where messages go. When it returns, the callback that was set before is not running any more and will not
 * be called again.
 *
 * @param callback  receives the messages; NULL for nobody.
 * @param user  passed to it.
 * @param level  the least grave level that is wanted, WARP_LOG_ERROR to WARP_LOG_DEBUG.
 * @return WARP_ERROR_INVALID_ARGUMENT for an unknown level; WARP_ERROR_BUSY when called from inside the callback.
 *     Any thread, before warp_init() too.
 */
warp_status warp_log_set_callback(warp_log_callback callback, void *user, warp_log_level level);

/* ================================================================================================
 * Devices
 *
 * A device is the CPU, or a GPU together with a context: its primary one, or a foreign one that was registered.
 * "cpu", "cuda:0" and so on name them; "cuda" is the GPU whose context is current, and NULL, wherever a device is
 * expected, is the calling thread's default device. Handles of devices are not released. Nothing here makes a
 * context unless it says so.
 * ================================================================================================ */

/**
 * A device. The handle stays good until the library is shut down, or the device's context dies or is removed.
 */
typedef struct warp_device warp_device;

/**
 * Everything that is known of a device without asking the driver. For the CPU, what speaks of GPUs is zero.
 */
typedef struct warp_device_info {
    /** sizeof(warp_device_info), set by the caller. */
    size_t struct_size;
    /** The name it is found by, such as "cuda:0". */
    char alias[64];
    /** The product's name. */
    char name[256];
    /** The GPU's unique id, "GPU-" and 8-4-4-4-12 hex digits; empty for the CPU. */
    char uuid[48];
    /** Domain, bus and device, such as "00000000:1B:00"; empty for the CPU. */
    char pci_bus_id[32];
    /** The GPU's number as the driver counts, -1 for the CPU. */
    int32_t ordinal;
    /** 10 * major + minor of the compute capability. */
    int32_t arch;
    /** Multiprocessors. */
    int32_t sm_count;
    /** Bytes of shared memory that one block can opt in to. */
    int32_t max_shared_memory_per_block;
    /** Bytes of memory. */
    uint64_t total_memory;
    /** The context's id, 0 before it is made. */
    uint64_t context_id;
    /** The CPU? */
    uint8_t is_cpu;
    /** A GPU? */
    uint8_t is_cuda;
    /** Does it stand for the GPU's primary context? */
    uint8_t is_primary;
    /** Has its context been made through this library, or was it registered with one? */
    uint8_t has_context;
    /** Do the GPU and the CPU share one range of addresses? */
    uint8_t is_uva;
    /** Does the GPU share the host's physical memory? */
    uint8_t is_integrated;
    /** Can the GPU reach pageable host memory? */
    uint8_t is_cpu_memory_access_from_gpu_supported;
    /** Can the CPU reach managed memory that resides on the GPU without moving it? */
    uint8_t is_gpu_memory_access_from_cpu_supported;
    /** Does the hardware have atomics between the GPU and the CPU? */
    uint8_t is_cpu_gpu_atomic_supported;
    /** Is there managed memory? */
    uint8_t is_managed_memory_supported;
    /** May the CPU touch managed memory while the GPU works? */
    uint8_t is_concurrent_managed_access_supported;
    /** Are there stream-ordered memory pools? */
    uint8_t is_mempool_supported;
    /** Do default requests of the calling thread come from the pool? */
    uint8_t is_mempool_enabled;
    /** Can memory and events be shared with other processes? */
    uint8_t is_ipc_supported;
    /** Is there virtual memory management? */
    uint8_t is_virtual_memory_supported;
    /** Can memory be exported as a dma-buf? */
    uint8_t is_dma_buf_supported;
} warp_device_info;

/**
 * How many devices there are: the CPU, the GPUs, and registered contexts.
 *
 * @param out  the count, at least 1.
 * @return WARP_ERROR_NOT_INITIALIZED before warp_init().
 */
warp_status warp_device_get_count(size_t *out);

/**
 * How many GPUs there are.
 *
 * @param out  the count; 0 is no error.
 */
warp_status warp_device_get_cuda_count(size_t *out);

/**
 * The device at a place in the list: the CPU first, then the GPUs by number, then registered contexts in the order
 * they came. Registering and removing change the places behind.
 *
 * @param index  0 to the count less one.
 * @param out  the device.
 * @return WARP_ERROR_NO_SUCH_DEVICE beyond the end.
 */
warp_status warp_device_get_at(size_t index, warp_device **out);

/**
 * Finds a device by its name.
 *
 * @param alias  "cpu"; "cuda:N"; a registered context's alias; "cuda" for the GPU whose context is current on
 *     this thread (registered now if it is new), else the default device if that is a GPU, else the first GPU;
 *     NULL for the default device.
 * @param out  the device.
 * @return WARP_ERROR_NO_SUCH_DEVICE when nothing has that name, with what there is and why in the message.
 */
warp_status warp_device_get(const char *alias, warp_device **out);

/**
 * Describes a device. Cheap.
 *
 * @param device  the device; NULL for the default.
 * @param out  filled as far as its struct_size goes.
 * @return WARP_ERROR_INVALID_HANDLE, WARP_ERROR_DEVICE_LOST when the device's context died.
 */
warp_status warp_device_get_info(const warp_device *device, warp_device_info *out);

/**
 * Asks for the memory of a device. A GPU whose context nobody uses is given one for the question only.
 *
 * @param device  the device; NULL for the default.
 * @param out_free  bytes that are free: of the GPU, or of the host what can be had without swapping.
 * @param out_total  all bytes.
 * @return WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED in a forked child, WARP_ERROR_DRIVER.
 */
warp_status warp_device_query_memory(const warp_device *device, uint64_t *out_free, uint64_t *out_total);

/**
 * The device's native context, a CUcontext. Makes the primary context of a GPU if this library had not retained
 * it yet; it stays the library's, which keeps it. It is not made current: for launches of your own do so, with
 * cuCtxSetCurrent().
 *
 * @param device  a CUDA device; NULL for the default.
 * @param out  the context.
 * @return WARP_ERROR_INVALID_ARGUMENT for the CPU.
 */
warp_status warp_device_get_native_context(const warp_device *device, void **out);

/**
 * The device of a native context. One that is not in the table is registered: as "cuda:N.K", K counting from 0
 * for each GPU, or under the alias that is given. The context stays its owner's, and should outlive what is
 * allocated in it; when it dies the device is lost, and frees of what was there succeed quietly.
 *
 * @param native_context  a CUcontext.
 * @param alias  a name of its own, UTF-8, up to 63 bytes, not "cpu", "cuda" or beginning with "cuda:"; NULL for
 *     "cuda:N.K".
 * @param out  the device.
 * @return WARP_ERROR_INVALID_ARGUMENT for NULL, an alias that is taken or cannot be one, or a context that has
 *     another name already; WARP_ERROR_DEVICE_LOST for a destroyed context.
 */
warp_status warp_device_from_context(void *native_context, const char *alias, warp_device **out);

/**
 * Takes a registered context out of the table. Its handle becomes stale; blocks that live there stay valid and
 * can be freed while the context lives.
 *
 * @param device  a device that warp_device_from_context() registered.
 * @return WARP_ERROR_INVALID_ARGUMENT for any other device.
 */
warp_status warp_device_remove(warp_device *device);

/**
 * The device that NULL means on this thread: what the thread chose, else what the process chose, else (worked
 * out once) the device of the context that is current, else the first GPU, else the CPU.
 *
 * @param out  the device.
 */
warp_status warp_device_get_default(warp_device **out);

/**
 * Chooses the default device of the process: of every thread that has not chosen for itself. No context is made
 * current.
 *
 * @param device  the device.
 * @return WARP_ERROR_INVALID_ARGUMENT for NULL.
 */
warp_status warp_device_set_default(warp_device *device);

/**
 * Chooses the default device of the calling thread only.
 *
 * @param device  the device; NULL to go back to the process's choice.
 */
warp_status warp_device_set_for_thread(warp_device *device);

/**
 * The calling thread's own choice.
 *
 * @param out  the device, NULL when the thread has not chosen.
 */
warp_status warp_device_get_for_thread(warp_device **out);

/**
 * Waits until all work of the device's context is done; returns at once for the CPU and for a GPU that was not
 * used yet. May block for as long as the work takes.
 *
 * @param device  the device; NULL for the default.
 * @return WARP_ERROR_DEVICE_LOST also when a kernel faulted; WARP_ERROR_ILLEGAL_IN_CAPTURE while a stream of the
 *     context is being captured. The capture goes on unharmed if the stream has a handle of the library or is a
 *     blocking one; other captures the driver breaks.
 */
warp_status warp_device_synchronize(warp_device *device);

/* ================================================================================================
 * Streams
 *
 * Work on a GPU is ordered by streams. Each device has one default stream, made when it is first needed and shared
 * by all threads; a thread can put another in its place for itself. NULL, wherever a stream is expected, is the
 * device's current stream. The CPU has one pseudo-stream a thread, on which everything is done when a call returns, unless the
 * thread captures it.
 * ================================================================================================ */

/** A stream. Good until it is released or the library is shut down. */
typedef struct warp_stream warp_stream;

/** The stream takes no part in the ordering with the legacy default stream. */
#define WARP_STREAM_NON_BLOCKING 1u

/**
 * Of a stream of other code: it may be destroyed before its handle is released, or before the blocks that were used on
 * it are freed. For warp_stream_wrap_with().
 */
#define WARP_STREAM_UNTRACKED 2u

/** How a stream should be. All zero but struct_size is the default: blocking, of ordinary priority. */
typedef struct warp_stream_options {
    /** sizeof(warp_stream_options), set by the caller. */
    size_t struct_size;
    /** WARP_STREAM_… bits. */
    uint32_t flags;
    /** 0 is ordinary, lower numbers come first; the range is the driver's. */
    int32_t priority;
} warp_stream_options;

/** What is known of a stream. */
typedef struct warp_stream_info {
    /** sizeof(warp_stream_info), set by the caller. */
    size_t struct_size;
    /** Its device; NULL when that is no longer in the table. */
    warp_device *device;
    /** The CUstream; NULL for the CPU's. */
    void *native;
    /** A number that no other stream of the process ever gets; for the CPU's, the calling thread's. */
    uint64_t id;
    /** Its priority. */
    int32_t priority;
    /** Does it take no part in the ordering with the legacy default stream? */
    uint8_t is_non_blocking;
    /** Was it made by this library, which destroys it when it is released? */
    uint8_t is_owned;
    /** Was it wrapped with WARP_STREAM_UNTRACKED? */
    uint8_t is_untracked;
} warp_stream_info;

/**
 * Makes a stream. Makes the device's context if there is none yet.
 *
 * @param device  a CUDA device; NULL for the default.
 * @param options  how it should be; NULL for the defaults.
 * @param out  the stream, to be given back with warp_stream_release().
 * @return WARP_ERROR_INVALID_ARGUMENT for the CPU, unknown flags or a priority outside of the device's range.
 */
warp_status warp_stream_create(warp_device *device, const warp_stream_options *options, warp_stream **out);

/**
 * Gives a handle to a stream that other code made and goes on owning. The native stream must outlive the handle:
 * the driver crashes when it is given a stream that was destroyed, and nobody can ask it beforehand. Release the
 * handle first; blocks that were used on the stream can be freed at any time after that. Where that order cannot be
 * kept, see warp_stream_wrap_with().
 *
 * @param device  the device of the stream's context; NULL for the default.
 * @param native_stream  a CUstream; NULL or 1 is the legacy default stream of the device's context, 2 is the
 *     calling thread's own default stream, whichever thread uses the handle.
 * @param out  the handle, to be given back with warp_stream_release().
 * @return WARP_ERROR_INVALID_ARGUMENT for the CPU or a stream of another context.
 */
warp_status warp_stream_wrap(warp_device *device, void *native_stream, warp_stream **out);

/**
 * As warp_stream_wrap(), with options. WARP_STREAM_UNTRACKED is for a caller who cannot promise that the native stream
 * outlives the handle: then the library touches it only in calls that name it, or that go to it because it is the
 * thread's current stream, and for that moment the caller vouches. Frees of blocks that were allocated or used on it
 * come after all work so far of the whole context instead, later while a stream of the context is known to be captured;
 * releasing the handle touches nothing. With a driver before 12.5 such a free waits.
 *
 * @param device  the device of the stream's context; NULL for the default.
 * @param native_stream  a CUstream that is alive now, or 0, 1, 2 as for warp_stream_wrap().
 * @param options  WARP_STREAM_UNTRACKED or no flag, and priority 0: what else a stream is, it is already. NULL for the
 *     defaults.
 * @param out  the handle, to be given back with warp_stream_release().
 * @return WARP_ERROR_INVALID_ARGUMENT for the CPU, a stream of another context, or other options.
 */
warp_status warp_stream_wrap_with(warp_device *device,
                                  void *native_stream,
                                  const warp_stream_options *options,
                                  warp_stream **out);

/**
 * Gives a stream back. The handle is stale at once; a stream of the library is destroyed, after the calls that are
 * using it on other threads, and work that was put on it goes on to its end. Does not wait for work. When it returns for
 * a wrapped stream, the calls of other threads on it have returned as well, and its owner may destroy it.
 *
 * @param stream  a stream of warp_stream_create() or warp_stream_wrap(); NULL does nothing.
 * @return WARP_ERROR_INVALID_ARGUMENT for a device's default stream; WARP_ERROR_ILLEGAL_IN_CAPTURE for a stream of
 *     warp_stream_create() that is being captured, and for any stream on which a capture of warp_capture_begin() goes on
 *     or is paused, which goes on unharmed.
 */
warp_status warp_stream_release(warp_stream *stream);

/**
 * Describes a stream. Cheap.
 *
 * @param stream  the stream.
 * @param out  filled as far as its struct_size goes.
 */
warp_status warp_stream_get_info(const warp_stream *stream, warp_stream_info *out);

/**
 * The stream that work of this thread on the device goes to when a call names none. Made now if it is the device's
 * default stream and there is none yet.
 *
 * @param device  the device; NULL for the default.
 * @param out  the stream; it is not to be released on account of this call.
 */
warp_status warp_stream_get_current(warp_device *device, warp_stream **out);

/**
 * Makes a stream the current one of the device for the calling thread. When it is released, the device's default
 * stream takes its place.
 *
 * @param device  the device; NULL for the default.
 * @param stream  a stream of that device; NULL for the device's default stream.
 * @return WARP_ERROR_INVALID_ARGUMENT for a stream of another device; WARP_ERROR_NOT_SUPPORTED when the thread has
 *     a stream of its own on 32 other devices.
 */
warp_status warp_stream_set_current(warp_device *device, warp_stream *stream);

/**
 * Waits until everything that was put on the stream is done. What the CPU's was given is done, or recorded.
 *
 * @param stream  the stream; NULL for the current one of the default device.
 * @return WARP_ERROR_ILLEGAL_IN_CAPTURE while the stream, of a GPU, is being captured; WARP_ERROR_DEVICE_LOST also when a
 *     kernel faulted.
 */
warp_status warp_stream_synchronize(warp_stream *stream);

/**
 * Whether everything that was put on the stream is done. Does not wait.
 *
 * @param stream  the stream; NULL for the current one of the default device.
 * @param out  1 when it is, 0 when work is pending.
 */
warp_status warp_stream_query_idle(warp_stream *stream, uint8_t *out);

/** A function of the caller's that a stream calls. It must not throw. */
typedef void (*warp_host_function)(void *user);

/**
 * Has a function called in the order of a stream.
 *
 * On the CPU's stream it is called now, on this thread; while the thread captures on the CPU it becomes a part of the graph, and is
 * called in each run, on the thread that launches. It may call any function of the library, also release the graph that runs,
 * but not launch that.
 *
 * On a stream of a GPU it is called on a thread of the driver's, after all work that was put on the stream before, and work behind
 * it waits for its end. On a stream that is captured it becomes a part of the graph and is called in each run. There it must not
 * call what reaches the driver: the driver refuses that (WARP_ERROR_DRIVER), or waits for ever. HOST memory of the library can be
 * allocated, filled, copied and freed; of other memory the driver is asked what it is. When the context is lost, or a kernel faults
 * in it, the function is not called any more.
 *
 * Any thread; on a captured stream the one that captures. Nothing is called once the process exits.
 *
 * @param stream  the stream; NULL for the current one of the default device.
 * @param function  what is called.
 * @param user  passed to both functions.
 * @param release  called once, with `user`, when `function` will not be called any more: on the CPU's stream before this returns;
 *     on a GPU's after the call, by the driver's thread or this one; for a part of a graph when the graph is released and no run of
 *     it goes on, on whichever thread finds that out. That a GPU's context is lost is found out by a later call of this function for
 *     a GPU, or warp_shutdown(). NULL for nothing. Not called when this fails: `user` is the caller's then.
 * @return WARP_ERROR_INVALID_ARGUMENT when `function` is NULL; WARP_ERROR_ILLEGAL_IN_CAPTURE on a stream that another thread
 *     captures; WARP_ERROR_NOT_SUPPORTED with a driver that has no host functions; WARP_ERROR_DEVICE_LOST.
 */
warp_status warp_stream_host_call(warp_stream *stream,
                                  warp_host_function function,
                                  void *user,
                                  warp_host_function release);

/* ================================================================================================
 * Events
 *
 * An event marks a place in the work of a stream. The host can wait for it or ask whether it is reached, streams of any
 * device can wait for it without the host, and between two of them time can be measured. An event that was never
 * recorded counts as reached. An event of the CPU is reached as soon as it is recorded.
 *
 * Recorded on a stream that is being captured, an event marks a place in the graph: streams wait for it to take part in
 * the capture, and the host cannot ask for it. What would break a capture is refused with
 * WARP_ERROR_ILLEGAL_IN_CAPTURE, and the capture goes on. The library goes by where it recorded an event last: other
 * code that records the native event itself has to know what it does.
 * ================================================================================================ */

/** An event. Good until it is released or the library is shut down. */
typedef struct warp_event warp_event;

/**
 * Each record keeps its time, for warp_event_measure_elapsed(). Without, recording and waiting are cheaper.
 */
#define WARP_EVENT_TIMING 1u

/**
 * A host thread that waits for the event sleeps; without, the driver may let it spin, which answers sooner.
 */
#define WARP_EVENT_BLOCKING_SYNC 2u

/** How an event should be. All zero but struct_size is the default: without timing. */
typedef struct warp_event_options {
    /** sizeof(warp_event_options), set by the caller. */
    size_t struct_size;
    /** WARP_EVENT_… bits. */
    uint32_t flags;
    /** 0. */
    uint32_t reserved;
} warp_event_options;

/** What is known of an event. */
typedef struct warp_event_info {
    /** sizeof(warp_event_info), set by the caller. */
    size_t struct_size;
    /** Its device; NULL when that is no longer in the table. */
    warp_device *device;
    /** The CUevent; NULL for the CPU's. */
    void *native;
    /** WARP_EVENT_… bits that it was made with; 0 for an event of other code. */
    uint32_t flags;
    /** Was it made by this library, which destroys it when it is released? */
    uint8_t is_owned;
} warp_event_info;

/**
 * Makes an event. Makes the device's context if there is none yet.
 *
 * @param device  a CUDA device, or the CPU; NULL for the default.
 * @param options  how it should be; NULL for the defaults.
 * @param out  the event, to be given back with warp_event_release().
 * @return WARP_ERROR_INVALID_ARGUMENT for unknown flags.
 */
warp_status warp_event_create(warp_device *device, const warp_event_options *options, warp_event **out);

/**
 * Gives a handle to an event that other code made and goes on owning. The native event must outlive the handle, and
 * belong to the context of the device, which the driver cannot be asked.
 *
 * While other code records the native event, the library does not know where: do not query, measure or wait for one
 * whose last record by other code is in a capture, and do not let a captured stream wait for one that was recorded
 * outside.
 *
 * @param device  the device of the event's context; NULL for the default.
 * @param native_event  a CUevent.
 * @param out  the handle, to be given back with warp_event_release().
 * @return WARP_ERROR_INVALID_ARGUMENT for the CPU or a NULL event.
 */
warp_status warp_event_wrap(warp_device *device, void *native_event, warp_event **out);

/**
 * Gives an event back. The handle is stale at once; an event of the library is destroyed, after the calls that are
 * using it on other threads. Streams that wait for it go on waiting. Does not wait. In a capture too.
 *
 * @param event  an event of warp_event_create() or warp_event_wrap(); NULL does nothing.
 */
warp_status warp_event_release(warp_event *event);

/**
 * Describes an event. Cheap.
 *
 * @param event  the event.
 * @param out  filled as far as its struct_size goes.
 */
warp_status warp_event_get_info(const warp_event *event, warp_event_info *out);

/**
 * Records an event: from now on it marks the end of all work so far on the stream. What waits for an earlier record
 * goes on waiting for that one. On a stream that is being captured it becomes part of the capture.
 *
 * @param event  the event.
 * @param stream  a stream of the event's device; NULL for the current one of that device.
 * @return WARP_ERROR_INVALID_ARGUMENT for a stream of another device; WARP_ERROR_BUSY when it would be recorded in a
 *     capture while another thread waits for it; WARP_ERROR_ILLEGAL_IN_CAPTURE on a stream whose capture is broken,
 *     and on the legacy default stream while a blocking stream is being captured.
 */
warp_status warp_event_record(warp_event *event, warp_stream *stream);

/**
 * Whether everything before the event's last record is done. Does not wait.
 *
 * @param event  the event.
 * @param out  1 when it is, and when the event was never recorded; 0 when work is pending.
 * @return WARP_ERROR_ILLEGAL_IN_CAPTURE when it was last recorded in a capture, also after that has ended;
 *     WARP_ERROR_DEVICE_LOST also when a kernel faulted.
 */
warp_status warp_event_query_done(warp_event *event, uint8_t *out);

/**
 * Waits until everything before the event's last record is done. Returns at once when it was never recorded.
 *
 * @param event  the event.
 * @return As warp_event_query_done().
 */
warp_status warp_event_synchronize(warp_event *event);

/**
 * The time between the last records of two events, as the device that reached them measured it; for the CPU's, as the
 * host's clock did when they were recorded.
 *
 * @param start  an event with WARP_EVENT_TIMING.
 * @param end  another of the same device.
 * @param milliseconds  the time from start to end, less than 0 when end was reached first. GPUs tell about half a
 *     microsecond apart.
 * @return WARP_ERROR_BUSY when one of them is not reached yet; WARP_ERROR_INVALID_ARGUMENT for events of two devices,
 *     without timing, or never recorded; WARP_ERROR_ILLEGAL_IN_CAPTURE when one was last recorded in a capture.
 */
warp_status warp_event_measure_elapsed(warp_event *start, warp_event *end, float *milliseconds);

/**
 * Lets a stream wait for an event: work put on it from now on runs after all work before the event's last record. The
 * host does not wait. Nothing happens when the event was never recorded, or is the CPU's.
 *
 * An event that was recorded in a capture takes the stream into that capture; this is how a capture spreads over several
 * streams, and how they are joined again.
 *
 * @param stream  the stream; NULL for the current one of the default device.
 * @param event  an event of any device.
 * @return WARP_ERROR_INVALID_ARGUMENT for the CPU's stream and an event of a GPU: use warp_event_synchronize();
 *     WARP_ERROR_ILLEGAL_IN_CAPTURE when the stream is being captured and the event was last recorded outside or in
 *     another capture, when the event's capture has ended, and for the legacy default stream in a capture.
 */
warp_status warp_stream_wait_event(warp_stream *stream, warp_event *event);

/**
 * Lets a stream wait for another one: work put on it from now on runs after all work so far on the other. The host does
 * not wait. Nothing happens when both are the same stream, or the other one is the CPU's.
 *
 * When the other stream is being captured, this takes the stream into that capture, or joins it there.
 *
 * @param stream  the stream that waits; NULL for the current one of the default device.
 * @param other  the stream that is waited for, of any device.
 * @return WARP_ERROR_INVALID_ARGUMENT for the CPU's stream and a stream of a GPU: use warp_stream_synchronize();
 *     WARP_ERROR_ILLEGAL_IN_CAPTURE when the stream is being captured and the other is not, when they are in two
 *     captures, and for the legacy default stream in a capture.
 */
warp_status warp_stream_wait_stream(warp_stream *stream, warp_stream *other);

/* ================================================================================================
 * Scopes
 *
 * A scope makes something so for the calling thread until it is ended, and then what was before is so again. While it is
 * open, the functions that tell the current stream, the default device or whether pools are on tell what the scope says.
 * Scopes of a thread are ended in the reverse order, by the thread that began them; new threads begin without any, and a
 * thread that ends takes its scopes with it. At most 64 are open in a thread at once. Scopes of peer access and of pool
 * access have their places among them, but are for the whole process: see warp_scope_begin_peer_access().
 *
 * What is chosen for the whole process inside a scope, with warp_device_set_default() or warp_mempool_set_enabled(), is seen
 * when the scope ends. What the thread chooses for itself, with warp_stream_set_current() or warp_device_set_for_thread(),
 * holds until then.
 * ================================================================================================ */

/** A scope. Good until it is ended. */
typedef struct warp_scope warp_scope;

/**
 * Makes a stream the current one of the device, for the calling thread, until the scope ends. When the stream is
 * released before that, the device's default stream takes its place.
 *
 * @param device  the device; NULL for the default.
 * @param stream  a stream of that device; NULL for the device's default stream.
 * @param out  the scope, to be ended with warp_scope_end().
 * @return WARP_ERROR_INVALID_ARGUMENT for a stream of another device; WARP_ERROR_NOT_SUPPORTED when the thread has 64
 *     scopes open, or a stream of its own on 32 other devices.
 */
warp_status warp_scope_begin_stream(warp_device *device, warp_stream *stream, warp_scope **out);

/**
 * Makes a device the default device of the calling thread until the scope ends. No context is made, and none is made
 * current.
 *
 * @param device  the device; NULL for what is the default now, whatever the process chooses meanwhile.
 * @param out  the scope, to be ended with warp_scope_end().
 * @return WARP_ERROR_NOT_SUPPORTED when the thread has 64 scopes open.
 */
warp_status warp_scope_begin_device(warp_device *device, warp_scope **out);

/**
 * Switches the memory pools of a device on or off for the calling thread until the scope ends: what names no kind comes from
 * the pool, or is plain device memory. Blocks that are there stay what they are, and what warp_mempool_set_enabled() chooses
 * meanwhile is seen when the scope ends.
 *
 * @param device  the device; NULL for the default.
 * @param enabled  nonzero for on.
 * @param out  the scope, to be ended with warp_scope_end().
 * @return as warp_mempool_set_enabled(); WARP_ERROR_NOT_SUPPORTED also when the thread has 64 scopes open.
 */
warp_status warp_scope_begin_mempool(warp_device *device, uint8_t enabled, warp_scope **out);

/**
 * Ends a scope: what it changed is as it was before it began. A stream or device that is gone by now is as if none had
 * been chosen. Also after warp_shutdown().
 *
 * @param scope  the scope that the calling thread began last and has not ended; NULL does nothing.
 * @return WARP_ERROR_SCOPE_ORDER for any other scope, ended ones and those of other threads included; nothing changes.
 */
warp_status warp_scope_end(warp_scope *scope);

/* ================================================================================================
 * Memory pools
 *
 * A memory pool gives device memory in the order of streams, and keeps what was freed for the next allocation. Every GPU that
 * supports them has one, which allocations of the device come from as long as pools are switched on and nothing else is said.
 * It is shared with all code of the process, and what it uses and keeps is counted for all of them. Further ones are created
 * here, or are other code's and wrapped; `mempool` of warp_alloc_options names one for a block, warp_mempool_use() for all
 * blocks of a device. A pool belongs to a GPU: it outlives contexts, and so do the blocks in it.
 *
 * A pool keeps up to its release threshold of unused memory when a stream, an event or the device is waited for, and gives
 * the rest back. The threshold is 0 unless somebody changed it, which makes the next allocation after a wait dear.
 *
 * The functions that end in `_of_device` are short for warp_mempool_get() and the one without.
 *
 * Unless it is said otherwise: WARP_ERROR_INVALID_ARGUMENT for the CPU, WARP_ERROR_NOT_SUPPORTED for a GPU without pools, and
 * WARP_ERROR_INVALID_HANDLE for a pool that was released. No context is made. Any thread, also while something is captured.
 * ================================================================================================ */

/** A memory pool. A device's own is good until the library is shut down, another one until it is released. */
typedef struct warp_mempool warp_mempool;

/** A way in which the memory of a pool can be given to other processes. */
typedef int32_t warp_mempool_handle_type;

/** By a file descriptor. */
#define WARP_MEMPOOL_HANDLE_POSIX_FD 1
/** By a handle that also other machines of the fabric can take. */
#define WARP_MEMPOOL_HANDLE_FABRIC 8

/** How a new pool should be. All zero but struct_size is the default. */
typedef struct warp_mempool_options {
    /** sizeof(warp_mempool_options), set by the caller. */
    size_t struct_size;
    /**
     * The most bytes that the pool may hold; the driver rounds it up, to 32 MiB on many GPUs. What would need more is
     * WARP_ERROR_OUT_OF_MEMORY, and no other pool steps in. What captures allocate is their graphs' and not counted. 0 for
     * what the GPU has.
     */
    uint64_t max_size;
    /** Bytes that it keeps when something is waited for, any number. */
    uint64_t release_threshold;
    /**
     * A sum of WARP_MEMPOOL_HANDLE_… that its memory can be exported as. A capture cannot allocate from such a pool.
     */
    uint32_t handle_types;
    /** 0. */
    uint32_t reserved;
} warp_mempool_options;

/** What is known of a pool without asking the driver. */
typedef struct warp_mempool_info {
    /** sizeof(warp_mempool_info), set by the caller. */
    size_t struct_size;
    /** The device of its GPU; NULL when that is no longer in the table. */
    warp_device *device;
    /** The CUmemoryPool. It stays its owner's to destroy. */
    void *native;
    /** The most bytes that it was created with; 0 for no limit, and for a pool that others made. */
    uint64_t max_size;
    /** The handle types that it was created with; 0 for a pool that others made. */
    uint32_t handle_types;
    /** Was it created here? */
    uint8_t is_owned;
    /** Is it a device's own? */
    uint8_t is_device_pool;
} warp_mempool_info;

/** What a pool holds, in bytes, for all code of the process, as the driver counts it. */
typedef struct warp_mempool_memory_info {
    /** sizeof(warp_mempool_memory_info), set by the caller. */
    size_t struct_size;
    /** Bytes in blocks that are not freed. Memory of graphs is apart: warp_graph_query_memory(). */
    uint64_t used;
    /** The most of that since the last reset. */
    uint64_t used_high;
    /** Bytes that the pool holds of the GPU's memory, in use or kept. */
    uint64_t reserved;
    /** The most of that since the last reset. */
    uint64_t reserved_high;
} warp_mempool_memory_info;

/**
 * Whether a device has memory pools: some GPUs, as virtual ones, do not. Cheap.
 *
 * @param device  the device; NULL for the default.
 * @param out  1 or 0; 0 for the CPU.
 */
warp_status warp_mempool_is_supported(warp_device *device, uint8_t *out);

/**
 * Whether requests that name no kind come from the pool, on the calling thread: as its innermost scope says, else as the
 * process chose. Cheap.
 *
 * @param device  the device; NULL for the default.
 * @param out  1 or 0; 0 for the CPU and where there are no pools.
 */
warp_status warp_mempool_is_enabled(warp_device *device, uint8_t *out);

/**
 * Switches the pools of a device on or off for the process. Blocks that are there stay what they are, and are freed as what
 * they are. Pools start on where there are any, unless WARP_INIT_DISABLE_MEMPOOLS or the environment says otherwise.
 *
 * @param device  the device; NULL for the default.
 * @param enabled  nonzero for on. Off is success everywhere.
 * @return for on: WARP_ERROR_INVALID_ARGUMENT for the CPU, WARP_ERROR_NOT_SUPPORTED for a GPU without pools; nothing changes.
 */
warp_status warp_mempool_set_enabled(warp_device *device, uint8_t enabled);

/**
 * Switches the pools of several devices on or off for the process: of all or of none.
 *
 * @param devices  the devices, NULL among them for the default; NULL, with a count of 0, for every GPU.
 * @param count  how many.
 * @param enabled  nonzero for on.
 * @return as warp_mempool_set_enabled(), with the first device that cannot in the message; WARP_ERROR_INVALID_ARGUMENT also
 *     when devices is NULL and count is not 0. Nothing changes.
 */
warp_status warp_mempool_set_enabled_for(warp_device *const *devices, size_t count, uint8_t enabled);

/**
 * The pool that allocations of a device come from now: its own, which is what the driver has it allocate from when that is
 * asked first, or the one of warp_mempool_use().
 *
 * @param device  the device; NULL for the default.
 * @param out  the pool, which is not to be released for this.
 */
warp_status warp_mempool_get(warp_device *device, warp_mempool **out);

/**
 * Makes a pool of a GPU's memory. Nothing allocates from it before it is named.
 *
 * @param device  the device; NULL for the default.
 * @param options  how it should be; NULL for the defaults.
 * @param out  the pool, to be released with warp_mempool_release().
 * @return WARP_ERROR_NOT_SUPPORTED also for handle types that the system does not give; WARP_ERROR_INVALID_ARGUMENT for
 *     unknown ones.
 */
warp_status warp_mempool_create(warp_device *device, const warp_mempool_options *options, warp_mempool **out);

/**
 * Makes a pool of other code known. It stays its owner's, who keeps it as long as the handle is not released and no device
 * uses it. A pool that is known already gets a further handle; for a device's own it is the one of that. To prove where its
 * memory is, one byte is allocated from it and freed.
 *
 * @param device  the device of its GPU; NULL for the default.
 * @param native_pool  a CUmemoryPool. What never was one the driver may crash on.
 * @param out  the pool, to be released with warp_mempool_release() unless it is a device's own.
 * @return WARP_ERROR_INVALID_ARGUMENT also for NULL, a pool of another GPU, one of managed or host memory, and one that was
 *     destroyed or imported from another process.
 */
warp_status warp_mempool_wrap(warp_device *device, void *native_pool, warp_mempool **out);

/**
 * Gives a pool back. The handle is stale at once; live blocks stay good and are freed as ever. A pool that was created here is
 * destroyed with its last handle, when calls inside of it have left and no device uses it. For a pool of other code such calls
 * of other threads are waited for: when this returns its owner may destroy it, if no device uses it. Also in a forked child,
 * where it only forgets.
 *
 * @param pool  a pool; NULL does nothing.
 * @return WARP_ERROR_INVALID_ARGUMENT for a device's own, and for what warp_mempool_get() gave for a pool that was released
 *     and is in use.
 */
warp_status warp_mempool_release(warp_mempool *pool);

/**
 * Has allocations of a device come from a pool from now on: requests that name no kind while pools are on, those that name
 * WARP_MEMORY_CUDA_MEMPOOL, and what is captured. The device keeps the pool, also when it is released, until it uses another
 * or the library is shut down. Process-wide.
 *
 * @param device  the device; NULL for the default.
 * @param pool  a pool of the same GPU; NULL for the device's own.
 * @return WARP_ERROR_INVALID_ARGUMENT also for a pool of another GPU.
 */
warp_status warp_mempool_use(warp_device *device, warp_mempool *pool);

/**
 * Describes a pool. Cheap.
 *
 * @param pool  the pool.
 * @param out  filled as far as its struct_size goes.
 */
warp_status warp_mempool_get_info(const warp_mempool *pool, warp_mempool_info *out);

/**
 * Asks the driver what a pool holds, for all code of the process. warp_statistics_get() counts the library's own blocks, by
 * the bytes that were asked for.
 *
 * @param pool  the pool.
 * @param out  filled as far as its struct_size goes.
 */
warp_status warp_mempool_query_memory(warp_mempool *pool, warp_mempool_memory_info *out);

/**
 * Brings the high marks of a pool down to what is so now, for all that ask in the process.
 *
 * @param pool  the pool.
 */
warp_status warp_mempool_reset_memory_high(warp_mempool *pool);

/**
 * Gives back what a pool holds and nothing uses. Waits for nothing: frees that streams have still to come to count for a
 * later call. Running out of memory does that too, with all pools of the device that handles name.
 *
 * @param pool  the pool.
 * @param keep  bytes that it keeps, used ones included.
 */
warp_status warp_mempool_trim(warp_mempool *pool, uint64_t keep);

/**
 * Sets how much a pool keeps when something is waited for, for all code of the process that has the pool.
 *
 * @param pool  the pool.
 * @param bytes  any number; 0 keeps nothing, UINT64_MAX everything.
 */
warp_status warp_mempool_set_release_threshold(warp_mempool *pool, uint64_t bytes);

/**
 * Sets how much a pool keeps as a part of the GPU's memory, rounded down to bytes.
 *
 * @param pool  the pool.
 * @param fraction  0 to 1.
 * @return WARP_ERROR_INVALID_ARGUMENT also for any other number.
 */
warp_status warp_mempool_set_release_fraction(warp_mempool *pool, double fraction);

/**
 * Asks the driver how much a pool keeps when something is waited for: other code may have set it.
 *
 * @param pool  the pool.
 * @param out  bytes.
 */
warp_status warp_mempool_query_release_threshold(warp_mempool *pool, uint64_t *out);

/**
 * As warp_mempool_query_memory(), of the pool that a device allocates from.
 *
 * @param device  the device; NULL for the default.
 * @param out  filled as far as its struct_size goes.
 */
warp_status warp_mempool_query_memory_of_device(warp_device *device, warp_mempool_memory_info *out);

/**
 * As warp_mempool_reset_memory_high(), of the pool that a device allocates from.
 *
 * @param device  the device; NULL for the default.
 */
warp_status warp_mempool_reset_memory_high_of_device(warp_device *device);

/**
 * As warp_mempool_trim(), of the pool that a device allocates from.
 *
 * @param device  the device; NULL for the default.
 * @param keep  bytes that it keeps, used ones included.
 */
warp_status warp_mempool_trim_of_device(warp_device *device, uint64_t keep);

/**
 * As warp_mempool_set_release_threshold(), of the pool that a device allocates from.
 *
 * @param device  the device; NULL for the default.
 * @param bytes  any number.
 */
warp_status warp_mempool_set_release_threshold_of_device(warp_device *device, uint64_t bytes);

/**
 * As warp_mempool_set_release_fraction(), of the pool that a device allocates from.
 *
 * @param device  the device; NULL for the default.
 * @param fraction  0 to 1.
 */
warp_status warp_mempool_set_release_fraction_of_device(warp_device *device, double fraction);

/**
 * As warp_mempool_query_release_threshold(), of the pool that a device allocates from.
 *
 * @param device  the device; NULL for the default.
 * @param out  bytes.
 */
warp_status warp_mempool_query_release_threshold_of_device(warp_device *device, uint64_t *out);

/**
 * As warp_mempool_access_query_enabled(), of one pool.
 *
 * @param pool  the pool, whose GPU owns the memory.
 * @param peer_device  the device that touches it; NULL for the default.
 * @param out  1 or 0; 1 for the same GPU, 0 for the CPU.
 * @return WARP_ERROR_INVALID_HANDLE, WARP_ERROR_FORKED in a forked child, WARP_ERROR_DRIVER.
 */
warp_status warp_mempool_query_access(warp_mempool *pool, warp_device *peer_device, uint8_t *out);

/**
 * As warp_mempool_access_set_enabled(), of one pool.
 *
 * @param pool  the pool, whose GPU owns the memory.
 * @param peer_device  the device that touches it; NULL for the default.
 * @param enabled  nonzero to enable, 0 to disable.
 * @return as warp_mempool_access_set_enabled().
 */
warp_status warp_mempool_set_access(warp_mempool *pool, warp_device *peer_device, uint8_t enabled);

/* ================================================================================================
 * Memory
 *
 * Blocks of bytes of any kind on any device, found again by their address alone: a free, a copy and a question need
 * nothing but a pointer. Every block is in the library's ledger from its allocation to its free.
 * ================================================================================================ */

/** Where memory comes from. Says nothing about where it resides, or who may touch it now. */
typedef int32_t warp_memory_kind;

/** Not known, or the device's choice. */
#define WARP_MEMORY_UNKNOWN 0
/** Ordinary host memory. */
#define WARP_MEMORY_HOST 1
/** Page-locked host memory, or host memory that was registered with CUDA. */
#define WARP_MEMORY_PINNED 2
/** Plain device memory. */
#define WARP_MEMORY_CUDA_DEVICE 3
/** Memory of a stream-ordered pool, or of a graph. */
#define WARP_MEMORY_CUDA_MEMPOOL 4
/** Managed memory. */
#define WARP_MEMORY_CUDA_MANAGED 5

/** The rule that governs who may touch a block. */
typedef int32_t warp_access_rule;

/** Not known. */
#define WARP_ACCESS_RULE_UNKNOWN 0
/** Host memory: the CPU, and GPUs that reach pageable memory. */
#define WARP_ACCESS_RULE_PAGEABLE 1
/** Page-locked memory: the CPU and every GPU with unified addressing. */
#define WARP_ACCESS_RULE_PINNED 2
/** Device memory: its GPU, and GPUs with peer access to its context. */
#define WARP_ACCESS_RULE_PEER 3
/** Pool memory: its GPU, and GPUs that the pool gives access. */
#define WARP_ACCESS_RULE_POOL 4
/** A mapping of virtual memory management: those that it was mapped for. */
#define WARP_ACCESS_RULE_MAPPING 5
/** A graph's memory: those that could when it was captured. */
#define WARP_ACCESS_RULE_GRAPH_FIXED 6
/** Managed memory: GPUs that support it, and the CPU by the GPU's capabilities. */
#define WARP_ACCESS_RULE_MANAGED 7

/** What to allocate. All zero but struct_size is the default. */
typedef struct warp_alloc_options {
    /** sizeof(warp_alloc_options), set by the caller. */
    size_t struct_size;
    /** A power of two, in bytes; 0 for the kind's own (64 for HOST, 256 for the others). */
    uint64_t alignment;
    /**
     * A name for what the block is, for statistics and messages; copied, up to 65536 different ones are told apart.
     * NULL for none.
     */
    const char *tag;
    /**
     * The stream that the block belongs to, of the same device: work there may use it at once, and its free comes
     * after that work. NULL for the device's current stream.
     */
    warp_stream *stream;
    /**
     * WARP_MEMORY_HOST or _PINNED on the CPU, _CUDA_DEVICE, _CUDA_MEMPOOL or _CUDA_MANAGED on a GPU; 0 for what the
     * device has switched on.
     */
    warp_memory_kind kind;
    /**
     * The pool that the block comes from, of the same GPU, whether pools are switched on or not; NULL for what the device
     * allocates from.
     */
    warp_mempool *mempool;
    /**
     * The allocator that serves it, for that sort of device; NULL for what serves the device. With a kind only if it is the
     * allocator's.
     */
    warp_allocator *allocator;
} warp_alloc_options;

/** What is known of a block that is freed: a mistake is found before anything is freed. */
typedef struct warp_free_options {
    /** sizeof(warp_free_options), set by the caller. */
    size_t struct_size;
    /** The size of the allocation; 0 is not checked. */
    uint64_t size;
    /** What alignment the block must have at least; 0 is not checked. */
    uint64_t alignment;
    /**
     * A stream that uses the block and that the library does not know of; NULL for none. The free comes after its
     * work as well.
     */
    warp_stream *stream;
} warp_free_options;

/** What an address is. */
typedef struct warp_pointer_info {
    /** sizeof(warp_pointer_info), set by the caller. */
    size_t struct_size;
    /** First address of the block; NULL when the address is unknown. */
    void *base;
    /** Bytes of the block. */
    uint64_t size;
    /** Alignment that the block was given; 0 when it is not the library's. */
    uint64_t alignment;
    /**
     * The device that the block belongs to; NULL when it is unknown, or that device is no longer in the table.
     */
    warp_device *device;
    /** The tag it was allocated with, NULL for none; lasts as long as the process. */
    const char *tag;
    /** Id of the stream that the block belongs to, 0 for none. */
    uint64_t stream_id;
    /** Id of the context that the block belongs to, 0 for none. */
    uint64_t context_id;
    /** The GPU's number, -1 for host memory and when unknown. */
    int32_t ordinal;
    /** Where it comes from. */
    warp_memory_kind kind;
    /** What governs who may touch it. */
    warp_access_rule rule;
    /** Is it a block of this library, to be freed with warp_free()? */
    uint8_t is_owned;
    /** Did the context that it was allocated in die? Then only a free is left to do. */
    uint8_t is_lost;
    /** The allocator that made it, where that was not a built-in one; else NULL. */
    warp_allocator *allocator;
} warp_pointer_info;

/**
 * Counts of blocks, kept by the library for what it allocated. The driver's own figures for a pool are others: they
 * count every user of it, and what it keeps.
 */
typedef struct warp_statistics {
    /** sizeof(warp_statistics), set by the caller. */
    size_t struct_size;
    /** Bytes of live blocks, as they were asked for. */
    uint64_t live_bytes;
    /**
     * The most that live_bytes was since the start or the last reset. For all kinds together, the sum of theirs. Where
     * threads free what others allocated, up to 1 MiB a thread too much; of cached blocks up to 64 MiB, or a single
     * one of any size.
     */
    uint64_t peak_bytes;
    /** Live blocks. */
    uint64_t live_blocks;
    /** Allocations that were served. */
    uint64_t allocations;
    /** Blocks that were freed. */
    uint64_t frees;
    /** Blocks that other code freed behind the library's back, found out when their address came again. */
    uint64_t stale_blocks;
} warp_statistics;

/**
 * Allocates memory of the kind that the device has switched on: host memory on the CPU; on a GPU pool memory on the
 * current stream, or plain device memory where there are no pools or they are off.
 *
 * @param device  the device; NULL for the default.
 * @param size  bytes; 0 succeeds with NULL, and nobody is asked.
 * @param out  the first address, to be given to warp_free(). Aligned to 256 bytes, 64 on the CPU. The contents are
 *     undefined.
 * @return WARP_ERROR_OUT_OF_MEMORY with what was asked and what there is, after freed blocks were waited for and the
 *     pools trimmed; WARP_ERROR_SIZE_OVERFLOW above 2^63 - 1; WARP_ERROR_ILLEGAL_IN_CAPTURE for what a capture
 *     cannot have: any but pool memory on a stream that is captured, page-locked memory on a thread that captures. The
 *     capture goes on unharmed.
 */
warp_status warp_alloc(warp_device *device, uint64_t size, void **out);

/**
 * Allocates memory of a kind, on a stream, with an alignment and a tag.
 *
 * @param device  the device; NULL for the default.
 * @param size  bytes; 0 succeeds with NULL, and nobody is asked.
 * @param options  what to allocate; NULL is warp_alloc().
 * @param out  the first address, to be given to warp_free().
 * @return as warp_alloc(), and WARP_ERROR_BAD_ALIGNMENT for no power of two; WARP_ERROR_INVALID_ARGUMENT for a kind
 *     that is unknown or of the other sort of device, a stream of another device, or a pool of another GPU or with another
 *     kind than WARP_MEMORY_CUDA_MEMPOOL; WARP_ERROR_NOT_SUPPORTED for pools, managed or page-locked memory where there are
 *     none: it is never replaced by another kind.
 */
warp_status warp_alloc_with(warp_device *device,
                            uint64_t size,
                            const warp_alloc_options *options,
                            void **out);

/**
 * Frees a block, on any thread and with any context current, also while something is captured. The memory is used again
 * only after the work on the stream that it belongs to, and on every stream that the library saw it used on; for other
 * streams see warp_pointer_record_stream(). Pool memory goes back in stream order without waiting; plain, managed and page-locked
 * memory at once when those streams are idle, else later, on a call that looks. A block that was allocated in a capture
 * is freed by its graph when it is freed in the same capture; else it goes back when nothing of the graph can use it any
 * more. So does any block that a graph keeps.
 *
 * @param ptr  the first address of a live block; NULL does nothing.
 * @return with nothing freed: WARP_ERROR_UNKNOWN_POINTER for memory that is not the library's,
 *     WARP_ERROR_INTERIOR_POINTER, WARP_ERROR_DOUBLE_FREE for a block that was freed a short while ago. After the last
 *     warp_shutdown() frees still work. In a forked child, at exit and when the driver is gone they succeed quietly.
 */
warp_status warp_free(void *ptr);

/**
 * Frees a block as warp_free() does, after checking what the caller says of it.
 *
 * @param ptr  the first address of a live block; NULL does nothing.
 * @param options  what to check; NULL is warp_free().
 * @return as warp_free(), and with nothing freed: WARP_ERROR_SIZE_MISMATCH, WARP_ERROR_BAD_ALIGNMENT,
 *     WARP_ERROR_INVALID_HANDLE for the stream.
 */
warp_status warp_free_with(void *ptr, const warp_free_options *options);

/**
 * Tells that work on a stream uses a block, so that its free comes after that work. The library knows by itself of
 * what it puts on streams: fills and copies; kernels on other streams than the block's own are the caller's to name.
 * On a stream that is captured: the graph keeps the block, as warp_graph_retain() does.
 *
 * @param ptr  any address inside a block of the library.
 * @param stream  the stream; NULL for the current one of the default device.
 * @return WARP_ERROR_UNKNOWN_POINTER, WARP_ERROR_INVALID_HANDLE.
 */
warp_status warp_pointer_record_stream(const void *ptr, warp_stream *stream);

/**
 * Tells what an address is: from the ledger for blocks of the library, at the cost of a lookup; else from the
 * driver. Interior addresses are as good as the first. An address that nobody knows is no error: its kind is
 * WARP_MEMORY_UNKNOWN.
 *
 * @param ptr  any address; NULL is unknown.
 * @param out  filled as far as its struct_size goes.
 */
warp_status warp_pointer_get_info(const void *ptr, warp_pointer_info *out);

/**
 * Fills memory with repetitions of a pattern. Host memory is filled when the call returns; memory of a GPU, managed
 * memory included, in the order of the stream. On a stream that is captured the fill is recorded, and the graph keeps the
 * pattern and the block.
 *
 * @param ptr  the first byte to fill, inside any block, or any memory that the CPU or the stream's GPU can write.
 * @param size  bytes to fill, a multiple of pattern_size; 0 does nothing.
 * @param pattern  the bytes to repeat, in host memory, also inside of what is filled; they are read before the call
 *     returns.
 * @param pattern_size  how many, at least 1.
 * @param stream  where to put it; NULL for the current stream of the memory's device.
 * @return WARP_ERROR_INVALID_ARGUMENT for a range that passes the end of its block, or sizes that do not divide.
 */
warp_status warp_memory_fill(void *ptr,
                             uint64_t size,
                             const void *pattern,
                             uint64_t pattern_size,
                             warp_stream *stream);

/**
 * Copies bytes between any two places: host and GPUs, any kinds, with or without access between the GPUs. Between
 * host memory the copy has happened when the call returns; else it happens in the order of the stream, and pageable
 * host memory is read, or written, before the call returns. The caller orders the copy after what produced the
 * source. Ends that overlap are copied as if all of the source was read first.
 *
 * On a stream that is captured the copy is recorded: each run of the graph reads and writes the memory anew, pageable
 * host memory too. The graph keeps blocks of this library at both ends; other memory is the caller's to keep.
 *
 * While the thread captures on the CPU a copy between host memory is recorded. A source that lies in no block of this library, nor
 * in what the capture has written to, is copied at once, and need not last; a destination is the caller's to keep.
 *
 * @param dest  where to.
 * @param src  where from.
 * @param size  bytes; 0 does nothing.
 * @param stream  where to put it, of either device; NULL for the current stream of the destination's GPU, else of
 *     the source's. Managed memory counts as a GPU's only where no other end is.
 * @return WARP_ERROR_INVALID_ARGUMENT for NULL, a range that passes the end of its block, and memory of a graph that was
 *     not launched yet; WARP_ERROR_ACCESS_DENIED for a copy between the pools of two GPUs in a capture when neither may
 *     touch the other's, and the capture goes on; WARP_ERROR_ILLEGAL_IN_CAPTURE between host memory and a GPU's without a
 *     stream, while the thread captures on the CPU.
 */
warp_status warp_memory_copy(void *dest, const void *src, uint64_t size, warp_stream *stream);

/**
 * Counts of the library's blocks of one kind on a device.
 *
 * @param device  the device; NULL for the default. Page-locked memory belongs to the CPU.
 * @param kind  the kind; WARP_MEMORY_UNKNOWN for all of them together.
 * @param out  filled as far as its struct_size goes.
 */
warp_status warp_statistics_get(const warp_device *device, warp_memory_kind kind, warp_statistics *out);

/**
 * Lets the peaks of a device's counts begin again at what is live now.
 *
 * @param device  the device; NULL for the default.
 */
warp_status warp_statistics_reset_peak(warp_device *device);

/* ================================================================================================
 * Managed memory
 *
 * Managed memory moves to whoever touches it, page by page, which costs more than a copy when much of it is touched for the
 * first time. Sent there before, it arrives in one go and in the order of a stream; hints tell the driver where it is best kept.
 * Neither changes a byte, nor who may touch it. Any managed memory will do, of this library or of other code; it is allocated
 * with the kind WARP_MEMORY_CUDA_MANAGED.
 *
 * GPUs without concurrent managed access (is_concurrent_managed_access_supported of warp_device_info) take no part: there the
 * driver moves all of it when work begins.
 * ================================================================================================ */

/** A hint for managed memory. */
typedef int32_t warp_managed_advice;

/**
 * It is read by many and seldom written: each reader gets a copy of its own, which a write does away with.
 */
#define WARP_MANAGED_ADVICE_SET_READ_MOSTLY 1

/** That does not hold any more. */
#define WARP_MANAGED_ADVICE_UNSET_READ_MOSTLY 2
/** It is best kept on the device: others reach it there, where they can, and it does not move to them. */
#define WARP_MANAGED_ADVICE_SET_PREFERRED_LOCATION 3
/** No device is better than another. */
#define WARP_MANAGED_ADVICE_UNSET_PREFERRED_LOCATION 4
/** The device will access it: it is kept mapped there, wherever it is, where that can be. */
#define WARP_MANAGED_ADVICE_SET_ACCESSED_BY 5
/** That does not hold any more. */
#define WARP_MANAGED_ADVICE_UNSET_ACCESSED_BY 6

/**
 * No place: the ordinal of a place in warp_managed_state that is none, or not the same for all of the range.
 */
#define WARP_MANAGED_NOWHERE (-2)

/** What the driver was told of a range of managed memory. Where it is now nobody tells. */
typedef struct warp_managed_state {
    /** sizeof(warp_managed_state), set by the caller. */
    size_t struct_size;
    /** The device that all of it is best kept on; NULL for none, and for one that is not in the table. */
    warp_device *preferred;
    /**
     * The device that all of it was sent to last; NULL for none, and for one that is not in the table. It may have moved on since.
     */
    warp_device *last_prefetch;
    /** The GPU's number of `preferred`, -1 for the CPU, WARP_MANAGED_NOWHERE. */
    int32_t preferred_ordinal;
    /** The GPU's number of `last_prefetch`, -1 for the CPU, WARP_MANAGED_NOWHERE. */
    int32_t last_prefetch_ordinal;
    /** Is all of it said to be read by many? */
    uint8_t is_read_mostly;
} warp_managed_state;

/**
 * Sends managed memory to a device, in the order of a stream: work that comes later on that stream finds it there. The block's
 * free comes after it.
 *
 * @param ptr  any address in a block of managed memory, of this library or of other code. The driver sends whole pages.
 * @param size  bytes; 0 for all from there to the end of the block.
 * @param target  where to; a GPU, or "cpu"; NULL for the default.
 * @param stream  where to put it, of any GPU; NULL for the current stream of the target, or of the memory's own GPU when the
 *     target is the CPU.
 * @return with nothing sent: WARP_ERROR_INVALID_ARGUMENT for NULL, memory that is not managed, a range that passes the end of
 *     its block, and the stream of the CPU; WARP_ERROR_UNKNOWN_POINTER; WARP_ERROR_NOT_SUPPORTED for a target, or the GPU of
 *     the stream, without managed memory or concurrent managed access; WARP_ERROR_ILLEGAL_IN_CAPTURE on a stream that is
 *     captured, since graphs have no such nodes: the capture goes on unharmed; WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED,
 *     WARP_ERROR_DRIVER.
 */
warp_status warp_managed_prefetch(const void *ptr, uint64_t size, warp_device *target, warp_stream *stream);

/**
 * Gives the driver a hint for managed memory. It holds at once, for whole pages, until it is taken back or the block is freed;
 * also while something is captured.
 *
 * @param ptr  any address in a block of managed memory, of this library or of other code.
 * @param size  bytes; 0 for all from there to the end of the block.
 * @param advice  a WARP_MANAGED_ADVICE_… constant.
 * @param device  the device that it is about, a GPU or "cpu"; NULL for the default. READ_MOSTLY, and taking PREFERRED_LOCATION
 *     back, are about none.
 * @return as warp_managed_prefetch(), and WARP_ERROR_INVALID_ARGUMENT for an advice that is none; WARP_ERROR_NOT_SUPPORTED also
 *     for managed memory of a pool.
 */
warp_status warp_managed_advise(const void *ptr,
                                uint64_t size,
                                warp_managed_advice advice,
                                warp_device *device);

/**
 * Asks the driver what it was told of managed memory, by whomever: what holds for all of the range.
 *
 * @param ptr  any address in a block of managed memory, of this library or of other code.
 * @param size  bytes; 0 for all from there to the end of the block.
 * @param out  filled as far as its struct_size goes.
 * @return WARP_ERROR_INVALID_ARGUMENT for NULL, memory that is not managed and a range that passes the end of its block;
 *     WARP_ERROR_UNKNOWN_POINTER, WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED, WARP_ERROR_DRIVER.
 */
warp_status warp_managed_query_state(const void *ptr, uint64_t size, warp_managed_state *out);

/**
 * Asks the driver whether it was told that a device accesses managed memory (WARP_MANAGED_ADVICE_SET_ACCESSED_BY). This is the
 * hint; who may touch the memory, warp_access_can() tells.
 *
 * @param ptr  any address in a block of managed memory, of this library or of other code.
 * @param size  bytes; 0 for all from there to the end of the block.
 * @param device  a GPU or "cpu"; NULL for the default.
 * @param out  1 when that was said of all of the range, else 0.
 * @return as warp_managed_query_state().
 */
warp_status warp_managed_query_accessed_by(const void *ptr,
                                           uint64_t size,
                                           const warp_device *device,
                                           uint8_t *out);

/* ================================================================================================
 * Allocators
 *
 * An allocator is who gets memory and takes it back: a built-in one, one of the caller's callbacks, or one that stands on
 * others (see the chapter after this). It is installed for GPUs, named for one block in the options of an allocation, or asked
 * directly.
 *
 * Who serves an allocation, in this order: the allocator of its options; the built-in one of the kind, or the pool, of its
 * options; the innermost allocator scope of the thread for the device; the allocator installed for the device, else for all;
 * the pool, if pools are switched on; plain device memory. Scopes and installed allocators serve requests on GPUs that name
 * nothing: raw memory, arrays, copies that need room. Each block goes back to the allocator that made it, whatever is
 * installed by then.
 *
 * Lifetime. A handle is good as long as it has references: the caller's from its creation, one for each device that the
 * allocator is installed for, one for each open scope. The allocator itself lives until its last block is freed; then `destroy`
 * is called, once, with no lock held and never while the process exits.
 *
 * Callbacks are called by: allocations that the allocator serves, frees of its blocks (also by releasing arrays and graphs),
 * the functions of this chapter, waits for a device, a stream or an event, another allocator's allocations and frees, memory
 * running out on a GPU, and the last warp_shutdown(). By no other function, so a thread may hold a lock that a callback wants in
 * all others. A block that was freed and that streams or graphs still use is given back by a later one of those calls. Inside of
 * a callback every function may be called; an allocator that asks for memory that it serves itself fails when it is 10 deep.
 *
 * Around a callback for a GPU the device's context is current and the thread's capture mode relaxed, so that driver calls in it
 * break no capture; after it the caller's context is current again, whatever the callback left. Callbacks must not throw,
 * unwind or longjmp: that ends the process with a message.
 *
 * Memory that an allocator hands out is its own, or comes from warp_allocator_allocate(): a block of warp_alloc() is in use,
 * and handing it out is a failure. WARP_ERROR_ALLOCATOR_FAILED tells of an allocator that failed, gave NULL, an address that is
 * misaligned, in use, of another device, or unknown to the driver; nothing is lost: what can be given back to it is.
 * ================================================================================================ */

/** An allocator. Built-in ones are good as long as the process lives. */
struct warp_allocator;

/** In flags of a request: the stream is being captured, and what is put on it becomes part of a graph. */
#define WARP_ALLOC_REQUEST_IN_CAPTURE 1u
/** In flags of a request: asked once more, after the allocator was out of memory and was trimmed. */
#define WARP_ALLOC_REQUEST_RETRY 2u
/** In flags of a deallocation: no work uses the memory any more. There is no stream then; it may be gone. */
#define WARP_ALLOC_REQUEST_IDLE 4u

/**
 * In flags of a deallocation: the context that the memory was made in is gone, and with it all but a pool's memory. No
 * context is current. The allocator only forgets the block, or passes it on to the allocator below. By then the driver may
 * have given the address to another block.
 */
#define WARP_ALLOC_REQUEST_DEVICE_LOST 8u

/**
 * What is asked of an allocator: the same in an allocation and in the deallocation of what came of it, but for flags and the
 * stream. Good during the call. A callback passes it on as it is to the allocator below.
 */
typedef struct warp_alloc_request {
    /** sizeof(warp_alloc_request) of who fills it in. */
    size_t struct_size;
    /** Bytes. Never 0 in a callback. */
    uint64_t size;
    /**
     * What the address must be a multiple of, a power of two: in a callback at least 256 for GPUs, 64 for the CPU. For
     * warp_allocator_allocate() 0 is the kind's own.
     */
    uint64_t alignment;
    /**
     * The device that the memory is for. NULL in warp_allocator_allocate() is that of the current context, or the CPU for an
     * allocator of host memory; NULL in a callback is a device that is no longer in the table.
     */
    warp_device *device;
    /**
     * The stream that the memory belongs to; NULL in a callback for the CPU, and when it is gone. NULL in
     * warp_allocator_allocate() is the device's current one. In a deallocation, one that the memory is used on.
     */
    warp_stream *stream;
    /** The CUcontext of the device; NULL for the CPU. Set by the library. */
    void *native_context;
    /** The CUstream, where there is a stream. Set by the library. */
    void *native_stream;
    /** Id of the stream; 0 without one. Set by the library. */
    uint64_t stream_id;
    /** The block's tag; NULL for none. */
    const char *tag;
    /** The GPU's number, -1 for the CPU. Set by the library. */
    int32_t ordinal;
    /** The kind that the allocator says it makes. Set by the library. */
    warp_memory_kind kind;
    /** WARP_ALLOC_REQUEST_… bits. Set by the library. */
    uint32_t flags;
    /** 0. */
    uint32_t reserved;
} warp_alloc_request;

/** An account of an allocator's own. What it does not count is 0. */
typedef struct warp_allocator_statistics {
    /** sizeof(warp_allocator_statistics) of who fills it in. */
    size_t struct_size;
    /** Bytes that are out. */
    uint64_t live_bytes;
    /** The most that live_bytes was. */
    uint64_t peak_bytes;
    /** Blocks that are out. */
    uint64_t live_blocks;
    /** The most that live_blocks was. */
    uint64_t peak_blocks;
    /** Bytes of all allocations so far. */
    uint64_t total_bytes;
    /** How many there were. */
    uint64_t total_blocks;
    /** Allocations that failed. */
    uint64_t failures;
    /** Bytes that the allocator has from below, out or not. */
    uint64_t reserved_bytes;
} warp_allocator_statistics;

/**
 * In flags of a vtable: deallocate may be called while work on the block's own stream still uses the memory, and the allocator
 * orders its next use after that; allocate and deallocate may be called on a stream that is captured. Without it deallocate is
 * called when all work that uses the memory is done, and the allocator serves no captures.
 */
#define WARP_ALLOCATOR_STREAM_ORDERED 1u

/**
 * In flags of a vtable: the callbacks make a context current themselves where they need one, leave the caller's as it was, and
 * break no capture. Nothing is put around them.
 */
#define WARP_ALLOCATOR_MANAGES_CONTEXT 2u

/** In flags of a vtable: makes host memory, for the CPU. */
#define WARP_ALLOCATOR_HOST_MEMORY 4u

/**
 * Gets memory.
 *
 * @param user  as given to warp_allocator_create().
 * @param request  what is asked.
 * @param out  where the address goes; NULL before the call. Not looked at after a failure: what was got until then stays the
 *     callback's.
 * @return WARP_SUCCESS; WARP_ERROR_OUT_OF_MEMORY to be trimmed and asked once more; any other number is a failure. NULL is a
 *     failure whatever is returned. Return the status of a call of the library that failed inside, and its message is told too.
 */
typedef warp_status (*warp_allocator_allocate_callback)(void *user,
                                                        const warp_alloc_request *request,
                                                        void **out);

/**
 * Takes memory back.
 *
 * @param user  as given to warp_allocator_create().
 * @param ptr  what allocate gave, also where that was refused, as for its alignment.
 * @param request  as it was in the allocation, but for flags and the stream.
 * @return WARP_SUCCESS. It is not given a second time, whatever is returned; a failure is told to whoever frees, or where that
 *     was long ago to the log callback, and counted (`failed_deallocations` of warp_allocator_info).
 */
typedef warp_status (*warp_allocator_deallocate_callback)(void *user,
                                                          void *ptr,
                                                          const warp_alloc_request *request);

/** The last call, when no block of the allocator lives and nothing refers to it. */
typedef void (*warp_allocator_destroy_callback)(void *user);

/**
 * Gives unused memory back to where it came from. The allocation is made once more whatever becomes of it.
 *
 * @param user  as given to warp_allocator_create().
 * @param request  the allocation that is out of memory; its size 0 asks for all there is. Never NULL.
 * @param out_freed  how many bytes were given back; 0 before the call.
 * @return WARP_SUCCESS, also when there was nothing. A failure is a message to the log callback, or that of
 *     warp_allocator_trim().
 */
typedef warp_status (*warp_allocator_trim_callback)(void *user,
                                                    const warp_alloc_request *request,
                                                    uint64_t *out_freed);

/**
 * Fills in the allocator's own account; struct_size is set, all else 0 before the call. Any status but WARP_SUCCESS is that of
 * warp_allocator_get_statistics(), as WARP_ERROR_ALLOCATOR_FAILED.
 */
typedef warp_status (*warp_allocator_get_statistics_callback)(void *user,
                                                              warp_allocator_statistics *out);

/**
 * Notes that work on request's stream uses the block, so that its next use comes after that. For stream-ordered allocators;
 * without it, and for a block for which it returns anything but WARP_SUCCESS, the library waits for other streams before it
 * deallocates.
 */
typedef warp_status (*warp_allocator_record_stream_callback)(void *user,
                                                             void *ptr,
                                                             const warp_alloc_request *request);

/**
 * Tells by what other processes open a block: for memory that the allocator knows more of than the driver says. Without it, and
 * from other kinds of allocators, warp_ipc_export() goes by what the driver says of the memory.
 *
 * @param ptr  the block's first address.
 * @param out  handle, size and offset of the block's first address in it; ordinal is set, all else 0 before the call.
 */
typedef warp_status (*warp_allocator_export_ipc_callback)(void *user,
                                                          void *ptr,
                                                          const warp_alloc_request *request,
                                                          warp_ipc_memory *out);

/**
 * The callbacks of an allocator, copied when it is created. What is NULL is not offered. Called on any thread, on several at once.
 */
typedef struct warp_allocator_vtable {
    /** sizeof(warp_allocator_vtable), set by the caller. */
    size_t struct_size;
    /** For messages and lists; copied. NULL for none. */
    const char *name;
    /**
     * The kind of memory that it makes, which is believed. 0 when it may be several kinds: then the driver is asked about each
     * block.
     */
    warp_memory_kind kind;
    /** WARP_ALLOCATOR_… bits. */
    uint32_t flags;
    /** Required. */
    warp_allocator_allocate_callback allocate;
    /** Required. */
    warp_allocator_deallocate_callback deallocate;
    /** Called once, at the end. */
    warp_allocator_destroy_callback destroy;
    /** Called before a request is made once more that was out of memory, and by warp_allocator_trim(). */
    warp_allocator_trim_callback trim;
    /** Called by warp_allocator_get_statistics(). */
    warp_allocator_get_statistics_callback get_statistics;
    /** Called before a deallocation, for each other stream that used the block. */
    warp_allocator_record_stream_callback record_stream;
    /** Called by warp_ipc_export(). */
    warp_allocator_export_ipc_callback export_ipc;
} warp_allocator_vtable;

/** What is known of an allocator. */
typedef struct warp_allocator_info {
    /** sizeof(warp_allocator_info), set by the caller. */
    size_t struct_size;
    /** The kind that it makes; 0 when that is not known before. */
    warp_memory_kind kind;
    /** The WARP_ALLOCATOR_… bits that hold for it. */
    uint32_t flags;
    /** How many references its handle has; 0 for a built-in one, which needs none. */
    uint32_t references;
    /** 0. */
    uint32_t reserved;
    /** Deallocations that it refused. */
    uint64_t failed_deallocations;
    /** Which sort it is: "built-in", "custom", or an adaptor's name such as "limit"; cut where it must be. */
    char sort[32];
    /** The name of its vtable, or of its kind; cut where it must be. */
    char name[64];
} warp_allocator_info;

/**
 * Makes an allocator of callbacks. Its memory goes nowhere yet: see warp_allocator_set_for_device() and `allocator` of
 * warp_alloc_options.
 *
 * @param vtable  the callbacks; copied.
 * @param user  passed to them. May be used until destroy was called.
 * @param out  the allocator, with one reference, to be given back with warp_allocator_release().
 * @return WARP_ERROR_INVALID_ARGUMENT for a vtable without allocate or deallocate, unknown flags or kinds, and a kind that is
 *     not of the memory that the flags say; nothing is kept and destroy is not called.
 */
warp_status warp_allocator_create(const warp_allocator_vtable *vtable, void *user, warp_allocator **out);

/**
 * One more reference, to be given back with warp_allocator_release().
 *
 * @param allocator  an allocator; a built-in one needs no references, and NULL does nothing.
 * @return WARP_ERROR_INVALID_HANDLE.
 */
warp_status warp_allocator_retain(warp_allocator *allocator);

/**
 * Gives a reference back. With the last one the handle becomes stale; the allocator is destroyed when its last block is freed, at
 * once if there is none.
 *
 * @param allocator  an allocator; NULL, and a built-in one, do nothing.
 * @return WARP_ERROR_INVALID_HANDLE, also after warp_shutdown(), which gives all references back.
 */
warp_status warp_allocator_release(warp_allocator *allocator);

/**
 * Has no callback of the allocator be called from now on, and waits for those that run on other threads: for code that is about
 * to be unloaded, or an interpreter that ends. Allocations fail from then on; blocks can be freed, and the allocator does not get
 * them back; it is not destroyed. Holds for the allocators below an adaptor as well.
 *
 * @param allocator  the allocator; also a stale handle of one, as long as blocks of it live. A built-in one has no callbacks.
 * @return WARP_ERROR_INVALID_HANDLE when it is gone: destroy has returned then, unless this is called inside of a callback. After
 *     the last warp_shutdown() too. Must not be called with a lock that a callback wants.
 *     Inside of a callback of the allocator it does not wait. Inside of one of another allocator it does not wait for
 *     threads that are inside of this function in a callback themselves: they would wait for each other.
 */
warp_status warp_allocator_stop(warp_allocator *allocator);

/**
 * A built-in allocator, to name it, install it or build on it.
 *
 * @param kind  WARP_MEMORY_HOST or _PINNED for the CPU, _CUDA_DEVICE, _CUDA_MEMPOOL or _CUDA_MANAGED for every GPU that has such
 *     memory; WARP_MEMORY_UNKNOWN for what each GPU has switched on: its pool, or plain device memory where pools are off or not
 *     there.
 * @param out  the allocator: the same each time, good as long as the process lives, with nothing to release.
 * @return WARP_ERROR_INVALID_ARGUMENT for no kind. Also without a GPU.
 */
warp_status warp_allocator_get_builtin(warp_memory_kind kind, warp_allocator **out);

/**
 * What is known of an allocator.
 *
 * @param allocator  the allocator.
 * @param out  filled as far as its struct_size goes.
 */
warp_status warp_allocator_get_info(const warp_allocator *allocator, warp_allocator_info *out);

/**
 * Counts what lives of an allocator, by a walk through all blocks: those of callers, and what it gave out directly. Of a built-in
 * allocator only the latter; for its blocks see warp_statistics_get().
 *
 * @param allocator  the allocator.
 * @param out_blocks  how many; may be NULL.
 * @param out_bytes  their bytes, as they were asked for; may be NULL.
 */
warp_status warp_allocator_measure(const warp_allocator *allocator,
                                   uint64_t *out_blocks,
                                   uint64_t *out_bytes);

/**
 * An allocator's own account.
 *
 * @param allocator  one with a get_statistics callback, or a statistics adaptor.
 * @param out  filled as far as its struct_size goes.
 * @return WARP_ERROR_NOT_SUPPORTED for one that keeps no account; WARP_ERROR_ALLOCATOR_FAILED when its callback fails.
 */
warp_status warp_allocator_get_statistics(const warp_allocator *allocator, warp_allocator_statistics *out);

/**
 * Has an allocator give back what it keeps unused, as it is asked to before memory runs out, and get what it is owed.
 *
 * @param allocator  the allocator. A built-in one keeps nothing; for pools see warp_mempool_trim().
 * @param device  the device whose memory is wanted; NULL for the default.
 * @param out_freed  bytes that it says it gave back; may be NULL.
 * @return WARP_ERROR_ALLOCATOR_FAILED when its callback fails.
 */
warp_status warp_allocator_trim(warp_allocator *allocator, warp_device *device, uint64_t *out_freed);

/**
 * Installs an allocator for one GPU: what is allocated there and names nothing comes from it, on every thread whose scopes do not
 * say otherwise. What takes the GPU's place when its context dies is served by it too.
 *
 * @param device  the GPU; NULL for the default device.
 * @param allocator  the allocator, which is referred to until another one takes its place; NULL for the built-in ones.
 * @return WARP_ERROR_INVALID_ARGUMENT for the CPU, and for an allocator of host memory.
 */
warp_status warp_allocator_set_for_device(warp_device *device, warp_allocator *allocator);

/**
 * As warp_allocator_set_for_device() for every GPU, also those that join the table later. Takes the place of what was installed
 * for single ones.
 *
 * @param allocator  the allocator; NULL for the built-in ones, which succeeds without a GPU as well.
 * @return WARP_ERROR_NO_SUCH_DEVICE when there is no GPU.
 */
warp_status warp_allocator_set_for_all(warp_allocator *allocator);

/**
 * The allocator that serves what the calling thread allocates on a device and that names nothing.
 *
 * @param device  the device; NULL for the default.
 * @param out  the allocator: that of the thread's scopes, else the installed one, else the built-in one by what is switched on.
 *     Good as long as it is that; warp_allocator_retain() keeps it.
 */
warp_status warp_allocator_get_for_device(warp_device *device, warp_allocator **out);

/**
 * Has what the calling thread allocates on a GPU, and that names nothing, come from an allocator until the scope ends. What is
 * installed meanwhile is seen when the scope ends. A thread that ends inside of
 * the scope leaves the scope's reference to warp_shutdown().
 *
 * @param device  the GPU; NULL for the default device.
 * @param allocator  the allocator, which is referred to until the scope ends; NULL for the built-in ones.
 * @param out  the scope, to be ended with warp_scope_end().
 * @return as warp_allocator_set_for_device(); WARP_ERROR_NOT_SUPPORTED when the thread has 64 scopes open.
 */
warp_status warp_scope_begin_allocator(warp_device *device, warp_allocator *allocator, warp_scope **out);

/**
 * Asks an allocator itself for memory: for allocators that build on another one, and for frameworks that keep their own account
 * of what they have. What comes is not a block of the library: it is not found by warp_pointer_get_info() as one, is not in its
 * counts, is kept by no graph that uses it, and goes back with warp_allocator_deallocate() and nothing else. Has the parameters of the callback, so that one
 * allocator can pass on what it is asked.
 *
 * @param allocator  any allocator. It lives at least as long as the memory.
 * @param request  size, alignment, device, stream and tag; the rest is not looked at.
 * @param out  the first address; NULL for size 0, and nobody is asked.
 * @return as warp_alloc_with(); WARP_ERROR_INVALID_ARGUMENT also when no device is named and no context of a device is current.
 */
warp_status warp_allocator_allocate(warp_allocator *allocator, const warp_alloc_request *request, void **out);

/**
 * Gives memory of warp_allocator_allocate() back to the allocator that made it. It is used again only after the work on its own
 * stream, and on that of the request.
 *
 * @param allocator  the allocator; also a stale handle of one, as long as memory of it is out.
 * @param ptr  the first address; NULL does nothing.
 * @param request  size and alignment are checked where they are not 0; stream is one that the memory is used on; with
 *     WARP_ALLOC_REQUEST_DEVICE_LOST in flags an address that is other memory's by now is left alone. NULL checks nothing.
 * @return with nothing freed: WARP_ERROR_UNKNOWN_POINTER for what the allocator has not out directly,
 *     WARP_ERROR_INTERIOR_POINTER, WARP_ERROR_DOUBLE_FREE, WARP_ERROR_SIZE_MISMATCH, WARP_ERROR_BAD_ALIGNMENT. With the memory
 *     gone: WARP_ERROR_ALLOCATOR_FAILED. After the last warp_shutdown() too.
 */
warp_status warp_allocator_deallocate(warp_allocator *allocator,
                                      void *ptr,
                                      const warp_alloc_request *request);

/* ================================================================================================
 * Allocator adaptors
 *
 * Allocators that stand on another one, the upstream, and add something: a limit, an account, a list of what is out, a log, a way
 * out of failures, an alignment, a second source, hints for managed memory. Each is an allocator like any other: it is
 * installed, named or asked directly, and can be the upstream of the next, in any order: up to 16 on top of each other, and 64
 * that one request may meet. It makes the kind of memory that its upstream makes, and serves captures if that does.
 *
 * An adaptor keeps its upstream alive: the caller may release its own reference at once. Keep the handle of what is to be asked
 * later, as limits, statistics, tracking and logs are: each function here wants the handle of its own sort, and not that of an
 * adaptor above it. Blocks that others have of the upstream are not the adaptor's; only what goes through it is counted, limited
 * and listed, of all devices together. For an account of each GPU make one for each.
 *
 * A block that was freed and that streams or graphs still use is out until the upstream has it back; so wait for its device
 * (warp_device_synchronize()) before a look at what is left. After the last warp_shutdown() there is nothing to ask any more.
 *
 * An allocation that is out of memory is asked for once more after the allocator was trimmed (WARP_ALLOC_REQUEST_RETRY), and an
 * adaptor sees both requests.
 *
 * Unless it is said otherwise: WARP_ERROR_INVALID_HANDLE for an allocator that is none or was released,
 * WARP_ERROR_INVALID_ARGUMENT for an adaptor of another sort and for a stack that is too high, WARP_ERROR_FORKED in a child
 * of a fork for what its parent made. Any thread; no lock is held while an upstream or a callback is called.
 * ================================================================================================ */

/**
 * For warp_allocator_create_tracking(): each block knows by which calls it was allocated. Costs some microseconds for each
 * allocation.
 */
#define WARP_TRACKING_BACKTRACES 1u

/**
 * A block that is out, as warp_allocator_tracking_list() gives it. It grows at its end: the stride says how far a caller knows it.
 */
typedef struct warp_tracked_block {
    /** The first address. */
    void *ptr;
    /** Bytes, as they were asked for. */
    uint64_t size;
    /** The device that it was allocated for; NULL when that is no longer in the table. */
    warp_device *device;
    /** Id of the stream that it was allocated on; 0 for none. */
    uint64_t stream_id;
    /** Its tag, good as long as the process lives; NULL for none. */
    const char *tag;
    /** When it was allocated: nanoseconds since the adaptor was made. */
    uint64_t time_ns;
    /** A small number of the thread that allocated it. Threads that ended have theirs used again. */
    uint64_t thread;
    /** How many of callers are set; 0 unless backtraces were asked for. */
    uint32_t caller_count;
    /** 0. */
    uint32_t reserved;
    /**
     * Return addresses of the calls that it came from, the innermost first, without those of the library. dladdr() tells the
     * file and the function of one; so does the report.
     */
    void *callers[16];
} warp_tracked_block;

/**
 * Says what to do about an allocation that failed. May allocate and free, make room, wait; must not throw.
 *
 * @param user  as given to warp_allocator_create_failure_callback().
 * @param request  what was asked for; good during the call.
 * @param status  why the upstream failed.
 * @param attempt  how often this request has failed now, from 1 on.
 * @return nonzero to ask the upstream once more, 0 to give up.
 */
typedef int32_t (*warp_allocator_failure_callback)(void *user,
                                                   const warp_alloc_request *request,
                                                   warp_status status,
                                                   uint32_t attempt);

/**
 * Makes an adaptor that never has more than so many bytes out at once, however many threads ask. Bytes count as they are asked
 * for, from before the upstream is asked until it has the block back: blocks that were freed and that streams still use count.
 *
 * @param upstream  the allocator below.
 * @param limit  bytes.
 * @param out  the adaptor, to be given back with warp_allocator_release(). What would exceed the limit is
 *     WARP_ERROR_OUT_OF_MEMORY, with the limit, what is out and what was asked in the message.
 */
warp_status warp_allocator_create_limit(warp_allocator *upstream, uint64_t limit, warp_allocator **out);

/**
 * Changes the limit, for requests from now on. What is out stays out, also where it is more.
 *
 * @param allocator  a limit adaptor.
 * @param limit  bytes.
 */
warp_status warp_allocator_limit_set(warp_allocator *allocator, uint64_t limit);

/**
 * The limit and what is out.
 *
 * @param allocator  a limit adaptor.
 * @param out_limit  bytes that may be out at once; may be NULL.
 * @param out_used  bytes that are out, or are being asked for; may be NULL.
 */
warp_status warp_allocator_limit_get(const warp_allocator *allocator,
                                     uint64_t *out_limit,
                                     uint64_t *out_used);

/**
 * Makes an adaptor that counts what goes through it. warp_allocator_get_statistics() tells of its whole life;
 * warp_allocator_statistics_push() and _pop() measure a part of it.
 *
 * @param upstream  the allocator below.
 * @param out  the adaptor, to be given back with warp_allocator_release().
 */
warp_status warp_allocator_create_statistics(warp_allocator *upstream, warp_allocator **out);

/**
 * Begins a measurement, inside of those that are open. It is the adaptor's and counts all threads.
 *
 * @param allocator  a statistics adaptor.
 * @return WARP_ERROR_NOT_SUPPORTED when 4096 are open.
 */
warp_status warp_allocator_statistics_push(warp_allocator *allocator);

/**
 * Ends the measurement that was begun last, and tells what was in it. Those around it have it in theirs.
 *
 * @param allocator  a statistics adaptor.
 * @param out  filled as far as its struct_size goes. Totals and failures are of the measurement; live and peak are what there is
 *     now, and was at most, beyond what was live when it began, 0 where that is less. reserved_bytes is 0.
 * @return WARP_ERROR_INVALID_ARGUMENT when none is open.
 */
warp_status warp_allocator_statistics_pop(warp_allocator *allocator, warp_allocator_statistics *out);

/**
 * Makes an adaptor that knows which of its blocks are out. An address that the upstream gives while it is out is
 * WARP_ERROR_ALLOCATOR_FAILED; its first owner keeps it.
 *
 * @param upstream  the allocator below.
 * @param flags  0 or WARP_TRACKING_BACKTRACES.
 * @param out  the adaptor, to be given back with warp_allocator_release().
 * @return WARP_ERROR_INVALID_ARGUMENT also for unknown flags.
 */
warp_status warp_allocator_create_tracking(warp_allocator *upstream, uint32_t flags, warp_allocator **out);

/**
 * Writes which blocks are out, by their tags: the tags with most bytes first, and of each the 16 largest blocks, with their callers
 * if backtraces were asked for: the function where it is exported (a program's own are with -rdynamic), and the place in the file,
 * for `addr2line -f -e FILE PLACE`.
 *
 * @param allocator  a tracking adaptor.
 * @param buffer  receives the text, UTF-8 and terminated, cut when it does not fit; may be NULL with capacity 0.
 * @param capacity  bytes of the buffer.
 * @param out_needed  the bytes that the whole text takes, its NUL included; may be NULL.
 */
warp_status warp_allocator_tracking_report(const warp_allocator *allocator,
                                           char *buffer,
                                           size_t capacity,
                                           size_t *out_needed);

/**
 * Lists the blocks that are out, by address.
 *
 * @param allocator  a tracking adaptor.
 * @param blocks  receives them; may be NULL with capacity 0.
 * @param stride  bytes from one to the next, sizeof(warp_tracked_block) of the caller. What a newer caller has beyond this
 *     version's fields is zeroed.
 * @param capacity  how many there is room for.
 * @param out_count  how many are out, also where that is more; may be NULL.
 * @return WARP_ERROR_INVALID_ARGUMENT also for a stride that is too small.
 */
warp_status warp_allocator_tracking_list(const warp_allocator *allocator,
                                         warp_tracked_block *blocks,
                                         size_t stride,
                                         size_t capacity,
                                         size_t *out_count);

/**
 * Makes an adaptor that writes every allocation and deallocation into a file, one line each, when it is over. The format is in
 * docs/replay.md; `warpmem-replay` replays such a file. Lines are kept until 64 KiB of them are there, warp_allocator_logging_flush()
 * is called, the adaptor goes, or the process exits.
 *
 * @param upstream  the allocator below.
 * @param path  the file, which is made or emptied. A pipe is refused.
 * @param out  the adaptor, to be given back with warp_allocator_release(). When the disk is full, allocations go on, and the file
 *     ends with the last line that fitted: the log callback is told once, and each flush.
 * @return WARP_ERROR_INVALID_ARGUMENT also when the file cannot be opened, with its path and the reason.
 */
warp_status warp_allocator_create_logging(warp_allocator *upstream, const char *path, warp_allocator **out);

/**
 * Writes the lines that wait.
 *
 * @param allocator  a logging adaptor.
 * @return WARP_ERROR_ALLOCATOR_FAILED when lines are missing from the file, now or since an earlier failure, with the reason and
 *     how many.
 */
warp_status warp_allocator_logging_flush(warp_allocator *allocator);

/**
 * Makes an adaptor that asks a callback what to do when its upstream fails: the callback may make room and have the upstream asked
 * once more. An allocation is given up after 1000 attempts, whatever it says. It is called as the callbacks of allocators are:
 * with the device's context current, the thread's capture mode relaxed, and not deeper than 10 in each other.
 *
 * @param upstream  the allocator below.
 * @param callback  what to ask.
 * @param destroy  called once when the adaptor goes, as that of a vtable; NULL for nothing.
 * @param user  passed to both.
 * @param out  the adaptor, to be given back with warp_allocator_release(). After warp_allocator_stop() it passes failures on, and
 *     destroy is not called.
 * @return WARP_ERROR_INVALID_ARGUMENT also without a callback. After a failure destroy is not called.
 */
warp_status warp_allocator_create_failure_callback(warp_allocator *upstream,
                                                   warp_allocator_failure_callback callback,
                                                   warp_allocator_destroy_callback destroy,
                                                   void *user,
                                                   warp_allocator **out);

/**
 * Makes an adaptor whose blocks are all aligned to at least so many bytes, whatever its upstream can do: it asks for more, and
 * gives the upstream back what that gave. What is asked with a larger alignment goes down as it is.
 *
 * @param upstream  the allocator below.
 * @param alignment  a power of two, at most 2^40.
 * @param out  the adaptor, to be given back with warp_allocator_release(). Sizes that overflow are WARP_ERROR_SIZE_OVERFLOW.
 * @return WARP_ERROR_BAD_ALIGNMENT for no such power of two.
 */
warp_status warp_allocator_create_aligned(warp_allocator *upstream, uint64_t alignment, warp_allocator **out);

/**
 * Makes an adaptor that asks a second allocator when the first is out of memory or fails. Other errors are the request's, and the
 * second is not asked. Each block goes back to the one that made it. It serves captures when both do, and is stream-ordered when
 * both are.
 *
 * @param first  asked first.
 * @param second  asked when the first could not serve: an allocator of the same sort of memory, host or GPU.
 * @param out  the adaptor, to be given back with warp_allocator_release(). When both fail the message names both reasons.
 * @return WARP_ERROR_INVALID_ARGUMENT also when one makes host memory and the other does not.
 */
warp_status warp_allocator_create_fallback(warp_allocator *first,
                                           warp_allocator *second,
                                           warp_allocator **out);

/**
 * Makes an adaptor that has new managed memory sent to a device at once, on the stream that the memory belongs to: work that comes
 * later on that stream finds it there. A prefetch that is refused is told once by a message, and the memory is as good without.
 *
 * @param upstream  an allocator of managed memory, such as warp_allocator_get_builtin(WARP_MEMORY_CUDA_MANAGED), or one that does
 *     not say its kind.
 * @param target  where to; a GPU, or "cpu"; NULL for the GPU that the memory is asked for.
 * @param out  the adaptor, to be given back with warp_allocator_release(). It serves no captures, which take no managed memory.
 * @return WARP_ERROR_INVALID_ARGUMENT also for an upstream that makes other memory.
 */
warp_status warp_allocator_create_prefetch(warp_allocator *upstream,
                                           warp_device *target,
                                           warp_allocator **out);

/**
 * Makes an adaptor that gives the driver a hint for new managed memory, as warp_managed_advise() does. A hint that is refused is
 * told once by a message, and the memory is as good without.
 *
 * @param upstream  as for warp_allocator_create_prefetch().
 * @param advice  WARP_MANAGED_ADVICE_SET_READ_MOSTLY, _SET_PREFERRED_LOCATION or _SET_ACCESSED_BY.
 * @param device  the device that it is about; NULL for the GPU that the memory is asked for.
 * @param out  the adaptor, to be given back with warp_allocator_release().
 * @return WARP_ERROR_INVALID_ARGUMENT also for an upstream that makes other memory, and for any other advice: new memory has none
 *     that could be taken back.
 */
warp_status warp_allocator_create_advise(warp_allocator *upstream,
                                         warp_managed_advice advice,
                                         warp_device *device,
                                         warp_allocator **out);

/* ================================================================================================
 * Caching
 *
 * An allocator that keeps what is freed for the next who asks: a block that was freed on a stream is at once good for that stream, on
 * any thread, and nothing is asked of the driver. It stands on any allocator, which it gets memory from in chunks of 2 MiB and more;
 * chunks are cut into blocks and joined again, small blocks and large ones in chunks of their own.
 *
 * What belongs to one stream goes to another one only when the work of the first is done. Each thread has some blocks at hand (up to
 * 64 MiB and one block a stream, of small blocks, and as much of large ones), which it takes and gives without a lock; other threads
 * of the stream get them when there is nothing else. The memory of a stream that was released serves the next stream when its work is done.
 *
 * A block is as large as what was asked for, up to the next of 16 steps between two powers of two: 3 percent more on average. The
 * ledger, statistics and access checks know blocks by what was asked for. Memory that is kept counts as reserved, not as live.
 *
 * While a stream is captured its allocations pass the cache by: they become nodes of the graph, if what is below serves captures.
 * Passed by as well: alignments above 256 bytes, streams that are special or untracked. What passes it by counts
 * against the limit all the same.
 *
 * When memory runs out, here, below, or for a built-in allocator that a cache stands on, chunks that nobody uses go back before the
 * request is asked once more. Chunks whose streams still work are waited for, and blocks that were freed and that other streams still
 * use: at most two seconds each, never in a capture or a callback, and not when nothing of that sort is there. Chunks go back too with
 * warp_allocator_trim(), above `keep`, and, when their work is done, before the allocator would have more memory than ever before.
 *
 * A block that is at hand is given without a call of the driver. So a context that other code has destroyed or reset is noticed by the
 * next call that has to do with the driver, and what was given before is memory of the dead context.
 *
 * Unless it is said otherwise: WARP_ERROR_INVALID_HANDLE for an allocator that is none or was released, WARP_ERROR_FORKED in a child
 * of a fork for what its parent made. Any thread.
 * ================================================================================================ */

/** How a caching allocator is to be. All zero but struct_size is the default. */
typedef struct warp_caching_options {
    /** sizeof(warp_caching_options), set by the caller. */
    size_t struct_size;
    /**
     * As many bytes as it may have from below, of all devices together; 0 for any number. What would exceed it is
     * WARP_ERROR_OUT_OF_MEMORY.
     */
    uint64_t limit;
    /**
     * As many unused bytes as it keeps in chunks that nobody uses, and as each thread has at hand in small blocks, and in large ones,
     * with one block more; more goes back when a chunk comes free. 0 for any number.
     */
    uint64_t keep;
    /** A name for messages and lists; copied. NULL for none. */
    const char *name;
} warp_caching_options;

/** What a caching allocator has. */
typedef struct warp_caching_info {
    /** sizeof(warp_caching_info), set by the caller. */
    size_t struct_size;
    /** Bytes that it has from below. */
    uint64_t reserved_bytes;
    /** The most that it ever had, of all devices together. */
    uint64_t peak_reserved_bytes;
    /** Bytes of live blocks, as they were asked for. */
    uint64_t live_bytes;
    /** Live blocks. */
    uint64_t live_blocks;
    /** Bytes of live blocks, as they are cut. */
    uint64_t used_bytes;
    /**
     * Unused bytes. Of them, those in a single piece are largest_free_bytes at the most: what fraction the rest is tells how far the
     * memory is broken up.
     */
    uint64_t free_bytes;
    /** Of free_bytes, those that threads have at hand. */
    uint64_t at_hand_bytes;
    /** The largest block that could be served without more memory, leaving aside what is at hand. */
    uint64_t largest_free_bytes;
    /** Pieces of memory that it has from below. */
    uint64_t chunks;
    /** Blocks that were served by what a thread had at hand. */
    uint64_t served_at_hand;
    /** Blocks that were cut from chunks. */
    uint64_t served_by_cutting;
    /** How often more memory was asked for. */
    uint64_t growths;
} warp_caching_info;

/**
 * Makes an allocator that keeps what another one makes.
 *
 * @param upstream  the allocator below, which it keeps alive: a built-in one, of callbacks, or an adaptor, for GPUs or for the CPU.
 * @param options  how it is to be; NULL for the defaults.
 * @param out  the allocator, with one reference, to be given back with warp_allocator_release(). Blocks of it may outlive the handle.
 * @return as warp_allocator_create_limit().
 */
warp_status warp_allocator_create_caching(warp_allocator *upstream,
                                          const warp_caching_options *options,
                                          warp_allocator **out);

/**
 * Gives the caching allocator that the library has for a kind of memory, with the default options. It serves all devices.
 *
 * @param kind  0 for GPUs: it keeps plain device memory, and serves captures from the memory pool of the device where there is one.
 *     WARP_MEMORY_CUDA_DEVICE, _CUDA_MEMPOOL, _CUDA_MANAGED for that memory alone; WARP_MEMORY_PINNED and _HOST for the CPU, to be
 *     named in the options of an allocation there.
 * @param out  the allocator, the same each time until the last warp_shutdown(). It is not to be released.
 * @return WARP_ERROR_INVALID_ARGUMENT for an unknown kind.
 */
warp_status warp_allocator_get_caching(warp_memory_kind kind, warp_allocator **out);

/**
 * Has the library's caching allocator for GPUs serve all default requests of every GPU there is and will be, as
 * warp_allocator_set_for_all() does; or the built-in ones again.
 *
 * @param enabled  nonzero to cache.
 * @return WARP_ERROR_NO_SUCH_DEVICE to cache without a GPU.
 */
warp_status warp_allocator_set_caching_for_all(uint8_t enabled);

/**
 * Measures what a caching allocator has: walks its lists and the ledger.
 *
 * @param allocator  a caching allocator.
 * @param device  of which device; NULL for all together. Growths, cuts and the peak are of all in any case.
 * @param out  filled as far as its struct_size goes.
 * @return WARP_ERROR_INVALID_ARGUMENT for another sort of allocator.
 */
warp_status warp_allocator_caching_measure(const warp_allocator *allocator,
                                           warp_device *device,
                                           warp_caching_info *out);

/* ================================================================================================
 * Peer access
 *
 * Whether kernels of one GPU may touch plain device memory (WARP_MEMORY_CUDA_DEVICE) of another. Memory of pools has its own
 * access; see the next chapter. Everywhere the order is (target, peer): the target owns the memory, the peer touches it. The
 * other direction is another matter. Access is between the contexts of the two devices, and for the whole process; it holds
 * for memory that is there already and for all that comes. Nothing is enabled by itself.
 *
 * A device's access to its own memory is always enabled. With the CPU on either side there is none.
 *
 * Other libraries of the process enable and disable the same access. What is told is what is so at that moment, as the driver
 * knows it; what is set to what it is already is a success and left as it was found.
 *
 * All functions may be called while captures go on, on whichever thread, and disturb none.
 * ================================================================================================ */

/**
 * Whether the peer could be given access to the target's memory; says nothing about whether it has it. 1 for a device and
 * itself, and for two contexts of one GPU; 0 with the CPU on either side, and for a pair that failed warp_peer_access_verify().
 *
 * @param target  the device that owns the memory; NULL for the default.
 * @param peer  the device that would touch it; NULL for the default.
 * @param out  1 or 0.
 * @return WARP_ERROR_INVALID_HANDLE, WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED in a forked child, WARP_ERROR_DRIVER.
 */
warp_status warp_peer_access_is_supported(const warp_device *target, const warp_device *peer, uint8_t *out);

/**
 * Asks the driver whether kernels of the peer may touch the target's plain memory now, whoever enabled that. Changes nothing
 * and makes no context: a GPU whose context nobody holds has no access and gives none. The first question about a context
 * takes a byte of plain memory there to ask about, and keeps it, since to free it would wait for all work of the GPU.
 *
 * @param target  the device that owns the memory; NULL for the default.
 * @param peer  the device that touches it; NULL for the default.
 * @param out  1 or 0; 1 for a device and itself, and for two contexts of one GPU, whose memory is common, once both are there;
 *     0 with the CPU on either side.
 * @return WARP_ERROR_INVALID_HANDLE, WARP_ERROR_DEVICE_LOST, WARP_ERROR_OUT_OF_MEMORY, WARP_ERROR_FORKED in a forked child,
 *     WARP_ERROR_DRIVER.
 */
warp_status warp_peer_access_query_enabled(const warp_device *target, const warp_device *peer, uint8_t *out);

/**
 * Lets kernels of the peer touch the target's plain memory, or no longer, for the whole process. To enable makes the
 * contexts of both. To disable what is not enabled, what cannot be enabled, or anything with the CPU, does nothing, and so
 * does whatever is asked of a device and itself.
 *
 * To disable first waits for the work that both devices have so far on streams that this library knows and on all blocking
 * streams; one that is being captured is not waited for, nor a non-blocking one that was released with work on it. Other work
 * must be done by then, and runs of graphs that use the access: the driver waits for nothing, and work that loses its access
 * faults and takes the device's context with it.
 *
 * A GPU can have eight peers, as a rule; those of other libraries count too.
 *
 * @param target  the device that owns the memory; NULL for the default.
 * @param peer  the device that touches it; NULL for the default.
 * @param enabled  nonzero to enable, 0 to disable.
 * @return WARP_ERROR_INVALID_ARGUMENT to enable with the CPU on either side; WARP_ERROR_NOT_SUPPORTED to enable for GPUs that
 *     cannot be peers or failed warp_peer_access_verify(), or for two contexts of one GPU, which the driver refuses;
 *     WARP_ERROR_PEER_LIMIT when one of the two has as many peers as it can have; WARP_ERROR_BUSY when an open scope keeps
 *     the opposite; WARP_ERROR_DEVICE_LOST, WARP_ERROR_OUT_OF_MEMORY, WARP_ERROR_FORKED in a forked child, WARP_ERROR_DRIVER.
 *     All is as before then.
 */
warp_status warp_peer_access_set_enabled(warp_device *target, warp_device *peer, uint8_t enabled);

/**
 * As warp_peer_access_set_enabled() for many peers: for all of them or for none. What can be refused is refused before
 * anything is changed; when the driver refuses a pair, those before it are put back.
 *
 * @param target  the device that owns the memory; NULL for the default.
 * @param peers  the devices that touch it, NULL among them for the default; NULL, with a count of 0, for every other GPU
 *     that can be a peer of the target.
 * @param count  how many.
 * @param enabled  nonzero to enable, 0 to disable.
 * @return as warp_peer_access_set_enabled(), with the pair in the message; WARP_ERROR_INVALID_ARGUMENT also when peers is NULL
 *     and count is not 0.
 */
warp_status warp_peer_access_set_enabled_for(warp_device *target,
                                             warp_device *const *peers,
                                             size_t count,
                                             uint8_t enabled);

/**
 * Tests whether what the peer writes directly to plain memory of the target arrives there, and what it reads is right. On some
 * machines it does not, though the driver lets the GPUs be peers: with an IOMMU in the way, in some containers and virtual
 * machines, with some drivers. Copies then lose data without an error. Nothing calls this by itself: by default the driver is
 * trusted. It is for one direction; the other is verified with the arguments exchanged.
 *
 * A stream of the peer copies a pattern into memory of the target and from there back; the result is read by way of the host.
 * For that it takes 1 MiB of the target and 2 MiB of the peer, and gives them back, which waits for work of both as warp_free()
 * of plain memory does. It makes the contexts of both. Access is enabled meanwhile, and afterwards what it was before; to
 * disable it waits as warp_peer_access_set_enabled() does. As long as it goes on, disabling is WARP_ERROR_BUSY for other
 * threads. Tests go on one after another.
 *
 * After a 0 the pair is used no more until the library is shut down: peer access and pool access of the two GPUs in this
 * direction, in all their contexts and of all pools that the library knows, is disabled, after waiting for work as
 * warp_peer_access_set_enabled() does, and cannot be enabled (WARP_ERROR_NOT_SUPPORTED); it is told not to be supported. So
 * copies go by way of the host, and are right again. Scopes that keep such access enabled are over with that: their ends
 * change nothing. Access that other libraries enable again, or to pools of theirs, is not watched; queries tell of it, it can
 * be disabled, and another test disables it.
 *
 * Every failure on the way is an error, with 0 in `out` and nothing changed: an answer was measured. Copies that never end are
 * one: after 2 seconds WARP_ERROR_BUSY, and then the access, which a copy under way must not lose, and the memory stay as they
 * are until the copies have ended and a test or warp_shutdown() finds that.
 *
 * @param target  the device that owns the memory; NULL for the default.
 * @param peer  the device that touches it; NULL for the default.
 * @param out  1 when everything arrived, else 0. 1 without a test for a device and itself, and for two contexts of one GPU; 0
 *     without a test for a pair that failed before.
 * @return WARP_ERROR_INVALID_ARGUMENT with the CPU on either side; WARP_ERROR_NOT_SUPPORTED for GPUs that cannot be peers;
 *     WARP_ERROR_PEER_LIMIT when access is not enabled and cannot be, since one of the two has as many peers as it can have;
 *     WARP_ERROR_BUSY when an open scope keeps it disabled, when other code disables it meanwhile, or when copies do not end;
 *     WARP_ERROR_INVALID_HANDLE, WARP_ERROR_DEVICE_LOST, WARP_ERROR_OUT_OF_MEMORY, WARP_ERROR_FORKED in a forked child,
 *     WARP_ERROR_DRIVER.
 */
warp_status warp_peer_access_verify(warp_device *target, warp_device *peer, uint8_t *out);

/**
 * Keeps peer access enabled, or disabled, until the scope ends; then what was before is so again. Unlike other scopes it is
 * for the whole process. Scopes of any threads that want the same are one: the first remembers what it finds, and the end
 * of the last puts that back. While one is open the opposite is refused, to scopes and to
 * warp_peer_access_set_enabled(). It has its place among the scopes of its thread, which ends it; when a thread ends with it
 * open, it stays so until the library is shut down, which puts back what it found.
 *
 * The end may wait for work, as to disable does. It is an error of warp_scope_end() when what was found cannot be put back;
 * the scope is over all the same. When the context of one of the two is gone by then, nothing is put back.
 *
 * @param target  the device that owns the memory; NULL for the default.
 * @param peer  the device that touches it; NULL for the default.
 * @param enabled  nonzero to enable, 0 to disable.
 * @param out  the scope, to be ended with warp_scope_end().
 * @return as warp_peer_access_set_enabled(); WARP_ERROR_NOT_SUPPORTED also when the thread has 64 scopes open.
 */
warp_status warp_scope_begin_peer_access(warp_device *target,
                                         warp_device *peer,
                                         uint8_t enabled,
                                         warp_scope **out);

/* ================================================================================================
 * Pool access
 *
 * Whether kernels of one GPU may touch memory that comes from a pool of another (WARP_MEMORY_CUDA_MEMPOOL). What was said of
 * peer access is so here too, but for this:
 *
 * Peer access says nothing of pools, nor pool access of plain memory. Pool access is the GPU's, in whichever context, needs
 * none to be made, and has no limit but that the two could be peers. The target must have pools, the peer need not. A device
 * stands for its pool in use, and what its other pools give is not covered: those are named by warp_mempool_query_access()
 * and warp_mempool_set_access().
 * ================================================================================================ */

/**
 * Whether the peer could be given access to the target's pools; says nothing about whether it has it. The target must have
 * pools, and the two be such as could be peers, and not have failed warp_peer_access_verify(). 1 for a device and itself when
 * it has pools; 0 with the CPU on either side.
 *
 * @param target  the device that owns the memory; NULL for the default.
 * @param peer  the device that would touch it; NULL for the default.
 * @param out  1 or 0.
 * @return WARP_ERROR_INVALID_HANDLE, WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED in a forked child, WARP_ERROR_DRIVER.
 */
warp_status warp_mempool_access_is_supported(const warp_device *target,
                                             const warp_device *peer,
                                             uint8_t *out);

/**
 * Asks the driver whether kernels of the peer may touch what comes from the target's pool in use now, whoever enabled that.
 * Changes nothing and needs no context.
 *
 * @param target  the device that owns the memory; NULL for the default.
 * @param peer  the device that touches it; NULL for the default.
 * @param out  1 or 0; for a device and itself 1 when it has pools, 0 with the CPU on either side.
 * @return WARP_ERROR_INVALID_HANDLE, WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED in a forked child, WARP_ERROR_DRIVER.
 */
warp_status warp_mempool_access_query_enabled(const warp_device *target,
                                              const warp_device *peer,
                                              uint8_t *out);

/**
 * Lets kernels of the peer touch what comes from the target's pool in use, or no longer, for the whole process: what the pool
 * gave already, and what it will give. Memory of graphs keeps the access that there was at its capture. To disable what is not
 * enabled, what cannot be enabled, or anything with the CPU, does nothing, and so does whatever is asked of a GPU and itself.
 *
 * To disable first waits for work of both GPUs, as warp_peer_access_set_enabled() does, and what it says of other work is so
 * here too.
 *
 * @param target  the device that owns the memory; NULL for the default.
 * @param peer  the device that touches it; NULL for the default.
 * @param enabled  nonzero to enable, 0 to disable.
 * @return WARP_ERROR_INVALID_ARGUMENT to enable with the CPU on either side; WARP_ERROR_NOT_SUPPORTED to enable when the
 *     target has no pools, or for GPUs that cannot be peers or failed warp_peer_access_verify(); WARP_ERROR_BUSY when an open
 *     scope keeps the opposite; WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED in a forked child, WARP_ERROR_DRIVER. All is as
 *     before then.
 */
warp_status warp_mempool_access_set_enabled(warp_device *target, warp_device *peer, uint8_t enabled);

/**
 * As warp_mempool_access_set_enabled() for many peers: for all of them or for none. What can be refused is refused before
 * anything is changed; when the driver refuses a pair, those before it are put back. The driver is asked for each pair alone,
 * and never about the target itself.
 *
 * @param target  the device that owns the memory; NULL for the default.
 * @param peers  the devices that touch it, NULL among them for the default; NULL, with a count of 0, for every other GPU
 *     that could be a peer of the target.
 * @param count  how many.
 * @param enabled  nonzero to enable, 0 to disable.
 * @return as warp_mempool_access_set_enabled(), with the pair in the message; WARP_ERROR_INVALID_ARGUMENT also when peers is
 *     NULL and count is not 0.
 */
warp_status warp_mempool_access_set_enabled_for(warp_device *target,
                                                warp_device *const *peers,
                                                size_t count,
                                                uint8_t enabled);

/**
 * Keeps pool access enabled, or disabled, until the scope ends, in all as warp_scope_begin_peer_access() does with peer
 * access. It is about the pool that is in use when it begins, also when another is used later.
 *
 * @param target  the device that owns the memory; NULL for the default.
 * @param peer  the device that touches it; NULL for the default.
 * @param enabled  nonzero to enable, 0 to disable.
 * @param out  the scope, to be ended with warp_scope_end().
 * @return as warp_mempool_access_set_enabled(); WARP_ERROR_NOT_SUPPORTED also when the thread has 64 scopes open.
 */
warp_status warp_scope_begin_mempool_access(warp_device *target,
                                            warp_device *peer,
                                            uint8_t enabled,
                                            warp_scope **out);

/* ================================================================================================
 * Types of items
 *
 * What one item of an array is, in the terms of DLPack: a code, the bits of one lane, the lanes. Every item is a whole
 * number of bytes: those of a type of less than a byte take one each.
 * ================================================================================================ */

/** Signed integers, of 1, 2, 4, … 128 bits. The type codes up to 17 are those of DLPack. */
#define WARP_DTYPE_INT 0
/** Unsigned integers, of 1, 2, 4, … 128 bits. */
#define WARP_DTYPE_UINT 1
/** IEEE floating point, of 16, 32, 64 or 128 bits. */
#define WARP_DTYPE_FLOAT 2
/** A handle that only the caller understands. */
#define WARP_DTYPE_OPAQUE_HANDLE 3
/** bfloat16, of 16 bits. */
#define WARP_DTYPE_BFLOAT 4
/** Two floating-point numbers, of 32, 64 or 128 bits together. */
#define WARP_DTYPE_COMPLEX 5
/** Truth values, of 8 bits. */
#define WARP_DTYPE_BOOL 6
/** Floating point of 8 bits, in the format that the name says; so the seven that follow. */
#define WARP_DTYPE_FLOAT8_E3M4 7
#define WARP_DTYPE_FLOAT8_E4M3 8
#define WARP_DTYPE_FLOAT8_E4M3B11FNUZ 9
#define WARP_DTYPE_FLOAT8_E4M3FN 10
#define WARP_DTYPE_FLOAT8_E4M3FNUZ 11
#define WARP_DTYPE_FLOAT8_E5M2 12
#define WARP_DTYPE_FLOAT8_E5M2FNUZ 13
#define WARP_DTYPE_FLOAT8_E8M0FNU 14
/** Floating point of 6 bits; a lone item takes a whole byte, lanes are packed. */
#define WARP_DTYPE_FLOAT6_E2M3FN 15
#define WARP_DTYPE_FLOAT6_E3M2FN 16
/** Floating point of 4 bits; a lone item takes a whole byte, lanes are packed. */
#define WARP_DTYPE_FLOAT4_E2M1FN 17
/** Bytes that only the caller understands, item_size of them. */
#define WARP_DTYPE_OPAQUE 255

/** The type of an item, passed by value. The first three fields are DLPack's DLDataType. */
typedef struct warp_dtype {
    /** A WARP_DTYPE_… constant. */
    uint8_t code;
    /** Bits of one lane; not looked at for WARP_DTYPE_OPAQUE. */
    uint8_t bits;
    /** Lanes of one item; 0 means 1. */
    uint16_t lanes;
    /**
     * Bytes of one item, all its lanes together; 0 for what follows from bits and lanes. WARP_DTYPE_OPAQUE has to
     * say it.
     */
    uint32_t item_size;
} warp_dtype;

/**
 * The type of one lane with this code and so many bits, complete: warp_dtype_make(WARP_DTYPE_FLOAT, 32) is a float.
 * Never fails; for a type that does not exist all fields are zero, and every function refuses that. Any thread, before
 * warp_init() too.
 *
 * @param code  a WARP_DTYPE_… constant other than WARP_DTYPE_OPAQUE.
 * @param bits  bits of an item.
 */
warp_dtype warp_dtype_make(uint8_t code, uint8_t bits);

/* ================================================================================================
 * Arrays
 *
 * Items of one type at regular places in memory: a shape, and strides in bytes from each item to the next. An array is
 * made in memory of its own, or around memory that other code allocated. Views see the same memory in another way;
 * each is a handle of its own, and the memory stays until the array and all its views are released, in any order.
 * Vectors and matrices are trailing dimensions, or the lanes of a type.
 * ================================================================================================ */

/** An array, or a view of one. Good until it is released or the library is shut down. */
typedef struct warp_array warp_array;

/** As many dimensions as an array can have. */
#define WARP_ARRAY_MAX_RANK 32

/**
 * How a new array should be. All zero but struct_size is the default: rows without gaps, in memory as warp_alloc()
 * would choose it.
 */
typedef struct warp_array_options {
    /** sizeof(warp_array_options), set by the caller. */
    size_t struct_size;
    /** One for each dimension, in bytes, 0 or more; NULL for rows without gaps. Read during the call. */
    const int64_t *strides;
    /** A power of two, in bytes; 0 for the kind's own (64 for HOST, 256 for the others). */
    uint64_t alignment;
    /** A name for what the array is, for statistics and messages; copied. NULL for none. */
    const char *tag;
    /**
     * The stream that the memory belongs to and that fills it, of the same device; NULL for the device's current
     * stream. What uses the array on other streams has to come after that.
     */
    warp_stream *stream;
    /** As in warp_alloc_options; 0 for what the device has switched on. */
    warp_memory_kind kind;
    /**
     * The pool that the memory comes from, as in warp_alloc_options; NULL for what the device allocates from.
     */
    warp_mempool *mempool;
    /** The allocator that serves it, as `allocator` of warp_alloc_options. */
    warp_allocator *allocator;
} warp_array_options;

/**
 * Gives wrapped memory back to where it came from. Called once, when the array and its views are all released, on
 * the thread that released the last of them or called the last warp_shutdown(), with the array's device current if
 * that is a GPU. Work that was put on streams may still be using the memory: wait for it, or free in its order. In a
 * forked child and at exit it is called for ordinary host memory only.
 *
 * @param user  deleter_user of the options.
 * @param ptr  the pointer that was wrapped.
 * @param size  the capacity of the options, else the bytes that the array reaches from ptr on.
 */
typedef void (*warp_array_deleter)(void *user, void *ptr, uint64_t size);

/**
 * How to wrap memory. All zero but struct_size is the default: rows without gaps, in memory that the caller keeps for
 * as long as the array lives.
 */
typedef struct warp_array_wrap_options {
    /** sizeof(warp_array_wrap_options), set by the caller. */
    size_t struct_size;
    /**
     * One for each dimension, in bytes; negative ones lead to items before the pointer. NULL for rows without gaps.
     * Read during the call.
     */
    const int64_t *strides;
    /** Bytes that there are from the pointer on; 0 for as many as the array reaches. */
    uint64_t capacity;
    /** Gives the memory back; NULL when that is not the array's business. Not called when the wrap fails. */
    warp_array_deleter deleter;
    /** Passed to deleter. */
    void *deleter_user;
    /**
     * What the memory is said to be; the wrap fails if it is another kind, or if that cannot be found out. 0 for
     * whatever it is.
     */
    warp_memory_kind kind;
} warp_array_wrap_options;

/** What is known of an array. */
typedef struct warp_array_info {
    /** sizeof(warp_array_info), set by the caller. */
    size_t struct_size;
    /** The first item, that with index 0 in every dimension; NULL when there are no items. */
    void *data;
    /** Its device; NULL when that is no longer in the table. */
    warp_device *device;
    /** How many items. */
    uint64_t count;
    /** Bytes of all items; what lies between them is not counted. */
    uint64_t size;
    /** Bytes of the memory that the array shares with its views. */
    uint64_t capacity;
    /** The type of its items, complete. */
    warp_dtype dtype;
    /** How many dimensions. */
    int32_t rank;
    /** Where its memory comes from: as it was allocated, or as it was found when it was wrapped. */
    warp_memory_kind kind;
    /** What governs who may touch it. */
    warp_access_rule rule;
    /** Do the items follow each other in row order without gaps? */
    uint8_t is_contiguous;
    /** Was it made from another array, whose memory it shares? */
    uint8_t is_view;
    /** Is its memory a block that the library allocated for it? */
    uint8_t is_owned;
    /** Is its memory wrapped and given back by a deleter? */
    uint8_t has_deleter;
} warp_array_info;

/**
 * Makes an array whose items are undefined.
 *
 * @param device  the device; NULL for the default.
 * @param dtype  the type of the items.
 * @param rank  how many dimensions, 0 to 32; an array without dimensions has one item.
 * @param shape  items along each dimension, 0 or more; may be NULL for rank 0. Read during the call. A 0 makes an
 *     array without items: nothing is allocated.
 * @param options  how it should be; NULL for the defaults. With strides the memory reaches to the last item.
 * @param out  the array, to be given back with warp_array_release(). Its memory is not to be given to warp_free().
 * @return what warp_alloc_with() returns, and WARP_ERROR_SIZE_OVERFLOW for a shape or strides that no address space
 *     has; WARP_ERROR_INVALID_ARGUMENT for a dtype, rank or shape that is none; WARP_ERROR_SIZE_MISMATCH for an
 *     item_size that contradicts the dtype; WARP_ERROR_NOT_SUPPORTED for negative strides, which a view can have.
 */
warp_status warp_array_empty(warp_device *device,
                             warp_dtype dtype,
                             int32_t rank,
                             const int64_t *shape,
                             const warp_array_options *options,
                             warp_array **out);

/**
 * Makes an array of items whose bytes are all zero. Host memory is filled when the call returns; memory of a GPU in
 * the order of the stream.
 *
 * @param device  the device; NULL for the default.
 * @param dtype  the type of the items.
 * @param rank  how many dimensions.
 * @param shape  items along each dimension.
 * @param options  how it should be; NULL for the defaults.
 * @param out  the array, to be given back with warp_array_release().
 * @return as warp_array_empty().
 */
warp_status warp_array_zeros(warp_device *device,
                             warp_dtype dtype,
                             int32_t rank,
                             const int64_t *shape,
                             const warp_array_options *options,
                             warp_array **out);

/**
 * Makes an array of ones: integers, truth values, bfloat16, floating point of up to 64 bits, complex numbers (1 + 0i);
 * in every lane.
 *
 * @param device  the device; NULL for the default.
 * @param dtype  the type of the items.
 * @param rank  how many dimensions.
 * @param shape  items along each dimension.
 * @param options  how it should be; NULL for the defaults.
 * @param out  the array, to be given back with warp_array_release().
 * @return as warp_array_empty(), and WARP_ERROR_NOT_SUPPORTED for other types: use warp_array_full().
 */
warp_status warp_array_ones(warp_device *device,
                            warp_dtype dtype,
                            int32_t rank,
                            const int64_t *shape,
                            const warp_array_options *options,
                            warp_array **out);

/**
 * Makes an array in which every item is the same.
 *
 * @param device  the device; NULL for the default.
 * @param dtype  the type of the items.
 * @param rank  how many dimensions.
 * @param shape  items along each dimension.
 * @param value  one item, in host memory; read before the call returns.
 * @param options  how it should be; NULL for the defaults.
 * @param out  the array, to be given back with warp_array_release().
 * @return as warp_array_empty(), and WARP_ERROR_INVALID_ARGUMENT for strides that have items share some of their bytes;
 *     WARP_ERROR_NOT_SUPPORTED on a GPU that cannot load a kernel, for more than 65536 separate pieces.
 */
warp_status warp_array_full(warp_device *device,
                            warp_dtype dtype,
                            int32_t rank,
                            const int64_t *shape,
                            const void *value,
                            const warp_array_options *options,
                            warp_array **out);

/**
 * Makes an array around memory that other code allocated. The memory must last until the array and its views are
 * released: that it does is not watched, not even for blocks of the library. Where it really is gets checked, by the ledger for
 * blocks of the library, else by the driver; on the CPU an address that neither knows is taken for ordinary host memory.
 *
 * @param device  the device that the memory is said to be on; NULL for the default. Page-locked memory is on the CPU,
 *     managed memory on any device.
 * @param ptr  the item with index 0 in every dimension; NULL only for an array without items.
 * @param dtype  the type of the items.
 * @param rank  how many dimensions, 0 to 32.
 * @param shape  items along each dimension, 0 or more; may be NULL for rank 0.
 * @param options  strides, capacity, deleter; NULL for the defaults.
 * @param out  the array, to be given back with warp_array_release().
 * @return WARP_ERROR_INVALID_ARGUMENT for NULL, memory of another device or kind than is said, memory that the driver
 *     does not know on a GPU that does not reach ordinary host memory, a range that passes the end of its block or of
 *     the capacity; WARP_ERROR_SIZE_OVERFLOW, WARP_ERROR_SIZE_MISMATCH as warp_array_empty(). The deleter is not
 *     called then.
 */
warp_status warp_array_wrap(warp_device *device,
                            void *ptr,
                            warp_dtype dtype,
                            int32_t rank,
                            const int64_t *shape,
                            const warp_array_wrap_options *options,
                            warp_array **out);

/**
 * Gives an array back. The handle is stale at once. With the last array that shares it the memory is freed, after the
 * work on the streams that it was used on as warp_free() does, or given to its deleter.
 *
 * @param array  an array or a view; NULL does nothing.
 * @return WARP_ERROR_INVALID_HANDLE, also for an array that was released before or by the last warp_shutdown().
 */
warp_status warp_array_release(warp_array *array);

/**
 * Describes an array. Cheap.
 *
 * @param array  the array.
 * @param out  filled as far as its struct_size goes.
 */
warp_status warp_array_get_info(const warp_array *array, warp_array_info *out);

/**
 * Tells the shape of an array and its strides. Cheap. Strides of an array without items mean nothing.
 *
 * @param array  the array.
 * @param capacity  as many numbers as each of the two places has, at least the array's rank; WARP_ARRAY_MAX_RANK is
 *     always enough.
 * @param out_shape  items along each dimension; may be NULL. What the array has no dimension for becomes 0.
 * @param out_strides  bytes from each item to the next along each dimension; may be NULL, and likewise.
 * @return WARP_ERROR_INVALID_ARGUMENT for a capacity below the rank.
 */
warp_status warp_array_get_shape(const warp_array *array,
                                 int32_t capacity,
                                 int64_t *out_shape,
                                 int64_t *out_strides);

/**
 * Sets every item of an array or a view; what lies between its items is not touched. Host memory is filled when the
 * call returns; memory of a GPU in the order of the stream.
 *
 * @param array  the array.
 * @param value  one item, in host memory; read before the call returns.
 * @param value_size  its bytes, the item_size of the array's type.
 * @param stream  where to put it; NULL for the current stream of the memory's device.
 * @return WARP_ERROR_SIZE_MISMATCH; WARP_ERROR_INVALID_ARGUMENT for items that share bytes with each other;
 *     WARP_ERROR_ACCESS_DENIED for a stream of another GPU, which may not touch them; WARP_ERROR_NOT_SUPPORTED on a GPU that
 *     cannot load a kernel, for more than 65536 separate pieces.
 */
warp_status warp_array_fill(warp_array *array, const void *value, uint64_t value_size, warp_stream *stream);

/**
 * Copies items between arrays on any two devices, of any kinds, with any strides. The types may differ as long as the items
 * have the same size. Two arrays without gaps are taken as rows of items, whatever their shapes, and so are arrays of one
 * dimension: there the offsets and the count choose items. Any others have the same shape, and are copied whole. Ordered as
 * warp_memory_copy() is; which way it goes, warp_copy_get_path() tells.
 *
 * @param dest  where to. What lies between its items is not touched.
 * @param src  where from. It may overlap the destination: all of it is read first.
 * @param dest_offset  the first item to write.
 * @param src_offset  the first item to read.
 * @param count  how many items; 0 for as many as the source has. A source without items is nothing to do.
 * @param stream  where to put it; NULL for the stream that warp_memory_copy() chooses.
 * @return WARP_ERROR_SIZE_MISMATCH for items of different sizes, and for different shapes; WARP_ERROR_INVALID_ARGUMENT for a
 *     range that passes the end of either array, and for items of the destination that share bytes;
 *     WARP_ERROR_NOT_SUPPORTED for an offset or a part of an array that is no row, and for gaps on a GPU that cannot load a
 *     kernel; WARP_ERROR_OUT_OF_MEMORY when memory for a way with stops is not to be had; WARP_ERROR_ACCESS_DENIED for memory
 *     that the stream's GPU may not touch; WARP_ERROR_ILLEGAL_IN_CAPTURE and _ACCESS_DENIED for what a graph cannot do, and the
 *     capture goes on.
 */
warp_status warp_array_copy(warp_array *dest,
                            const warp_array *src,
                            uint64_t dest_offset,
                            uint64_t src_offset,
                            uint64_t count,
                            warp_stream *stream);

/**
 * Makes a new array with the type, the shape and the items of another one, on any device, in rows without gaps.
 *
 * @param array  what to copy.
 * @param device  where to; NULL for the array's own device.
 * @param options  how the new array should be; NULL for the defaults. Its strides must be NULL. Its stream, which the
 *     copy is put on, is of the new array's device if that is a GPU, else of the old one's.
 * @param out  the new array, to be given back with warp_array_release().
 * @return as warp_array_empty() and warp_array_copy().
 */
warp_status warp_array_clone(const warp_array *array,
                             warp_device *device,
                             const warp_array_options *options,
                             warp_array **out);

/**
 * Brings an array to a device: a view of it where it is there already, whatever its strides, else a clone as
 * warp_array_clone() makes it. Either is given back in the same way.
 *
 * @param array  the array.
 * @param device  where it is wanted; NULL for the default.
 * @param options  how a clone should be, as for warp_array_clone(); a view takes nothing from it.
 * @param out  the array there, to be given back with warp_array_release().
 * @return as warp_array_clone().
 */
warp_status warp_array_to_device(const warp_array *array,
                                 warp_device *device,
                                 const warp_array_options *options,
                                 warp_array **out);

/**
 * Makes an array one of rows without gaps: a view of it where it is that already, else a clone on its own device.
 *
 * @param array  the array.
 * @param options  how a clone should be, as for warp_array_clone(); a view takes nothing from it.
 * @param out  the array without gaps, to be given back with warp_array_release().
 * @return as warp_array_clone().
 */
warp_status warp_array_contiguous(const warp_array *array,
                                  const warp_array_options *options,
                                  warp_array **out);

/* ================================================================================================
 * Views of arrays
 *
 * Other arrays of the same memory: some of the items, another shape, another order of the dimensions, another type. A
 * view costs no copy, and one that would need a copy is refused. It keeps the memory of its array, which may be
 * released before it.
 * ================================================================================================ */

/**
 * Makes a view of some of the items. Nothing is clamped: a slice that leaves the array is an error.
 *
 * @param array  the array.
 * @param dims  how many dimensions are cut, from the first one on; the others stay whole. 0 makes a view of everything.
 * @param start  the first index in each of them; NULL for the first items, seen in the direction of the step.
 * @param stop  behind the last index in each of them; NULL for the end, seen in the direction of the step.
 * @param step  from each index to the next, not 0; NULL for 1. With a positive step 0 <= start <= stop <= extent, with
 *     a negative one extent > start >= stop >= -1.
 * @param out  the view, to be given back with warp_array_release(). It keeps the memory.
 * @return WARP_ERROR_INVALID_ARGUMENT for what is no slice of the array.
 */
warp_status warp_array_slice(warp_array *array,
                             int32_t dims,
                             const int64_t *start,
                             const int64_t *stop,
                             const int64_t *step,
                             warp_array **out);

/**
 * Makes a view of the same items, in the same row order, in another shape.
 *
 * @param array  the array.
 * @param rank  how many dimensions the view has, 0 to 32.
 * @param shape  items along each of them, as many together as the array has; one may be -1 for what is left.
 * @param out  the view, to be given back with warp_array_release(). It keeps the memory.
 * @return WARP_ERROR_INVALID_ARGUMENT for another number of items; WARP_ERROR_NOT_SUPPORTED for an array with such
 *     gaps, or in such an order, that the shape cannot be had without a copy.
 */
warp_status warp_array_reshape(warp_array *array, int32_t rank, const int64_t *shape, warp_array **out);

/**
 * Makes a view with the dimensions in another order.
 *
 * @param array  the array.
 * @param rank  how many axes are given, as many as the array has dimensions; not looked at when axes is NULL.
 * @param axes  which dimension of the array each one of the view is, 0 to rank - 1, each once; NULL turns the order
 *     round.
 * @param out  the view, to be given back with warp_array_release(). It keeps the memory.
 * @return WARP_ERROR_INVALID_ARGUMENT for axes that are no order of the dimensions.
 */
warp_status warp_array_transpose(warp_array *array, int32_t rank, const int32_t *axes, warp_array **out);

/**
 * Makes a view of the same bytes as items of another type. With items of another size the last dimension gets longer
 * or shorter. Alignment is not looked at.
 *
 * @param array  the array.
 * @param dtype  the type of the view's items.
 * @param out  the view, to be given back with warp_array_release(). It keeps the memory.
 * @return with items of another size: WARP_ERROR_SIZE_MISMATCH for an array without dimensions, or whose last dimension
 *     has no whole number of them; WARP_ERROR_NOT_SUPPORTED when the last dimension has gaps.
 */
warp_status warp_array_reinterpret(warp_array *array, warp_dtype dtype, warp_array **out);

/* ================================================================================================
 * Indexed arrays
 *
 * An array seen through index arrays. Along a dimension that has one, there are as many items as the index array has, and
 * the item at place i is the one that the data has at index number i; the other dimensions are the data's own. Indices
 * may repeat items, leave some out, and stand in any order. Nothing is copied.
 * ================================================================================================ */

/** An array seen through index arrays. Good until it is released or the library is shut down. */
typedef struct warp_indexed_array warp_indexed_array;

/**
 * What is known of an indexed array. It has no kind of its own: its data and each of its index arrays have theirs.
 */
typedef struct warp_indexed_array_info {
    /** sizeof(warp_indexed_array_info), set by the caller. */
    size_t struct_size;
    /**
     * The first item of the data, which need not be the first that is seen; NULL when the data has no items.
     */
    void *data;
    /** The device of the data and of the index arrays; NULL when that is no longer in the table. */
    warp_device *device;
    /** How many items are seen. */
    uint64_t count;
    /** The type of the data's items, complete. */
    warp_dtype dtype;
    /** How many dimensions. */
    int32_t rank;
    /** Bit i is 1 when dimension i has an index array. */
    uint32_t indexed_dimensions;
} warp_indexed_array_info;

/**
 * Makes an indexed array. The indices are not read: they may be written later, in the order of a stream, and whether each
 * names an item of the data is the business of the code that uses them. It keeps the memory of the data and of the
 * index arrays as views do, so that their handles may be released before it. Nothing is allocated on a device.
 *
 * @param data  the array that is seen; an array or a view, also with gaps.
 * @param indices  an index array for each dimension of the data, NULL for a dimension that stays whole: arrays or views
 *     of one dimension, of int32, on the device of the data, in memory of any kind. May be NULL when the data has no
 *     dimensions. Read during the call.
 * @param count  how many entries indices has: the rank of the data.
 * @param out  the indexed array, to be given back with warp_indexed_array_release().
 * @return WARP_ERROR_INVALID_ARGUMENT for another count, and for an index array of another type, with another number of
 *     dimensions, or on another device than the data, which another context of the same GPU is too;
 *     WARP_ERROR_UNKNOWN_POINTER when memory of the data or of an index array was freed by its address;
 *     WARP_ERROR_SIZE_OVERFLOW for more items than can be counted; WARP_ERROR_DEVICE_LOST.
 */
warp_status warp_indexed_array_create(const warp_array *data,
                                      const warp_array *const *indices,
                                      size_t count,
                                      warp_indexed_array **out);

/**
 * Gives an indexed array back. The handle is stale at once. The memory of the data and of each index array goes with the
 * last array, view or indexed array that shares it, as warp_array_release() says.
 *
 * @param indexed  the indexed array; NULL does nothing.
 * @return WARP_ERROR_INVALID_HANDLE, also for one that was released before or by the last warp_shutdown().
 */
warp_status warp_indexed_array_release(warp_indexed_array *indexed);

/**
 * Describes an indexed array. Cheap.
 *
 * @param indexed  the indexed array.
 * @param out  filled as far as its struct_size goes.
 */
warp_status warp_indexed_array_get_info(const warp_indexed_array *indexed, warp_indexed_array_info *out);

/**
 * Tells the shape of an indexed array. Cheap.
 *
 * @param indexed  the indexed array.
 * @param out_shape  items along each dimension: as many as its index array has, else as the data has. What there is no
 *     dimension for becomes 0. May be NULL, to ask for the rank alone.
 * @param capacity  as many numbers as out_shape has, at least the rank; WARP_ARRAY_MAX_RANK is always enough. Not looked at
 *     when out_shape is NULL.
 * @param out_rank  how many dimensions; may be NULL.
 * @return WARP_ERROR_INVALID_ARGUMENT for a capacity below the rank.
 */
warp_status warp_indexed_array_get_shape(const warp_indexed_array *indexed,
                                         int64_t *out_shape,
                                         size_t capacity,
                                         size_t *out_rank);

/**
 * Makes a view of the data of an indexed array, the whole of it.
 *
 * @param indexed  the indexed array.
 * @param out  the view, to be given back with warp_array_release(). It keeps the data's memory.
 */
warp_status warp_indexed_array_get_data(const warp_indexed_array *indexed, warp_array **out);

/**
 * Makes a view of the index array of one dimension.
 *
 * @param indexed  the indexed array.
 * @param dimension  which dimension, below the rank.
 * @param out  the view, to be given back with warp_array_release(); it keeps the index array's memory. NULL when the
 *     dimension is whole.
 * @return WARP_ERROR_INVALID_ARGUMENT for a dimension that there is not.
 */
warp_status warp_indexed_array_get_index(const warp_indexed_array *indexed,
                                         size_t dimension,
                                         warp_array **out);

/**
 * Copies the items that an indexed array shows into an array of the same shape, on any device. Ordered as warp_memory_copy()
 * is. The numbers are read when the copy is made, in the order of the stream where they are in a GPU's memory; those in memory
 * of the host during the call. Index arrays must not lie in what is written.
 *
 * @param dest  where to, with any strides.
 * @param src  what to gather.
 * @param stream  where to put it; NULL for the stream that warp_memory_copy() chooses.
 * @return as warp_array_copy(); WARP_ERROR_INVALID_ARGUMENT for a number in host memory that leads out of the data, and nothing
 *     is written. A GPU leaves such items as they are in the destination; to the host, or to another GPU, zeros may arrive.
 */
warp_status warp_indexed_array_gather(warp_array *dest, const warp_indexed_array *src, warp_stream *stream);

/**
 * Copies an array to the items that an indexed array of the same shape shows, on any device. Where numbers repeat, it is left
 * to chance which item stays.
 *
 * @param dest  where to scatter.
 * @param src  where from, with any strides.
 * @param stream  where to put it; NULL for the stream that warp_memory_copy() chooses.
 * @return as warp_indexed_array_gather().
 */
warp_status warp_indexed_array_scatter(warp_indexed_array *dest, const warp_array *src, warp_stream *stream);

/**
 * Copies the items that one indexed array shows to those that another of the same shape shows, on any two devices.
 *
 * @param dest  where to scatter.
 * @param src  what to gather.
 * @param stream  where to put it; NULL for the stream that warp_memory_copy() chooses.
 * @return as warp_indexed_array_gather().
 */
warp_status warp_indexed_array_copy(warp_indexed_array *dest,
                                    const warp_indexed_array *src,
                                    warp_stream *stream);

/**
 * Sets every item that an indexed array shows; other items of its data are not touched.
 *
 * @param indexed  the indexed array.
 * @param value  one item, in host memory; read before the call returns.
 * @param value_size  its bytes, the item_size of the data's type.
 * @param stream  where to put it; NULL for the current stream of the memory's device.
 * @return as warp_array_fill() and warp_indexed_array_scatter().
 */
warp_status warp_indexed_array_fill(warp_indexed_array *indexed,
                                    const void *value,
                                    uint64_t value_size,
                                    warp_stream *stream);

/**
 * Makes a new array of the items that an indexed array shows, on any device, in rows without gaps.
 *
 * @param indexed  what to gather.
 * @param device  where to; NULL for its own device.
 * @param options  how the new array should be, as for warp_array_clone().
 * @param out  the new array, to be given back with warp_array_release().
 * @return as warp_array_clone() and warp_indexed_array_gather().
 */
warp_status warp_indexed_array_clone(const warp_indexed_array *indexed,
                                     warp_device *device,
                                     const warp_array_options *options,
                                     warp_array **out);

/* ================================================================================================
 * Copies
 *
 * Copies of items and of bytes take the fastest way that is legal between any two devices and kinds of memory, with gaps or
 * without; which one that is can be asked. A copy with a GPU at one end is work of a stream: it comes after what was put there
 * before, and what is put there later comes after it, also where other streams, the copy threads, or temporary memory take
 * part. The caller orders it after what produced the source. A call takes no longer than putting it on the stream, but for
 * ordinary (pageable) host memory, which has been read, or written, when the call returns, and for copies from host to host.
 *
 * Large copies of pageable memory go through page-locked buffers, filled and emptied by *copy threads*. They start with the
 * first such copy and end with warp_shutdown(). The buffers are kept meanwhile, in no count of blocks: up to 4 MiB for each
 * thread and two more, twice, and up to 128 MiB for copies between GPUs. Within a capture the driver's own way is recorded.
 *
 * Ends that overlap are copied as if all of the source was read first. Items of a destination that share bytes with each
 * other are refused. Numbers of an index array that lead out of its data are refused where they are in host memory; a GPU
 * leaves such items out: nothing is read or written outside.
 * ================================================================================================ */

/** The way that the bytes of a copy go. */
typedef int32_t warp_copy_path;

/** Nothing is to be copied. */
#define WARP_COPY_PATH_NONE 0
/** From host to host, by the calling thread. */
#define WARP_COPY_PATH_HOST 1
/** From host to host, by the copy threads as well. */
#define WARP_COPY_PATH_HOST_THREADS 2
/** Within the memory of one GPU. */
#define WARP_COPY_PATH_DEVICE 3
/** Between a GPU and page-locked memory, by the GPU itself. */
#define WARP_COPY_PATH_PINNED 4
/** Between a GPU and pageable memory, by the calling thread or the driver. */
#define WARP_COPY_PATH_PAGEABLE 5
/** Between a GPU and pageable memory, by the copy threads through page-locked buffers. */
#define WARP_COPY_PATH_PAGEABLE_PIPELINED 6
/** From GPU to GPU directly. */
#define WARP_COPY_PATH_PEER 7
/** From GPU to GPU without access, staged by the driver. */
#define WARP_COPY_PATH_PEER_STAGED 8
/** From GPU to GPU without access, through page-locked buffers. */
#define WARP_COPY_PATH_PEER_PIPELINED 9
/** An end is managed memory, which the driver finds where it is. */
#define WARP_COPY_PATH_MANAGED 10

/** What makes a copy. */
typedef int32_t warp_copy_method;

/** Nobody: nothing is to be copied. */
#define WARP_COPY_METHOD_NONE 0
/** The driver, by one call. */
#define WARP_COPY_METHOD_DRIVER 1
/** A kernel of the library, on the device that is told. */
#define WARP_COPY_METHOD_KERNEL 2
/** The CPU, which packs or unpacks pageable memory where a GPU has the other end. */
#define WARP_COPY_METHOD_CPU 3
/** Several steps, by way of temporary memory or page-locked buffers. */
#define WARP_COPY_METHOD_STAGED 4

/**
 * A copy. Each end is memory, an array or an indexed array; what is not used is NULL. All zero but struct_size is a copy of
 * nothing from nowhere, which is refused.
 */
typedef struct warp_copy_request {
    /** sizeof(warp_copy_request), set by the caller. */
    size_t struct_size;
    /** Where to, as for warp_memory_copy(). */
    void *dest;
    /** Where from, as for warp_memory_copy(). */
    const void *src;
    /** Bytes, where both ends are memory. */
    uint64_t size;
    /** Where to, as for warp_array_copy(). */
    warp_array *dest_array;
    /** Where from, as for warp_array_copy(). */
    const warp_array *src_array;
    /** Where to, as for warp_indexed_array_scatter(). */
    warp_indexed_array *dest_indexed;
    /** Where from, as for warp_indexed_array_gather(). */
    const warp_indexed_array *src_indexed;
    /** Between arrays: the first item to write. */
    uint64_t dest_offset;
    /** Between arrays: the first item to read. */
    uint64_t src_offset;
    /** Between arrays: how many items; 0 for as many as the source has. */
    uint64_t count;
} warp_copy_request;

/** What a copy would do. */
typedef struct warp_copy_info {
    /** sizeof(warp_copy_info), set by the caller. */
    size_t struct_size;
    /** Whose stream it is put on, or whose kernel makes it; the CPU from host to host. */
    warp_device *device;
    /** Bytes that are copied. */
    uint64_t size;
    /** Bytes of temporary memory on GPUs at a time. Page-locked buffers, which are kept, are not counted. */
    uint64_t staging;
    /** The way. */
    warp_copy_path path;
    /** WARP_COPY_METHOD_… */
    warp_copy_method method;
    /**
     * Does the call only put the copy on the stream, or into the graph that this is captured into? 0 when the calling thread
     * moves bytes, or waits for their end: host to host, and pageable memory.
     */
    uint8_t is_async;
} warp_copy_info;

/**
 * Tells what a copy would do now, without doing it. That may change with access, with allocators, and inside of a capture.
 * Any thread.
 *
 * @param request  the copy.
 * @param stream  where it would be put; NULL for the stream that the copy would choose.
 * @param out  filled as far as its struct_size goes.
 * @return as warp_copy_run() would return before anything is done.
 */
warp_status warp_copy_get_path(const warp_copy_request *request, warp_stream *stream, warp_copy_info *out);

/**
 * Makes a copy that is described by a struct: what warp_memory_copy(), warp_array_copy() and the copies of indexed arrays do.
 * Any thread.
 *
 * @param request  the copy.
 * @param stream  where to put it, of either device; NULL for the stream that warp_memory_copy() chooses.
 * @return as those, WARP_ERROR_ACCESS_DENIED, _ILLEGAL_IN_CAPTURE, _NOT_SUPPORTED and _OUT_OF_MEMORY among them;
 *     WARP_ERROR_INVALID_ARGUMENT for a request with two destinations or two sources, with memory at one end and an array at the
 *     other, or without ends.
 */
warp_status warp_copy_run(const warp_copy_request *request, warp_stream *stream);

/**
 * Makes copies one after another, as if each had a call of its own, for less. All are checked before the first is made: if one
 * is wrong, nothing is done. Any thread.
 *
 * @param requests  the copies.
 * @param stride  bytes from each to the next, sizeof(warp_copy_request) for an array of them.
 * @param count  how many; 0 does nothing.
 * @param stream  where to put them, of one device of each; NULL for the stream that each would choose.
 * @param out_bad  which of them failed, counted from 0; `count` when none did or it was not one of them. May be NULL.
 * @return as warp_copy_run(). What is found wrong before leaves everything as it was; after a failure of the driver, of memory, or
 *     a capture that another thread begins meanwhile, the copies before the one that is told have been made.
 */
warp_status warp_copy_run_batch(const warp_copy_request *requests,
                                size_t stride,
                                size_t count,
                                warp_stream *stream,
                                size_t *out_bad);

/**
 * Sets how many copy threads large copies of pageable memory have, beside the thread that calls. Threads that are there
 * already end if there are more, and their buffers are given back with 0. For the process, any thread.
 *
 * @param count  how many; 0 for none: such copies are left to the driver, and copies from host to host to the calling thread.
 *     More than half of the machine's cores is taken as that. At the start it is 4, or that.
 */
warp_status warp_copy_set_threads(uint32_t count);

/**
 * Tells how many copy threads large copies may have, whether they have started or not. Cheap; any thread.
 *
 * @param out  what warp_copy_set_threads() set, as far as that goes.
 */
warp_status warp_copy_get_threads(uint32_t *out);

/* ================================================================================================
 * Captures
 *
 * While a stream is captured, what is put on it is recorded instead of run, and becomes a graph. An allocation of pool
 * memory is recorded too: its address is known at once, the memory comes into being in each run. A free in the capture is
 * recorded behind everything that used the block, on whichever stream, and what it frees is used again by later
 * allocations of the same capture. A block that is not freed in its capture lasts: it can be used once the graph was
 * launched, and is freed like any other block, before or after the graph is released.
 *
 * Nothing of this library breaks a capture. What cannot be recorded (plain, managed and page-locked memory, waiting,
 * queries) is refused with WARP_ERROR_ILLEGAL_IN_CAPTURE before the driver sees it, and the capture goes on. Work of the
 * CPU is not recorded in it: it happens at once.
 *
 * The CPU's stream is captured as well. It is another one in each thread, so such a capture is the thread's that began it, and
 * others go on as ever. Recorded are fills and copies of host memory, in whatever chapter they stand, functions of
 * warp_stream_host_call(), and launches of graphs of the CPU; work of GPUs goes to its streams as ever. A copy between host memory
 * and a GPU's names its stream then, or is refused, since it would be missing in the runs. Allocations happen at once, and the
 * graph keeps the blocks: what an array is filled with when it is made is there after a run. Such captures may go on inside
 * of each other, up to 8; what is recorded goes to the innermost, and that is what is ended, paused or given up.
 *
 * Only the thread that captures puts work on the streams of its capture, unless it is relaxed: allocations, fills, copies
 * and launches by others are refused there, since they would not run. On other streams other threads go on as usual, in
 * every mode, and they may free blocks of the capture; what cannot be done before the end of a capture is done afterwards,
 * however it ends. A device's default stream is every thread's, so a stream of one's own is captured. A call on another
 * thread that overlaps the begin of a capture of its stream may be recorded: it fails with WARP_ERROR_ILLEGAL_IN_CAPTURE as
 * well (a fill or copy succeeds where the capture is relaxed), an allocation gives nothing, and what a fill or copy touched is
 * kept by the graph. A stream that joins the capture by a wait meanwhile is not looked after like that.
 *
 * A graph keeps what calls of this library recorded: blocks that are freed meanwhile are given back when the graph, and
 * every run of it, is gone. What kernels use that the caller launches is the caller's to name: warp_graph_retain(). Host
 * memory is recorded by its address and read or written by every run: where it is no block of this library, it is the
 * caller's to keep. But in a capture of the CPU the source of warp_memory_copy() that lies in no block, nor in what the capture
 * has written to, is copied when it is recorded.
 * ================================================================================================ */

/**
 * Whose calls break a capture, of those that the driver counts as unsafe, such as plain allocations. That is about calls
 * of other code: those of this library break none, in any mode.
 */
typedef int32_t warp_capture_mode;

/** Those of any thread. */
#define WARP_CAPTURE_GLOBAL 0
/** Those of the capturing thread. What is usually wanted. */
#define WARP_CAPTURE_THREAD_LOCAL 1
/** Nobody's. Other threads may record in the capture, one at a time, and end it, pause it or give it up. */
#define WARP_CAPTURE_RELAXED 2

/**
 * The graph will be a part of another, the body of a conditional node or a child: such graphs must not allocate, so
 * allocations are refused while it is captured, and not only when the outer graph is made. On the CPU the thread's allocations
 * there are refused meanwhile.
 */
#define WARP_CAPTURE_NO_ALLOCATIONS 1u

/** How a capture should be. All zero but struct_size is the default. */
typedef struct warp_capture_options {
    /** sizeof(warp_capture_options), set by the caller. */
    size_t struct_size;
    /**
     * A CUgraph to capture into, such as the body of a conditional node, beside what is in it. It stays the caller's, and
     * has to stay until the capture has ended. NULL for a graph of the capture's own, as for the CPU.
     */
    void *native_graph;
    /** WARP_CAPTURE_NO_ALLOCATIONS or 0. */
    uint32_t flags;
    /** Zero. */
    uint32_t reserved;
} warp_capture_options;

/** Whether a stream is captured. */
typedef int32_t warp_capture_state;

/** It is not. */
#define WARP_CAPTURE_STATE_NONE 0
/** What is put on it is recorded. */
#define WARP_CAPTURE_STATE_ACTIVE 1
/** A call of other code broke the capture; it has to be ended, and there will be no graph. */
#define WARP_CAPTURE_STATE_INVALIDATED 2
/** Its capture is paused, and what is put on it runs. */
#define WARP_CAPTURE_STATE_PAUSED 3

/** What is known of the capture of a stream. */
typedef struct warp_capture_info {
    /** sizeof(warp_capture_info), set by the caller. */
    size_t struct_size;
    /**
     * The driver's number of the capture, and of the graph that comes of it, or the library's own for the CPU; 0 for none. A pause
     * does not change it.
     */
    uint64_t id;
    /** Id of the stream that it began on, where it is ended; 0 when the library does not know it. */
    uint64_t origin_stream_id;
    /** WARP_CAPTURE_STATE_… */
    warp_capture_state state;
    /** The mode; -1 for captures that other code began. */
    warp_capture_mode mode;
    /** Was it begun by warp_capture_begin() or warp_capture_begin_with()? */
    uint8_t is_owned;
} warp_capture_info;

/**
 * Begins to capture a stream, on the calling thread. Streams that wait for its work take part in the capture from then
 * on. It is ended on the same stream and, unless it is relaxed, by the same thread. One of the CPU is always ended by the
 * thread that began it; when that ends before, the capture is given up.
 *
 * @param stream  a stream, not the legacy default stream of a GPU; it is not released before the end. NULL for the
 *     current one of the default device.
 * @param mode  WARP_CAPTURE_GLOBAL, _THREAD_LOCAL or _RELAXED. On the CPU it makes no difference.
 * @return WARP_ERROR_ILLEGAL_IN_CAPTURE when the stream is captured already or its capture is paused, and when 8 captures of the
 *     CPU go on on the thread; WARP_ERROR_INVALID_ARGUMENT for an unknown mode and the legacy stream;
 *     WARP_ERROR_NOT_SUPPORTED with drivers before 12.3.
 */
warp_status warp_capture_begin(warp_stream *stream, warp_capture_mode mode);

/**
 * As warp_capture_begin(), with options.
 *
 * @param stream  as for warp_capture_begin().
 * @param mode  WARP_CAPTURE_GLOBAL, _THREAD_LOCAL or _RELAXED.
 * @param options  how it should be; NULL for the defaults.
 * @return As warp_capture_begin(); WARP_ERROR_INVALID_ARGUMENT for unknown flags, and for the CPU with a native graph.
 */
warp_status warp_capture_begin_with(warp_stream *stream,
                                    warp_capture_mode mode,
                                    const warp_capture_options *options);

/**
 * Takes note of a capture that other code began on the stream. To be called by the thread that captures, right after the
 * begin; warp_capture_end() is then called right before the other code ends the capture, so that blocks of the capture
 * that other threads freed are freed in the graph. Without this call the library takes note at the first allocation, fill
 * or copy in the capture, and such blocks are held until the graph is gone. The graph stays the other code's: it
 * launches and destroys it, and blocks of its memory are given back when it has.
 *
 * @param stream  a stream that is being captured; NULL for the current one of the default device.
 * @param flags  WARP_CAPTURE_NO_ALLOCATIONS or 0.
 * @return WARP_SUCCESS also when the library has taken note of it already; WARP_ERROR_INVALID_ARGUMENT when the stream is
 *     not being captured, and for the CPU's; WARP_ERROR_ILLEGAL_IN_CAPTURE when the library began the capture, and when it is
 *     broken; WARP_ERROR_NOT_SUPPORTED with drivers before 12.3.
 */
warp_status warp_capture_adopt(warp_stream *stream, uint32_t flags);

/**
 * Ends the capture that began on the stream. Streams that take part in it and were not joined are joined first. When
 * this fails the capture is gone all the same, unless the message says that it goes on: the stream is an ordinary one
 * again, blocks allocated in the capture never come into being and can be freed, and the next capture works.
 *
 * @param stream  the stream that the capture began on; NULL for the current one of the default device. The capture may
 *     be paused.
 * @param out  where the graph is put, to be given back with warp_graph_release(). For a capture that was adopted, which
 *     other code ends after this call, and for one into a graph of the caller's, that is NULL, and so may `out` be.
 * @return WARP_ERROR_INVALID_ARGUMENT without a capture, on a stream that only takes part in one, and when `out` is NULL
 *     (it goes on); WARP_ERROR_ILLEGAL_IN_CAPTURE on another thread than the one that began it (it goes on), and for a
 *     capture that other code broke.
 */
warp_status warp_capture_end(warp_stream *stream, warp_graph **out);

/**
 * Gives up the capture that began on the stream, paused or not. Streams are ordinary ones again. Blocks allocated in it
 * never come into being, and are still to be freed.
 *
 * @param stream  the stream that the capture began on; NULL for the current one of the default device.
 * @return As warp_capture_end(); WARP_ERROR_INVALID_ARGUMENT for a capture that was adopted.
 */
warp_status warp_capture_abandon(warp_stream *stream);

/**
 * Stops capturing for a while: what is put on the stream runs, and must not use blocks of the capture. Streams that take
 * part and were not joined are joined first, and do not take part afterwards. Blocks of the capture that are freed
 * meanwhile are freed in the graph. Events recorded before the pause cannot be waited for after it. On the CPU blocks are
 * used as ever.
 *
 * @param stream  the stream that the capture began on; NULL for the current one of the default device.
 * @return As warp_capture_end(); WARP_ERROR_ILLEGAL_IN_CAPTURE when it is paused already; WARP_ERROR_NOT_SUPPORTED for
 *     a capture that was adopted.
 */
warp_status warp_capture_pause(warp_stream *stream);

/**
 * Goes on with a paused capture, behind all that was recorded before. When it fails the capture is still paused.
 *
 * @param stream  the stream that the capture began on; NULL for the current one of the default device.
 * @return As warp_capture_end(); WARP_ERROR_ILLEGAL_IN_CAPTURE when it is not paused.
 */
warp_status warp_capture_resume(warp_stream *stream);

/**
 * Tells whether and how a stream is captured. Does no harm to a capture, and may be asked by any thread.
 *
 * @param stream  the stream; of the CPU's that of the calling thread is meant. NULL for the current one of the default device.
 * @param out  filled as far as its struct_size goes.
 * @return WARP_ERROR_ILLEGAL_IN_CAPTURE for the legacy default stream while a blocking stream of its device is captured.
 */
warp_status warp_capture_query_info(warp_stream *stream, warp_capture_info *out);

/* ================================================================================================
 * Graphs
 *
 * What was captured, to be run as a whole, as often as wanted. A graph owns the memory that its capture allocated: each
 * launch makes it anew at the same addresses, and frees first what the last run left. Blocks that were not freed in the
 * capture are the caller's to free, at any time; the memory goes back when nobody can use it any more, neither the caller
 * nor a run of the graph.
 *
 * A graph of the CPU is a list of steps, which the launching thread works off. It allocates nothing: blocks that its capture
 * allocated are ordinary ones, which it keeps as it keeps all else that it uses.
 * ================================================================================================ */

/** A graph. Good until it is released or the library is shut down. */
struct warp_graph;

/** What is known of a graph. */
typedef struct warp_graph_info {
    /** sizeof(warp_graph_info), set by the caller. */
    size_t struct_size;
    /** The device that it was captured on; NULL when that is no longer in the table. */
    warp_device *device;
    /**
     * The CUgraph, for other code to look into or to copy. It is this library's to destroy, and not to be changed. NULL for a graph
     * of the CPU.
     */
    void *native_graph;
    /** The CUgraphExec; NULL before the first launch. It is this library's to destroy. */
    void *native_exec;
    /** The number that its capture had. */
    uint64_t id;
    /**
     * Blocks that its capture allocated and that are not freed yet; 0 for a graph of the CPU, whose blocks are no memory of its own.
     */
    uint64_t block_count;
    /** Was it launched with warp_graph_launch()? */
    uint8_t is_launched;
} warp_graph_info;

/**
 * What graphs hold of a GPU's memory, in bytes, as the driver rounds them up. Memory that is not in use any more is held
 * for the next runs until it is trimmed.
 */
typedef struct warp_graph_memory_info {
    /** sizeof(warp_graph_memory_info), set by the caller. */
    size_t struct_size;
    /**
     * Bytes that runs of graphs, and blocks that outlive their captures, use now. The driver counts what a run that is over has
     * used until that is trimmed.
     */
    uint64_t used;
    /** The most of that since the last reset. */
    uint64_t used_high;
    /** Bytes that graphs hold now, in use or not. */
    uint64_t reserved;
    /** The most of that since the last reset. */
    uint64_t reserved_high;
} warp_graph_memory_info;

/**
 * Runs a graph in the order of a stream, without waiting. Blocks that outlive its capture are made anew, and can be used by
 * work behind the launch. The first launch makes the graph ready, which takes longer. On a stream that is being captured
 * a copy of the graph becomes a part of that capture. Runs of one graph never overlap. Any thread; on a captured stream
 * the one that captures.
 *
 * A graph of the CPU has run when this returns. A launch waits until a run that another thread makes is over, also one as a part
 * of another graph. While the thread captures on the CPU the graph becomes a part of that capture instead, and either may be
 * released first.
 *
 * @param graph  the graph.
 * @param stream  a stream of its device; NULL for the current one of that.
 * @return WARP_ERROR_INVALID_ARGUMENT for a stream of another device, and on a stream that another thread captures;
 *     WARP_ERROR_ILLEGAL_IN_CAPTURE on a stream that is captured, for a graph that allocates (the capture goes on), and of a graph of
 *     the CPU in the middle of its own run, more than 16 runs in the middle of each other, and more than 64 graphs in each other;
 *     WARP_ERROR_BUSY when another thread that runs it waits for a run of this thread; WARP_ERROR_OUT_OF_MEMORY when its
 *     memory cannot be made, after waiting for frees that are pending: nothing ran. On the CPU the error of a step, after which
 *     the run ended: the steps before have happened.
 */
warp_status warp_graph_launch(warp_graph *graph, warp_stream *stream);

/**
 * Has the graph keep a block of this library: when it is freed, it is given back only when the graph is released and no
 * run of it goes on. For what kernels use that the caller launched in the capture; while the capture goes on,
 * warp_pointer_record_stream() does the same. Once is enough, and blocks that the graph's own capture allocated need it
 * not. Any thread.
 *
 * @param graph  the graph.
 * @param ptr  any address in the block, which is still the caller's to free.
 * @return WARP_ERROR_UNKNOWN_POINTER for an address that is in no live block.
 */
warp_status warp_graph_retain(warp_graph *graph, const void *ptr);

/**
 * Has the graph keep the memory of an array, wrapped memory with a deleter included: the deleter is called, or the
 * block given back, when the graph is released, no run of it goes on and the array is released, on whichever thread finds
 * that out. The array's handle is still the caller's to release. Memory that was wrapped without a deleter is the
 * caller's to keep. Any thread.
 *
 * @param graph  the graph.
 * @param array  the array.
 * @return WARP_ERROR_UNKNOWN_POINTER when the array's memory was freed by its address.
 */
warp_status warp_graph_retain_array(warp_graph *graph, const warp_array *array);

/**
 * Gives a graph back. The handle is stale at once; runs go on to their end, and what the graph keeps is given back after
 * the last one, by a later call that looks. Blocks that its capture allocated and that are not freed stay the caller's, to
 * use if the graph was launched, and to free. Does not wait. Any thread, also while something is captured.
 *
 * @param graph  a graph; NULL does nothing.
 * @return WARP_ERROR_INVALID_HANDLE for one that was released.
 */
warp_status warp_graph_release(warp_graph *graph);

/**
 * Describes a graph. Cheap. Any thread.
 *
 * @param graph  the graph.
 * @param out  filled as far as its struct_size goes.
 */
warp_status warp_graph_get_info(const warp_graph *graph, warp_graph_info *out);

/**
 * Asks the driver what graphs, of anybody in the process, hold of a GPU's memory. It is apart from that of the pools, and
 * warp_statistics_get() counts only the blocks that are not freed. Any thread, also while something is captured.
 *
 * @param device  a CUDA device; NULL for the default.
 * @param out  filled as far as its struct_size goes.
 * @return WARP_ERROR_INVALID_ARGUMENT for the CPU.
 */
warp_status warp_graph_query_memory(warp_device *device, warp_graph_memory_info *out);

/**
 * Gives back what graphs hold of a GPU's memory and neither a run nor a block uses. Running out of memory does that too.
 * Waits for nothing: frees that streams have still to come to, those of a released graph's last blocks among them, count
 * for a later call. Any thread, also while something is captured.
 *
 * @param device  a CUDA device; NULL for the default.
 * @return WARP_ERROR_INVALID_ARGUMENT for the CPU.
 */
warp_status warp_graph_trim_memory(warp_device *device);

/**
 * Brings the high marks of graph memory down to what is so now, for all that ask in the process. Any thread.
 *
 * @param device  a CUDA device; NULL for the default.
 * @return WARP_ERROR_INVALID_ARGUMENT for the CPU.
 */
warp_status warp_graph_reset_memory_high(warp_device *device);

/* ================================================================================================
 * Access
 *
 * May code on this device touch this memory? The answer is yes, no, or that it cannot be verified, each with a reason. It
 * is about who may, as it is now: not about order, nor about whether work that is queued has written the memory yet.
 *
 * What governs memory is its rule (warp_access_rule), and no setting of today: pool memory goes by its pool's access, plain
 * device memory by peer access, a mapping by whom it was mapped for, a graph's memory by what its pool allowed when it was
 * captured. For memory of other code the driver is asked. Asking changes nothing, makes no context, and is legal while
 * something is captured; a thread that captures on the device is told what was so when its capture began.
 * ================================================================================================ */

/** Whether memory may be touched. */
typedef int32_t warp_access;

/** Code on the device may read and write it. */
#define WARP_ACCESS_ACCESSIBLE 1
/** It may be that code on the device can touch it; nothing that can be asked tells. */
#define WARP_ACCESS_UNVERIFIED 2
/** Code on the device would fault. */
#define WARP_ACCESS_INACCESSIBLE 3

/**
 * Why: below 100 it is accessible, below 200 inaccessible, from 200 on unverified. Later versions may know more.
 */
typedef int32_t warp_access_reason;

/** Nothing is to be told: the reason in the report of a launch that may be made. */
#define WARP_ACCESS_REASON_NONE 0
/** There is no memory: NULL, or an array without items. */
#define WARP_ACCESS_REASON_EMPTY 1
/** It is the device's own. */
#define WARP_ACCESS_REASON_SAME_DEVICE 2
/** It is of the same GPU, by another context. */
#define WARP_ACCESS_REASON_SAME_GPU 3
/** Page-locked host memory, and a GPU with unified addressing. */
#define WARP_ACCESS_REASON_PINNED_MAPPING 4
/** Host memory, and a GPU that reaches pageable memory. */
#define WARP_ACCESS_REASON_PAGEABLE_ACCESS 5
/** Managed memory of a GPU that lets the CPU touch it at any time. */
#define WARP_ACCESS_REASON_MANAGED_CONCURRENT 6
/** Managed memory of a GPU that the CPU reaches directly. */
#define WARP_ACCESS_REASON_MANAGED_DIRECT 7
/** Managed memory, and two GPUs that support it. */
#define WARP_ACCESS_REASON_MANAGED_ON_BOTH 8
/** Plain memory of another GPU, and peer access to it is enabled. */
#define WARP_ACCESS_REASON_PEER_ACCESS 9
/** Its pool gives the device access. */
#define WARP_ACCESS_REASON_POOL_ACCESS 10
/** A mapping that is for the device too. */
#define WARP_ACCESS_REASON_MAPPED 11
/** A graph's memory, whose pool gave the device access when it was captured. */
#define WARP_ACCESS_REASON_GRAPH_ACCESS 12
/** Pageable host memory, and a GPU that does not reach that. */
#define WARP_ACCESS_REASON_NO_PAGEABLE_ACCESS 101
/** Page-locked host memory, and a GPU without unified addressing. */
#define WARP_ACCESS_REASON_NO_UNIFIED_ADDRESSING 102
/** Device memory, and the CPU. */
#define WARP_ACCESS_REASON_DEVICE_MEMORY 103
/** Managed memory that the CPU must not touch while the GPU works. */
#define WARP_ACCESS_REASON_MANAGED_NOT_CONCURRENT 104
/** Managed memory, and one of the two GPUs does not support it. */
#define WARP_ACCESS_REASON_MANAGED_NOT_SUPPORTED 105
/** The two GPUs cannot be peers. */
#define WARP_ACCESS_REASON_NOT_PEERS 106
/** Plain memory of another GPU, and peer access to it is not enabled. */
#define WARP_ACCESS_REASON_NO_PEER_ACCESS 107
/** Its pool does not give the device access. */
#define WARP_ACCESS_REASON_NO_POOL_ACCESS 108
/** A mapping that is not for the device. */
#define WARP_ACCESS_REASON_NOT_MAPPED 109
/** A graph's memory, whose pool did not give the device access when it was captured. */
#define WARP_ACCESS_REASON_NO_GRAPH_ACCESS 110
/** Memory of another process, or of a context that is no device here, which peer access does not lead to. */
#define WARP_ACCESS_REASON_OTHER_PROCESS 111
/** Only of a launch check in strict mode: it is not the launch device's. */
#define WARP_ACCESS_REASON_NOT_ON_LAUNCH_DEVICE 112
/** Neither the library nor the driver knows it. */
#define WARP_ACCESS_REASON_UNKNOWN_MEMORY 201
/** A mapping that the device may read and not write. */
#define WARP_ACCESS_REASON_MAPPED_READ_ONLY 202
/** Memory of a graph that other code captured. */
#define WARP_ACCESS_REASON_FOREIGN_GRAPH 203
/** The driver did not answer. */
#define WARP_ACCESS_REASON_NO_ANSWER 204

/** What was found out about a device and some memory. */
typedef struct warp_access_info {
    /** sizeof(warp_access_info), set by the caller. */
    size_t struct_size;
    /** The device that the memory is at home on; NULL when that is unknown, or no longer in the table. */
    warp_device *device;
    /** May the device that was asked about touch it? */
    warp_access access;
    /** Why. */
    warp_access_reason reason;
    /** Where the memory comes from. Of an indexed array whose parts differ, WARP_MEMORY_UNKNOWN. */
    warp_memory_kind kind;
    /** What governs who may touch it. */
    warp_access_rule rule;
} warp_access_info;

/**
 * Whether code on a device may touch an array's memory; the memory of a view is its array's. As warp_access_get_status(), but
 * made to be asked often: it does not look whether the contexts are still there, and on the array's own device not even
 * whether the memory is.
 *
 * @param device  the device; NULL for the default.
 * @param array  the array.
 * @param out  1 when it may, 0 when it may not or that cannot be verified.
 * @return As warp_access_get_status().
 */
warp_status warp_access_can(const warp_device *device, const warp_array *array, uint8_t *out);

/**
 * What code on a device may do with an array's memory, and why. Memory that the library allocated is judged by its record,
 * any other as the driver knows it now.
 *
 * @param device  the device; NULL for the default.
 * @param array  the array. One without items is accessible.
 * @param out  filled as far as its struct_size goes.
 * @return WARP_ERROR_DEVICE_LOST when the context of the memory, or of the device, is gone; WARP_ERROR_UNKNOWN_POINTER when
 *     the array's memory was freed by its address; WARP_ERROR_FORKED in a forked child where the driver would have to be
 *     asked. What the driver does not answer is no error, but WARP_ACCESS_REASON_NO_ANSWER.
 */
warp_status warp_access_get_status(const warp_device *device, const warp_array *array, warp_access_info *out);

/**
 * As warp_access_can(), for any address. Whether the context of the device's own memory is still there is not looked at.
 *
 * @param device  the device; NULL for the default.
 * @param ptr  an address anywhere in the memory; for NULL the answer is 1.
 * @param out  1 when code on the device may touch it, 0 when it may not or that cannot be verified.
 * @return As warp_access_get_status().
 */
warp_status warp_access_can_pointer(const warp_device *device, const void *ptr, uint8_t *out);

/**
 * As warp_access_get_status(), for any address. Ordinary memory of the program, which neither the library nor the driver
 * knows, cannot be verified: it looks like what was freed, or never was memory. Nor can what only the driver knows in a forked
 * child. Whether the context of the device's own memory is still there is not looked at.
 *
 * @param device  the device; NULL for the default.
 * @param ptr  an address anywhere in the memory; NULL is accessible.
 * @param out  filled as far as its struct_size goes.
 * @return As warp_access_get_status().
 */
warp_status warp_access_get_pointer_status(const warp_device *device, const void *ptr, warp_access_info *out);

/**
 * As warp_access_can(), for an indexed array: its data and all its index arrays.
 *
 * @param device  the device; NULL for the default.
 * @param indexed  the indexed array.
 * @param out  1 when code on the device may touch all of it.
 * @return As warp_access_get_status().
 */
warp_status warp_access_can_indexed(const warp_device *device,
                                    const warp_indexed_array *indexed,
                                    uint8_t *out);

/**
 * As warp_access_get_status(), for an indexed array: what the worst of its data and its index arrays is. One part that is
 * inaccessible makes the whole so, else one that cannot be verified.
 *
 * @param device  the device; NULL for the default.
 * @param indexed  the indexed array.
 * @param out  filled as far as its struct_size goes.
 * @return As warp_access_get_status().
 */
warp_status warp_access_get_indexed_status(const warp_device *device,
                                           const warp_indexed_array *indexed,
                                           warp_access_info *out);

/**
 * Whether code on one device may touch what default requests on another are served with at present: pool memory, plain
 * memory, or ordinary host memory. A rough question: of memory that exists ask warp_access_can().
 *
 * @param device  the device; NULL for the default.
 * @param other  the device that the memory would be of; NULL for the default.
 * @param out  1 when it may.
 * @return WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED, WARP_ERROR_DRIVER.
 */
warp_status warp_access_can_device(const warp_device *device, const warp_device *other, uint8_t *out);

/**
 * The name of a reason, such as "WARP_ACCESS_REASON_NO_POOL_ACCESS"; "WARP_ACCESS_REASON_UNKNOWN" for a number that is
 * none. The text is static. Any thread, before warp_init() too.
 */
const char *warp_access_reason_get_name(warp_access_reason reason);

/* ================================================================================================
 * Launch check
 *
 * Before a kernel is launched, whoever launches it can have its arguments looked at: may the launch device touch the memory
 * of each? What is wrong becomes an error that names the kernel, the argument, both devices and the call that would make it
 * legal, instead of a fault that names nothing and loses the device.
 * ================================================================================================ */

/** How strict a launch check is. */
typedef int32_t warp_launch_mode;

/** For warp_launch_check(): the mode of the process. */
#define WARP_LAUNCH_PROCESS_MODE (-1)
/** Nothing is looked at; the hardware decides. The default. */
#define WARP_LAUNCH_RELAXED 0
/** What the device may not touch is refused. What cannot be verified passes, with a warning. */
#define WARP_LAUNCH_CHECKED 1

/**
 * What is not at home on the launch device is refused. What is at home there is looked at as in checked mode, where a mapping
 * may be for others.
 */
#define WARP_LAUNCH_STRICT 2

/** What an argument of a kernel is. */
typedef int32_t warp_launch_argument_kind;

/** A warp_array, or NULL. */
#define WARP_LAUNCH_ARRAY 0
/** A warp_indexed_array, or NULL. */
#define WARP_LAUNCH_INDEXED_ARRAY 1
/** An address, or NULL. */
#define WARP_LAUNCH_POINTER 2
/** A struct: a list of members, each as an argument. */
#define WARP_LAUNCH_STRUCT 3

/**
 * One argument of a kernel, or a member of one, that leads to memory. Zeroed, it is a NULL array. Later versions add fields at
 * the end, which the stride of a list tells.
 */
typedef struct warp_launch_argument {
    /** Its name, for messages, UTF-8; NULL for its place in the list. */
    const char *name;
    /**
     * The array's handle, or the address; for a struct its members, a list with the stride of the arguments.
     */
    const void *value;
    /** Of a struct, how many members; else 0. */
    size_t member_count;
    /** WARP_LAUNCH_ARRAY, _INDEXED_ARRAY, _POINTER or _STRUCT. */
    warp_launch_argument_kind kind;
    /** 0. */
    uint32_t reserved;
} warp_launch_argument;

/** What a launch check found. */
typedef struct warp_launch_report {
    /** sizeof(warp_launch_report), set by the caller. */
    size_t struct_size;
    /**
     * What was looked at and is accessible, NULL and arrays without items included. All counts are 0 when nothing was looked
     * at.
     */
    uint64_t accessible;
    /** What could not be verified. */
    uint64_t unverified;
    /** What is refused. */
    uint64_t inaccessible;
    /**
     * The place of the first of the worst in the list of arguments; of one that is in a struct, the struct's. 0 when all is
     * accessible.
     */
    uint64_t argument;
    /** The device that its memory is at home on; NULL when that is unknown, or no longer in the table. */
    warp_device *device;
    /** WARP_ACCESS_ACCESSIBLE when all is, else what the worst is; 0 when nothing was looked at. */
    warp_access access;
    /** Why the worst is not accessible; 0 when all is. */
    warp_access_reason reason;
    /** Where its memory comes from. */
    warp_memory_kind kind;
    /** 0. */
    uint32_t reserved;
    /** Its name, with those of the structs around it, such as "state.positions"; cut when it is longer. */
    char name[256];
} warp_launch_report;

/**
 * Sets how strict launch checks are that leave it to the process. Any thread, before warp_init() too.
 *
 * @param mode  WARP_LAUNCH_RELAXED, _CHECKED or _STRICT.
 * @return WARP_ERROR_INVALID_ARGUMENT for any other number; nothing changes.
 */
warp_status warp_launch_set_mode(warp_launch_mode mode);

/**
 * How strict launch checks are that leave it to the process. Any thread, before warp_init() too.
 *
 * @param out  the mode; WARP_LAUNCH_RELAXED until it is set.
 */
warp_status warp_launch_get_mode(warp_launch_mode *out);

/**
 * Looks whether a kernel may be launched on a device with these arguments. Launches nothing. In relaxed mode nothing is looked
 * at, not even whether the arguments are there. NULL and arrays without items pass in every mode. What cannot be verified is
 * warned of once for each kernel, argument and pair of devices, as far back as 1,024 warnings go; a warning that no log callback
 * wants does not count. Arrays of the launch device itself pass by their handles, as they do with warp_access_can(): that their
 * memory, or its context, is still there is not asked. Legal while something is captured.
 *
 * @param device  the launch device; NULL for the default.
 * @param kernel  the kernel's name, for messages, UTF-8; may be NULL.
 * @param arguments  those of its arguments that lead to memory. Read during the call.
 * @param count  how many.
 * @param stride  bytes from one argument to the next: sizeof(warp_launch_argument).
 * @param mode  WARP_LAUNCH_RELAXED, _CHECKED or _STRICT, or WARP_LAUNCH_PROCESS_MODE.
 * @param report  filled as far as its struct_size goes, with what was found until the end, also when the launch is refused;
 *     may be NULL. After other failures it is zero.
 * @return WARP_ERROR_ACCESS_DENIED when the launch is to be left, with the first of the worst arguments in the message;
 *     WARP_ERROR_INVALID_HANDLE, WARP_ERROR_DEVICE_LOST, WARP_ERROR_UNKNOWN_POINTER for an argument as
 *     warp_access_get_status(), but as warp_access_can() for arrays of the launch device: that their memory was freed by its
 *     address is not noticed; WARP_ERROR_INVALID_ARGUMENT for an unknown kind or mode, a stride that is too small or above
 *     65,536, structs that nest deeper than 16, or more than 2^20 arguments and members.
 */
warp_status warp_launch_check(const warp_device *device,
                              const char *kernel,
                              const warp_launch_argument *arguments,
                              size_t count,
                              size_t stride,
                              warp_launch_mode mode,
                              warp_launch_report *report);

/* ================================================================================================
 * Plugs
 *
 * Plain functions that frameworks take as their allocators, by address or by name: they serve PyTorch and CuPy from whatever is
 * installed here. They have no status; what goes wrong is a NULL, the thread's error, and a message to the log callback. No
 * stream has to outlive its use here: blocks are freed after the work of their GPU where nothing else is known.
 *
 * PyTorch: `torch.cuda.memory.CUDAPluggableAllocator("libwarpmem.so", "warp_torch_alloc", "warp_torch_free")`, best as the
 * allocator of a `torch.cuda.MemPool`, which takes a NULL for out of memory. CuPy: `cupy.cuda.CFunctionAllocator` with the
 * addresses of warp_cupy_malloc and warp_cupy_free; CuPy does not look at a NULL. The library must be initialised.
 * ================================================================================================ */

/**
 * Memory for PyTorch: `alloc` of a CUDAPluggableAllocator. Served as warp_alloc() on that GPU and stream. While the stream is
 * captured the memory is allocated beside the capture and is no part of the graph, as PyTorch's private pools expect.
 *
 * @param size  bytes; 0 is NULL.
 * @param device  the GPU's number.
 * @param stream  a cudaStream_t of that GPU's primary context; NULL, 1 and 2 as there.
 * @return the memory, or NULL.
 */
void *warp_torch_alloc(size_t size, int32_t device, void *stream);

/**
 * Frees memory of warp_torch_alloc(): `free` of a CUDAPluggableAllocator.
 *
 * @param ptr  the memory; NULL does nothing.
 * @param size  its bytes, which are checked: another size is an error, and nothing is freed.
 * @param device  not looked at: the block knows it.
 * @param stream  not looked at: the block knows its own.
 */
void warp_torch_free(void *ptr, size_t size, int32_t device, void *stream);

/**
 * Tells that work on a stream uses memory of warp_torch_alloc(): for `set_record_stream_fn`, without which PyTorch's
 * record_stream does nothing.
 *
 * @param ptr  any address in the memory.
 * @param stream  a cudaStream_t of the memory's GPU.
 */
void warp_torch_record_stream(void *ptr, void *stream);

/**
 * Memory for CuPy, which names no stream: good on all of them when this returns, and freed after all work of its GPU.
 *
 * @param param  an allocator; NULL for what serves the device.
 * @param size  bytes; 0 is NULL.
 * @param device  the GPU's number.
 * @return the memory, or NULL.
 */
void *warp_cupy_malloc(void *param, size_t size, int32_t device);

/**
 * Frees memory of warp_cupy_malloc().
 *
 * @param param  not looked at: the block knows its allocator.
 * @param ptr  the memory; NULL does nothing.
 * @param device  not looked at.
 */
void warp_cupy_free(void *param, void *ptr, int32_t device);

/* ================================================================================================
 * Memory for other processes
 *
 * Plain device memory has a handle by which another process on the same machine opens it (cuIpcOpenMemHandle()). The handle
 * stands for the driver's whole block: what it opens there, with the offset added, is the address that was exported. The driver
 * shares memory in pieces of 2 MiB, so small blocks beside it can be reached by the other process as well.
 * ================================================================================================ */

/** What another process needs to open memory of this one; plain bytes, to be sent by any means. */
struct warp_ipc_memory {
    /** sizeof(warp_ipc_memory), set by the caller. */
    size_t struct_size;
    /** The driver's handle, a CUipcMemHandle or cudaIpcMemHandle_t. */
    uint8_t handle[64];
    /** Bytes from what the handle opens to the address that was exported. */
    uint64_t offset;
    /** Bytes of what the handle opens. */
    uint64_t size;
    /** The GPU's number in this process. The other process may number its GPUs in another way. */
    int32_t ordinal;
};

/**
 * Exports the block that an address lies in. The block stays the library's, and the caller sees to it that it is freed only
 * when no other process has it open. Work is ordered between the processes by the caller. In a capture as well.
 *
 * @param ptr  any address in a block of WARP_MEMORY_CUDA_DEVICE, of this library or of other code.
 * @param out  filled as far as its struct_size goes.
 * @return WARP_ERROR_NOT_SUPPORTED, with the way out in the message, for memory of any other kind, of graphs and of other
 *     processes, and for GPUs without it (is_ipc_supported of warp_device_info); WARP_ERROR_INVALID_ARGUMENT for NULL;
 *     WARP_ERROR_UNKNOWN_POINTER, WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED, WARP_ERROR_DRIVER.
 */
warp_status warp_ipc_export(const void *ptr, warp_ipc_memory *out);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* WARPMEM_H */
