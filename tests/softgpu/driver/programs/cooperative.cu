// Cooperative groups: barriers over a whole grid, tiles, coalesced threads, and a grid that is too large.
#include "check.h"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

// Each round every element takes its neighbour's value plus one: wrong if any block runs ahead.
__global__ void rounds(int *a, int n, int count)
{
    cg::grid_group grid = cg::this_grid();
    int i = (int)grid.thread_rank();
    for (int r = 0; r < count; r++) {
        int neighbour = a[(i + 1) % n];
        grid.sync();
        a[i] = neighbour + 1;
        grid.sync();
    }
}

__global__ void groups(int *sums, int *odd)
{
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<16>(block);
    int sum = cg::reduce(tile, (int)threadIdx.x, cg::plus<int>());
    if (tile.thread_rank() == 0)
        sums[threadIdx.x / 16] = sum;
    if (threadIdx.x % 2 == 1) {
        auto active = cg::coalesced_threads();
        if (active.thread_rank() == 0)
            atomicAdd(odd, (int)active.size());
    }
}

int main()
{
    const int n = 512;
    int *device, host[n], size = n, count = 25;
    OK(cudaMalloc(&device, sizeof host));
    OK(cudaMemset(device, 0, sizeof host));
    void *arguments[] = {&device, &size, &count};
    OK(cudaLaunchCooperativeKernel((void *)rounds, 4, 128, arguments, 0, 0));
    OK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++)
        REQUIRE(host[i] == count);

    OK(cudaMemset(device, 0, sizeof host));
    groups<<<1, 128>>>(device, device + 100);
    OK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 8; i++)
        REQUIRE(host[i] == 16 * 16 * i + 120);
    REQUIRE(host[100] == 64);

    int per_multiprocessor, multiprocessors;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, rounds, 128, 0));
    OK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    int most = per_multiprocessor * multiprocessors;
    GIVES(cudaErrorCooperativeLaunchTooLarge,
          cudaLaunchCooperativeKernel((void *)rounds, most + 1, 128, arguments, 0, 0));
    (void)cudaGetLastError();
    return 0;
}
