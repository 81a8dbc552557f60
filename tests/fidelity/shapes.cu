/* shapes.cu - kernels with parameters of all sizes, and variables of all kinds, as machine code (shapes.c). */
struct mixed {
    char c;
    double d;
    short s[3];
};
__device__ int numbers[16];
__constant__ float constants[8];
__managed__ int shared_by_all[4];

extern "C" __global__ void many(int *p, char c, short s, double d, mixed m, float4 v, char last)
{
    p[0] = numbers[1] + constants[2] + c + s + d + m.s[1] + v.x + shared_by_all[1] + last;
    numbers[2] = 1;
}
extern "C" __global__ void none(void)
{
}
extern "C" __global__ void one(const int *p)
{
    __shared__ int s[100];
    s[threadIdx.x] = p[0];
    __syncthreads();
    numbers[3] = s[0];
}
