// Captures and graphs from C++: owners for captures, graphs and blocks; exceptions that leave a capture; destructors that run on
// another thread while it goes on; deleters that a graph calls.
// topology: h200x2
// topology: mixed
// topology: none
// topology: -
#include "blocks.h"

#include <cstddef>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr std::uint64_t size = 4096;

// Of the first GPU. The tests need one with pools.
bool can_capture()
{
    return gpu_count() != 0 && info_of(gpu(0)).is_mempool_supported;
}

std::runtime_error failure(const char *what)
{
    return std::runtime_error(std::string(what) + ": " + warp_error_get_message());
}

struct freer {
    void operator()(void *ptr) const noexcept { CHECK_STATUS(warp_free(ptr), WARP_SUCCESS); }
};
using block = std::unique_ptr<std::byte, freer>;

struct stream_releaser {
    void operator()(warp_stream *stream) const noexcept { CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS); }
};
using stream = std::unique_ptr<warp_stream, stream_releaser>;

struct graph_releaser {
    void operator()(warp_graph *graph) const noexcept { CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS); }
};
using graph = std::unique_ptr<warp_graph, graph_releaser>;

stream make_stream()
{
    return stream(new_stream(gpu(0), 0));
}

block allocate(warp_stream *on, warp_memory_kind kind = WARP_MEMORY_UNKNOWN)
{
    warp_alloc_options options = options_of(kind, on);
    void *ptr = nullptr;
    if (warp_alloc_with(gpu(0), size, &options, &ptr) != WARP_SUCCESS)
        throw failure("allocate");
    return block(static_cast<std::byte *>(ptr));
}

void fill(const block &block, char value, warp_stream *on)
{
    if (warp_memory_fill(block.get(), size, &value, 1, on) != WARP_SUCCESS)
        throw failure("fill");
}

bool holds(const block &block, char value, warp_stream *on)
{
    std::vector<char> bytes(size);
    copy_now(bytes.data(), block.get(), size, on);
    return bytes == std::vector<char>(size, value);
}

warp_capture_state state_of(warp_stream *stream)
{
    warp_capture_info info{};
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_capture_query_info(stream, &info), WARP_SUCCESS);
    return info.state;
}

// A capture for as long as the object lives. Without an end it comes to nothing.
class capture {
public:
    explicit capture(warp_stream *stream) : stream_(stream)
    {
        if (warp_capture_begin(stream, WARP_CAPTURE_THREAD_LOCAL) != WARP_SUCCESS)
            throw failure("capture");
    }
    capture(const capture &) = delete;
    capture &operator=(const capture &) = delete;
    ~capture()
    {
        if (stream_ != nullptr)
            CHECK_STATUS(warp_capture_abandon(stream_), WARP_SUCCESS);
    }
    graph end()
    {
        warp_graph *made = nullptr;
        if (warp_capture_end(std::exchange(stream_, nullptr), &made) != WARP_SUCCESS)
            throw failure("end");
        return graph(made);
    }

private:
    warp_stream *stream_;
};

void launch(const graph &graph, warp_stream *on)
{
    if (warp_graph_launch(graph.get(), on) != WARP_SUCCESS)
        throw failure("launch");
}

void check_nothing_left()
{
    if (can_capture()) {
        warp_graph_memory_info held{};
        held.struct_size = sizeof held;
        // The first finds the graphs that have ended, whose blocks are freed on a stream; the second comes after that.
        for (int i = 0; i < 2; ++i) {
            CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_trim_memory(gpu(0)), WARP_SUCCESS);
        }
        CHECK_STATUS(warp_graph_query_memory(gpu(0), &held), WARP_SUCCESS);
        CHECK_EQ_U64(held.used, 0);
    }
    CHECK_NOTHING_LEFT();
}

} // namespace

TEST(the_cpu_is_captured_too)
{
    REQUIRE(start());
    {
        capture begun(stream_of(cpu())); /* given up by its destructor */
    }
    check_nothing_left();
}

TEST(owners_in_every_order)
{
    if (!can_capture())
        SKIP("needs a GPU with pools");
    // What goes first: the block, the graph, or the stream.
    for (int first = 0; first < 3; ++first) {
        stream on = make_stream(), other = make_stream();
        block outside = allocate(on.get()), result;
        fill(outside, 1, on.get());
        graph made;
        {
            capture going(on.get());
            block scratch = allocate(on.get());
            CHECK_STATUS(warp_memory_copy(scratch.get(), outside.get(), size, on.get()), WARP_SUCCESS);
            result = allocate(on.get());
            CHECK_STATUS(warp_memory_copy(result.get(), scratch.get(), size, on.get()), WARP_SUCCESS);
            scratch.reset();
            made = going.end();
        }
        outside.reset(); // the graph keeps it
        for (int i = 0; i < 3; ++i)
            launch(made, on.get());
        CHECK(holds(result, 1, on.get()));
        if (first == 0)
            result.reset();
        else if (first == 1)
            made.reset();
        else
            on.reset();
        if (made)
            launch(made, other.get());
        if (result)
            CHECK(holds(result, 1, other.get()));
    }
    check_nothing_left();
}

TEST(an_exception_gives_the_capture_up)
{
    if (!can_capture())
        SKIP("needs a GPU with pools");
    stream on = make_stream();
    block survivor;
    for (int i = 0; i < 2; ++i) {
        // Blocks of the capture go before it, and one goes after it.
        CHECK_THROWS(std::runtime_error, [&] {
            capture going(on.get());
            block temporary = allocate(on.get());
            survivor = allocate(on.get());
            fill(survivor, 1, on.get());
            (void)allocate(on.get(), WARP_MEMORY_CUDA_DEVICE); // refused
        }());
        CHECK_EQ_I64(state_of(on.get()), WARP_CAPTURE_STATE_NONE);
        CHECK_THROWS(std::runtime_error, fill(survivor, 2, on.get()));
        CHECK_STR_CONTAINS(warp_error_get_message(), "given up");
    }
    survivor.reset();
    capture again(on.get());
    survivor = allocate(on.get());
    fill(survivor, 3, on.get());
    graph made = again.end();
    launch(made, on.get());
    CHECK(holds(survivor, 3, on.get()));
    survivor.reset();
    made.reset();
    check_nothing_left();
}

TEST(destructors_on_another_thread_during_a_capture)
{
    if (!can_capture())
        SKIP("needs a GPU with pools");
    stream on = make_stream(), other = make_stream();
    std::vector<block> garbage;
    garbage.push_back(allocate(on.get()));
    garbage.push_back(allocate(other.get()));
    garbage.push_back(allocate(other.get(), WARP_MEMORY_CUDA_DEVICE));
    for (const block &each : garbage)
        fill(each, 1, other.get());
    CHECK_STATUS(warp_stream_synchronize(other.get()), WARP_SUCCESS);
    capture going(on.get());
    for (int i = 0; i < 3; ++i) {
        garbage.push_back(allocate(on.get()));
        fill(garbage.back(), 2, on.get());
    }
    std::thread([&garbage] { garbage.clear(); }).join();
    CHECK_EQ_I64(state_of(on.get()), WARP_CAPTURE_STATE_ACTIVE);
    block result = allocate(on.get());
    fill(result, 3, on.get());
    graph made = going.end();
    warp_graph_info info{};
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_graph_get_info(made.get(), &info), WARP_SUCCESS);
    CHECK_EQ_U64(info.block_count, 1);
    for (int i = 0; i < 3; ++i)
        launch(made, on.get());
    CHECK(holds(result, 3, on.get()));
    result.reset();
    made.reset();
    check_nothing_left();
}

// Called from the library: what it throws stays inside it.
extern "C" void give_back(void *user, void *ptr, uint64_t)
{
    try {
        delete[] static_cast<float *>(ptr);
        ++*static_cast<int *>(user);
        throw std::runtime_error("after the last run");
    } catch (const std::exception &) {
    }
}

TEST(a_graph_calls_a_deleter_when_nothing_can_run_any_more)
{
    if (!can_capture())
        SKIP("needs a GPU with pools");
    stream on = make_stream();
    constexpr std::int64_t length = 100;
    int given_back = 0;
    warp_array_wrap_options wrap{};
    wrap.struct_size = sizeof wrap;
    wrap.deleter = give_back;
    wrap.deleter_user = &given_back;
    auto *host = new float[length]();
    warp_array *source = nullptr;
    CHECK_STATUS(warp_array_wrap(cpu(), host, warp_dtype_make(WARP_DTYPE_FLOAT, 32), 1, &length, &wrap, &source), WARP_SUCCESS);
    capture going(on.get());
    block result = allocate(on.get());
    CHECK_STATUS(warp_memory_copy(result.get(), host, length * sizeof(float), on.get()), WARP_SUCCESS);
    graph made = going.end();
    // The copy went by its address, so the graph has to be told.
    CHECK_STATUS(warp_graph_retain_array(made.get(), source), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(source), WARP_SUCCESS);
    for (int i = 1; i <= 3; ++i) {
        float last = 0;
        host[length - 1] = static_cast<float>(i);
        launch(made, on.get());
        copy_now(&last, result.get() + (length - 1) * sizeof(float), sizeof last, on.get());
        CHECK(last == static_cast<float>(i));
    }
    CHECK_EQ_I64(given_back, 0);
    made.reset();
    CHECK_STATUS(warp_stream_synchronize(on.get()), WARP_SUCCESS); // a call that looks
    CHECK_EQ_I64(given_back, 1);
    result.reset();
    check_nothing_left();
}

CHECK_MAIN()
