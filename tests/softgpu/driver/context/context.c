/* Contexts: initialisation, primary and explicit ones, the thread's stack, limits, errors that stick. */
#include "softgpu/driver/core/device.h"
#include "tests/softgpu/driver/support.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

Test(init, nothing_works_before_it)
{
    int n;
    CUcontext context;
    CUdeviceptr p;
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuCtxGetCurrent(&context));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&p, 16));
    OK(cuDriverGetVersion(&n));
    cr_assert_eq(n, 13000);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    OK(cuInit(0));
    OK(cuInit(0));
    OK(cuDeviceGetCount(&n));
    cr_assert_eq(n, 1);
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&p, 16));
}

Test(init, a_fork_is_not_initialised)
{
    start_device();
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr p;
        _exit(cuMemAlloc_v2(&p, 16) == CUDA_ERROR_NOT_INITIALIZED && cuInit(0) == CUDA_ERROR_NOT_INITIALIZED
                  ? 0
                  : 1);
    }
    int status;
    waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, 16));
}

Test(device, says_what_it_is)
{
    OK(cuInit(0));
    CUdevice device;
    char name[64], bus[16];
    int value;
    size_t total;
    CUuuid uuid, again;
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 1));
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, -1));
    OK(cuDeviceGet(&device, 0));
    OK(cuDeviceGetName(name, sizeof name, 0));
    cr_assert_str_eq(name, "Software GPU");
    OK(cuDeviceGetName(name, 5, 0));
    cr_assert_str_eq(name, "Soft");
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    cr_assert_eq(value, 13);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    cr_assert_eq(value, 32);
    /* Who measures fills as much before each measurement: no more than GPUs have. */
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 0));
    cr_assert(value > 0 && value <= 64 << 20, "%d", value);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0));
    cr_assert_eq(value, 0);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, 0, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0));
    OK(cuDeviceTotalMem_v2(&total, 0));
    cr_assert_gt(total, 1u << 20);
    OK(cuDeviceGetUuid_v2(&uuid, 0));
    OK(cuDeviceGetUuid_v2(&again, 0));
    cr_assert_arr_eq(uuid.bytes, again.bytes, 16);
    OK(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
    OK(cuDeviceGetByPCIBusId(&device, bus));
    cr_assert_eq(device, 0);
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetByPCIBusId(&device, "0000:ff:1f.0"));
}

Test(primary, lives_while_it_is_retained)
{
    CUcontext a, b, current;
    unsigned flags;
    int active;
    CUdeviceptr p;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    cr_assert_eq(active, 0);
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuDevicePrimaryCtxSetFlags_v2(0, 3));
    OK(cuDevicePrimaryCtxRetain(&a, 0));
    OK(cuDevicePrimaryCtxRetain(&b, 0));
    cr_assert_eq(a, b);
    OK(cuCtxGetCurrent(&current));
    cr_assert_null(current);
    OK(cuCtxSetCurrent(a));
    OK(cuMemAlloc_v2(&p, 100));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuMemsetD8_v2(p, 1, 100));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&p, 100));
    OK(cuDevicePrimaryCtxRetain(&b, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(p)); /* it went with the first life */
    OK(cuMemAlloc_v2(&p, 100));
}

Test(primary, reset_frees_everything)
{
    size_t before, after, total;
    CUdeviceptr p;
    CUmodule module;
    start_device();
    OK(cuMemGetInfo_v2(&before, &total));
    OK(cuMemGetInfo_v2(NULL, &after)); // who wants one of the two may leave the other out
    cr_assert_eq(after, total);
    OK(cuMemAlloc_v2(&p, 1 << 20));
    OK(cuModuleLoadData(&module, kernels_ptx));
    OK(cuDevicePrimaryCtxReset_v2(0));
    OK(cuMemGetInfo_v2(&after, &total));
    cr_assert_eq(before, after);
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
}

Test(explicit, create_push_pop_destroy)
{
    CUcontext a, b, current;
    unsigned version;
    unsigned long long id_a, id_b;
    CUdevice device;
    OK(cuInit(0));
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_v2(&a, 0, 7));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&current));
    OK(cuCtxCreate_v2(&a, 0, 0));
    OK(cuCtxCreate_v4(&b, NULL, CU_CTX_SCHED_YIELD, 0));
    OK(cuCtxGetCurrent(&current));
    cr_assert_eq(current, b);
    OK(cuCtxGetId(a, &id_a));
    OK(cuCtxGetId(NULL, &id_b));
    cr_assert_neq(id_a, id_b);
    OK(cuCtxGetApiVersion(a, &version));
    cr_assert_eq(version, 3020);
    OK(cuCtxPopCurrent_v2(&current));
    cr_assert_eq(current, b);
    OK(cuCtxGetDevice(&device));
    OK(cuCtxDestroy_v2(a));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(a));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent_v2(a));
    OK(cuCtxPushCurrent_v2(b));
    OK(cuCtxSetCurrent(NULL));
    OK(cuCtxGetCurrent(&current));
    cr_assert_null(current);
    OK(cuCtxDestroy_v2(b));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2((CUcontext)0x1234));
}

static void *uses_destroyed(void *context)
{
    CUdeviceptr p;
    return (void *)(intptr_t)(cuCtxSetCurrent(context) == CUDA_SUCCESS ? cuMemAlloc_v2(&p, 4)
                                                                       : CUDA_ERROR_UNKNOWN);
}

Test(explicit, destroyed_by_another_thread)
{
    CUcontext context;
    CUdeviceptr p;
    pthread_t thread;
    void *result;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    pthread_create(&thread, NULL, uses_destroyed, context);
    pthread_join(thread, &result);
    cr_assert_eq((intptr_t)result, CUDA_SUCCESS);
    OK(cuCtxPushCurrent_v2(context));
    OK(cuCtxDestroy_v2(context)); /* pops one of the two entries */
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&p, 4));
}

Test(explicit, limits_and_configuration)
{
    size_t value;
    CUfunc_cache cache;
    int least, greatest;
    start_device();
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4000));
    OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    cr_assert_eq(value, 4000);
    OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 16 << 20));
    OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
    cr_assert_eq(value, 16 << 20);
    EXPECT(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxSetLimit(CU_LIMIT_SHMEM_SIZE, 1));
    value = 9;
    OK(cuCtxGetLimit(&value, CU_LIMIT_CIG_ENABLED));
    cr_assert_eq(value, 0);
    EXPECT(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxSetLimit(CU_LIMIT_CIG_ENABLED, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCtxGetLimit(&value, (CUlimit)99));
    OK(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
    OK(cuCtxGetCacheConfig(&cache));
    cr_assert_eq(cache, CU_FUNC_CACHE_PREFER_L1);
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    cr_assert(least == 0 && greatest == -5);
}

Test(sticky, a_fault_ends_the_context_and_reset_heals_it)
{
    CUdeviceptr p;
    CUstream stream;
    CUevent event;
    start_device();
    OK(cuMemAlloc_v2(&p, 16));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, 0));
    launch_one("fault", NULL, NULL);
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&p, 16));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(stream));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventRecord(event, stream));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemsetD8_v2(p, 0, 1));
    OK(cuDevicePrimaryCtxReset_v2(0));
    OK(cuMemAlloc_v2(&p, 16));
    OK(cuMemsetD8_v2(p, 0, 16));
}

Test(errors, texts)
{
    const char *text;
    OK(cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
    cr_assert_str_eq(text, "an illegal memory access was encountered");
    OK(cuGetErrorName(CUDA_ERROR_INVALID_VALUE, &text));
    cr_assert_str_eq(text, "CUDA_ERROR_INVALID_VALUE");
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &text));
    cr_assert_null(text);
}

Test(primary, reset_ends_streams_and_events)
{
    CUstream stream;
    CUevent event;
    start_device();
    OK(cuStreamCreate(&stream, 0));
    OK(cuEventCreate(&event, 0));
    OK(cuEventRecord(event, stream));
    OK(cuDevicePrimaryCtxReset_v2(0));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamQuery(stream));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuEventQuery(event));
    OK(cuStreamQuery(NULL));
}

static void two_devices(void)
{
    setenv("SOFTGPU_DEVICES", "2", 1);
    setenv("SOFTGPU_MEMORY", "32M", 1);
}

Test(device, two_of_them, .init = two_devices)
{
    CUcontext contexts[2];
    CUdeviceptr p[2];
    CUuuid uuids[2];
    int n, can, ordinal;
    uint32_t out = 0;
    OK(cuInit(0));
    OK(cuDeviceGetCount(&n));
    cr_assert_eq(n, 2);
    for (int i = 0; i < 2; i++) {
        OK(cuDeviceGetUuid_v2(&uuids[i], i));
        OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
        OK(cuCtxSetCurrent(contexts[i]));
        OK(cuMemAlloc_v2(&p[i], 20 << 20)); /* each has memory of its own */
    }
    cr_assert_arr_neq(uuids[0].bytes, uuids[1].bytes, 16);
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    cr_assert_eq(can, 1);
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cuCtxEnablePeerAccess(contexts[1], 0));
    EXPECT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(contexts[0]));
    OK(cuCtxEnablePeerAccess(contexts[0], 0));
    EXPECT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(contexts[0], 0));
    OK(cuMemsetD32_v2(p[1], 77, 1));
    OK(cuMemcpyPeer(p[0], contexts[0], p[1], contexts[1], 4));
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(&out, p[0], 4));
    cr_assert_eq(out, 77);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p[0]));
    cr_assert_eq(ordinal, 0);
}

static void three_devices_reversed(void)
{
    setenv("SOFTGPU_DEVICES", "3", 1);
    setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
}

Test(device, visible_ones_only, .init = three_devices_reversed)
{
    int n, bus[2], ordinal;
    char pci[32];
    CUuuid uuids[2];
    OK(cuInit(0));
    OK(cuDeviceGetCount(&n));
    cr_assert_eq(n, 2);
    for (int i = 0; i < 2; i++) {
        OK(cuDeviceGetAttribute(&bus[i], CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, i));
        OK(cuDeviceGetUuid_v2(&uuids[i], i));
    }
    cr_assert_eq(bus[0], 3);
    cr_assert_eq(bus[1], 1);
    cr_assert_eq(uuids[0].bytes[15], 2);
    cr_assert_eq(uuids[1].bytes[15], 0);
    OK(cuDeviceGetPCIBusId(pci, sizeof pci, 1));
    OK(cuDeviceGetByPCIBusId(&ordinal, pci));
    cr_assert_eq(ordinal, 1);
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetByPCIBusId(&ordinal, "5347:02:00.0"));
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&ordinal, 2));
}

static void expect_capability(int major, int minor)
{
    int got[2];
    CUmodule module;
    CUfunction function;
    OK(cuInit(0));
    OK(cuDeviceGetAttribute(&got[0], CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    OK(cuDeviceGetAttribute(&got[1], CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
    cr_assert(got[0] == major && got[1] == minor, "%d.%d", got[0], got[1]);
    OK(cuDeviceComputeCapability(&got[0], &got[1], 0));
    cr_assert(got[0] == major && got[1] == minor, "%d.%d", got[0], got[1]);
    start_device();
    OK(cuModuleLoadData(&module, kernels_ptx));
    OK(cuModuleGetFunction(&function, module, "add"));
    OK(cuFuncGetAttribute(&got[0], CU_FUNC_ATTRIBUTE_BINARY_VERSION, function));
    cr_assert_eq(got[0], major * 10 + minor);
}

static void capability_named(void)
{
    setenv("SOFTGPU_CC", "9.1", 1);
}

Test(device, capability_as_named, .init = capability_named)
{
    expect_capability(9, 1);
}

static void capability_malformed(void)
{
    setenv("SOFTGPU_CC", "12.1a", 1);
}

Test(device, capability_malformed, .init = capability_malformed)
{
    expect_capability(13, 0);
}

Test(device, capability_is_above_all_machine_code)
{
    expect_capability(13, 0);
}

/* In a process of its own: whether a device of that capability has so many KiB of shared memory, and for one block. */
static bool has_shared_memory(const char *capability, int all, int block)
{
    int status, got[3];
    const pid_t child = fork();
    if (child == 0) {
        setenv("SOFTGPU_CC", capability, 1);
        const bool told =
            cuInit(0) == CUDA_SUCCESS &&
            cuDeviceGetAttribute(&got[0], CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 0) ==
                CUDA_SUCCESS &&
            cuDeviceGetAttribute(&got[1], CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0) ==
                CUDA_SUCCESS &&
            cuDeviceGetAttribute(&got[2], CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 0) ==
                CUDA_SUCCESS;
        _exit(told && got[0] == all * 1024 && got[1] == block * 1024 && got[2] == (all - block) * 1024 ? 0
                                                                                                       : 1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

Test(device, shared_memory_is_that_of_the_capability)
{
    cr_expect(has_shared_memory("7.5", 64, 64));
    cr_expect(has_shared_memory("8.0", 164, 163));
    cr_expect(has_shared_memory("8.6", 100, 99));
    cr_expect(has_shared_memory("8.7", 164, 163));
    cr_expect(has_shared_memory("8.9", 100, 99));
    cr_expect(has_shared_memory("9.0", 228, 227));
    cr_expect(has_shared_memory("10.3", 228, 227));
    cr_expect(has_shared_memory("12.1", 100, 99));
    cr_expect(has_shared_memory("13.0", 228, 227));
}

/* It holds the primary context; where a program gives back more than it has, that ends all the same. */
Test(context, a_green_one_is_of_no_use_without_the_primary_one)
{
    CUcontext primary, context;
    CUgreenCtx green;
    CUdeviceptr memory;
    CUstream stream;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuCtxFromGreenCtx(&context, green));
    OK(cuCtxSetCurrent(context));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuMemAlloc_v2(&memory, 64));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&memory, 64));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy(green));
}

static void no_device_visible(void)
{
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
}

Test(device, none_is_visible, .init = no_device_visible)
{
    int n;
    EXPECT(CUDA_ERROR_NO_DEVICE, cuInit(0));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
}
