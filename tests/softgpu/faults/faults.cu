/*
 * faults.cu - a kernel that goes wrong in the way that is named, and what the API says of it, now and afterwards.
 *
 * usage: faults KIND
 */
#include <cassert>
#include <cstdio>
#include <cstring>


__global__ void healthy(int *words)
{
    words[threadIdx.x] = threadIdx.x;
}

/* Without barriers: the threads of a block are a loop. */
__global__ void misaligned(int *words)
{
    if (threadIdx.x == 5 && blockIdx.x == 1)
        *reinterpret_cast<int *>(reinterpret_cast<char *>(words) + threadIdx.x) = 3; /* misaligned */
}

__global__ void misaligned_loop(int *words, int bytes)
{
    short *shorts = reinterpret_cast<short *>(reinterpret_cast<char *>(words) + bytes);
    for (int i = threadIdx.x; i < 64; i += 32)
        shorts[i] += i; /* misaligned_loop */
}

__global__ void misaligned_vector(int *words)
{
    if (threadIdx.x == 5)
        *reinterpret_cast<float4 *>(words + threadIdx.x) = make_float4(1, 2, 3, 4); /* misaligned_vector */
}

__global__ void misaligned_atomic(int *words)
{
    if (threadIdx.x == 9)
        atomicAdd(reinterpret_cast<int *>(reinterpret_cast<char *>(words) + 2), 1);
}

__global__ void misaligned_barrier(int *words)
{
    __shared__ char bytes[64];
    bytes[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 5 && blockIdx.x == 1)
        words[1] = *reinterpret_cast<int *>(bytes + bytes[threadIdx.x]); /* misaligned_barrier */
}

__global__ void out_of_range(int *words)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 70)
        words[1 << 20] = 3; /* out_of_range */
}

__global__ void null_pointer(const int *words, int *result)
{
    if (threadIdx.x == 3)
        *result = words[0]; /* null_pointer */
}

__global__ void shared_out_of_range(int *words, int offset)
{
    extern __shared__ int dynamic[];
    dynamic[threadIdx.x + offset] = 1; /* shared_out_of_range */
    __syncthreads();
    words[0] = dynamic[3];
}

__global__ void trap(int *words)
{
    if (threadIdx.x == 3)
        asm("trap;"); /* trap */
    words[0] = 1;
}

__global__ void assertion(int *words)
{
    assert(words[0] != 0 || threadIdx.x != 4);
}

__global__ void spinning(volatile int *words)
{
    while (words[0] == 0)
        ;
}

__global__ void counting(int *words)
{
    for (unsigned i = 1; i != 0; i += 2) /* never */
        if (i * i == 7)
            words[0] = i;
}

__device__ int recurse(int *words, int depth)
{
    int frame[64];
    for (int i = 0; i < 64; i++)
        frame[i] = depth + words[i & 1];
    return depth == 0 ? frame[words[0] & 63] : recurse(words, depth - 1) + recurse(frame, depth - 2) + frame[depth & 63];
}

__global__ void stack_overflow(int *words)
{
    words[0] = recurse(words, 1000000);
}

__global__ void atomic_on_local(int *words, int local)
{
    int own[4] = {1, 2, 3, 4};
    atomicAdd((local ? own : words) + threadIdx.x % 4, 1);
    words[1] = own[local];
}

__global__ void bad_pointer(int *words, unsigned long long pointer)
{
    words[0] = reinterpret_cast<int (*)(int)>(pointer)(3);
}

__device__ int (*indirect)(int *, int) = recurse; /* a function whose address is taken */

static bool launch(const char *kind, int *words)
{
#define KIND(name) (strcmp(kind, #name) == 0)
    if (KIND(healthy))
        healthy<<<1, 32>>>(words);
    else if (KIND(misaligned))
        misaligned<<<2, 32>>>(words);
    else if (KIND(misaligned_loop))
        misaligned_loop<<<2, 32>>>(words, 1);
    else if (KIND(misaligned_vector))
        misaligned_vector<<<1, 32>>>(words);
    else if (KIND(misaligned_atomic))
        misaligned_atomic<<<1, 32>>>(words);
    else if (KIND(misaligned_barrier))
        misaligned_barrier<<<2, 32>>>(words);
    else if (KIND(out_of_range))
        out_of_range<<<4, 32>>>(words);
    else if (KIND(null_pointer))
        null_pointer<<<1, 32>>>(nullptr, words);
    else if (KIND(shared_out_of_range))
        shared_out_of_range<<<1, 32, 128>>>(words, 4096);
    else if (KIND(trap))
        trap<<<1, 32>>>(words);
    else if (KIND(assertion))
        assertion<<<1, 32>>>(words);
    else if (KIND(spinning))
        spinning<<<3, 32>>>(words);
    else if (KIND(counting))
        counting<<<3, 32>>>(words);
    else if (KIND(stack_overflow))
        stack_overflow<<<1, 32>>>(words);
    else if (KIND(atomic_on_local))
        atomic_on_local<<<1, 32>>>(words, 1);
    else if (KIND(bad_pointer))
        bad_pointer<<<1, 32>>>(words, 0x1234);
    else
        return false;
    return true;
}

int main(int count, char **arguments)
{
    int *words;
    if (count != 2 || cudaMalloc(&words, 4096) != cudaSuccess || cudaMemset(words, 0, 4096) != cudaSuccess)
        return 2;
    if (!launch(arguments[1], words))
        return 2;
    cudaError_t error = cudaDeviceSynchronize();
    printf("%s: %s (%d)\n", arguments[1], cudaGetErrorName(error), error);
    error = cudaMemset(words, 1, 4); /* the context is no longer usable */
    printf("then: %s\n", cudaGetErrorName(error));
    error = cudaFree(words);
    printf("then: %s\n", cudaGetErrorName(error));
    error = cudaDeviceReset();
    return 0;
}
