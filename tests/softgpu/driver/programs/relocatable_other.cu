// The other file of relocatable.cu.
#include "check.h"

__device__ int shared_counter = 100;

__device__ int twice(int x)
{
    return 2 * x;
}

__global__ void count()
{
    shared_counter++;
}

int counted_there()
{
    int value;
    count<<<1, 1>>>();
    OK(cudaMemcpyFromSymbol(&value, shared_counter, sizeof value));
    return value;
}
