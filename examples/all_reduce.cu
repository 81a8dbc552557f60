/*
 * Sums over all devices by NCCL, of more and more numbers: each is checked, and --bandwidth prints how fast the sums were, on stderr,
 * as time and as the rate at which a ring's links carry it (bus bandwidth: 2 (n-1)/n of the bytes). --one-twice asks for two ranks on one
 * device instead, which NCCL refuses.
 */
#include "example_nccl.h"

#include <vector>

#define ROUNDS 5

struct rank {
    ncclComm_t comm;
    cudaStream_t stream;
    unsigned *values, *sums;
    unsigned *wrong; /* how many of the sums are */
};

__global__ void fill(unsigned *values, size_t count, unsigned rank)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += gridDim.x * (size_t)blockDim.x) {
        values[i] = example_mix((unsigned)i) + rank;
    }
}

/* Each rank has added its number to the same values. */
__global__ void compare(const unsigned *sums, size_t count, unsigned ranks, unsigned *wrong)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += gridDim.x * (size_t)blockDim.x) {
        if (sums[i] != example_mix((unsigned)i) * ranks + ranks * (ranks - 1) / 2) {
            atomicAdd(wrong, 1);
        }
    }
}

static void sum(std::vector<rank> &ranks, size_t count)
{
    NCCL(ncclGroupStart());
    for (rank &rank : ranks) {
        NCCL(ncclAllReduce(rank.values, rank.sums, count, ncclUint32, ncclSum, rank.comm, rank.stream));
    }
    NCCL(ncclGroupEnd());
}

static void wait(std::vector<rank> &ranks)
{
    for (size_t i = 0; i < ranks.size(); i++) {
        ncclResult_t state;
        CHECK(cudaSetDevice((int)i));
        CHECK(cudaStreamSynchronize(ranks[i].stream));
        NCCL(ncclCommGetAsyncError(ranks[i].comm, &state));
        NCCL(state);
    }
}

/* Seconds that a sum takes. */
static double measure(std::vector<rank> &ranks, size_t count)
{
    struct timespec start, end;

    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int round = 0; round < ROUNDS; round++) {
        sum(ranks, count);
    }
    wait(ranks);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec)) / ROUNDS;
}

static unsigned wrong_sums(std::vector<rank> &ranks, size_t count)
{
    unsigned all = 0;

    for (size_t i = 0; i < ranks.size(); i++) {
        unsigned wrong = 0;
        CHECK(cudaSetDevice((int)i));
        CHECK(cudaMemsetAsync(ranks[i].wrong, 0, sizeof wrong, ranks[i].stream));
        compare<<<32, 128, 0, ranks[i].stream>>>(ranks[i].sums, count, (unsigned)ranks.size(),
                                                 ranks[i].wrong);
        CHECK_LAUNCH();
        CHECK(cudaMemcpyAsync(&wrong, ranks[i].wrong, sizeof wrong, cudaMemcpyDeviceToHost, ranks[i].stream));
        CHECK(cudaStreamSynchronize(ranks[i].stream));
        all += wrong;
    }
    return all;
}

static bool is_refused_twice(void)
{
    int devices[2] = {0, 0};
    ncclComm_t comms[2];
    ncclResult_t result = ncclCommInitAll(comms, 2, devices);

    printf("two ranks on one device: %s\n", ncclGetErrorString(result));
    return result == ncclInvalidUsage;
}

int main(int argc, char **argv)
{
    struct example example = example_begin("all_reduce", "[--bandwidth | --one-twice | LARGEST]", argc, argv);
    if (example.argument_count == 1 && strcmp(example.arguments[0], "--one-twice") == 0) {
        return example_end(&example, is_refused_twice());
    }
    bool bandwidth = example.argument_count == 1 && strcmp(example.arguments[0], "--bandwidth") == 0;
    size_t most = bandwidth ? 1 << 22 : (size_t)example_number(&example, 0, 1, 1 << 28, 1 << 20);
    int n = 0;
    bool good = true;

    CHECK(cudaGetDeviceCount(&n));
    std::vector<rank> ranks(n);
    std::vector<ncclComm_t> comms(n);
    NCCL(ncclCommInitAll(comms.data(), n, NULL));
    for (int i = 0; i < n; i++) {
        ranks[i].comm = comms[i];
        CHECK(cudaSetDevice(i));
        CHECK(cudaStreamCreate(&ranks[i].stream));
        CHECK(cudaMalloc(&ranks[i].values, most * sizeof(unsigned)));
        CHECK(cudaMalloc(&ranks[i].sums, most * sizeof(unsigned)));
        CHECK(cudaMalloc(&ranks[i].wrong, sizeof(unsigned)));
        fill<<<32, 128, 0, ranks[i].stream>>>(ranks[i].values, most, (unsigned)i);
        CHECK_LAUNCH();
    }
    printf("%d devices\n", n);
    for (size_t count = 1; count <= most; count *= 4) {
        sum(ranks, count);
        wait(ranks);
        double seconds = measure(ranks, count);
        unsigned wrong = wrong_sums(ranks, count);
        good = good && wrong == 0;
        printf("%8zu numbers: %u wrong sums\n", count, wrong);
        if (bandwidth) {
            fprintf(stderr, "%9zu bytes: %10.1f us, %8.3f GB/s bus bandwidth\n", count * sizeof(unsigned),
                    seconds * 1e6, (double)count * sizeof(unsigned) * 2 * (n - 1) / n / seconds / 1e9);
        }
    }
    for (int i = 0; i < n; i++) {
        NCCL(ncclCommDestroy(ranks[i].comm));
    }
    return example_end(&example, good);
}
