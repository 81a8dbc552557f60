/*
 * A vector split over all devices, one host thread each: every part is computed where it lies, copied to the first
 * device, added up there by a kernel that reads the other devices' memory where it may, and compared with the host's
 * result. The vector has eight parts, dealt out in turn, so that the results are the same for any number of devices.
 */
#include "example.h"
#include <thread>
#include <vector>

#define PARTS 8

struct part {
    int device;
    unsigned *values; /* on `device` */
    cudaStream_t stream;
    cudaEvent_t ready;
    int wrong; /* answers of the API that are not as they must be */
};

__global__ void fill(unsigned *values, int count, unsigned first)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < count) {
        values[i] = example_mix(first + i);
    }
}

__global__ void add(unsigned *sums, const unsigned *values, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < count) {
        sums[i] += values[i];
    }
}

/* Makes part `number` on its device; runs in a thread of its own. */
static void make_part(struct part *part, int number, int count)
{
    struct cudaPointerAttributes attributes;
    int current = -1;

    CHECK(cudaGetDevice(&current));
    part->wrong += current != 0; /* every thread begins with the first device */
    CHECK(cudaSetDevice(part->device));
    CHECK(cudaStreamCreate(&part->stream));
    CHECK(cudaEventCreateWithFlags(&part->ready, cudaEventDisableTiming));
    CHECK(cudaMalloc(&part->values, count * sizeof(unsigned)));
    fill<<<(count + 127) / 128, 128, 0, part->stream>>>(part->values, count, (unsigned)number * count);
    CHECK_LAUNCH();
    CHECK(cudaEventRecord(part->ready, part->stream));
    CHECK(cudaPointerGetAttributes(&attributes, part->values));
    part->wrong += attributes.device != part->device || attributes.type != cudaMemoryTypeDevice;
    CHECK(cudaGetDevice(&current));
    part->wrong += current != part->device;
}

/* Access from the first device to another: enabled once, and refused a second time. Whether it is possible. */
static bool enable_access(int device, int *wrong)
{
    int possible = 0;

    CHECK(cudaDeviceCanAccessPeer(&possible, 0, device));
    if (possible) {
        *wrong += cudaDeviceDisablePeerAccess(device) != cudaErrorPeerAccessNotEnabled;
        CHECK(cudaDeviceEnablePeerAccess(device, 0));
        *wrong += cudaDeviceEnablePeerAccess(device, 0) != cudaErrorPeerAccessAlreadyEnabled;
        cudaGetLastError();
    }
    return possible;
}

int main(int argc, char **argv)
{
    struct example example = example_begin("multi_gpu", "[DEVICES_AT_LEAST [ELEMENTS]]", argc, argv);
    int least = example_number(&example, 0, 1, 64, 1);
    int count = example_number(&example, 1, 1, 1 << 24, 50000);
    size_t size = count * sizeof(unsigned);
    struct part parts[PARTS] = {};
    std::vector<std::thread> threads;
    std::vector<unsigned> gathered((size_t)count * PARTS), sums(count);
    unsigned *all, *device_sums;
    int device_count = 0, wrong = 0;

    CHECK(cudaGetDeviceCount(&device_count));
    if (device_count < least) {
        fprintf(stderr, "multi_gpu: %d devices, not %d\n", device_count, least);
        return example_end(&example, 0);
    }
    for (int i = 0; i < PARTS; i++) {
        parts[i].device = i % device_count;
        threads.emplace_back(make_part, &parts[i], i, count);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }

    /* All parts side by side on the first device, in the order of its stream. */
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&all, size * PARTS));
    CHECK(cudaMalloc(&device_sums, size));
    CHECK(cudaMemset(device_sums, 0, size));
    std::vector<bool> reachable(device_count, true);
    for (int device = 1; device < device_count && device < PARTS; device++) {
        reachable[device] = enable_access(device, &wrong);
    }
    for (int i = 0; i < PARTS; i++) {
        struct part *part = &parts[i];
        unsigned *copy = all + (size_t)i * count;

        CHECK(cudaStreamWaitEvent(cudaStreamLegacy, part->ready, 0));
        CHECK(cudaMemcpyPeerAsync(copy, 0, part->values, part->device, size, cudaStreamLegacy));
        add<<<(count + 255) / 256, 256>>>(device_sums, reachable[part->device] ? part->values : copy, count);
        CHECK_LAUNCH();
    }
    CHECK(cudaMemcpy(gathered.data(), all, size * PARTS, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(sums.data(), device_sums, size, cudaMemcpyDeviceToHost));

    /* And back to where they came from, in reverse order, by copies that find the devices by the addresses. */
    for (int i = 0; i < PARTS; i++) {
        CHECK(cudaMemcpy(parts[i].values, all + (size_t)(PARTS - 1 - i) * count, size, cudaMemcpyDefault));
    }
    CHECK(cudaDeviceSynchronize());
    unsigned differences = 0;
    for (int i = 0; i < PARTS; i++) {
        std::vector<unsigned> back(count);
        unsigned checksum = 0;

        CHECK(cudaSetDevice(parts[i].device));
        CHECK(cudaMemcpy(back.data(), parts[i].values, size, cudaMemcpyDeviceToHost));
        for (int j = 0; j < count; j++) {
            differences += gathered[(size_t)i * count + j] != example_mix((unsigned)i * count + j);
            differences += back[j] != example_mix((unsigned)(PARTS - 1 - i) * count + j);
            checksum = checksum * 31 + gathered[(size_t)i * count + j];
            sums[j] -= example_mix((unsigned)i * count + j);
        }
        wrong += parts[i].wrong;
        printf("part %d: checksum %08x\n", i, checksum);
        CHECK(cudaFree(parts[i].values));
        CHECK(cudaEventDestroy(parts[i].ready));
        CHECK(cudaStreamDestroy(parts[i].stream));
    }
    for (int j = 0; j < count; j++) {
        differences += sums[j] != 0;
    }
    CHECK(cudaSetDevice(0));
    for (int device = 1; device < device_count && device < PARTS; device++) {
        if (reachable[device]) {
            CHECK(cudaDeviceDisablePeerAccess(device));
        }
    }
    CHECK(cudaFree(all));
    CHECK(cudaFree(device_sums));
    printf("differences: %u, wrong answers: %d\n", differences, wrong);
    return example_end(&example, differences == 0 && wrong == 0);
}
