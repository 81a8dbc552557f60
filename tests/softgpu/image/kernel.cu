// kernel.cu - compiled at build time into fat binaries of every compression mode.
__device__ int offset = 5;
extern "C" __global__ void add_offset(int *data, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        data[i] += offset;
}
