/* wrong_memory.c - memory, copies and fills with any arguments. See wrong_arguments.c. */
#include "wrong_arguments.h"

#include <stdlib.h>

static void allocate(void)
{
    CUdeviceptr memory = 0;
    void *host = NULL;
    size_t pitch = 0;
    switch (choose(5)) {
    case 0:
        TELL(cuMemAlloc_v2, or_null(&memory), a_size());
        break;
    case 1:
        TELL(cuMemAllocPitch_v2, or_null(&memory), or_null(&pitch), a_copied_size(), a_copied_size(),
             (unsigned)a_number());
        break;
    case 2:
        TELL(cuMemAllocManaged, or_null(&memory), a_copied_size(), flags());
        break;
    case 3:
        TELL(cuMemHostAlloc, or_null(&host), a_copied_size(), flags());
        if (host)
            TELL(cuMemFreeHost, host);
        return;
    default: {
        const CUstream stream = a_stream();
        TELL(cuMemAllocAsync, or_null(&memory), a_copied_size(), stream);
        if (memory)
            TELL(cuMemFreeAsync, memory, stream);
        return;
    }
    }
    if (memory)
        TELL(cuMemFree_v2, memory);
}

/* What must not succeed: all these objects are still needed. */
static void free_wrongly(void)
{
    const CUdeviceptr wrong[] = {0, of.memory + 4, (CUdeviceptr)(uintptr_t)of.locked,
                                 (CUdeviceptr)(uintptr_t)of.pageable};
    const unsigned i = choose(4);
    say(i == 0 ? "0" : i == 1 ? "within memory" : i == 2 ? "locked" : "pageable");
    switch (choose(4)) {
    case 0:
        TELL(cuMemFree_v2, wrong[i]);
        break;
    case 1:
        TELL(cuMemFreeAsync, i == 2 ? 0 : wrong[i], a_stream());
        break;
    case 2:
        TELL(cuMemFreeHost, i == 2 ? of.registered : (void *)(uintptr_t)wrong[i]);
        break;
    default:
        TELL(cuMemHostUnregister, (void *)(uintptr_t)wrong[i]);
        break;
    }
}

static void ask_of_memory(void)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    unsigned number = 0;
    unsigned char answer[64] = {0};
    switch (choose(6)) {
    case 0:
        TELL(cuMemGetAddressRange_v2, or_null(&base), or_null(&size), an_address());
        printf("  %zu\n", size);
        break;
    case 1:
        TELL(cuMemHostGetFlags, or_null(&number), a_host_address());
        printf("  %u\n", number);
        break;
    case 2:
        TELL(cuMemHostGetDevicePointer_v2, or_null(&base), a_host_address(), flags());
        break;
    case 3:
        TELL(cuPointerGetAttribute, or_null(answer), (CUpointer_attribute)(1 + choose(20)), an_address());
        break;
    case 4:
        TELL(cuMemRangeGetAttribute, or_null(&number), wrongly(8) ? 3 : 4,
             (CUmem_range_attribute)(1 + choose(5)), an_address(), a_copied_size());
        break;
    default:
        TELL(cuMemHostRegister_v2, choose(2) ? of.registered : (char *)of.registered + 4096, a_copied_size(),
             flags());
        break;
    }
}

static void use_pools(void)
{
    CUmemoryPool pool = NULL;
    CUmemPoolProps properties = {.allocType =
                                     wrongly(4) ? (CUmemAllocationType)0 : CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = wrongly(4)},
                                 .handleTypes = (CUmemAllocationHandleType)0};
    cuuint64_t value[2] = {0};
    CUdeviceptr memory = 0;
    switch (choose(4)) {
    case 0:
        TELL(cuMemPoolCreate, or_null(&pool), wrongly(8) ? NULL : &properties);
        if (pool)
            TELL(cuMemPoolDestroy, pool);
        break;
    case 1:
        TELL(cuMemPoolGetAttribute, wrongly(4) ? NULL : of.pool, (CUmemPool_attribute)(1 + choose(3)),
             or_null(value));
        break;
    case 2:
        TELL(cuMemPoolTrimTo, wrongly(3) ? NULL : of.pool, a_copied_size());
        break;
    default: {
        const CUstream stream = a_stream();
        TELL(cuMemAllocFromPoolAsync, or_null(&memory), a_copied_size(), wrongly(4) ? NULL : of.pool, stream);
        if (memory)
            TELL(cuMemFreeAsync, memory, stream);
        break;
    }
    }
}

void wrong_memory_call(void)
{
    switch (choose(4)) {
    case 0:
        allocate();
        break;
    case 1:
        free_wrongly();
        break;
    case 2:
        ask_of_memory();
        break;
    default:
        use_pools();
        break;
    }
}

/* --- copies and fills ------------------------------------------------------------------------------------------------ */

/* Host, device or array; seldom an address alone, which the other fields of these do not fit. */
static CUmemorytype a_kind(void)
{
    return wrongly(8) ? CU_MEMORYTYPE_UNIFIED : (CUmemorytype)(1 + choose(3));
}

static CUDA_MEMCPY3D box(void)
{
    const CUDA_MEMCPY3D made = {.srcMemoryType = a_kind(),
                                .srcHost = of.locked,
                                .srcDevice = an_address(),
                                .srcArray = an_array(),
                                .srcPitch = wrongly(8) ? a_copied_size() : 32,
                                .srcHeight = wrongly(8) ? a_copied_size() : 32,
                                .srcXInBytes = wrongly(8) ? choose(40) : 0,
                                .srcY = wrongly(8) ? choose(40) : 0,
                                .dstMemoryType = a_kind(),
                                .dstHost = of.registered,
                                .dstDevice = an_address(),
                                .dstArray = an_array(),
                                .dstPitch = wrongly(8) ? a_copied_size() : 32,
                                .dstHeight = wrongly(8) ? a_copied_size() : 32,
                                .dstXInBytes = wrongly(8) ? choose(40) : 0,
                                .WidthInBytes = wrongly(8) ? 64 : choose(33),
                                .Height = choose(33),
                                .Depth = choose(3)};
    char text[100];
    snprintf(text, sizeof text, "%u from %zu %zu %zu to %u at %zu %zu: %zu %zu %zu", made.srcMemoryType,
             made.srcXInBytes, made.srcY, made.srcPitch, made.dstMemoryType, made.dstXInBytes, made.dstPitch,
             made.WidthInBytes, made.Height, made.Depth);
    say(text);
    return made;
}

static CUDA_MEMCPY2D rectangle(void)
{
    const CUDA_MEMCPY3D b = box();
    return (CUDA_MEMCPY2D){.srcMemoryType = b.srcMemoryType,
                           .srcHost = b.srcHost,
                           .srcDevice = b.srcDevice,
                           .srcArray = b.srcArray,
                           .srcPitch = b.srcPitch,
                           .srcXInBytes = b.srcXInBytes,
                           .srcY = b.srcY,
                           .dstMemoryType = b.dstMemoryType,
                           .dstHost = b.dstHost,
                           .dstDevice = b.dstDevice,
                           .dstArray = b.dstArray,
                           .dstPitch = b.dstPitch,
                           .dstXInBytes = b.dstXInBytes,
                           .WidthInBytes = b.WidthInBytes,
                           .Height = b.Height};
}

static void copy_boxes(void)
{
    CUDA_MEMCPY2D r;
    CUDA_MEMCPY3D b;
    switch (choose(5)) {
    case 0:
        r = rectangle();
        TELL(cuMemcpy2D_v2, wrongly(20) ? NULL : &r);
        break;
    case 1:
        r = rectangle();
        TELL(cuMemcpy2DUnaligned_v2, &r);
        break;
    case 2:
        r = rectangle();
        TELL(cuMemcpy2DAsync_v2, &r, a_stream());
        break;
    case 3:
        b = box();
        TELL(cuMemcpy3D_v2, wrongly(20) ? NULL : &b);
        break;
    default:
        b = box();
        TELL(cuMemcpy3DAsync_v2, &b, a_stream());
        break;
    }
}

static void copy_lines(void)
{
    switch (choose(10)) {
    case 0:
        TELL(cuMemcpyHtoD_v2, an_address(), of.pageable, a_copied_size());
        break;
    case 1:
        TELL(cuMemcpyDtoH_v2, of.pageable, an_address(), a_copied_size());
        break;
    case 2:
        TELL(cuMemcpyDtoD_v2, an_address(), an_address(), a_copied_size());
        break;
    case 3:
        TELL(cuMemcpyHtoDAsync_v2, an_address(), of.locked, a_copied_size(), a_stream());
        break;
    case 4:
        TELL(cuMemcpyDtoHAsync_v2, of.locked, an_address(), a_copied_size(), a_stream());
        break;
    case 5:
        TELL(cuMemcpyDtoDAsync_v2, an_address(), an_address(), a_copied_size(), a_stream());
        break;
    case 6:
        TELL(cuMemcpy, an_address(), of.memory, a_copied_size());
        break;
    case 7:
        TELL(cuMemcpyAsync, of.memory, an_address(), a_copied_size(), a_stream());
        break;
    case 8:
        TELL(cuMemcpyHtoA_v2, an_array(), choose(40), of.pageable, choose(40));
        break;
    default:
        TELL(cuMemcpyAtoH_v2, of.pageable, an_array(), choose(40), choose(40));
        break;
    }
}

static void fill(void)
{
    switch (choose(8)) {
    case 0:
        TELL(cuMemsetD8_v2, an_address(), 1, a_size());
        break;
    case 1:
        TELL(cuMemsetD16_v2, an_address() + choose(3), 1, a_copied_size());
        break;
    case 2:
        TELL(cuMemsetD32_v2, an_address() + choose(5), 1, a_size());
        break;
    case 3:
        TELL(cuMemsetD8Async, an_address(), 1, a_size(), a_stream());
        break;
    case 4:
        TELL(cuMemsetD32Async, an_address(), 1, a_copied_size(), a_stream());
        break;
    case 5:
        TELL(cuMemsetD2D8_v2, an_address(), a_copied_size(), 1, choose(65), choose(65));
        break;
    case 6:
        TELL(cuMemsetD2D32_v2, an_address(), a_copied_size(), 1, choose(17), choose(17));
        break;
    default:
        TELL(cuMemsetD2D16Async, an_address(), a_copied_size(), 1, choose(33), choose(65), a_stream());
        break;
    }
}

void wrong_copy(void)
{
    switch (choose(3)) {
    case 0:
        copy_boxes();
        break;
    case 1:
        copy_lines();
        break;
    default:
        fill();
        break;
    }
}
