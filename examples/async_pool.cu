/*
 * Memory that is allocated and freed in stream order, from the device's default pool and from one of the
 * program's own. A second stream uses the memory between events; afterwards the pools hold nothing in use.
 */
#include "example.h"
#include <vector>

__global__ void fill(unsigned *values, int count, unsigned seed)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        values[i] = example_mix(seed + i);
    }
}

__global__ void add(unsigned *sums, const unsigned *values, int count)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        sums[i] += values[i];
    }
}

static unsigned long long pool_use(cudaMemPool_t pool)
{
    uint64_t used = 0;

    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    return used;
}

int main(int argc, char **argv)
{
    struct example example = example_begin("async_pool", "[ROUNDS [ELEMENTS]]", argc, argv);
    int rounds = example_number(&example, 0, 1, 10000, 12);
    int count = example_number(&example, 1, 1, 1 << 24, 50021);
    size_t size = count * sizeof(unsigned);
    int supported = 0;

    CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
    if (!supported) {
        printf("this device has no memory pools\n");
        return example_end(&example, 0);
    }
    cudaMemPool_t pool, own_pool;
    uint64_t threshold = 64 << 20, read_back = 0;
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = 0;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &read_back));
    CHECK(cudaMemPoolCreate(&own_pool, &properties));

    cudaStream_t stream, second;
    cudaEvent_t ready, used;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamCreate(&second));
    CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&used, cudaEventDisableTiming));

    unsigned *sums;
    CHECK(cudaMallocAsync(&sums, size, stream));
    CHECK(cudaMemsetAsync(sums, 0, size, stream));
    for (int round = 0; round < rounds; round++) {
        unsigned *values;

        if (round % 2) {
            CHECK(cudaMallocFromPoolAsync(&values, size, own_pool, stream));
        } else {
            CHECK(cudaMallocAsync(&values, size, stream));
        }
        fill<<<16, 128, 0, stream>>>(values, count, round * 7919);
        CHECK_LAUNCH();
        CHECK(cudaEventRecord(ready, stream));
        CHECK(cudaStreamWaitEvent(second, ready, 0));
        add<<<16, 128, 0, second>>>(sums, values, count);
        CHECK_LAUNCH();
        CHECK(cudaEventRecord(used, second));
        CHECK(cudaStreamWaitEvent(stream, used, 0));
        CHECK(cudaFreeAsync(values, stream));
    }
    std::vector<unsigned> result(count);
    CHECK(cudaMemcpyAsync(result.data(), sums, size, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    bool counted = pool_use(pool) >= size;
    CHECK(cudaFreeAsync(sums, stream));
    CHECK(cudaStreamSynchronize(stream));

    int wrong = 0;
    for (int i = 0; i < count; i++) {
        unsigned expected = 0;

        for (int round = 0; round < rounds; round++) {
            expected += example_mix(round * 7919 + i);
        }
        wrong += result[i] != expected;
    }
    unsigned long long left = pool_use(pool), own_left = pool_use(own_pool);
    CHECK(cudaMemPoolTrimTo(pool, 0));
    printf("%d rounds of %d elements, %d wrong\n", rounds, count, wrong);
    printf("release threshold %llu, in use afterwards %llu and %llu\n", (unsigned long long)read_back, left,
           own_left);
    if (!counted) {
        printf("the pool did not count the memory in use\n");
    }

    CHECK(cudaEventDestroy(ready));
    CHECK(cudaEventDestroy(used));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaMemPoolDestroy(own_pool));
    return example_end(&example,
                       wrong == 0 && counted && left == 0 && own_left == 0 && read_back == threshold);
}
