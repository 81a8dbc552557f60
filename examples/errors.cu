/*
 * Uses the API wrongly and prints the error that each wrong use gets. The uses of the first part leave the
 * device usable. `errors trap` and `errors address` make a kernel fail, after which every call reports that
 * failure.
 */
#include "example.h"

__device__ int variable;

__global__ void set(int *where)
{
    *where = 42;
}

__global__ void set_dynamic(int *where)
{
    extern __shared__ int memory[];

    memory[threadIdx.x] = 1;
    *where = memory[threadIdx.x];
}

__global__ void trap()
{
    __trap();
}

static int unexpected;

/* Prints what a call got; an error must be one of the two that CUDA gives for it. */
static void expect(const char *use, cudaError_t got, cudaError_t expected, cudaError_t or_else)
{
    cudaError_t last = cudaGetLastError();

    printf("%s: %s\n", use, cudaGetErrorName(got));
    if ((got != expected && got != or_else) || last != got) {
        printf("  expected %s, the last error is %s\n", cudaGetErrorName(expected), cudaGetErrorName(last));
        unexpected++;
    }
}

static void expect(const char *use, cudaError_t got, cudaError_t expected)
{
    expect(use, got, expected, expected);
}

static cudaError_t after_launch()
{
    return cudaPeekAtLastError();
}

static void misuse_the_api()
{
    static char registered[8192];
    cudaDeviceProp properties;
    cudaFuncAttributes attributes;
    cudaEvent_t event, second, untimed;
    cudaStream_t stream;
    float milliseconds;
    void *pointer = NULL;
    int *device, number;

    expect("a device that is not there", cudaSetDevice(1000), cudaErrorInvalidDevice);
    expect("its properties", cudaGetDeviceProperties(&properties, 1000), cudaErrorInvalidDevice);
    expect("an attribute that is not there", cudaDeviceGetAttribute(&number, (cudaDeviceAttr)100000, 0),
           cudaErrorInvalidValue);
    expect("an exabyte", cudaMalloc(&pointer, (size_t)1 << 60), cudaErrorMemoryAllocation);
    expect("freeing what was not allocated", cudaFree((void *)0x1234500), cudaErrorInvalidValue);
    CHECK(cudaMalloc(&device, 1024));
    CHECK(cudaMalloc(&pointer, 1024));
    CHECK(cudaFree(pointer));
    expect("freeing twice", cudaFree(pointer), cudaErrorInvalidValue);
    expect("freeing nothing", cudaFree(NULL), cudaSuccess);
    expect("copying to nowhere", cudaMemcpy(NULL, &number, sizeof number, cudaMemcpyHostToDevice),
           cudaErrorInvalidValue);
    expect("copying in no direction", cudaMemcpy(device, &number, sizeof number, (cudaMemcpyKind)77),
           cudaErrorInvalidMemcpyDirection);
    expect("setting beyond the end", cudaMemset(device, 0, (size_t)1 << 50), cudaErrorInvalidValue);
    expect("a pitch below the width", cudaMemcpy2D(device, 4, device, 4, 16, 2, cudaMemcpyDeviceToDevice),
           cudaErrorInvalidPitchValue);
    expect("a symbol that is none", cudaMemcpyToSymbol((const void *)&number, &number, sizeof number),
           cudaErrorInvalidSymbol);
    expect("beyond a symbol's end", cudaMemcpyToSymbol(variable, registered, 4096), cudaErrorInvalidValue);
    expect("attributes of no kernel", cudaFuncGetAttributes(&attributes, NULL),
           cudaErrorInvalidDeviceFunction);

    set<<<1, 2048>>>(device);
    expect("too many threads", after_launch(), cudaErrorInvalidConfiguration);
    set<<<0, 32>>>(device);
    expect("no blocks", after_launch(), cudaErrorInvalidConfiguration);
    set<<<dim3(1, 70000), 32>>>(device);
    expect("too many blocks", after_launch(), cudaErrorInvalidConfiguration);
    set_dynamic<<<1, 32, 1 << 30>>>(device);
    expect("too much shared memory", after_launch(), cudaErrorInvalidValue);

    CHECK(cudaEventCreate(&event));
    CHECK(cudaEventCreate(&second));
    CHECK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    CHECK(cudaStreamCreate(&stream));
    expect("time between unrecorded events", cudaEventElapsedTime(&milliseconds, event, second),
           cudaErrorInvalidResourceHandle);
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaEventRecord(untimed, stream));
    CHECK(cudaStreamSynchronize(stream));
    expect("time of an event without time", cudaEventElapsedTime(&milliseconds, event, untimed),
           cudaErrorInvalidResourceHandle);
    expect("an event that was not recorded", cudaEventQuery(second), cudaSuccess);

    expect("unregistering what is not registered", cudaHostUnregister(registered),
           cudaErrorHostMemoryNotRegistered);
    CHECK(cudaHostRegister(registered, sizeof registered, cudaHostRegisterDefault));
    expect("registering twice", cudaHostRegister(registered, sizeof registered, cudaHostRegisterDefault),
           cudaErrorHostMemoryAlreadyRegistered);
    CHECK(cudaHostUnregister(registered));

    /* After all this the device works. */
    set<<<1, 1>>>(device);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&number, device, sizeof number, cudaMemcpyDeviceToHost));
    printf("a kernel afterwards: %d\n", number);
    unexpected += number != 42;
    CHECK(cudaEventDestroy(event));
    CHECK(cudaEventDestroy(second));
    CHECK(cudaEventDestroy(untimed));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(device));
}

static void fail_a_kernel(bool by_address)
{
    cudaError_t expected = by_address ? cudaErrorIllegalAddress : cudaErrorLaunchFailure;
    void *memory = NULL;

    CHECK(cudaMalloc(&memory, 256));
    if (by_address) {
        set<<<1, 1>>>(NULL);
    } else {
        trap<<<1, 1>>>();
    }
    expect(by_address ? "a kernel that writes to no address" : "a kernel that traps", cudaDeviceSynchronize(),
           expected);
    expect("allocating after it", cudaMalloc(&memory, 256), expected);
    expect("waiting after it", cudaDeviceSynchronize(), expected);
}

int main(int argc, char **argv)
{
    struct example example = example_begin("errors", "[api | trap | address]", argc, argv);
    const char *part = example.argument_count > 0 ? example.arguments[0] : "api";

    if (strcmp(part, "api") == 0) {
        misuse_the_api();
    } else if (strcmp(part, "trap") == 0 || strcmp(part, "address") == 0) {
        fail_a_kernel(part[0] == 'a');
    } else {
        fprintf(stderr, "errors: '%s' is not api, trap or address\n", part);
        return 2;
    }
    return example_end(&example, unexpected == 0);
}
