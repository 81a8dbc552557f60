/* Modules, libraries, functions, launches, occupancy, look-up of entry points. */
#include "tests/softgpu/driver/fake_program.h"
#include "tests/softgpu/driver/support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

Test(module, load_ask_unload)
{
    CUmodule module, of_function;
    CUfunction function, all[16];
    CUdeviceptr table;
    size_t size, offset;
    unsigned count;
    const char *name;
    start_device();
    OK(cuModuleLoadData(&module, kernels_ptx));
    EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "nothing"));
    OK(cuModuleGetFunction(&function, module, "add"));
    OK(cuModuleGetFunctionCount(&count, module));
    cr_assert_eq(count, 9);
    OK(cuModuleEnumerateFunctions(all, 16, module));
    cr_assert_eq(all[0], function);
    OK(cuFuncGetName(&name, function));
    cr_assert_str_eq(name, "add");
    OK(cuFuncGetModule(&of_function, function));
    cr_assert_eq(of_function, module);
    OK(cuFuncGetParamInfo(function, 1, &offset, &size));
    cr_assert(offset == 8 && size == 4);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(function, 3, &offset, &size));
    OK(cuModuleGetGlobal_v2(&table, &size, module, "table"));
    cr_assert_eq(size, 64);
    cr_assert_eq(table, fake_variable_address("table"));
    OK(cuMemsetD8_v2(table, 1, 64));
    EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2(&table, &size, module, "tables"));
    OK(cuModuleUnload(module));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(table, 1, 64)); /* it went with the module */
}

Test(module, bad_images_and_logs)
{
    CUmodule module;
    char log[64] = "", small[8] = "";
    static const char bad[] = ".version 9.0\n.bad\n";
    start_device();
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    EXPECT(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&module, bad, 2, options, values));
    cr_assert_str_eq(log, "ptx:2: unknown directive .bad");
    cr_assert_eq((uintptr_t)values[1], strlen(log) + 1);
    void *few[] = {small, (void *)sizeof small};
    EXPECT(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&module, bad, 2, options, few));
    cr_assert_str_eq(small, "ptx:2: ");
    CUjit_option unknown[] = {(CUjit_option)200};
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuModuleLoadDataEx(&module, kernels_ptx, 1, unknown, values));
    EXPECT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "\x01\x02\x03\x04 no image at all"));
    EXPECT(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&module, "/nowhere/at.all"));
    char path[] = "/tmp/softgpu-module-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_eq(write(fd, kernels_ptx, strlen(kernels_ptx)), (ssize_t)strlen(kernels_ptx));
    close(fd);
    OK(cuModuleLoad(&module, path));
    unlink(path);
}

Test(module, unloading_waits_for_queued_launches)
{
    CUmodule module;
    CUfunction function;
    CUdeviceptr d;
    CUstream stream;
    uint32_t n = 1, x = 9, out = 0, wait_ms = 20;
    start_device();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuModuleLoadData(&module, kernels_ptx));
    OK(cuModuleGetFunction(&function, module, "add"));
    OK(cuMemAlloc_v2(&d, 4));
    OK(cuMemsetD32_v2(d, 0, 1));
    OK(cuCtxSynchronize());
    launch_one("slow", stream, (void *[]){&wait_ms});
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&d, &n, &x}, NULL));
    OK(cuModuleUnload(module));
    OK(cuStreamQuery(stream));
    OK(cuMemcpyDtoH_v2(&out, d, 4));
    cr_assert_eq(out, 9);
}

Test(copy, memory_freed_by_another_stream_is_a_fault)
{
    CUstream a, b;
    CUdeviceptr d;
    start_device();
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&d, 64, a));
    volatile uint32_t *held = hold_stream(a);
    OK(cuMemsetD8Async(d, 0, 64, a));
    OK(cuMemFreeAsync(d, b));
    OK(cuStreamSynchronize(b));
    release_stream(held);
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(a));
}

Test(link, several_modules_become_one_image)
{
    CUlinkState state;
    CUmodule module;
    CUfunction function;
    CUcontext other;
    CUlibrary library;
    CUdeviceptr second;
    void *image;
    size_t size;
    char log[64] = "";
    static char more[] = ".version 9.0\n.visible .global .align 4 .b8 second[12];\n";
    static char bad[] = ".version 9.0\n.bad\n";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    start_device();
    OK(cuLinkCreate_v2(2, options, values, &state));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuLinkComplete(state, &image, &size)); /* nothing to link */
    OK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)kernels_ptx, strlen(kernels_ptx) + 1, "a",
                        0, NULL, NULL));
    OK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, more, sizeof more, "b", 0, NULL, NULL));
    EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU,
           cuLinkAddData_v2(state, CU_JIT_INPUT_CUBIN, more, 4, "c", 0, NULL, NULL));
    OK(cuLinkComplete(state, &image, &size));
    cr_assert_gt(size, strlen(kernels_ptx) + strlen(more));
    OK(cuModuleLoadData(&module, image));
    OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLinkDestroy(state)); /* and the image with it */
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy(state));
    OK(cuModuleGetFunction(&function, module, "add"));
    OK(cuModuleGetGlobal_v2(&second, &size, module, "second"));
    cr_assert_eq(size, 12);
    OK(cuLibraryGetGlobal(&second, &size, library, "second"));
    OK(cuCtxCreate_v2(&other, 0, 0));
    OK(cuLibraryGetGlobal(&second, &size, library, "second")); /* parsed again from its parts */
    cr_assert_eq(size, 12);
    values[1] = (void *)sizeof log; /* the reports above wrote to it */
    OK(cuLinkCreate_v2(2, options, values, &state));
    OK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, bad, sizeof bad, "bad", 0, NULL, NULL));
    EXPECT(CUDA_ERROR_INVALID_PTX, cuLinkComplete(state, &image, &size));
    cr_assert_str_eq(log, "ptx:2: unknown directive .bad");
    OK(cuLinkDestroy(state));
}

/* A fat binary of one text, as fatbinary of the toolkit makes it, and its wrapper. */
struct fat_binary {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t size;
    uint16_t kind, entry_version;
    uint32_t entry_header;
    uint64_t payload, unused[2], names, flags, unused_end[2];
    char text[64];
};
struct wrapper {
    uint32_t magic, version;
    const void *container, *prelinked;
};

static struct fat_binary fat_binary(void)
{
    struct fat_binary made = {.magic = 0xba55ed50,
                              .version = 1,
                              .header_size = 16,
                              .size = sizeof made - 16,
                              .kind = 1,
                              .entry_version = 0x0101,
                              .entry_header = 64,
                              .payload = sizeof made.text,
                              .flags = 0x11};
    strcpy(made.text, ".version 9.0\n.target sm_50\n.address_size 64\n");
    return made;
}

/* What nvcc makes for code=lto_NN: who loads it is told what it is. */
Test(module, intermediate_code_is_called_so)
{
    CUmodule module;
    char log[256] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    struct fat_binary intermediate = fat_binary(), machine = intermediate;
    intermediate.kind = 8;
    machine.kind = 2;
    start_device();
    EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadDataEx(&module, &intermediate, 2, options, values));
    cr_assert(strstr(log, "LTO-IR"), "%s", log);
    cr_assert_null(strstr(log, "machine code"), "%s", log);
    values[1] = (void *)sizeof log;
    EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadDataEx(&module, &machine, 2, options, values));
    cr_assert(strstr(log, "machine code cannot run here"), "%s", log);
}

/* A copy that ends where memory ends. */
static void *at_the_edge(const void *data, size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(memory != MAP_FAILED && size <= page);
    OK(mprotect(memory + page, page, PROT_NONE) == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
    return memcpy(memory + page - size, data, size);
}

Test(link, nothing_is_read_beyond_the_size_that_is_told)
{
    CUlinkState state;
    struct fat_binary good = fat_binary(), longer = good;
    struct wrapper wrapper = {0x466243b1, 1, &good, NULL};
    longer.size += 4096;
    start_device();
    OK(cuLinkCreate_v2(0, NULL, NULL, &state));
    void *data = at_the_edge(&longer, sizeof longer);
    EXPECT(CUDA_ERROR_INVALID_IMAGE,
           cuLinkAddData_v2(state, CU_JIT_INPUT_FATBINARY, data, sizeof longer, "a", 0, NULL, NULL));
    data = at_the_edge(&good, 8);
    EXPECT(CUDA_ERROR_INVALID_IMAGE,
           cuLinkAddData_v2(state, CU_JIT_INPUT_FATBINARY, data, 8, "b", 0, NULL, NULL));
    data = at_the_edge(&wrapper, 8);
    EXPECT(CUDA_ERROR_INVALID_IMAGE,
           cuLinkAddData_v2(state, CU_JIT_INPUT_FATBINARY, data, 8, "c", 0, NULL, NULL));
    data = at_the_edge("text", 4);
    EXPECT(CUDA_ERROR_INVALID_IMAGE,
           cuLinkAddData_v2(state, CU_JIT_INPUT_FATBINARY, data, 4, "d", 0, NULL, NULL));
    /* what a wrapper in this process's memory points to is the application's word */
    data = at_the_edge(&wrapper, sizeof wrapper);
    OK(cuLinkAddData_v2(state, CU_JIT_INPUT_FATBINARY, data, sizeof wrapper, "e", 0, NULL, NULL));
    data = at_the_edge(&good, sizeof good);
    OK(cuLinkAddData_v2(state, CU_JIT_INPUT_FATBINARY, data, sizeof good, "f", 0, NULL, NULL));
    OK(cuLinkDestroy(state));
}

/* A file has nobody's pointers in it, and ends where it ends. */
Test(link, files_lead_nowhere_else)
{
    CUlinkState state;
    CUmodule module;
    CUlibrary library;
    struct fat_binary longer = fat_binary();
    const struct wrapper wrapper = {0x466243b1, 1, (void *)0x10, NULL};
    const void *contents[] = {&wrapper, &longer};
    const size_t sizes[] = {sizeof wrapper, sizeof longer};
    longer.size = 1u << 30;
    start_device();
    OK(cuLinkCreate_v2(0, NULL, NULL, &state));
    for (int i = 0; i < 2; i++) {
        char path[] = "/tmp/softgpu-image-XXXXXX";
        const int fd = mkstemp(path);
        cr_assert(fd >= 0 && write(fd, contents[i], sizes[i]) == (ssize_t)sizes[i]);
        close(fd);
        EXPECT(CUDA_ERROR_INVALID_IMAGE,
               cuLinkAddFile_v2(state, CU_JIT_INPUT_FATBINARY, path, 0, NULL, NULL));
        EXPECT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoad(&module, path));
        EXPECT(CUDA_ERROR_INVALID_IMAGE, cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0));
        unlink(path);
    }
    OK(cuLinkDestroy(state));
}

Test(library, a_kernel_in_two_contexts)
{
    CUlibrary library;
    CUkernel kernel, all[16];
    CUfunction first, second;
    CUcontext primary, other;
    CUdeviceptr a, b, d;
    size_t size;
    unsigned count;
    int value;
    uint32_t n = 4, x = 3, out[4];
    OK(cuInit(0));
    OK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0)); /* needs no context */
    OK(cuLibraryGetKernel(&kernel, library, "add"));
    EXPECT(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&all[0], library, "sub"));
    OK(cuLibraryGetKernelCount(&count, library));
    cr_assert_eq(count, 9);
    OK(cuLibraryEnumerateKernels(all, 16, library));
    cr_assert_eq(all[0], kernel);
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuKernelGetFunction(&first, kernel));
    primary = start_device();
    OK(cuKernelGetFunction(&first, kernel));
    OK(cuLibraryGetGlobal(&a, &size, library, "table"));
    OK(cuCtxCreate_v2(&other, 0, 0));
    OK(cuKernelGetFunction(&second, kernel));
    OK(cuLibraryGetGlobal(&b, &size, library, "table"));
    cr_assert_neq(first, second);
    cr_assert_neq(a, b);
    EXPECT(CUDA_ERROR_INVALID_HANDLE,
           cuLaunchKernel(first, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&d, &n, &x}, NULL));
    OK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000, kernel, 0));
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, second));
    cr_assert_eq(value, 60000);
    OK(cuCtxDestroy_v2(other));
    OK(cuCtxSetCurrent(primary));
    OK(cuMemAlloc_v2(&d, 16));
    OK(cuMemsetD32_v2(d, 1, 4));
    OK(cuLaunchKernel((CUfunction)kernel, 2, 1, 1, 2, 1, 1, 0, NULL, (void *[]){&d, &n, &x}, NULL));
    OK(cuMemcpyDtoH_v2(out, d, 16));
    cr_assert(out[0] == 4 && out[3] == 4);
    OK(cuDevicePrimaryCtxReset_v2(0)); /* the library serves the next life too */
    OK(cuMemAlloc_v2(&d, 16));
    OK(cuMemsetD32_v2(d, 1, 4));
    OK(cuLaunchKernel((CUfunction)kernel, 2, 1, 1, 2, 1, 1, 0, NULL, (void *[]){&d, &n, &x}, NULL));
    OK(cuMemcpyDtoH_v2(out, d, 16));
    cr_assert_eq(out[1], 4);
    OK(cuLibraryUnload(library));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload(library));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuKernelGetFunction(&first, kernel));
}

static CUresult launch_shape(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                             unsigned bz, unsigned shared)
{
    return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, NULL, NULL, NULL);
}

Test(launch, shapes_are_checked)
{
    start_device();
    CUfunction small = get_function("small"), exact = get_function("exact");
    OK(launch_shape(small, 1, 1, 1, 64, 1, 1, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, launch_shape(small, 1, 1, 1, 65, 1, 1, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, launch_shape(small, 0, 1, 1, 1, 1, 1, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, launch_shape(small, 1, 65536, 1, 1, 1, 1, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, launch_shape(small, 1, 1, 1, 1, 1, 65, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, launch_shape(small, 1, 1, 1, 1, 0, 1, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, launch_shape(exact, 1, 1, 1, 33, 1, 1, 0));
    OK(launch_shape(exact, 1, 1, 1, 32, 1, 1, 0));
    OK(launch_shape(small, 1, 1, 1, 1, 1, 1, 49152));
    EXPECT(CUDA_ERROR_INVALID_VALUE, launch_shape(small, 1, 1, 1, 1, 1, 1, 49153));
    OK(cuFuncSetAttribute(small, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 * 1024));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuFuncSetAttribute(small, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 * 1024 + 1));
    OK(launch_shape(small, 1, 1, 1, 1, 1, 1, 227 * 1024));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, launch_shape(NULL, 1, 1, 1, 1, 1, 1, 0));
    EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, launch_shape(get_function("no_code"), 1, 1, 1, 1, 1, 1, 0));
    EXPECT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
           cuLaunchCooperativeKernel(small, 100000, 1, 1, 64, 1, 1, 0, NULL, NULL));
    OK(cuCtxSynchronize());
}

Test(launch, parameters_come_by_pointer_or_packed)
{
    CUdeviceptr d;
    uint32_t n = 2, x = 5, out[2];
    start_device();
    CUfunction add = get_function("add");
    OK(cuMemAlloc_v2(&d, 8));
    OK(cuMemsetD32_v2(d, 0, 2));
    struct {
        CUdeviceptr p;
        uint32_t n, x;
    } packed = {d, 2, 7};
    size_t size = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    OK(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, NULL, (void *[]){&d, &n, &x}, NULL));
    OK(cuMemcpyDtoH_v2(out, d, 8));
    cr_assert(out[0] == 12 && out[1] == 12);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&d, &n, &x}, extra));
    OK(cuMemsetD32_v2(d, 0, 2));
    packed.x = 0x50003;
    size = 14; /* the last parameter's upper half is zeros */
    OK(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    OK(cuMemcpyDtoH_v2(out, d, 8));
    cr_assert(out[0] == 3 && out[1] == 3);
    size = 12;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
}

Test(launch, attributes)
{
    start_device();
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = -1};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .attrs = &attribute,
                             .numAttrs = 1};
    CUfunction small = get_function("small");
    OK(cuLaunchKernelEx(&config, small, NULL, NULL));
    attribute.id = CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING; /* a hint, which NCCL gives */
    OK(cuLaunchKernelEx(&config, small, NULL, NULL));
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = 2;
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
    EXPECT(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernelEx(&config, small, NULL, NULL));
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    attribute = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
                                    .value.programmaticEvent.event = event};
    OK(cuLaunchKernelEx(&config, small, NULL, NULL));
    OK(cuEventSynchronize(event));
    OK(cuEventDestroy(event));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuLaunchKernelEx(&config, small, NULL, NULL));
    attribute.id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE; /* of graphs alone */
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuLaunchKernelEx(&config, small, NULL, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernelEx(NULL, small, NULL, NULL));
}

Test(occupancy, model)
{
    int blocks, grid, block;
    size_t bytes;
    start_device();
    CUfunction small = get_function("small"), add = get_function("add");
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 1024, 0));
    cr_assert_eq(blocks, 1);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 0));
    cr_assert_eq(blocks, 6);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 32, 0));
    cr_assert_eq(blocks, 24);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 32, 40000));
    cr_assert_eq(blocks, 5);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, small, 65, 0));
    cr_assert_eq(blocks, 0);
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, add, NULL, 0, 0));
    cr_assert(block == 768 && grid > 0, "%d", block);
    OK(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, add, 2, 128));
    cr_assert_eq(bytes, 49152);
    OK(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, add, 8, 128));
    cr_assert_eq(bytes, 228 * 1024 / 8 - 1024);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 0, 0));
}

/* Before 8.0 a block takes none for itself, and a kernel that uses none takes none at all. */
static void capability_without_reserved_memory(void)
{
    setenv("SOFTGPU_CC", "7.5", 1);
}

Test(occupancy, without_shared_memory, .init = capability_without_reserved_memory)
{
    int blocks;
    start_device();
    const CUfunction small = get_function("small");
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, small, 64, 0));
    cr_assert_eq(blocks, 24);
    OK(cuLaunchCooperativeKernel(small, 1, 1, 1, 32, 1, 1, 0, NULL, NULL));
    OK(cuCtxSynchronize());
}

Test(entry, proc_address_is_exact_in_version)
{
    void *f = &f;
    CUdriverProcAddressQueryResult status;
    OK(cuGetProcAddress_v2("cuCtxSynchronize", &f, 12000, 0, &status));
    cr_assert_eq(f, (void *)cuCtxSynchronize);
    OK(cuGetProcAddress_v2("cuCtxSynchronize", &f, 13000, 0, &status));
    cr_assert_eq(f, (void *)cuCtxSynchronize_v2);
    OK(cuGetProcAddress_v2("cuMemAlloc", &f, 13000, 0, NULL));
    cr_assert_eq(f, (void *)cuMemAlloc_v2);
    OK(cuGetProcAddress_v2("cuStreamQuery", &f, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                           &status));
    cr_assert_eq(f, (void *)cuStreamQuery_ptsz);
    OK(cuGetProcAddress_v2("cuNotYetInvented", &f, 14000, 0, &status));
    cr_assert(f == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    OK(cuGetProcAddress_v2("cuStreamGetId", &f, 9000, 0, &status));
    cr_assert(f == NULL && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    f = &f;
    EXPECT(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuNotYetInvented", &f, 13000, 0));
    cr_assert_eq(f, &f);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress(NULL, &f, 13000, 0));
}

Test(entry, what_is_missing_says_so)
{
    CUexternalMemory memory;
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC descriptor = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                                                   .size = 4096};
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuImportExternalMemory(&memory, &descriptor));
    start_device();
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuImportExternalMemory(&memory, &descriptor));
}
