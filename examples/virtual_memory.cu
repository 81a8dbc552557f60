/*
 * Virtual memory management by the driver's API: a vector that grows in place by mapping more memory behind it, with its
 * chunks on all devices in turn; a ring buffer, the same memory mapped twice side by side; memory that moves to another
 * address with its contents; and what must be refused. Kernels, copies and sets go across the borders of mappings.
 */
#include "example.h"
#include <cuda.h>
#include <vector>

#define CHECK_DRIVER(call) check_driver((call), #call, __LINE__)

static void check_driver(CUresult result, const char *call, int line)
{
    const char *name = "unknown error";

    if (result != CUDA_SUCCESS) {
        cuGetErrorName(result, &name);
        fflush(stdout);
        fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, line, call, name);
        printf("FAILED\n");
        exit(1);
    }
}

__global__ void fill(unsigned *values, unsigned begin, unsigned end)
{
    for (unsigned i = begin + blockIdx.x * blockDim.x + threadIdx.x; i < end; i += gridDim.x * blockDim.x) {
        values[i] = example_mix(i);
    }
}

__global__ void add_up(const unsigned *values, unsigned count, unsigned long long *sum)
{
    unsigned long long mine = 0;

    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        mine += values[i];
    }
    atomicAdd(sum, mine);
}

static std::vector<CUmemAccessDesc> everyone; /* the devices that use the memory */

static CUmemAllocationProp on_device(int device)
{
    CUmemAllocationProp properties = {};

    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    return properties;
}

/* Maps new memory of `device` at the address; the mapping alone keeps it. */
static void map_new(CUdeviceptr address, size_t size, int device)
{
    CUmemAllocationProp properties = on_device(device);
    CUmemGenericAllocationHandle handle;

    CHECK_DRIVER(cuMemCreate(&handle, size, &properties, 0));
    CHECK_DRIVER(cuMemMap(address, size, 0, handle, 0));
    CHECK_DRIVER(cuMemRelease(handle));
    CHECK_DRIVER(cuMemSetAccess(address, size, everyone.data(), everyone.size()));
}

/* The sum of `count` values by the device. */
static unsigned long long device_sum(CUdeviceptr address, unsigned count)
{
    unsigned long long *device_result, result;

    CHECK(cudaMalloc(&device_result, sizeof result));
    CHECK(cudaMemset(device_result, 0, sizeof result));
    add_up<<<16, 128>>>((const unsigned *)address, count, device_result);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&result, device_result, sizeof result, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device_result));
    return result;
}

/* A vector that grows chunk by chunk: its beginning stays where it is, and what is in it too. */
static bool grow(size_t chunk, int chunks)
{
    CUdeviceptr base;
    unsigned per_chunk = chunk / sizeof(unsigned), wrong = 0;
    unsigned long long expected = 0;
    bool same = true;

    CHECK_DRIVER(cuMemAddressReserve(&base, chunk * chunks, 0, 0, 0));
    for (int i = 0; i < chunks; i++) {
        CUdevice device = everyone[i % everyone.size()].location.id, ordinal = -1;
        unsigned long long flags = 0;

        map_new(base + i * chunk, chunk, device);
        CHECK_DRIVER(
            cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, base + i * chunk + 64));
        CHECK_DRIVER(cuMemGetAccess(&flags, &everyone[0].location, base + i * chunk));
        same = same && ordinal == device && flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        fill<<<16, 128>>>((unsigned *)base, i * per_chunk, (i + 1) * per_chunk);
        CHECK_LAUNCH();
        for (unsigned j = i * per_chunk; j < (i + 1) * per_chunk; j++) {
            expected += example_mix(j);
        }
        same = same && device_sum(base, (i + 1) * per_chunk) == expected;
    }

    std::vector<unsigned> all((size_t)per_chunk * chunks);
    CHECK_DRIVER(cuMemcpyDtoH(all.data(), base, all.size() * sizeof(unsigned)));
    for (size_t i = 0; i < all.size(); i++) {
        wrong += all[i] != example_mix(i);
        all[i] = example_mix(i + 77);
    }
    /* A part in the middle, from and to the host, over two borders. */
    CHECK_DRIVER(cuMemcpyHtoD(base + chunk / 2, all.data(), 2 * chunk));
    CHECK_DRIVER(cuMemcpyDtoD(base, base + chunk / 2 + chunk, chunk));
    CHECK_DRIVER(cuMemcpyDtoH(all.data(), base, chunk));
    for (unsigned i = 0; i < per_chunk; i++) {
        wrong += all[i] != example_mix(per_chunk + i + 77);
    }
    CHECK_DRIVER(cuMemUnmap(base, chunk * chunks));
    CHECK_DRIVER(cuMemAddressFree(base, chunk * chunks));
    printf("growing: %d chunks, sum %llu, %u wrong, answers %s\n", chunks, expected, wrong,
           same ? "right" : "wrong");
    return wrong == 0 && same;
}

/* A ring: what is written behind the end appears at the beginning. */
static bool ring(size_t chunk)
{
    CUmemAllocationProp properties = on_device(0), answer = {};
    CUmemGenericAllocationHandle handle, again;
    CUdeviceptr base, elsewhere;
    unsigned count = chunk / sizeof(unsigned), wrong = 0;
    std::vector<unsigned> values(count);

    CHECK_DRIVER(cuMemAddressReserve(&base, 2 * chunk, 0, 0, 0));
    CHECK_DRIVER(cuMemCreate(&handle, chunk, &properties, 0));
    CHECK_DRIVER(cuMemMap(base, chunk, 0, handle, 0));
    CHECK_DRIVER(cuMemMap(base + chunk, chunk, 0, handle, 0));
    CHECK_DRIVER(cuMemSetAccess(base, 2 * chunk, everyone.data(), everyone.size()));
    fill<<<16, 128>>>((unsigned *)base, count / 2, count / 2 + count);
    CHECK_LAUNCH();
    CHECK_DRIVER(cuCtxSynchronize());
    CHECK_DRIVER(cuMemcpyDtoH(values.data(), base, chunk));
    for (unsigned i = 0; i < count; i++) {
        wrong += values[i] != example_mix(i < count / 2 ? i + count : i);
    }

    /* The same memory at another address; a handle found by it keeps it. */
    CHECK_DRIVER(cuMemRelease(handle));
    CHECK_DRIVER(cuMemRetainAllocationHandle(&again, (void *)(base + chunk + 12)));
    CHECK_DRIVER(cuMemGetAllocationPropertiesFromHandle(&answer, again));
    wrong += answer.location.id != 0 || answer.type != CU_MEM_ALLOCATION_TYPE_PINNED;
    CHECK_DRIVER(cuMemUnmap(base, 2 * chunk));
    CHECK_DRIVER(cuMemAddressReserve(&elsewhere, chunk, 0, 0, 0));
    CHECK_DRIVER(cuMemMap(elsewhere, chunk, 0, again, 0));
    CHECK_DRIVER(cuMemSetAccess(elsewhere, chunk, everyone.data(), everyone.size()));
    CHECK_DRIVER(cuMemRelease(again));
    unsigned long long sum = 0;
    for (unsigned value : values) {
        sum += value;
    }
    wrong += device_sum(elsewhere, count) != sum;
    CHECK_DRIVER(cuMemUnmap(elsewhere, chunk));
    CHECK_DRIVER(cuMemAddressFree(elsewhere, chunk));
    CHECK_DRIVER(cuMemAddressFree(base, 2 * chunk));
    printf("ring: sum %llu, %u wrong\n", sum, wrong);
    return wrong == 0;
}

/* Counts what is not refused. */
static bool refusals(size_t chunk)
{
    CUmemAllocationProp properties = on_device(0);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base;
    unsigned value = 0, accepted = 0;

    CHECK_DRIVER(cuMemAddressReserve(&base, 2 * chunk, 0, 0, 0));
    CHECK_DRIVER(cuMemCreate(&handle, chunk, &properties, 0));
    accepted += cuMemSetAccess(base, chunk, everyone.data(), everyone.size()) == CUDA_SUCCESS;
    accepted += cuMemcpyDtoH(&value, base, sizeof value) == CUDA_SUCCESS;
    CHECK_DRIVER(cuMemMap(base, chunk, 0, handle, 0));
    accepted += cuMemMap(base, chunk, 0, handle, 0) == CUDA_SUCCESS;
    CHECK_DRIVER(cuMemSetAccess(base, chunk, everyone.data(), everyone.size()));
    CHECK_DRIVER(cuMemcpyDtoH(&value, base + chunk - sizeof value, sizeof value));
    accepted += cuMemcpyDtoH(&value, base + chunk, sizeof value) == CUDA_SUCCESS;
    accepted += cuMemFree(base) == CUDA_SUCCESS;
    accepted += cuMemUnmap(base, 2 * chunk) == CUDA_SUCCESS;
    accepted += cuMemAddressFree(base, 2 * chunk) == CUDA_SUCCESS;
    CHECK_DRIVER(cuMemUnmap(base, chunk));
    accepted += cuMemcpyDtoH(&value, base, sizeof value) == CUDA_SUCCESS;
    CHECK_DRIVER(cuMemRelease(handle));
    CHECK_DRIVER(cuMemAddressFree(base, 2 * chunk));
    accepted += cuMemCreate(&handle, chunk - 1, &properties, 0) == CUDA_SUCCESS;
    accepted += cuMemAddressReserve(&base, 0, 0, 0, 0) == CUDA_SUCCESS;
    printf("refusals: %u accepted\n", accepted);
    return accepted == 0;
}

int main(int argc, char **argv)
{
    struct example example = example_begin("virtual_memory", "[DEVICES_AT_LEAST [CHUNKS]]", argc, argv);
    int least = example_number(&example, 0, 1, 64, 1), chunks = example_number(&example, 1, 3, 64, 5);
    int devices = 0, supported = 0;
    CUmemAllocationProp properties = on_device(0);
    size_t granularity = 0;

    CHECK(cudaFree(0)); /* initialises, and makes the first device's context current */
    CHECK_DRIVER(cuDeviceGetCount(&devices));
    for (int device = 0; device < devices; device++) {
        int reachable = device == 0;

        CHECK_DRIVER(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                          device));
        if (device > 0) {
            CHECK_DRIVER(cuDeviceCanAccessPeer(&reachable, 0, device));
        }
        if (supported && reachable) {
            CUmemAccessDesc access = {};

            access.location = on_device(device).location;
            access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            everyone.push_back(access);
        }
    }
    if ((int)everyone.size() < least) {
        fprintf(stderr, "virtual_memory: %d devices that manage virtual memory, not %d\n",
                (int)everyone.size(), least);
        return example_end(&example, 0);
    }
    CHECK_DRIVER(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    bool good = grow(granularity, chunks);
    good = ring(granularity) && good;
    good = refusals(granularity) && good;
    return example_end(&example, good);
}
