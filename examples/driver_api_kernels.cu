/*
 * The kernels of driver_api.c. The build turns this file into PTX text and into a fat binary; the program
 * carries both (driver_api_images.S).
 */
struct range {
    int first;
    short step;
    double scale;
};

extern "C" {
__device__ unsigned launches;
__constant__ float offset;

__global__ void fill(double *out, int count, struct range range)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < count) {
        out[i] = (range.first + i * range.step) * range.scale + offset;
    }
    if (i == 0) {
        launches++;
    }
}

/* Reverses each block's part through dynamic shared memory. */
__global__ void reverse(double *values, int count)
{
    extern __shared__ double shared[];
    int base = blockIdx.x * blockDim.x;
    int length = min((int)blockDim.x, count - base);

    if (threadIdx.x < length) {
        shared[threadIdx.x] = values[base + threadIdx.x];
    }
    __syncthreads();
    if (threadIdx.x < length) {
        values[base + threadIdx.x] = shared[length - 1 - threadIdx.x];
    }
    if (base + threadIdx.x == 0) {
        launches++;
    }
}
}
