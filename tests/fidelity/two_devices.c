/*
 * two_devices.c - right and wrong use of two devices at once. Prints a transcript: calls, results, error codes, digests.
 * Nothing in it depends on whether the devices can reach each other.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE ((size_t)3 << 20)

static CUcontext contexts[2];
static CUdeviceptr memory[2];
static CUstream streams[2];
static CUevent events[2];
static unsigned char *host;

static CUresult told(const char *call, CUresult result)
{
    const char *name = "?";
    cuGetErrorName(result, &name);
    printf("%s: %s\n", call, name);
    return result;
}
#define TELL(call) told(#call, call)

static void current(int device)
{
    printf("--- device %d is current\n", device);
    if (cuCtxSetCurrent(contexts[device]) != CUDA_SUCCESS)
        exit(1);
}

static void digest(const char *what, CUdeviceptr from, size_t size)
{
    unsigned long long sum = 1469598103934665603ull;
    CUresult result = cuMemcpyDtoH_v2(host, from, size);
    for (size_t i = 0; i < size; i++)
        sum = (sum ^ host[i]) * 1099511628211ull;
    printf("%s: %d, %016llx\n", what, (int)result, result == CUDA_SUCCESS ? sum : 0);
}

static void make(int device)
{
    if (cuDevicePrimaryCtxRetain(&contexts[device], device) != CUDA_SUCCESS)
        exit(1);
    current(device);
    TELL(cuMemAlloc_v2(&memory[device], SIZE));
    TELL(cuStreamCreate(&streams[device], CU_STREAM_NON_BLOCKING));
    TELL(cuEventCreate(&events[device], 0));
    TELL(cuMemsetD32_v2(memory[device], 0x01020304 * (device + 1), SIZE / 4));
    TELL(cuCtxSynchronize()); /* the streams do not wait for it */
}

static void attributes(int device)
{
    CUdevice ordinal = -1;
    CUcontext context = NULL;
    unsigned type = 0, flags = 7;
    int number = -1, active = -1;
    CUdevice again = -1;
    char bus[32] = "";
    TELL(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory[device] + 5));
    TELL(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, memory[device]));
    TELL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory[device]));
    printf("device %d, right context %d, type %u\n", ordinal, context == contexts[device], type);
    TELL(cuStreamGetDevice(streams[device], &number));
    TELL(cuStreamGetCtx(streams[device], &context));
    TELL(cuDevicePrimaryCtxGetState(device, &flags, &active));
    printf("stream of %d, right context %d, flags %u, active %d\n", number, context == contexts[device],
           flags, active);
    TELL(cuDeviceGetPCIBusId(bus, sizeof bus, device));
    TELL(cuDeviceGetByPCIBusId(&again, bus));
    printf("by its address: %d\n", again);
}

/* While `here` is current, in the stream of either device. */
static void copies(int here)
{
    current(here);
    for (int in = 0; in < 2; in++) {
        CUstream stream = streams[in];
        int there = 1 - here;
        memset(host, 0x40 + in + here * 2, SIZE);
        printf("in the stream of %d\n", in);
        TELL(cuMemcpyHtoDAsync_v2(memory[there], host, SIZE / 2, stream));
        TELL(cuMemcpyDtoDAsync_v2(memory[here] + 16, memory[there], SIZE / 3, stream));
        TELL(cuMemcpyPeerAsync(memory[there] + SIZE / 2, contexts[there], memory[here], contexts[here],
                               SIZE / 4, stream));
        TELL(cuMemcpyAsync(memory[here] + SIZE / 2, memory[there] + SIZE / 2 + 3, SIZE / 4, stream));
        TELL(cuStreamSynchronize(stream));
        digest("here", memory[here], SIZE);
        digest("there", memory[there], SIZE);
    }
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .srcDevice = memory[here],
                          .srcPitch = 4096,
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = memory[1 - here],
                          .dstPitch = 3000,
                          .dstXInBytes = 7,
                          .dstY = 2,
                          .srcXInBytes = 9,
                          .WidthInBytes = 2500,
                          .Height = 100};
    TELL(cuMemcpy2D_v2(&rows));
    TELL(cuMemcpy2DAsync_v2(&rows, streams[1 - here]));
    TELL(cuStreamSynchronize(streams[1 - here]));
    digest("rows", memory[1 - here], SIZE);
    TELL(cuMemcpyPeer(memory[here], contexts[here], memory[1 - here], contexts[1 - here], SIZE));
    TELL(cuMemcpy(memory[1 - here] + 1, memory[here], SIZE - 1));
    digest("all", memory[1 - here], SIZE);
    TELL(cuMemcpyPeer(memory[here], contexts[here], memory[1 - here], contexts[1 - here], SIZE + 1));
    TELL(cuMemcpyDtoD_v2(memory[here] + 1, memory[1 - here], SIZE));
    TELL(cuMemcpyPeer(memory[here], NULL, memory[1 - here], contexts[1 - here], SIZE));
}

/* Eight slices of ten rows between a device's memory and the host's. */
static CUDA_MEMCPY3D slices(CUdeviceptr there, void *here, bool to_host)
{
    CUDA_MEMCPY3D copy = {.WidthInBytes = 300, .Height = 10, .Depth = 8};
    copy.srcMemoryType = to_host ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    copy.dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = copy.dstDevice = there;
    copy.srcHost = copy.dstHost = here;
    copy.srcPitch = copy.dstPitch = 512;
    copy.srcHeight = copy.dstHeight = 16;
    return copy;
}

/* Memory and stream of the device that is not current; more data than is kept for a stream that does not go on. */
static void copies_elsewhere(int here)
{
    enum { ROUNDS = 60 };
    const int there = 1 - here;
    unsigned char *locked = NULL;
    int failed = 0;
    current(here);
    TELL(cuMemAllocHost_v2((void **)&locked, SIZE));
    memset(locked, 0x21 + here, SIZE);
    for (int i = 0; i < ROUNDS; i++) {
        memset(host, i, SIZE);
        failed += cuMemcpyHtoDAsync_v2(memory[there], host, SIZE, streams[there]) != CUDA_SUCCESS;
    }
    printf("copies that failed: %d\n", failed);
    TELL(cuStreamSynchronize(streams[there]));
    digest("from pageable memory", memory[there], SIZE);
    TELL(cuMemcpyHtoDAsync_v2(memory[there], locked, SIZE, streams[there]));
    TELL(cuMemsetD8Async(memory[there] + 77, 3, 1000, streams[there]));
    TELL(cuMemcpyDtoHAsync_v2(locked, memory[there], SIZE / 2, streams[there]));
    TELL(cuMemcpyHtoDAsync_v2(memory[there] + SIZE / 2, locked, SIZE / 2, streams[there]));
    TELL(cuMemcpyDtoHAsync_v2(host, memory[there], SIZE, streams[there]));
    TELL(cuStreamSynchronize(streams[there]));
    printf("%d %d\n", memcmp(locked, host, SIZE / 2), memcmp(locked, host + SIZE / 2, SIZE / 2));
    CUDA_MEMCPY3D out = slices(memory[there], locked, true),
                  in = slices(memory[there] + SIZE / 4, locked, false);
    TELL(cuMemcpy3DAsync_v2(&out, streams[there]));
    TELL(cuMemcpy3DAsync_v2(&in, streams[there]));
    TELL(cuStreamSynchronize(streams[there]));
    digest("there", memory[there], SIZE);
    TELL(cuMemFreeHost(locked));
}

static void CUDA_CB nap(void *unused)
{
    (void)unused;
    usleep(200000);
}

/* Copies of the host's memory in the stream of the device that is not current, which has something else to do first. */
static void copies_of_others(int here)
{
    const CUstream stream = streams[1 - here];
    unsigned char *pinned;
    current(here);
    TELL(cuMemAllocHost_v2((void **)&pinned, SIZE));
    TELL(cuLaunchHostFunc(stream, nap, NULL));
    for (size_t i = 0; i < 6; i++) {
        memset(host, (int)(0x10 * i + 1), SIZE / 6);
        TELL(cuMemcpyHtoDAsync_v2(memory[i % 2] + i / 2 * (SIZE / 6), host, SIZE / 6, stream));
    }
    memset(pinned, 0x77, SIZE);
    TELL(cuMemcpyHtoDAsync_v2(memory[here] + SIZE / 2, pinned, SIZE / 6, stream));
    TELL(cuMemcpyDtoHAsync_v2(host, memory[here], SIZE / 6, stream));
    TELL(cuMemcpyDtoHAsync_v2(pinned, memory[1 - here], SIZE / 2, stream));
    TELL(cuStreamSynchronize(stream));
    printf("%02x %02x %02x\n", host[0], pinned[0], pinned[SIZE / 2 - 1]);
    digest("here", memory[here], SIZE);
    digest("there", memory[1 - here], SIZE);
    TELL(cuMemFreeHost(pinned));
}

static void ordering(void)
{
    float milliseconds;
    current(0);
    TELL(cuEventRecord(events[0], streams[0]));
    TELL(cuEventRecord(events[0], streams[1]));
    TELL(cuEventRecord(events[1], streams[0]));
    TELL(cuEventRecord(events[1], NULL));
    TELL(cuStreamWaitEvent(streams[1], events[0], 0));
    TELL(cuStreamWaitEvent(streams[1], events[0], 2));
    TELL(cuStreamWaitEvent(NULL, events[1], 0));
    current(1);
    TELL(cuEventRecord(events[1], streams[1]));
    TELL(cuStreamWaitEvent(streams[0], events[1], 0));
    TELL(cuStreamSynchronize(streams[0]));
    TELL(cuStreamSynchronize(streams[1]));
    TELL(cuEventSynchronize(events[0]));
    TELL(cuEventQuery(events[1]));
    TELL(cuEventElapsedTime(&milliseconds, events[0], events[1]));
    TELL(cuEventElapsedTime(&milliseconds, events[0], events[0]));
}

static void pools(int device)
{
    CUmemoryPool pool = NULL, found = NULL;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUdeviceptr address = 0;
    CUdevice ordinal = -1;
    current(device);
    TELL(cuMemPoolCreate(&pool, &properties));
    TELL(cuDeviceGetDefaultMemPool(&found, device));
    TELL(cuMemAllocFromPoolAsync(&address, 1 << 16, pool, streams[device]));
    TELL(cuMemsetD8Async(address, 9, 1 << 16, streams[device]));
    TELL(cuStreamSynchronize(streams[device]));
    TELL(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    printf("of device %d\n", ordinal);
    TELL(cuMemcpy(memory[1 - device], address, 1 << 16));
    digest("from the pool", memory[1 - device], SIZE);
    TELL(cuMemFreeAsync(address, streams[device]));
    TELL(cuMemPoolDestroy(pool));
}

static void mappings(int device)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}},
                        answer = {.type = CU_MEM_ALLOCATION_TYPE_INVALID};
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    unsigned long long flags = 0;
    size_t granularity = 0;
    CUdeviceptr address;
    CUdevice ordinal = -1;
    current(device);
    TELL(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    TELL(cuMemAddressReserve(&address, granularity, 0, 0, 0));
    TELL(cuMemCreate(&handle, granularity, &properties, 0));
    TELL(cuMemMap(address, granularity, 0, handle, 0));
    TELL(cuMemSetAccess(address, granularity, &access, 1));
    TELL(cuMemGetAccess(&flags, &access.location, address));
    TELL(cuMemGetAllocationPropertiesFromHandle(&answer, handle));
    TELL(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    printf("flags %llu, of device %d and %d\n", flags, answer.location.id, ordinal);
    TELL(cuMemsetD8_v2(address, 5, granularity));
    TELL(cuMemcpy(memory[1 - device], address, 4096));
    digest("from the mapping", memory[1 - device], SIZE);
    TELL(cuMemUnmap(address, granularity));
    TELL(cuMemRelease(handle));
    TELL(cuMemAddressFree(address, granularity));
}

/* One library, whose kernels belong to no context. */
static void library(void)
{
    static const char ptx[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .u32 number;\n"
        ".visible .entry put(.param .u64 to, .param .u32 value) {\n.reg .u64 %a<3>;\n.reg .u32 %v;\n"
        "ld.param.u64 %a1, [to];\nld.param.u32 %v, [value];\ncvta.to.global.u64 %a2, %a1;\n"
        "st.global.u32 [%a2], %v;\nst.global.u32 [number], %v;\nret;\n}\n";
    CUlibrary made;
    CUkernel kernel;
    TELL(cuLibraryLoadData(&made, ptx, NULL, NULL, 0, NULL, NULL, 0));
    TELL(cuLibraryGetKernel(&kernel, made, "put"));
    for (int device = 0; device < 2; device++) {
        CUfunction function;
        CUdeviceptr variable = 0;
        size_t size = 0;
        int limit = 0;
        unsigned value = 77 + (unsigned)device;
        void *parameters[] = {&memory[device], &value};
        current(device);
        TELL(cuKernelGetFunction(&function, kernel));
        TELL(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, streams[device], parameters, NULL));
        TELL(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, streams[device], parameters, NULL));
        TELL(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, streams[1 - device], parameters, NULL));
        TELL(cuStreamSynchronize(streams[device]));
        TELL(cuLibraryGetGlobal(&variable, &size, made, "number"));
        TELL(cuKernelGetAttribute(&limit, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, device));
        printf("%zu bytes, limit %d\n", size, limit);
        digest("variable", variable, 4);
        digest("memory", memory[device], 4);
    }
    current(0);
    TELL(cuLibraryUnload(made));
    TELL(cuLibraryUnload(made));
}

/* Memory that is allocated in a stream is of that one's device, whichever is current, or of the pool's. */
static void allocations_elsewhere(int here)
{
    const int there = 1 - here;
    current(here);
    for (int of = 0; of < 2; of++)
        for (int in = 0; in < 2; in++) {
            CUdeviceptr address = 0;
            CUdevice ordinal = -1;
            CUcontext context = NULL;
            CUmemoryPool pool = NULL;
            if (of)
                TELL(cuDeviceGetDefaultMemPool(&pool, in ? there : here));
            CUresult result =
                of ? cuMemAllocFromPoolAsync(&address, 1 << 16, pool, streams[in ? there : here])
                   : cuMemAllocAsync(&address, 1 << 16, streams[in ? there : here]);
            printf("%s: %d\n", of ? "from a pool" : "from the device's pool", (int)result);
            TELL(cuMemsetD8Async(address, 5, 1 << 16, streams[in ? there : here]));
            TELL(cuStreamSynchronize(streams[in ? there : here]));
            TELL(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
            TELL(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address));
            printf("of device %d, of the current context %d\n", ordinal, context == contexts[here]);
            digest("allocated", address, 1 << 16);
            TELL(cuMemFreeAsync(address, streams[here]));
        }
}

/* What is asked of a function while another context is current than its own. */
static void questions_elsewhere(void)
{
    static const char ptx[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() {\nret;\n}\n";
    CUlibrary made;
    CUkernel kernel;
    CUmodule modules[2] = {0}, found;
    CUfunction functions[2] = {0};
    current(0);
    TELL(cuLibraryLoadData(&made, ptx, NULL, NULL, 0, NULL, NULL, 0));
    TELL(cuLibraryGetKernel(&kernel, made, "nothing"));
    for (int device = 0; device < 2; device++) {
        current(device);
        TELL(cuKernelGetFunction(&functions[device], kernel));
        TELL(cuLibraryGetModule(&modules[device], made));
    }
    for (int device = 0; device < 2; device++) {
        int value = -1;
        current(device);
        for (int of = 0; of < 2; of++) {
            found = NULL;
            TELL(cuFuncGetModule(&found, functions[of]));
            printf("of module %d %d\n", found == modules[0], found == modules[1]);
            TELL(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, functions[of]));
            TELL(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, of));
            TELL(cuFuncSetAttribute(functions[of], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                    60000 + of));
            TELL(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, functions[of]));
            printf("%d\n", value);
        }
    }
    current(0);
    TELL(cuLibraryUnload(made));
}

/* What is set of a kernel is set on one device. */
static void kernel_attributes(void)
{
    static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                              ".extern .shared .align 4 .b8 bytes[];\n.visible .entry nothing() {\nret;\n}\n";
    const CUfunction_attribute most = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    static const unsigned sizes[] = {1000, 20000, 40000, 60000, 90000};
    CUlibrary made;
    CUkernel kernel;
    CUfunction functions[2];
    current(0);
    TELL(cuLibraryLoadData(&made, ptx, NULL, NULL, 0, NULL, NULL, 0));
    TELL(cuLibraryGetKernel(&kernel, made, "nothing"));
    for (int step = 0; step < 6; step++) {
        for (int device = 0; device < 2; device++) {
            int value = -1;
            current(device);
            TELL(cuKernelGetFunction(&functions[device], kernel));
            TELL(cuKernelGetAttribute(&value, most, kernel, device));
            printf("%d\n", value);
            TELL(cuFuncGetAttribute(&value, most, functions[device]));
            printf("%d\n", value);
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                printf("%u bytes: function %d", sizes[i],
                       cuLaunchKernel(functions[device], 1, 1, 1, 1, 1, 1, sizes[i], NULL, NULL, NULL));
                printf(" %d", cuCtxSynchronize());
                printf(", kernel %d",
                       cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, sizes[i], NULL, NULL, NULL));
                printf(" %d\n", cuCtxSynchronize());
            }
        }
        current(step % 2);
        switch (step) {
        case 0:
            TELL(cuKernelSetAttribute(most, 90000, kernel, 0));
            break;
        case 1:
            TELL(cuKernelSetAttribute(most, 20000, kernel, 1));
            break;
        case 2:
            TELL(cuKernelSetAttribute(most, 1000, kernel, 0));
            break;
        case 3:
            TELL(cuFuncSetAttribute(functions[1], most, 60000));
            break;
        case 4:
            TELL(cuFuncSetAttribute(functions[0], most, 40000));
            break;
        }
    }
    current(0);
    TELL(cuLibraryUnload(made));
}

static void destroy(void)
{
    current(0);
    TELL(cuMemFree_v2(memory[1]));
    TELL(cuMemFree_v2(memory[1]));
    TELL(cuStreamDestroy_v2(streams[1]));
    TELL(cuEventDestroy_v2(events[1]));
    TELL(cuMemFree_v2(memory[0]));
    TELL(cuDevicePrimaryCtxReset_v2(1));
    TELL(cuStreamQuery(streams[0]));
    current(1);
    TELL(cuMemAlloc_v2(&memory[1], SIZE));
    TELL(cuMemsetD8_v2(memory[1], 3, SIZE));
    TELL(cuDevicePrimaryCtxRelease_v2(1));
    TELL(cuDevicePrimaryCtxRelease_v2(0));
}

/* Copies from a device to the other, again and again, in a stream of either. */
static void *copier(void *argument)
{
    const int device = argument != NULL;
    CUdeviceptr from = 0, to = 0;
    CUstream stream = NULL;
    size_t failed = cuCtxSetCurrent(contexts[device]) != CUDA_SUCCESS;
    failed += cuMemAlloc_v2(&from, SIZE) != CUDA_SUCCESS;
    failed += cuMemsetD32_v2(from, 77, SIZE / 4) != CUDA_SUCCESS;
    failed += cuCtxSetCurrent(contexts[1 - device]) != CUDA_SUCCESS;
    failed += cuMemAlloc_v2(&to, SIZE) != CUDA_SUCCESS;
    for (int i = 0; i < 40; i++) {
        failed += cuCtxSetCurrent(contexts[i % 2]) != CUDA_SUCCESS;
        failed += cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS;
        failed += cuMemcpyPeerAsync(to, contexts[1 - device], from, contexts[device], SIZE / 8, stream) !=
                  CUDA_SUCCESS;
        failed += cuStreamSynchronize(stream) != CUDA_SUCCESS;
        failed += cuStreamDestroy_v2(stream) != CUDA_SUCCESS;
    }
    failed += cuMemFree_v2(from) != CUDA_SUCCESS;
    failed += cuMemFree_v2(to) != CUDA_SUCCESS;
    return (void *)failed;
}

/* Frees memory of a device, which waits for what the device has to do. */
static void *freer(void *argument)
{
    const int device = argument != NULL;
    size_t failed = cuCtxSetCurrent(contexts[device]) != CUDA_SUCCESS;
    for (int i = 0; i < 80; i++) {
        CUdeviceptr piece = 0;
        failed += cuMemAlloc_v2(&piece, 4096) != CUDA_SUCCESS;
        failed += cuMemFree_v2(piece) != CUDA_SUCCESS;
    }
    return (void *)failed;
}

/* What threads do on one device must not keep the other from what the first waits for. */
static void crowd(void)
{
    pthread_t threads[6];
    void *(*const work[])(void *) = {copier, freer, copier};
    for (size_t i = 0; i < 6; i++)
        if (pthread_create(&threads[i], NULL, work[i / 2], i % 2 ? threads : NULL))
            exit(1);
    size_t failed = 0;
    for (size_t i = 0; i < 6; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        failed += (size_t)result;
    }
    printf("--- threads that copy and free: %zu calls failed\n", failed);
}

/* Many copies that wait for their source's device must not keep that device from what they wait for. */
static void queue_of_copies(void)
{
    current(0);
    TELL(cuLaunchHostFunc(streams[0], nap, NULL));
    TELL(cuEventRecord(events[0], streams[0]));
    TELL(cuStreamWaitEvent(streams[1], events[0], 0));
    int failed = 0;
    for (int i = 0; i < 150; i++)
        failed += cuMemcpyPeerAsync(memory[1] + (size_t)i * 4096, contexts[1], memory[0], contexts[0], 4096,
                                    streams[1]) != CUDA_SUCCESS;
    printf("copies that failed: %d\n", failed);
    TELL(cuMemsetD8Async(memory[0] + SIZE / 2, 9, 4096, streams[0]));
    TELL(cuStreamSynchronize(streams[1]));
    TELL(cuStreamSynchronize(streams[0]));
    digest("copied", memory[1], SIZE);
}

/* What a stream does with memory of the other device alone. */
static void in_streams_of_others(int here)
{
    const int there = !here;
    const CUdeviceptr at = memory[there];
    CUstreamBatchMemOpParams batch[2] = {{.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32},
                                         {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64}};
    batch[0].writeValue.address = at + 4000;
    batch[0].writeValue.value = 11;
    batch[1].waitValue.address = at + 4000;
    batch[1].waitValue.value64 = 11;
    current(here);
    TELL(cuMemsetD8Async(at, 5, SIZE, streams[here]));
    TELL(cuMemsetD2D8Async(at + 64, 4096, 6, 100, 50, streams[here]));
    TELL(cuMemcpyDtoDAsync(at + SIZE / 2, at, 100000, streams[here]));
    TELL(cuMemcpyAsync(at + SIZE / 4, at + 60, 7, streams[here]));
    TELL(cuMemcpyPeerAsync(at + SIZE - 1000, contexts[there], at, contexts[there], 1000, streams[here]));
    TELL(cuMemcpyPeerAsync(at, contexts[there], memory[here], contexts[here], 0, streams[here]));
    TELL(cuMemcpyPeer(at, contexts[there], memory[here], contexts[here], 0));
    TELL(cuStreamWriteValue32_v2(streams[here], at, 7, 0));
    TELL(cuStreamWaitValue32_v2(streams[here], at, 7, CU_STREAM_WAIT_VALUE_EQ));
    TELL(cuStreamBatchMemOp_v2(streams[here], 2, batch, 0));
    TELL(cuEventRecord(events[here], streams[here]));
    TELL(cuEventSynchronize(events[here]));
    digest("in a stream of the other", at, SIZE);
    TELL(cuMemsetD32_v2(at, 9, 100));
    TELL(cuMemsetD2D16_v2(at + 8, 40, 3, 2, 5));
    TELL(cuMemcpyDtoD_v2(at + 400, at, 400));
    TELL(cuMemcpyPeer(at + 800, contexts[there], at, contexts[there], 400));
    digest("by calls of the other", at, SIZE);
}

/* What a stream has brought to the host is there for whoever has waited for a stream of the other device that waits for it. */
static void data_before_what_waits(void)
{
    unsigned char *locked;
    int wrong = 0;
    if (cuMemHostAlloc((void **)&locked, SIZE, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS)
        exit(1);
    for (int i = 0; i < 40; i++) {
        const int one = i % 2, other = !one;
        CUresult result = cuMemsetD8Async(memory[one], (unsigned char)i, SIZE, streams[one]);
        result |= cuMemcpyDtoHAsync_v2(locked, memory[one], SIZE, streams[one]);
        result |= cuEventRecord(events[one], streams[one]);
        result |= cuStreamWaitEvent(streams[other], events[one], 0);
        if (i % 3 == 0) /* it may be read there, too */
            result |= cuMemcpyHtoDAsync_v2(memory[other], locked, SIZE, streams[other]);
        result |= cuStreamSynchronize(streams[other]);
        for (size_t k = 0; k < SIZE && result == CUDA_SUCCESS; k++)
            if (locked[k] != i) {
                wrong++;
                break;
            }
        if (result != CUDA_SUCCESS)
            printf("failed: %d\n", (int)result);
    }
    printf("data before what waits for it: %d wrong\n", wrong);
    digest("read where it waits", memory[0], SIZE);
    digest("and where it does not", memory[1], SIZE);
    TELL(cuMemFreeHost(locked));
}

int main(void)
{
    int count = 0;
    CUdevice device;
    host = malloc(SIZE);
    if (!host || cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return 1;
    printf("%d devices\n", count);
    TELL(cuDeviceGet(&device, 1));
    TELL(cuDeviceGet(&device, count));
    for (int i = 0; i < 2; i++) {
        make(i);
        attributes(i);
    }
    copies(0);
    copies(1);
    copies_of_others(0);
    copies_of_others(1);
    copies_elsewhere(0);
    copies_elsewhere(1);
    in_streams_of_others(0);
    in_streams_of_others(1);
    data_before_what_waits();
    ordering();
    for (int i = 0; i < 2; i++) {
        pools(i);
        mappings(i);
    }
    library();
    kernel_attributes();
    allocations_elsewhere(0);
    allocations_elsewhere(1);
    questions_elsewhere();
    crowd();
    queue_of_copies();
    destroy();
    free(host);
    return 0;
}
