// kernel.cu - the kernel of runtime_user.c, as PTX that every runtime's programs could carry.
#include <cstdio>

extern "C" __global__ void add(int *p, int n, int summand)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        p[i] += summand;
    if (i == 0)
        printf("the kernel adds %d\n", summand);
}
