// kernel.cu - compiled at build time into fat binaries of every compression mode.
__device__ int offset = 5;
__constant__ float scale[3] = {1, 2, 3};
__managed__ long long both;
static __device__ unsigned char own[77];
extern "C" __global__ void add_offset(int *data, int n)
{
    __shared__ int not_a_variable[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    not_a_variable[threadIdx.x % 32] = own[i % 77];
    __syncthreads();
    if (i < n)
        data[i] += offset + not_a_variable[0];
    if (n < 0) {
        data[i] = (int)scale[i % 3] + (int)both;
        own[i % 77] = 1;
    }
}
