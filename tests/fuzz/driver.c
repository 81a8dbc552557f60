/*
 * driver.c - the driver of driver.h: what the generated functions share, and those that must do more.
 *
 * Objects and device addresses are numbers that lead nowhere. Host memory is the heap's, so that a sanitizer sees where a
 * copy goes beyond it: the asynchronous copies read and write theirs at once.
 */
#include "tests/fuzz/driver.h"
#include "common/cuda/image.h"
#include "tests/server/stub_driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static atomic_uint mode;
static _Atomic CUdeviceptr next_address;
static atomic_uintptr_t object;

bool fuzz_refuses(void)
{
    return atomic_load(&mode) & FUZZ_DRIVER_REFUSES;
}

void *fuzz_object(void)
{
    return (void *)(atomic_fetch_add(&object, 64) + 0x10000);
}

void fuzz_read_text(const char *text)
{
    if (text)
        fuzz_read(text, strlen(text) + 1);
}

void fuzz_write(void *data, size_t size)
{
    fuzz_fill(data, 1, size);
}

/* A thread that is used again remembers which context it has made current: one of an input is none of the next one's. */
static atomic_uintptr_t contexts;
static CUresult retain(CUcontext *context, CUdevice device)
{
    *context = (CUcontext)(void *)(atomic_load(&contexts) + 64 * (uintptr_t)(device & 7));
    return CUDA_SUCCESS;
}

static CUresult state_of_work(void)
{
    const unsigned now = atomic_load(&mode);
    return now & FUZZ_DRIVER_FAILED      ? CUDA_ERROR_ILLEGAL_ADDRESS
           : now & FUZZ_DRIVER_NOT_READY ? CUDA_ERROR_NOT_READY
                                         : CUDA_SUCCESS;
}
static CUresult event_query(CUevent event)
{
    (void)event;
    return state_of_work();
}
static CUresult stream_query(CUstream stream)
{
    (void)stream;
    return state_of_work();
}
/* The worker ends its contexts when it ends: that is where it relies on their work being done. */
static atomic_bool ending;
static CUresult synchronize(void)
{
    if (atomic_load(&ending))
        stub_driver_wait();
    return atomic_load(&mode) & FUZZ_DRIVER_FAILED ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}
static CUresult stream_synchronize(CUstream stream)
{
    (void)stream;
    return synchronize();
}
static CUresult event_synchronize(CUevent event)
{
    (void)event;
    return synchronize();
}
static CUresult context_synchronize(void)
{
    return synchronize();
}

/* --- memory ------------------------------------------------------------------------------------------------ */

static CUresult allocate(CUdeviceptr *address, size_t size)
{
    if (atomic_load(&mode) & FUZZ_DRIVER_FULL || size > 1ull << 40)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *address = atomic_fetch_add(&next_address, 65536);
    return CUDA_SUCCESS;
}
static CUresult allocate_in_order(CUdeviceptr *address, size_t size, CUstream stream)
{
    (void)stream;
    return allocate(address, size);
}
static CUresult allocate_from_pool(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream)
{
    (void)pool, (void)stream;
    return allocate(address, size);
}
static CUresult allocate_rows(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                              unsigned element)
{
    (void)element;
    *pitch = (width + 511) & ~(size_t)511;
    return allocate(address, *pitch * height);
}
static CUresult info(size_t *available, size_t *total)
{
    *available = *total = 1u << 30;
    return CUDA_SUCCESS;
}
static CUresult pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    (void)address;
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        *(unsigned *)data = CU_MEMORYTYPE_DEVICE;
    else if (attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED)
        *(unsigned *)data = 0;
    else if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID)
        *(unsigned long long *)data = 1;
    else if (attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
        *(void **)data = NULL;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
#define LARGEST_RANGE (1ull << 56) /* there are not many, also of all addresses */

/* All memory but the hole is one, in ranges that begin at any address. */
static CUresult address_range(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    if (address >= FUZZ_DRIVER_HOLE && address < FUZZ_DRIVER_HOLE_END)
        return CUDA_ERROR_NOT_FOUND;
    *base = address;
    *size = address < FUZZ_DRIVER_HOLE             ? FUZZ_DRIVER_HOLE - (size_t)address
            : address > UINT64_MAX - LARGEST_RANGE ? UINT64_MAX - (size_t)address
                                                   : LARGEST_RANGE;
    return CUDA_SUCCESS;
}
static CUresult pointer_attributes(unsigned n, CUpointer_attribute *attributes, void **values,
                                   CUdeviceptr address)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    const bool there = address_range(&base, &size, address) == CUDA_SUCCESS;
    for (unsigned i = 0; i < n; i++)
        if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            *(unsigned *)values[i] = there ? CU_MEMORYTYPE_DEVICE : 0;
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
            *(CUdeviceptr *)values[i] = base;
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
            *(size_t *)values[i] = size;
    return CUDA_SUCCESS;
}
static CUresult copy_in(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    (void)to, (void)stream;
    fuzz_read(from, size);
    return synchronize();
}
static CUresult copy_out(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    (void)from, (void)stream;
    fuzz_write(to, size);
    return synchronize();
}
static CUresult copy_rows(const CUDA_MEMCPY2D *rows)
{
    const bool host = rows->srcMemoryType == CU_MEMORYTYPE_HOST || rows->dstMemoryType == CU_MEMORYTYPE_HOST;
    for (size_t i = 0; host && i < rows->Height; i++) {
        if (rows->srcMemoryType == CU_MEMORYTYPE_HOST)
            fuzz_read((const char *)rows->srcHost + (rows->srcY + i) * rows->srcPitch + rows->srcXInBytes,
                      rows->WidthInBytes);
        if (rows->dstMemoryType == CU_MEMORYTYPE_HOST)
            fuzz_write((char *)rows->dstHost + (rows->dstY + i) * rows->dstPitch + rows->dstXInBytes,
                       rows->WidthInBytes);
    }
    return synchronize();
}
static CUresult copy_rows_later(const CUDA_MEMCPY2D *rows, CUstream stream)
{
    (void)stream;
    return copy_rows(rows);
}
static CUresult copy_box(const CUDA_MEMCPY3D *box)
{
    const bool host = box->srcMemoryType == CU_MEMORYTYPE_HOST || box->dstMemoryType == CU_MEMORYTYPE_HOST;
    for (size_t z = 0; host && z < box->Depth; z++)
        for (size_t y = 0; y < box->Height; y++) {
            if (box->srcMemoryType == CU_MEMORYTYPE_HOST)
                fuzz_read((const char *)box->srcHost +
                              ((box->srcZ + z) * box->srcHeight + box->srcY + y) * box->srcPitch +
                              box->srcXInBytes,
                          box->WidthInBytes);
            if (box->dstMemoryType == CU_MEMORYTYPE_HOST)
                fuzz_write((char *)box->dstHost +
                               ((box->dstZ + z) * box->dstHeight + box->dstY + y) * box->dstPitch +
                               box->dstXInBytes,
                           box->WidthInBytes);
        }
    return synchronize();
}
static CUresult copy_box_later(const CUDA_MEMCPY3D *box, CUstream stream)
{
    (void)stream;
    return copy_box(box);
}
static CUresult describe_array(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray array)
{
    (void)array;
    *out = (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = 64, .Height = 32, .Depth = 8, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    return CUDA_SUCCESS;
}

/* --- device code ------------------------------------------------------------------------------------------- */

/* As drivers find out what is at an address: they follow what it says. */
static CUresult look_at_image(const void *data)
{
    struct rg_cuda_image image;
    if (rg_cuda_image_identify(data, &image) == RG_CUDA_IMAGE_UNKNOWN)
        return CUDA_ERROR_INVALID_IMAGE;
    fuzz_read(image.data, image.size);
    return fuzz_refuses() ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}
static CUresult load(CUmodule *module, const void *image)
{
    *module = fuzz_object();
    return look_at_image(image);
}
static CUresult load_with(CUmodule *module, const void *image, unsigned n, CUjit_option *options,
                          void **values)
{
    fuzz_read(options, n * sizeof *options);
    fuzz_read(values, n * sizeof *values);
    return load(module, image);
}
static CUresult load_library(CUlibrary *library, const void *image, CUjit_option *jit, void **jit_values,
                             unsigned n_jit, CUlibraryOption *options, void **values, unsigned n)
{
    fuzz_read(jit, n_jit * sizeof *jit);
    fuzz_read(jit_values, n_jit * sizeof *jit_values);
    fuzz_read(options, n * sizeof *options);
    fuzz_read(values, n * sizeof *values);
    *library = fuzz_object();
    return look_at_image(image);
}
static CUresult kernel_name(const char **name, CUkernel kernel)
{
    (void)kernel;
    *name = "name";
    return CUDA_SUCCESS;
}
static CUresult kernel_count(unsigned *count, CUlibrary library)
{
    (void)library;
    *count = 3;
    return CUDA_SUCCESS;
}
static CUresult enumerate_functions(CUfunction *out, unsigned n, CUmodule module)
{
    (void)module;
    for (unsigned i = 0; i < n; i++)
        out[i] = fuzz_object();
    return n <= 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static CUresult enumerate_kernels(CUkernel *out, unsigned n, CUlibrary library)
{
    (void)library;
    for (unsigned i = 0; i < n; i++)
        out[i] = fuzz_object();
    return n <= 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
enum { PARAMS = 3, PARAM_SIZE = 8 };
static CUresult param_info(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    (void)function;
    *offset = index * PARAM_SIZE;
    if (size)
        *size = PARAM_SIZE;
    return index < PARAMS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static CUresult kernel_param_info(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
    return param_info((CUfunction)(void *)kernel, index, offset, size);
}
static CUresult launch(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    (void)function;
    fuzz_read(config->attrs, config->numAttrs * sizeof *config->attrs);
    if (extra && extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER && extra[2] == CU_LAUNCH_PARAM_BUFFER_SIZE)
        fuzz_read(extra[1], *(const size_t *)extra[3]);
    else if (params)
        for (unsigned i = 0; i < PARAMS; i++)
            fuzz_read(params[i], PARAM_SIZE);
    return fuzz_refuses() ? CUDA_ERROR_INVALID_VALUE : synchronize();
}

/* Linker states write to the logs that they were made with, as long as they are there. */
struct link {
    char *log;
    size_t size;
    unsigned char image[64];
};
static CUresult link_create(unsigned n, CUjit_option *options, void **values, CUlinkState *out)
{
    struct link *link = calloc(1, sizeof *link);
    for (unsigned i = 0; i < n; i++) {
        link->log = options[i] == CU_JIT_INFO_LOG_BUFFER ? values[i] : link->log;
        link->size = options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES ? (size_t)values[i] : link->size;
    }
    *out = (CUlinkState)(void *)link;
    return CUDA_SUCCESS;
}
static CUresult link_add(CUlinkState given, CUjitInputType type, void *data, size_t size, const char *name,
                         unsigned n, CUjit_option *options, void **values)
{
    struct link *link = (struct link *)(void *)given;
    struct rg_cuda_image image;
    (void)n, (void)options, (void)values;
    fuzz_read(data, size);
    fuzz_read_text(name);
    if (type == CU_JIT_INPUT_FATBINARY && rg_cuda_image_identify_sized(data, size, &image))
        fuzz_read(image.data, image.size);
    if (link->log)
        memcpy(link->log, data, size < link->size ? size : link->size);
    return fuzz_refuses() ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}
static CUresult link_complete(CUlinkState given, void **image, size_t *size)
{
    *image = ((struct link *)(void *)given)->image;
    *size = sizeof(((struct link *)0)->image);
    return CUDA_SUCCESS;
}
static CUresult link_destroy(CUlinkState given)
{
    free((void *)given);
    return CUDA_SUCCESS;
}

/* --- graphs ------------------------------------------------------------------------------------------------ */

static CUresult add_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                         const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *params)
{
    static CUgraph bodies[8];
    (void)graph, (void)edges;
    fuzz_read(before, n * sizeof *before);
    *node = fuzz_object();
    if (params->type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
        return CUDA_SUCCESS;
    if (params->conditional.size > 8)
        return CUDA_ERROR_INVALID_VALUE;
    bodies[0] = bodies[1] = bodies[2] = bodies[3] = (CUgraph)(void *)(uintptr_t)0x40;
    bodies[4] = bodies[5] = bodies[6] = bodies[7] = bodies[0];
    params->conditional.phGraph_out = bodies;
    return CUDA_SUCCESS;
}
static CUresult add_kernel(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t n,
                           const CUDA_KERNEL_NODE_PARAMS *params)
{
    (void)graph;
    fuzz_read(before, n * sizeof *before);
    *node = fuzz_object();
    for (unsigned i = 0; params->kernelParams && i < PARAMS; i++)
        fuzz_read(params->kernelParams[i], PARAM_SIZE);
    return CUDA_SUCCESS;
}

/* --- all together ------------------------------------------------------------------------------------------ */

void fuzz_driver_change(unsigned now)
{
    atomic_store(&mode, now);
    atomic_store(&stub_failed, (now & FUZZ_DRIVER_FAILED) != 0);
}

void fuzz_driver_end(void)
{
    fuzz_driver_change(0);
    atomic_store(&ending, true);
}

void fuzz_driver_use(unsigned now)
{
    atomic_store(&next_address, 0x700000000000);
    atomic_store(&object, 0);
    atomic_fetch_add(&contexts, (uintptr_t)1 << 32);
    atomic_store(&ending, false);
    fuzz_driver_change(now);
    stub_driver_use(stub_succeed);
    fuzz_driver_fill(); /* those that the stub has no more than success for */
    if (now & FUZZ_DRIVER_HOST)
        stub_driver_call_host();
    else
        rg_driver.cuLaunchHostFunc = rg_driver_absent.cuLaunchHostFunc;
    rg_driver.cuDevicePrimaryCtxRetain = retain;
    rg_driver.cuEventQuery = event_query;
    rg_driver.cuStreamQuery = stream_query;
    rg_driver.cuCtxSynchronize = context_synchronize;
    rg_driver.cuStreamSynchronize = stream_synchronize;
    rg_driver.cuEventSynchronize = event_synchronize;
    rg_driver.cuMemAlloc_v2 = allocate;
    rg_driver.cuMemAllocAsync = allocate_in_order;
    rg_driver.cuMemAllocFromPoolAsync = allocate_from_pool;
    rg_driver.cuMemAllocPitch_v2 = allocate_rows;
    rg_driver.cuMemGetInfo_v2 = info;
    rg_driver.cuPointerGetAttribute = pointer_attribute;
    rg_driver.cuPointerGetAttributes = pointer_attributes;
    rg_driver.cuMemGetAddressRange_v2 = address_range;
    rg_driver.cuMemcpyHtoDAsync_v2 = copy_in;
    rg_driver.cuMemcpyDtoHAsync_v2 = copy_out;
    rg_driver.cuMemcpy2DAsync_v2 = copy_rows_later;
    rg_driver.cuMemcpy2DUnaligned_v2 = copy_rows;
    rg_driver.cuMemcpy3DAsync_v2 = copy_box_later;
    rg_driver.cuMemcpy3D_v2 = copy_box;
    rg_driver.cuArray3DGetDescriptor_v2 = describe_array;
    rg_driver.cuModuleLoadData = load;
    rg_driver.cuModuleLoadDataEx = load_with;
    rg_driver.cuLibraryLoadData = load_library;
    rg_driver.cuKernelGetName = kernel_name;
    rg_driver.cuLibraryGetKernelCount = kernel_count;
    rg_driver.cuModuleEnumerateFunctions = enumerate_functions;
    rg_driver.cuLibraryEnumerateKernels = enumerate_kernels;
    rg_driver.cuFuncGetParamInfo = param_info;
    rg_driver.cuKernelGetParamInfo = kernel_param_info;
    rg_driver.cuLaunchKernelEx = launch;
    rg_driver.cuLinkCreate_v2 = link_create;
    rg_driver.cuLinkAddData_v2 = link_add;
    rg_driver.cuLinkComplete = link_complete;
    rg_driver.cuLinkDestroy = link_destroy;
    rg_driver.cuGraphAddNode_v2 = add_node;
    rg_driver.cuGraphAddKernelNode_v2 = add_kernel;
}
