/*
 * library.cu - one of the device libraries of the start-up benchmark. images.py makes the others of its PTX by putting
 * a number in place of the XX of the names: as many kernels and variables as a small library of a framework has.
 */
#define KERNEL(n)                                                                                              \
    extern "C" __global__ void libXX_kernel##n(float *data, float factor, int count)                           \
    {                                                                                                          \
        const int i = blockIdx.x * blockDim.x + threadIdx.x;                                                   \
        if (i < count)                                                                                         \
            data[i] = data[i] * factor + libXX_table[i % 16] + n;                                              \
    }

extern "C" {
__device__ float libXX_table[16];
__constant__ int libXX_mode;
}

#define KERNELS(a) KERNEL(a##0) KERNEL(a##1) KERNEL(a##2) KERNEL(a##3) KERNEL(a##4) KERNEL(a##5) KERNEL(a##6) KERNEL(a##7)
KERNELS(1)
KERNELS(2)
KERNELS(3)
KERNELS(4)
