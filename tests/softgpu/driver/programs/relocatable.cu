// Relocatable device code in two files: a kernel here calls a function and counts in a variable of the other.
#include "check.h"

extern __device__ int twice(int x);
extern __device__ int shared_counter;
int counted_there();

__global__ void doubles(int *out)
{
    out[threadIdx.x] = twice((int)threadIdx.x);
    atomicAdd(&shared_counter, 1);
}

int main()
{
    int *device, host[32];
    OK(cudaMalloc(&device, sizeof host));
    doubles<<<1, 32>>>(device);
    OK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++)
        REQUIRE(host[i] == 2 * i);
    REQUIRE(counted_there() == 133);
    return 0;
}
