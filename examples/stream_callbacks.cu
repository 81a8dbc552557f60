/*
 * Host functions in streams: they run in the stream's order, between the work before and the work after them,
 * and may not call CUDA. While one holds up its stream, queries say "not ready" and other streams go on.
 */
#include "example.h"
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

__global__ void multiply_add(int *value, int factor, int summand)
{
    *value = *value * factor + summand;
}

struct gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
};

struct note {
    std::vector<std::string> *log;
    const int *value;
    int number;
};

/* Reads what the copy before it in the stream brought. */
static void write_note(void *argument)
{
    struct note *note = (struct note *)argument;

    note->log->push_back("host function " + std::to_string(note->number) + " saw " +
                         std::to_string(*note->value));
}

static void call_cuda(void *argument)
{
    void *memory = NULL;

    *(cudaError_t *)argument = cudaMalloc(&memory, 64);
}

static void wait_for_gate(void *argument)
{
    struct gate *gate = (struct gate *)argument;
    std::unique_lock<std::mutex> lock(gate->mutex);

    gate->changed.wait(lock, [gate] { return gate->open; });
}

static void CUDART_CB stream_callback(cudaStream_t, cudaError_t status, void *argument)
{
    *(cudaError_t *)argument = status;
}

int main(int argc, char **argv)
{
    struct example example = example_begin("stream_callbacks", "[ROUNDS]", argc, argv);
    int rounds = example_number(&example, 0, 1, 10000, 5);
    std::vector<std::string> log, expected;
    std::vector<struct note> notes(rounds);
    cudaStream_t stream, other;
    int *value, *seen, *other_value;
    bool good = true;

    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&value, sizeof(int)));
    CHECK(cudaMalloc(&other_value, sizeof(int)));
    CHECK(cudaMallocHost(&seen, sizeof(int)));
    CHECK(cudaMemsetAsync(value, 0, sizeof(int), stream));

    int current = 0;
    for (int i = 0; i < rounds; i++) {
        multiply_add<<<1, 1, 0, stream>>>(value, 3, i + 1);
        CHECK_LAUNCH();
        CHECK(cudaMemcpyAsync(seen, value, sizeof(int), cudaMemcpyDeviceToHost, stream));
        notes[i] = {&log, seen, i};
        CHECK(cudaLaunchHostFunc(stream, write_note, &notes[i]));
        current = (int)((unsigned)current * 3 + i + 1);
        expected.push_back("host function " + std::to_string(i) + " saw " + std::to_string(current));
    }
    CHECK(cudaStreamSynchronize(stream));
    for (const std::string &line : log) {
        printf("%s\n", line.c_str());
    }
    good = good && log == expected;

    cudaError_t inside = cudaSuccess, status = cudaErrorUnknown;
    CHECK(cudaLaunchHostFunc(stream, call_cuda, &inside));
    CHECK(cudaStreamAddCallback(stream, stream_callback, &status, 0));
    CHECK(cudaStreamSynchronize(stream));
    printf("cudaMalloc inside a host function: %s\n", cudaGetErrorName(inside));
    printf("status given to a callback: %s\n", cudaGetErrorName(status));
    good = good && inside == cudaErrorNotPermitted && status == cudaSuccess;

    struct gate gate;
    cudaEvent_t event;
    int held = 0;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaLaunchHostFunc(stream, wait_for_gate, &gate));
    CHECK(cudaEventRecord(event, stream));
    cudaError_t stream_held = cudaStreamQuery(stream), event_held = cudaEventQuery(event);
    CHECK(cudaMemsetAsync(other_value, 0x11, sizeof(int), other));
    CHECK(cudaMemcpyAsync(&held, other_value, sizeof(int), cudaMemcpyDeviceToHost, other));
    CHECK(cudaStreamSynchronize(other));
    {
        std::lock_guard<std::mutex> lock(gate.mutex);
        gate.open = true;
    }
    gate.changed.notify_one();
    CHECK(cudaEventSynchronize(event));
    printf("held up: stream %s, event %s, other stream brought %x\n", cudaGetErrorName(stream_held),
           cudaGetErrorName(event_held), (unsigned)held);
    CHECK(cudaStreamSynchronize(stream));
    printf("after: stream %s, event %s\n", cudaGetErrorName(cudaStreamQuery(stream)),
           cudaGetErrorName(cudaEventQuery(event)));
    good = good && stream_held == cudaErrorNotReady && event_held == cudaErrorNotReady &&
           held == 0x11111111 && cudaStreamQuery(stream) == cudaSuccess &&
           cudaEventQuery(event) == cudaSuccess;

    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(other));
    CHECK(cudaFree(value));
    CHECK(cudaFree(other_value));
    CHECK(cudaFreeHost(seen));
    return example_end(&example, good);
}
