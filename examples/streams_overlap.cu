/*
 * Cuts work into pieces that several streams copy in, transform and copy out at the same time, from and to
 * pinned memory. A last stream waits for every piece by events and sums the whole. The events' times must be
 * in order.
 */
#include "example.h"
#include <vector>

__global__ void transform(const int *in, int *out, int count, int piece)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        out[i] = in[i] * 3 + piece;
    }
}

__global__ void accumulate(const int *values, int count, unsigned long long *sum)
{
    unsigned long long mine = 0;

    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        mine += (unsigned)values[i];
    }
    atomicAdd(sum, mine);
}

int main(int argc, char **argv)
{
    struct example example =
        example_begin("streams_overlap", "[STREAMS [ELEMENTS_PER_PIECE [PIECES]]]", argc, argv);
    int stream_count = example_number(&example, 0, 1, 64, 4);
    int count = example_number(&example, 1, 1, 1 << 24, 100003);
    int pieces = example_number(&example, 2, 1, 64, 8);
    size_t size = (size_t)count * sizeof(int);
    int *in, *out, *device_in, *device_out;
    unsigned long long *sum, *device_sum;

    CHECK(cudaMallocHost(&in, size * pieces));
    CHECK(cudaHostAlloc(&out, size * pieces, cudaHostAllocDefault));
    CHECK(cudaMallocHost(&sum, sizeof *sum));
    CHECK(cudaMalloc(&device_in, size * pieces));
    CHECK(cudaMalloc(&device_out, size * pieces));
    CHECK(cudaMalloc(&device_sum, sizeof *device_sum));
    for (size_t i = 0; i < (size_t)count * pieces; i++) {
        in[i] = (int)(example_mix(i) >> 8);
    }

    std::vector<cudaStream_t> streams(stream_count);
    std::vector<cudaEvent_t> begun(pieces), done(pieces);
    cudaStream_t last;
    int least_priority, greatest_priority;
    CHECK(cudaDeviceGetStreamPriorityRange(&least_priority, &greatest_priority));
    CHECK(cudaStreamCreateWithPriority(&last, cudaStreamNonBlocking, greatest_priority));
    for (cudaStream_t &stream : streams) {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    CHECK(cudaMemsetAsync(device_sum, 0, sizeof *device_sum, last));

    for (int piece = 0; piece < pieces; piece++) {
        cudaStream_t stream = streams[piece % stream_count];
        size_t offset = (size_t)piece * count;

        CHECK(cudaEventCreate(&begun[piece]));
        CHECK(cudaEventCreate(&done[piece]));
        CHECK(cudaEventRecord(begun[piece], stream));
        CHECK(cudaMemcpyAsync(device_in + offset, in + offset, size, cudaMemcpyHostToDevice, stream));
        transform<<<16, 128, 0, stream>>>(device_in + offset, device_out + offset, count, piece);
        CHECK_LAUNCH();
        CHECK(cudaEventRecord(done[piece], stream));
        CHECK(cudaMemcpyAsync(out + offset, device_out + offset, size, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamWaitEvent(last, done[piece], 0));
        accumulate<<<16, 128, 0, last>>>(device_out + offset, count, device_sum);
        CHECK_LAUNCH();
    }
    CHECK(cudaMemcpyAsync(sum, device_sum, sizeof *sum, cudaMemcpyDeviceToHost, last));
    CHECK(cudaStreamSynchronize(last));

    /* Every piece was done before the sum was, so no query may say otherwise. */
    int unfinished = 0, backwards = 0;
    for (int piece = 0; piece < pieces; piece++) {
        float milliseconds = -1;

        unfinished += cudaEventQuery(done[piece]) != cudaSuccess;
        CHECK(cudaEventElapsedTime(&milliseconds, begun[piece], done[piece]));
        backwards += !(milliseconds >= 0);
    }
    CHECK(cudaDeviceSynchronize());

    size_t wrong = 0;
    unsigned long long expected = 0;
    for (int piece = 0; piece < pieces; piece++) {
        for (size_t i = (size_t)piece * count; i < (size_t)(piece + 1) * count; i++) {
            int value = in[i] * 3 + piece;

            wrong += out[i] != value;
            expected += (unsigned)value;
        }
    }
    printf("%d pieces of %d in %d streams, %zu wrong, sum %llu\n", pieces, count, stream_count, wrong, *sum);
    if (unfinished || backwards) {
        printf("%d events not done after the wait for them, %d ran backwards\n", unfinished, backwards);
    }
    bool good = wrong == 0 && *sum == expected && unfinished == 0 && backwards == 0;

    for (int piece = 0; piece < pieces; piece++) {
        CHECK(cudaEventDestroy(begun[piece]));
        CHECK(cudaEventDestroy(done[piece]));
    }
    for (cudaStream_t stream : streams) {
        CHECK(cudaStreamDestroy(stream));
    }
    CHECK(cudaStreamDestroy(last));
    CHECK(cudaFree(device_in));
    CHECK(cudaFree(device_out));
    CHECK(cudaFree(device_sum));
    CHECK(cudaFreeHost(in));
    CHECK(cudaFreeHost(out));
    CHECK(cudaFreeHost(sum));
    return example_end(&example, good);
}
