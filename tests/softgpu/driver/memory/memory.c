/* Memory: accounting, pointers, host memory, pools, and every form of copy and fill. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tests/softgpu/driver/support.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static void small_device(void)
{
    setenv("SOFTGPU_MEMORY", "64M", 1);
}

Test(memory, accounting_is_exact, .init = small_device)
{
    size_t free_bytes, total;
    CUdeviceptr a, b;
    start_device();
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    cr_assert_eq(total, 64u << 20);
    cr_assert_eq(free_bytes, total);
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&a, total + 1));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&a, SIZE_MAX));
    OK(cuMemAlloc_v2(&a, total));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&b, 1));
    OK(cuMemFree_v2(a));
    OK(cuMemAlloc_v2(&a, 1));
    OK(cuMemAlloc_v2(&b, total - 4096));
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    cr_assert_eq(free_bytes, 0);
}

Test(memory, alloc_and_free_check_their_arguments)
{
    CUdeviceptr p, base;
    size_t size, pitch;
    start_device();
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&p, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(NULL, 1));
    OK(cuMemAlloc_v2(&p, 1000));
    cr_assert_eq(p % 512, 0);
    cr_assert_geq(p, 0x4000000000ull);
    OK(cuMemGetAddressRange_v2(&base, &size, p + 999));
    cr_assert(base == p && size == 1000);
    EXPECT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&base, &size, p + 1000));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(p + 1));
    OK(cuMemFree_v2(p));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(p));
    OK(cuMemFree_v2(0));
    OK(cuMemAllocPitch_v2(&p, &pitch, 100, 3, 4));
    cr_assert(pitch >= 100 && pitch % 512 == 0);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch_v2(&p, &pitch, 100, 3, 3));
}

/* What is freed between them leaves holes, of which a process may not have so many. */
Test(memory, many_allocations)
{
    enum { N = 90000, MORE = 1000 };
    CUdeviceptr *p = malloc(N * sizeof *p), more[MORE];
    start_device();
    for (int i = 0; i < N; i++)
        OK(cuMemAlloc_v2(&p[i], 16));
    for (int i = 0; i < N; i += 2)
        OK(cuMemFree_v2(p[i]));
    uint32_t value = 7;
    for (int i = 1; i < N; i += 1000)
        OK(cuMemcpyHtoD_v2(p[i], &value, 4));
    for (int i = 0; i < MORE; i++) {
        OK(cuMemAlloc_v2(&more[i], 8192));
        OK(cuMemcpyHtoD_v2(more[i], &value, 4));
    }
    for (int i = 0; i < MORE; i++)
        OK(cuMemFree_v2(more[i]));
    for (int i = 1; i < N; i += 2)
        OK(cuMemFree_v2(p[i]));
    free(p);
}

/* A process may have 65530 mappings: what is freed must not keep any. */
Test(memory, what_is_freed_leaves_no_mappings)
{
    const uint32_t value = 7;
    CUdeviceptr p;
    start_device();
    for (int i = 0; i < 40000; i++) {
        OK(cuMemAlloc_v2(&p, 16));
        OK(cuMemcpyHtoD_v2(p, &value, 4));
        OK(cuMemFree_v2(p));
    }
}

#ifndef RG_SANITIZED
/* With little address space the window is used up and begun anew: what lives must not be given out again. */
Test(memory, the_window_wraps_round, .init = small_device)
{
    enum { LIVE = 24, ROUNDS = 4000 };
    CUdeviceptr live[LIVE] = {0};
    uint32_t marks[LIVE], out;
    OK(cuInit(0));
    struct rlimit limit = {3ull << 30, 3ull << 30};
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    start_device();
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t i = round * 7 % LIVE;
        if (live[i] != 0) {
            OK(cuMemcpyDtoH_v2(&out, live[i], 4));
            cr_assert_eq(out, marks[i], "round %u", round);
            OK(cuMemFree_v2(live[i]));
        }
        marks[i] = round;
        OK(cuMemAlloc_v2(&live[i], round % 3 == 0 ? 2 << 20 : 4096 * (1 + round % 500)));
        OK(cuMemsetD32_v2(live[i], round, 1));
    }
}
#endif

static bool is_accessible(CUdeviceptr address)
{
    static int to = -1;
    if (to < 0)
        cr_assert_geq(to = memfd_create("accessible", 0), 0);
    return pwrite(to, (const void *)(uintptr_t)address, 1, 0) == 1; /* else EFAULT */
}

/*
 * Programs that read or write a little beyond their memory run on GPUs, which map memory in blocks of 2 MiB.
 */
Test(memory, accesses_within_a_block_are_not_noticed)
{
    const CUdeviceptr block = 2u << 20;
    CUdeviceptr a, b, large, behind;
    start_device();
    OK(cuMemAlloc_v2(&a, 3000));
    behind = (a + 3000 + block - 1) / block * block;
    cr_expect(is_accessible(a + 4096) && is_accessible(behind - 1));
    cr_expect_not(is_accessible(behind));
    OK(cuMemAlloc_v2(&b, 3000));
    cr_assert_lt(b, behind);
    OK(cuMemsetD8_v2(b, 1, 3000));
    cr_expect(is_accessible(b + 100000));
    OK(cuMemAlloc_v2(&large, block + 1));
    cr_expect(is_accessible(large + 2 * block - 1));
    cr_expect_not(is_accessible((large + block) / block * block + block));
    OK(cuMemFree_v2(
        b)); /* what is freed is not accessible, what lies behind it is, as long as the block has something */
    cr_expect_not(is_accessible(b));
    cr_expect(is_accessible(a) && is_accessible(behind - 1));
    OK(cuMemFree_v2(a));
    cr_expect_not(is_accessible(a) || is_accessible(b + 100000) || is_accessible(behind - 1));
    OK(cuMemFree_v2(large));
    cr_expect_not(is_accessible(large) || is_accessible(large + 2 * block - 1));
}

static void report(void)
{
    setenv("SOFTGPU_REPORT", "1", 1);
}

Test(memory, accesses_behind_an_allocation_are_reported, .init = report)
{
    CUdeviceptr a, b;
    start_device();
    OK(cuMemAlloc_v2(&a, 3000));
    OK(cuMemAlloc_v2(&b, 3000));
    cr_expect(is_accessible(a + 4095) && is_accessible(b));
    cr_expect_not(is_accessible(a + 4096) || is_accessible(b + 4096));
}

Test(memory, host_memory_and_pointers)
{
    void *host, *heap = malloc(1 << 16);
    CUdeviceptr d, device;
    unsigned flags, type;
    CUcontext context = start_device(), owner;
    OK(cuMemHostAlloc(&host, 5000, CU_MEMHOSTALLOC_PORTABLE));
    memset(host, 1, 5000);
    OK(cuMemHostGetFlags(&flags, host));
    cr_assert_eq(flags, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    OK(cuMemHostGetDevicePointer_v2(&d, (char *)host + 10, 0));
    cr_assert_eq(d, (uintptr_t)host + 10);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)host));
    cr_assert_eq(type, CU_MEMORYTYPE_HOST);
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)heap));
    OK(cuMemAlloc_v2(&device, 64));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device + 63));
    cr_assert_eq(type, CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, device));
    cr_assert_eq(owner, context);
    /* unknown pointers: all of several attributes are answered as nothing */
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT};
    type = 99;
    OK(cuPointerGetAttributes(2, attributes, (void *[]){&type, &owner}, (CUdeviceptr)(uintptr_t)heap));
    cr_assert(type == 0 && owner == NULL);

    OK(cuMemHostRegister_v2(heap, 100, 0));
    EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2((char *)heap + 50, 100, 0));
    OK(cuMemHostRegister_v2((char *)heap + 100, 100, 0)); /* several within a page */
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(heap));
    OK(cuMemHostUnregister(heap));
    EXPECT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(heap));
    OK(cuMemHostUnregister((char *)heap + 100));
    OK(cuMemFreeHost(host));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
    free(heap);
}

/* The kernel is another context's, and does not end before the handle is there. */
Test(memory, what_kernels_write_while_memory_becomes_shared_is_not_lost)
{
    enum { COUNT = 1 << 20 };
    CUcontext primary = start_device(), other;
    CUmodule module;
    CUfunction count;
    CUstream stream;
    CUdeviceptr p;
    CUipcMemHandle handle;
    void *at;
    uint32_t n = COUNT;
    OK(cuCtxCreate_v2(&other, 0, 0));
    OK(cuModuleLoadData(&module, kernels_ptx));
    OK(cuModuleGetFunction(&count, module, "count"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&p, COUNT * sizeof(uint32_t)));
    OK(cuMemsetD32_v2(p, 0, COUNT));
    OK(cuCtxSynchronize());
    OK(cuMemHostAlloc(&at, 8, 0));
    volatile uint32_t *flag = at;
    flag[0] = flag[1] = 0;
    OK(cuLaunchKernel(count, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&p, &n, &at}, NULL));
    OK(cuCtxSetCurrent(primary));
    while (__atomic_load_n(&flag[1], __ATOMIC_ACQUIRE) < 3)
        ;
    OK(cuIpcGetMemHandle(&handle, p));
    for (uint32_t before = flag[1]; flag[1] < before + 3;)
        ;
    release_stream(flag);
    OK(cuStreamSynchronize(stream));
    uint32_t *counted = malloc(COUNT * sizeof(uint32_t));
    OK(cuMemcpyDtoH_v2(counted, p, COUNT * sizeof(uint32_t)));
    for (uint32_t i = 0; i < COUNT; i++)
        cr_assert_eq(counted[i], flag[1], "%u: counted to %u, of %u", i, counted[i], flag[1]);
    free(counted);
}

Test(memory, managed_memory_is_one_memory)
{
    CUdeviceptr managed, device;
    uint32_t wait_ms = 20;
    unsigned is_managed;
    start_device();
    OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&device, 4096, 77));
    OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
    cr_assert_eq(is_managed, 1);
    volatile uint32_t *host = (uint32_t *)(uintptr_t)managed;
    host[1] = 5;
    OK(cuMemAlloc_v2(&device, 64));
    OK(cuMemsetD32_v2(device, 9, 16));
    launch_one("slow", NULL, (void *[]){&wait_ms});
    OK(cuMemcpyDtoH_v2((void *)(uintptr_t)managed, device, 4)); /* done when it returns */
    cr_assert(host[0] == 9 && host[1] == 5);
    OK(cuMemFree_v2(managed));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(managed));
}

Test(copy, one_dimension_and_bounds)
{
    unsigned char in[256], out[256];
    CUdeviceptr a, b;
    for (int i = 0; i < 256; i++)
        in[i] = (unsigned char)i;
    start_device();
    OK(cuMemAlloc_v2(&a, 256));
    OK(cuMemAlloc_v2(&b, 256));
    OK(cuMemcpyHtoD_v2(a, in, 256));
    OK(cuMemcpyDtoD_v2(b, a, 256));
    memset(out, 0, sizeof out);
    OK(cuMemcpyDtoH_v2(out, b, 256));
    cr_assert_arr_eq(in, out, 256);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(a, in, 257));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(a + 200, in, 57));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)out, in, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(NULL, a, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD_v2(a, b, SIZE_MAX));
    OK(cuMemcpyHtoD_v2(a, in, 0));
    memset(out, 0, sizeof out);
    OK(cuMemcpy((CUdeviceptr)(uintptr_t)out, a + 1, 200));
    cr_assert_arr_eq(in + 1, out, 200);
    OK(cuMemFree_v2(b));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD_v2(b, a, 1));
}

Test(copy, two_and_three_dimensions)
{
    unsigned char in[20 * 30], out[20 * 30];
    CUdeviceptr d;
    size_t pitch;
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(i * 7);
    start_device();
    OK(cuMemAllocPitch_v2(&d, &pitch, 30, 20, 4));
    CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = in,
                       .srcPitch = 30,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                       .dstDevice = d,
                       .dstPitch = pitch,
                       .WidthInBytes = 30,
                       .Height = 20};
    OK(cuMemcpy2D_v2(&c));
    /* back: a window of 10 x 5 at (3, 4), to (1, 2) */
    memset(out, 0xee, sizeof out);
    CUDA_MEMCPY2D w = {.srcXInBytes = 3,
                       .srcY = 4,
                       .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                       .srcDevice = d,
                       .srcPitch = pitch,
                       .dstXInBytes = 1,
                       .dstY = 2,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = out,
                       .dstPitch = 30,
                       .WidthInBytes = 10,
                       .Height = 5};
    OK(cuMemcpy2DUnaligned_v2(&w));
    for (int y = 0; y < 20; y++)
        for (int x = 0; x < 30; x++) {
            bool inside = x >= 1 && x < 11 && y >= 2 && y < 7;
            cr_assert_eq(out[y * 30 + x], inside ? in[(y + 2) * 30 + x + 2] : 0xee);
        }
    w.Height = 17;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&w)); /* beyond the allocation */
    w.Height = 5;
    w.srcPitch = 9;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&w));
    w.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuMemcpy2D_v2(&w));

    CUDA_MEMCPY3D v = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = in,
                       .srcPitch = 10,
                       .srcHeight = 6,
                       .srcZ = 1,
                       .srcY = 2,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                       .dstDevice = d,
                       .dstPitch = 5,
                       .dstHeight = 3,
                       .WidthInBytes = 5,
                       .Height = 3,
                       .Depth = 4};
    OK(cuMemcpy3D_v2(&v));
    OK(cuMemcpyDtoH_v2(out, d, 60));
    for (int z = 0; z < 4; z++)
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 5; x++)
                cr_assert_eq(out[(z * 3 + y) * 5 + x], in[((z + 1) * 6 + y + 2) * 10 + x]);
}

/* Programs pack rows behind each other so: the offset says where the first row begins, whatever the pitch is. */
Test(copy, an_offset_may_be_larger_than_the_pitch)
{
    unsigned char in[200], out[200];
    CUdeviceptr d;
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(i * 7);
    start_device();
    OK(cuMemAlloc_v2(&d, sizeof out));
    OK(cuMemsetD8_v2(d, 0, sizeof out));
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = in,
                          .srcXInBytes = 6,
                          .srcPitch = 8,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = d,
                          .dstXInBytes = 100,
                          .dstPitch = 5,
                          .WidthInBytes = 4,
                          .Height = 20};
    OK(cuMemcpy2D_v2(&rows));
    OK(cuMemcpyDtoH_v2(out, d, sizeof out));
    for (size_t i = 0; i < sizeof out; i++) {
        const size_t y = (i - 100) / 5, x = (i - 100) % 5;
        cr_assert_eq(out[i], i >= 100 && y < 20 && x < 4 ? in[6 + y * 8 + x] : 0);
    }
    CUDA_MEMCPY3D slices = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                            .srcDevice = d,
                            .srcXInBytes = 100,
                            .srcPitch = 5,
                            .srcHeight = 4,
                            .dstMemoryType = CU_MEMORYTYPE_HOST,
                            .dstHost = out,
                            .dstXInBytes = 50,
                            .dstPitch = 4,
                            .dstHeight = 4,
                            .WidthInBytes = 4,
                            .Height = 4,
                            .Depth = 5};
    OK(cuMemcpy3D_v2(&slices));
    for (size_t y = 0; y < 20; y++)
        cr_assert_eq(memcmp(out + 50 + y * 4, in + 6 + y * 8, 4), 0);
    rows.Height = 21; /* beyond the allocation */
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&rows));
}

/* What no row of a device can be apart: the copy would leave the memory, that of the host without being seen to. */
Test(copy, pitches_have_a_limit)
{
    static const size_t pitches[] = {2147483648u,  1ull << 40,      SIZE_MAX / 4,
                                     SIZE_MAX / 2, SIZE_MAX - 4096, SIZE_MAX};
    unsigned char host[64] = {0};
    CUdeviceptr d;
    start_device();
    OK(cuMemAlloc_v2(&d, sizeof host));
    for (size_t i = 0; i < sizeof pitches / sizeof pitches[0]; i++)
        for (unsigned kind = 0; kind < 4; kind++) {
            const bool device = kind & 1, reads = kind & 2;
            CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                               .srcHost = host,
                               .srcPitch = 8,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = d,
                               .dstPitch = 8,
                               .WidthInBytes = 8,
                               .Height = 2};
            if (reads) {
                c.srcMemoryType = CU_MEMORYTYPE_DEVICE;
                c.srcDevice = d;
                c.dstMemoryType = CU_MEMORYTYPE_HOST;
                c.dstHost = host;
            }
            *(device == reads ? &c.srcPitch : &c.dstPitch) = pitches[i];
            EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&c));
            EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DUnaligned_v2(&c));
            EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DAsync_v2(&c, NULL));
            CUDA_MEMCPY3D slices = {.srcMemoryType = c.srcMemoryType,
                                    .srcHost = c.srcHost,
                                    .srcDevice = c.srcDevice,
                                    .srcPitch = c.srcPitch,
                                    .srcHeight = 1,
                                    .dstMemoryType = c.dstMemoryType,
                                    .dstHost = c.dstHost,
                                    .dstDevice = c.dstDevice,
                                    .dstPitch = c.dstPitch,
                                    .dstHeight = 1,
                                    .WidthInBytes = 8,
                                    .Height = 1,
                                    .Depth = 2};
            EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(&slices));
            c.Height = 1; /* no other row: the pitch does not matter */
            OK(cuMemcpy2D_v2(&c));
            EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8_v2(d, pitches[i], 1, 8, 2));
            OK(cuMemsetD2D8_v2(d, pitches[i], 1, 8, 1));
        }
}

Test(copy, fills)
{
    uint16_t out[64];
    CUdeviceptr d;
    start_device();
    OK(cuMemAlloc_v2(&d, 128));
    OK(cuMemsetD32_v2(d, 0x11223344, 32));
    OK(cuMemsetD16_v2(d + 2, 0xabcd, 3));
    OK(cuMemsetD2D8_v2(d + 64, 16, 0x5a, 3, 4));
    OK(cuMemcpyDtoH_v2(out, d, 128));
    cr_assert_eq(out[0], 0x3344);
    cr_assert_eq(out[1], 0xabcd);
    cr_assert_eq(out[3], 0xabcd);
    cr_assert_eq(out[4], 0x3344);
    cr_assert_eq(out[32], 0x5a5a);
    cr_assert_eq(out[33], 0x115a);
    cr_assert_eq(out[40], 0x5a5a);
    cr_assert_eq(out[42], 0x3344);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(d + 2, 0, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(d, 0, 129));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8_v2(d, 2, 0, 3, 2));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(d, 0, SIZE_MAX / 2));
}

/* As on a GPU, where the driver's own memory lies there: programs that read a little too far down run. */
Test(memory, reads_slightly_below_the_first_allocation_find_memory)
{
    CUdeviceptr first;
    start_device();
    OK(cuMemAlloc_v2(&first, 4096));
    cr_assert_eq(*(volatile uint32_t *)(uintptr_t)(first - 4), 0);
    cr_assert_eq(*(volatile uint32_t *)(uintptr_t)(first - 65536), 0);
}

Test(copy, pageable_sources_are_taken_at_the_call_and_locked_ones_at_their_place)
{
    CUstream stream;
    CUdeviceptr a, b;
    uint32_t *locked, pageable = 1, out;
    start_device();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&a, 4));
    OK(cuMemAlloc_v2(&b, 4));
    OK(cuMemHostAlloc((void **)&locked, 4, 0));
    *locked = 1;
    volatile uint32_t *held = hold_stream(stream);
    OK(cuMemcpyHtoDAsync_v2(a, &pageable, 4, stream));
    OK(cuMemcpyHtoDAsync_v2(b, locked, 4, stream));
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    pageable = 2;
    *locked = 2;
    release_stream(held);
    OK(cuMemcpyDtoHAsync_v2(&out, a, 4, stream)); /* pageable: returns when it is there */
    cr_assert_eq(out, 1);
    OK(cuMemcpyDtoHAsync_v2(&out, b, 4, stream));
    cr_assert_eq(out, 2);
}

static void CUDA_CB wait_for_word(void *word)
{
    while (!atomic_load((atomic_bool *)word))
        usleep(1000);
}

Test(pool, what_is_freed_is_not_in_use_while_its_stream_is_busy, .init = small_device)
{
    CUstream stream;
    CUdeviceptr a, b;
    CUmemoryPool pool;
    cuuint64_t used, high;
    atomic_bool goes_on = false;
    start_device();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemAllocAsync(&a, 1024, stream));
    OK(cuMemAllocAsync(&b, 2048, stream));
    OK(cuLaunchHostFunc(stream, wait_for_word, &goes_on));
    OK(cuMemFreeAsync(b, stream));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
    atomic_store(&goes_on, true);
    cr_assert_eq(used, 1024);
    cr_assert_eq(high, 3072);
    OK(cuStreamSynchronize(stream));
    high = 0;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
    cr_assert_eq(used, 1024);
    cr_assert_eq(high, 1024);
    OK(cuMemFreeAsync(a, stream));
    OK(cuStreamSynchronize(stream));
}

Test(pool, stream_ordered_memory, .init = small_device)
{
    CUstream stream;
    CUdeviceptr a, b;
    CUmemoryPool pool, other;
    cuuint64_t used;
    size_t before, after, total;
    start_device();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemGetInfo_v2(&before, &total));
    OK(cuMemAllocAsync(&a, 40 << 20, stream));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    cr_assert_eq(used, 40u << 20);
    OK(cuMemsetD8Async(a, 1, 40 << 20, stream));
    OK(cuMemFreeAsync(a, stream));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(a, stream));
    OK(cuMemAllocAsync(&b, 40 << 20, stream)); /* there is room once the free has run */
    OK(cuMemFree_v2(b));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &used));
    cr_assert_eq(used, 40u << 20);
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    cr_assert_eq(used, 0);
    OK(cuMemAllocAsync(&a, 1024, stream)); /* counted in units of 512 bytes, whatever memory is made of */
    OK(cuMemAllocAsync(&b, 513, stream));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    cr_assert_eq(used, 2048);
    OK(cuMemFreeAsync(a, stream));
    OK(cuMemFreeAsync(b, stream));
    OK(cuStreamSynchronize(stream));

    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                            .maxSize = 1 << 20};
    OK(cuMemPoolCreate(&other, &props));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&a, 2 << 20, other, stream));
    OK(cuMemAllocFromPoolAsync(&a, 1 << 20, other, stream));
    OK(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a));
    cr_assert_eq(pool, other);
    OK(cuMemPoolDestroy(other));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(other));
    OK(cuMemFreeAsync(a, stream)); /* allocations outlive the pool's handle */
    OK(cuStreamSynchronize(stream));
    OK(cuMemGetInfo_v2(&after, &total));
    cr_assert_eq(before, after);
}
