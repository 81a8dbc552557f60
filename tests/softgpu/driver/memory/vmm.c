/*
 * Virtual memory management: reservations, allocations, mappings that alias, access, and what counts as free.
 */
#include "softgpu/driver/range/range.h"
#include "tests/softgpu/driver/support.h"

#define CHUNK (2u << 20)

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
static const CUmemAccessDesc writable = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static size_t free_memory(void)
{
    size_t free_bytes, total;
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    return free_bytes;
}

static CUdeviceptr reserve(size_t size)
{
    CUdeviceptr at = 0;
    OK(cuMemAddressReserve(&at, size, 0, 0, 0));
    return at;
}

static CUmemGenericAllocationHandle create(size_t size)
{
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemCreate(&handle, size, &on_device, 0));
    return handle;
}

Test(vmm, what_the_device_says)
{
    size_t granularity = 0;
    int supported = 0;
    start_device();
    OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    cr_assert_eq(supported, 1);
    OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
    cr_assert_eq(supported, 1);
    OK(cuMemGetAllocationGranularity(&granularity, &on_device, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    cr_assert_eq(granularity, CHUNK);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationGranularity(&granularity, &on_device, 7));
    CUmemAllocationProp other = on_device;
    other.location.id = 1;
    EXPECT(CUDA_ERROR_INVALID_DEVICE,
           cuMemGetAllocationGranularity(&granularity, &other, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
}

Test(vmm, reservations)
{
    CUdeviceptr again = 0;
    start_device();
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&again, 0, 0, 0, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&again, CHUNK + 1, 0, 0, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&again, CHUNK, 3, 0, 0));
    CUdeviceptr a = reserve(4 * CHUNK), b = reserve(CHUNK);
    cr_assert(a % CHUNK == 0 && (b >= a + 4 * CHUNK || b + CHUNK <= a));
    OK(cuMemAddressReserve(&again, CHUNK, 1ull << 32, 0, 0));
    cr_assert_eq(again % (1ull << 32), 0);
    OK(cuMemAddressFree(again, CHUNK));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(a, CHUNK));
    OK(cuMemAddressFree(a, 4 * CHUNK));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(a, 4 * CHUNK));
    OK(cuMemAddressReserve(&again, CHUNK, 0, a + CHUNK, 0)); /* where it was asked for */
    cr_assert_eq(again, a + CHUNK);
    OK(cuMemAddressReserve(&again, CHUNK, 0, a + CHUNK, 0)); /* elsewhere, since that is taken */
    cr_assert_neq(again, a + CHUNK);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(b, 0, 1));
}

Test(vmm, mappings_of_one_allocation_alias)
{
    uint32_t out[2] = {0};
    start_device();
    const size_t before = free_memory();
    CUdeviceptr at = reserve(4 * CHUNK);
    CUmemGenericAllocationHandle one = create(CHUNK), two = create(2 * CHUNK);
    cr_assert_eq(free_memory(), before - 3 * CHUNK);
    OK(cuMemMap(at, CHUNK, 0, one, 0));
    OK(cuMemMap(at + CHUNK, 2 * CHUNK, 0, two, 0));
    OK(cuMemMap(at + 3 * CHUNK, CHUNK, 0, one, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, CHUNK, 0, two, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 4 * CHUNK, CHUNK, 0, two, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(at, 1, 1)); /* no access yet */
    OK(cuMemSetAccess(at, 4 * CHUNK, &writable, 1));
    OK(cuMemsetD32_v2(at, 5, 4 * CHUNK / 4)); /* across all of them */
    OK(cuMemsetD32_v2(at + 3 * CHUNK, 6, 1));
    OK(cuMemcpyDtoH_v2(out, at, 8));
    cr_assert(out[0] == 6 && out[1] == 5);
    OK(cuMemcpyDtoH_v2(out, at + CHUNK - 4, 8)); /* over the border */
    cr_assert(out[0] == 5 && out[1] == 5);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(out, at + 4 * CHUNK - 4, 8));

    /* The memory stays as long as a handle or a mapping does. */
    OK(cuMemRelease(two));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRelease(two));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, CHUNK, 0, two, 0));
    OK(cuMemUnmap(at, CHUNK));
    OK(cuMemUnmap(at + 3 * CHUNK, CHUNK));
    cr_assert_eq(free_memory(), before - 3 * CHUNK);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(at, 1, 1));
    OK(cuMemMap(at + 3 * CHUNK, CHUNK, 0, one, 0));
    OK(cuMemSetAccess(at + 3 * CHUNK, CHUNK, &writable, 1));
    OK(cuMemcpyDtoH_v2(out, at + 3 * CHUNK, 8));
    cr_assert(out[0] == 6 && out[1] == 5);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at, 4 * CHUNK)); /* still in use */
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at, 4 * CHUNK));       /* not all of it is mapped */
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at + CHUNK, CHUNK));   /* a part of a mapping */
    OK(cuMemUnmap(at + CHUNK, 3 * CHUNK));
    OK(cuMemRelease(one));
    cr_assert_eq(free_memory(), before);
    OK(cuMemAddressFree(at, 4 * CHUNK));
}

Test(vmm, access_of_mappings)
{
    CUmemAccessDesc access = writable;
    unsigned long long flags = 9;
    uint32_t out = 0;
    start_device();
    CUdeviceptr at = reserve(2 * CHUNK);
    CUmemGenericAllocationHandle handle = create(2 * CHUNK);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(at, 2 * CHUNK, &access, 1));
    OK(cuMemMap(at, 2 * CHUNK, 0, handle, 0));
    OK(cuMemGetAccess(&flags, &access.location, at));
    cr_assert_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(at, CHUNK, &access, 1));
    OK(cuMemSetAccess(at, 2 * CHUNK, &access, 1));
    OK(cuMemsetD32_v2(at, 3, 1));
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    OK(cuMemSetAccess(at, 2 * CHUNK, &access, 1));
    OK(cuMemGetAccess(&flags, &access.location, at + CHUNK));
    cr_assert_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(at, 4, 1));
    OK(cuMemcpyDtoH_v2(&out, at, 4));
    cr_assert_eq(out, 3);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    OK(cuMemSetAccess(at, 2 * CHUNK, &access, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(&out, at, 4));
    access.flags = 2;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(at, 2 * CHUNK, &access, 1));
    OK(cuCtxSynchronize());
}

Test(vmm, handles)
{
    CUmemGenericAllocationHandle again = 0;
    CUmemAllocationProp properties = {0}, shared = on_device;
    int ordinal = -1;
    CUcontext owner = (CUcontext)8;
    start_device();
    const size_t before = free_memory();
    CUmemGenericAllocationHandle handle = create(CHUNK);
    CUdeviceptr at = reserve(CHUNK);
    OK(cuMemGetAllocationPropertiesFromHandle(&properties, handle));
    cr_assert(properties.type == on_device.type && properties.location.id == 0);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at));
    OK(cuMemMap(at, CHUNK, 0, handle, 0));
    OK(cuMemRelease(handle));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationPropertiesFromHandle(&properties, handle));
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + 100)));
    cr_assert_eq(again, handle);
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at));
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at));
    cr_assert_eq(ordinal, 0);
    OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, at));
    cr_assert_null(owner);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(at));
    OK(cuMemUnmap(at, CHUNK));
    OK(cuMemRelease(handle));
    cr_assert_eq(free_memory(), before - CHUNK);
    OK(cuMemRelease(handle));
    cr_assert_eq(free_memory(), before);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRelease(0));

    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, CHUNK - 4096, &on_device, 0));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, (before / CHUNK + 1) * CHUNK, &on_device, 0));
    shared.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    shared.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, CHUNK, &shared, 0));
    cr_assert_eq(free_memory(), before);
}

/* Kernels see mappings as well, and what is not mapped faults. */
/* Of a context that is not current either. */
Test(vmm, what_queued_work_uses_stays_mapped)
{
    CUcontext primary = start_device(), other;
    CUmodule module;
    CUfunction slow, add;
    CUstream stream;
    uint32_t ms = 200, n = CHUNK / 4, x = 1;
    CUdeviceptr at = reserve(CHUNK);
    CUmemGenericAllocationHandle handle = create(CHUNK);
    OK(cuMemMap(at, CHUNK, 0, handle, 0));
    OK(cuMemSetAccess(at, CHUNK, &writable, 1));
    OK(cuCtxCreate_v2(&other, 0, 0));
    OK(cuModuleLoadData(&module, kernels_ptx));
    OK(cuModuleGetFunction(&slow, module, "slow"));
    OK(cuModuleGetFunction(&add, module, "add"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchKernel(slow, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&ms}, NULL));
    OK(cuLaunchKernel(add, n / 256, 1, 1, 256, 1, 1, 0, stream, (void *[]){&at, &n, &x}, NULL));
    OK(cuCtxSetCurrent(primary));
    OK(cuMemUnmap(at, CHUNK));
    OK(cuCtxSetCurrent(other));
    OK(cuStreamQuery(stream));
    OK(cuMemRelease(handle));
}

Test(vmm, kernels_and_mappings)
{
    uint32_t n = 1, x = 4, out = 0;
    start_device();
    CUdeviceptr at = reserve(2 * CHUNK), high = at + CHUNK;
    CUmemGenericAllocationHandle handle = create(CHUNK);
    OK(cuMemMap(at, CHUNK, 0, handle, 0));
    OK(cuMemMap(high, CHUNK, 0, handle, 0));
    OK(cuMemSetAccess(at, 2 * CHUNK, &writable, 1));
    launch_one("add", NULL, (void *[]){&at, &n, &x});
    launch_one("add", NULL, (void *[]){&high, &n, &x});
    OK(cuMemUnmap(high, CHUNK)); /* waits for the kernel */
    OK(cuMemcpyDtoH_v2(&out, at, 4));
    cr_assert_eq(out, 8);
    launch_one("add", NULL, (void *[]){&high, &n, &x});
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}
