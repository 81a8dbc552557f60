/*
 * host_memory.c - a transcript of right and wrong use of memory that the host addresses too: managed memory, what is said
 * of it, page-locked and registered memory, and what is known of their pointers. Nothing that differs between two runs is
 * printed; see run.py.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TRY(call) printf("%s: %d\n", #call, (int)(call))

#define SIZE ((size_t)20000)

static const char ptx[] = ".version 7.0\n"
                          ".target sm_75\n"
                          ".address_size 64\n"
                          ".visible .global .attribute(.managed) .u32 both[4] = {1, 2, 3, 4};\n"
                          ".visible .global .u32 var = 5;\n"
                          ".visible .entry k(.param .u64 p, .param .u32 n)\n"
                          "{\n"
                          "    .reg .u32 %r<4>;\n"
                          "    .reg .u64 %rd<3>;\n"
                          "    ld.param.u64 %rd1, [p];\n"
                          "    ld.param.u32 %r1, [n];\n"
                          "    st.u32 [%rd1], %r1;\n"
                          "    ld.global.u32 %r2, [both+4];\n"
                          "    add.u32 %r2, %r2, %r1;\n"
                          "    st.global.u32 [both+4], %r2;\n"
                          "    ret;\n"
                          "}\n";

static CUdevice d;
static CUcontext c;
static CUstream s;
static CUmodule m;
static CUlibrary l;
static CUfunction f;
static CUdeviceptr p, q, dp;
static size_t sz;
static void *h, *h2;
static int v[4];
static unsigned u;
static unsigned n = 7;

static CUmemLocation at(CUmemLocationType type, int id)
{
    CUmemLocation location = {.type = type};
    location.id = id;
    return location;
}

static void managed_memory(void)
{
    const CUmemLocation device = at(CU_MEM_LOCATION_TYPE_DEVICE, 0), host = at(CU_MEM_LOCATION_TYPE_HOST, 0);
    TRY(cuMemAllocManaged(NULL, 4, CU_MEM_ATTACH_GLOBAL));
    TRY(cuMemAllocManaged(&p, 0, CU_MEM_ATTACH_GLOBAL));
    TRY(cuMemAllocManaged(&p, SIZE, 77));
    TRY(cuMemAllocManaged(&p, SIZE, CU_MEM_ATTACH_HOST));
    TRY(cuMemAlloc_v2(&q, SIZE));
    TRY(cuStreamAttachMemAsync(s, p, 0, CU_MEM_ATTACH_SINGLE));
    TRY(cuStreamAttachMemAsync(s, p, SIZE, CU_MEM_ATTACH_GLOBAL));
    TRY(cuStreamAttachMemAsync(s, q, 0, CU_MEM_ATTACH_GLOBAL));
    TRY(cuStreamAttachMemAsync(s, p, 0, 9));
    TRY(cuMemAdvise_v2(p, SIZE, CU_MEM_ADVISE_SET_READ_MOSTLY, device));
    TRY(cuMemAdvise_v2(p, SIZE, (CUmem_advise)99, device));
    TRY(cuMemAdvise_v2(p, SIZE + 1, CU_MEM_ADVISE_SET_READ_MOSTLY, device));
    TRY(cuMemAdvise_v2(q, SIZE, CU_MEM_ADVISE_SET_READ_MOSTLY, device));
    TRY(cuMemAdvise_v2(p, 8192, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host));
    TRY(cuMemAdvise_v2(p, SIZE, CU_MEM_ADVISE_SET_ACCESSED_BY, device));
    TRY(cuMemAdvise_v2(p, SIZE, CU_MEM_ADVISE_SET_ACCESSED_BY, at(CU_MEM_LOCATION_TYPE_DEVICE, 63)));
    TRY(cuMemAdvise_v2(p, SIZE, CU_MEM_ADVISE_SET_ACCESSED_BY, at(CU_MEM_LOCATION_TYPE_INVALID, 0)));
    TRY(cuMemPrefetchAsync_v2(p, SIZE, device, 0, s));
    TRY(cuMemPrefetchAsync_v2(p, SIZE, device, 1, s));
    TRY(cuMemPrefetchAsync_v2(p, 0, device, 0, s));
    TRY(cuMemPrefetchAsync_v2(q, SIZE, device, 0, s));
    TRY(cuMemRangeGetAttribute(v, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, SIZE));
    printf("%d\n", v[0]);
    TRY(cuMemRangeGetAttribute(v, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, SIZE));
    printf("%d\n", v[0]);
    TRY(cuMemRangeGetAttribute(v, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, 8192));
    printf("%d\n", v[0]);
    TRY(cuMemRangeGetAttribute(v, 12, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, p, SIZE));
    printf("%d %d %d\n", v[0], v[1], v[2]);
    TRY(cuMemRangeGetAttribute(v, 5, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, p, SIZE));
    TRY(cuMemRangeGetAttribute(v, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, SIZE));
    TRY(cuMemRangeGetAttribute(NULL, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, SIZE));
    TRY(cuMemRangeGetAttribute(v, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, q, SIZE));
    TRY(cuMemRangeGetAttribute(v, 4, (CUmem_range_attribute)99, p, SIZE));
    void *data[] = {&v[0], &v[1]};
    size_t sizes[] = {4, 4};
    CUmem_range_attribute attributes[] = {CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE,
                                          CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID};
    TRY(cuMemRangeGetAttributes(data, sizes, attributes, 2, p, SIZE));
    printf("%d %d\n", v[0], v[1]);
    TRY(cuMemRangeGetAttributes(data, sizes, attributes, 0, p, SIZE));
    CUdeviceptr ranges[] = {p, p + 8192};
    size_t range_sizes[] = {4096, 4096}, first[] = {0, 1}, wrong_first[] = {1, 0};
    CUmemLocation places[] = {host, device};
    TRY(cuMemPrefetchBatchAsync(ranges, range_sizes, 2, places, first, 2, 0, s));
    TRY(cuMemPrefetchBatchAsync(ranges, range_sizes, 2, places, wrong_first, 2, 0, s));
    TRY(cuMemPrefetchBatchAsync(ranges, range_sizes, 2, places, first, 2, 1, s));
    TRY(cuMemRangeGetAttribute(v, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p, 4096));
    printf("%d\n", v[0]);
    TRY(cuMemDiscardBatchAsync(ranges, range_sizes, 2, 0, s));
    TRY(cuMemDiscardBatchAsync(ranges, range_sizes, 0, 0, s));
    TRY(cuStreamSynchronize(s));
    TRY(cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
    printf("%u\n", u);
    TRY(cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    printf("%u\n", u);
    TRY(cuMemFree_v2(p));
    TRY(cuMemFree_v2(p));
    TRY(cuMemFree_v2(q));
    TRY(cuMemRangeGetAttribute(v, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, SIZE));
}

static void page_locked_memory(void)
{
    void *args[] = {&dp, &n};
    TRY(cuMemHostAlloc(NULL, 4, 0));
    TRY(cuMemHostAlloc(&h, SIZE, 0x80));
    TRY(cuMemHostAlloc(&h, SIZE, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
    TRY(cuMemHostGetFlags(&u, h));
    printf("%u\n", u);
    TRY(cuMemHostGetDevicePointer_v2(&dp, h, 1));
    TRY(cuMemHostGetDevicePointer_v2(NULL, h, 0));
    TRY(cuMemHostGetDevicePointer_v2(&dp, (char *)h + 100, 0));
    printf("%d\n", dp == (CUdeviceptr)h + 100);
    *(int *)((char *)h + 100) = 1;
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
    TRY(cuStreamSynchronize(s));
    printf("%d\n", *(int *)((char *)h + 100));
    TRY(cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, dp));
    printf("%u\n", u);
    TRY(cuPointerGetAttribute(&q, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, dp));
    printf("%d\n", q == dp);
    TRY(cuPointerGetAttribute(&h2, CU_POINTER_ATTRIBUTE_HOST_POINTER, dp));
    printf("%d\n", h2 == (char *)h + 100);
    TRY(cuMemGetAddressRange_v2(&q, &sz, dp));
    printf("%d %zu\n", q == (CUdeviceptr)h, sz);
    TRY(cuMemFree_v2((CUdeviceptr)h));
    TRY(cuMemHostUnregister(h));
    TRY(cuMemFreeHost((char *)h + 1));
    TRY(cuMemFreeHost(h));
    TRY(cuMemFreeHost(h));
    TRY(cuMemAllocHost_v2(&h, SIZE));
    TRY(cuMemsetD8_v2((CUdeviceptr)h, 3, 10)); /* by its host address */
    TRY(cuCtxSynchronize());
    printf("%d %d\n", ((char *)h)[9], ((char *)h)[10]);
    TRY(cuMemFreeHost(h));
}

static void CUDA_CB nap(void *unused)
{
    (void)unused;
    usleep(50000);
}

/*
 * Synchronous sets and copies of memory that the host has as well have been done when they return, whatever the stream has to do
 * before.
 */
static void sets_and_copies(void)
{
    static unsigned char source[SIZE];
    TRY(cuMemAllocHost_v2(&h, SIZE));
    TRY(cuMemAllocManaged(&p, SIZE, CU_MEM_ATTACH_GLOBAL));
    q = 0; /* where there is no memory, the next calls are for no address: not for one that may be in use again */
    TRY(cuMemAlloc_v2(&q, SIZE));
    TRY(cuMemsetD8_v2(q, 9, SIZE));
    memset(source, 7, SIZE);
    for (int i = 0; i < 2; i++) {
        const CUdeviceptr address = i ? p : (CUdeviceptr)h;
        const unsigned char *bytes = (const void *)address;
        TRY(cuMemsetD8_v2(address, 1, SIZE));
        printf("%d %d\n", bytes[0], bytes[SIZE - 1]);
        TRY(cuLaunchHostFunc(NULL, nap, NULL));
        TRY(cuMemsetD8_v2(address, 2, SIZE));
        printf("%d %d\n", bytes[0], bytes[SIZE - 1]);
        TRY(cuLaunchHostFunc(NULL, nap, NULL));
        TRY(cuMemsetD16_v2(address, 0x303, SIZE / 2));
        printf("%d %d\n", bytes[0], bytes[SIZE - 1]);
        TRY(cuLaunchHostFunc(NULL, nap, NULL));
        TRY(cuMemsetD2D32_v2(address, 1000, 0x4040404, 10, SIZE / 1000));
        printf("%d %d\n", bytes[0], bytes[SIZE - 1000]);
        TRY(cuLaunchHostFunc(NULL, nap, NULL));
        TRY(cuMemcpyHtoD_v2(address, source, SIZE));
        printf("%d %d\n", bytes[0], bytes[SIZE - 1]);
        TRY(cuLaunchHostFunc(NULL, nap, NULL));
        TRY(cuMemcpyDtoD_v2(address, q, SIZE));
        printf("%d %d\n", bytes[0], bytes[SIZE - 1]);
        TRY(cuLaunchHostFunc(NULL, nap, NULL));
        TRY(cuMemcpy(q, address, SIZE));
        memset((void *)address, 5, SIZE); /* it has been read */
        TRY(cuMemcpyDtoH_v2(source, q, SIZE));
        printf("%d %d\n", source[0], source[SIZE - 1]);
    }
    TRY(cuMemFreeHost(h));
    TRY(cuMemFree_v2(p));
    TRY(cuMemFree_v2(q));
}

static void registered_memory(void)
{
    char *memory = calloc(1, 3 * SIZE);
    void *args[] = {&dp, &n};
    TRY(cuMemHostRegister_v2(NULL, 4, 0));
    TRY(cuMemHostRegister_v2(memory, 0, 0));
    TRY(cuMemHostRegister_v2(memory, SIZE, 0x80));
    TRY(cuMemHostRegister_v2(memory, SIZE, CU_MEMHOSTREGISTER_IOMEMORY));
    TRY(cuMemHostRegister_v2(memory, SIZE, 0xffff));
    TRY(cuMemHostRegister_v2(NULL, 4, CU_MEMHOSTREGISTER_IOMEMORY));
    TRY(cuMemHostRegister_v2(memory + 8, SIZE, CU_MEMHOSTREGISTER_DEVICEMAP));
    TRY(cuMemHostRegister_v2(memory + 100, SIZE, 0));
    TRY(cuMemHostRegister_v2(memory, 9, 0));
    TRY(cuMemHostRegister_v2(memory + 8 + SIZE, SIZE, CU_MEMHOSTREGISTER_PORTABLE));
    TRY(cuMemHostGetFlags(&u, memory + 8));
    printf("%u\n", u);
    TRY(cuMemHostGetFlags(&u, memory));
    TRY(cuMemHostGetDevicePointer_v2(&dp, memory + 8 + SIZE, 0));
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
    dp = (CUdeviceptr)memory + 8 + SIZE - 4;
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
    TRY(cuStreamSynchronize(s));
    printf("%d %d\n", *(int *)(memory + 8 + SIZE), *(int *)(memory + 4 + SIZE));
    TRY(cuMemFreeHost(memory + 8));
    TRY(cuMemHostUnregister(memory));
    TRY(cuMemHostUnregister(NULL));
    TRY(cuMemHostUnregister(memory + 8));
    TRY(cuMemHostUnregister(memory + 8));
    TRY(cuMemHostUnregister(memory + 8 + SIZE));
    printf("%d %d\n", *(int *)(memory + 8 + SIZE), *(int *)(memory + 4 + SIZE));
    TRY(cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)memory + 8));
    free(memory);
}

/* Memory that is not the program's to write to must be registered as such, and what is mapped nowhere cannot be. */
static void memory_to_read(void)
{
    void *args[] = {&dp, &n};
    char *file = mmap(NULL, 4 * SIZE, PROT_READ, MAP_PRIVATE, fileno(tmpfile()), 0);
    char *memory = mmap(NULL, 3 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *gone = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("--- memory to read\n");
    TRY(cuMemHostRegister_v2(file, SIZE, 0));
    TRY(cuMemHostRegister_v2(file, SIZE, CU_MEMHOSTREGISTER_READ_ONLY));
    TRY(cuMemHostRegister_v2(file + 4, SIZE, 0));
    TRY(cuMemHostUnregister(file));
    TRY(cuMemHostRegister_v2(memory, SIZE, 0));
    TRY(cuMemHostUnregister(memory));
    TRY(mprotect(memory, SIZE, PROT_READ));
    TRY(cuMemHostRegister_v2(memory, 3 * SIZE, 0));
    TRY(cuMemHostRegister_v2(memory, SIZE, CU_MEMHOSTREGISTER_READ_ONLY));
    TRY(cuMemAlloc_v2(&dp, SIZE));
    TRY(cuMemcpyHtoDAsync_v2(dp, memory, SIZE, s));
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
    TRY(cuStreamSynchronize(s));
    TRY(cuMemFree_v2(dp));
    TRY(cuMemHostUnregister(memory));
    TRY(cuMemHostRegister_v2(gone, SIZE, 0));
    TRY(cuMemHostRegister_v2(gone, SIZE, CU_MEMHOSTREGISTER_READ_ONLY));
    munmap(gone, SIZE);
    TRY(cuMemHostRegister_v2(gone, SIZE, 0));
}

/* A driver that has locked pages keeps them when the program unmaps them: work goes on, and the registration ends as others do. */
static void memory_unmapped_early(bool reused, bool ends)
{
    char *memory = mmap(NULL, 3 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *args[] = {&dp, &n};
    printf("--- memory unmapped early%s%s\n", reused ? ", and its place taken" : "",
           ends ? ", then unregistered" : "");
    memset(memory, 1, 3 * SIZE);
    TRY(cuMemHostRegister_v2(memory + 8, 2 * SIZE, CU_MEMHOSTREGISTER_DEVICEMAP));
    TRY(cuMemHostGetDevicePointer_v2(&dp, memory + 8, 0));
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
    TRY(cuStreamSynchronize(s));
    printf("%d\n", *(int *)(memory + 8));
    munmap(memory, 3 * SIZE);
    if (reused)
        memory =
            mmap(memory, 3 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (ends)
        TRY(cuMemHostUnregister(memory + 8));
    TRY(cuMemAlloc_v2(&dp, SIZE));
    TRY(cuMemcpyHtoD_v2(dp, v, sizeof v));
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
    TRY(cuStreamSynchronize(s));
    TRY(cuMemcpyDtoH_v2(v, dp, sizeof v));
    printf("%d\n", v[0]);
    TRY(cuMemFree_v2(dp));
    if (reused) {
        printf("%d\n", memory[SIZE]);
        memory[SIZE] = 2;
    }
    if (!ends)
        TRY(cuMemHostUnregister(memory + 8));
    if (reused) {
        printf("%d\n", memory[SIZE]);
        munmap(memory, 3 * SIZE);
    }
}

static void variables(void)
{
    CUdeviceptr both;
    void *args[] = {&dp, &n};
    TRY(cuModuleGetGlobal_v2(&both, &sz, m, "both"));
    printf("%zu %u %u\n", sz, ((unsigned *)(uintptr_t)both)[0], ((unsigned *)(uintptr_t)both)[3]);
    ((unsigned *)(uintptr_t)both)[1] = 100;
    TRY(cuModuleGetGlobal_v2(&dp, &sz, m, "var"));
    TRY(cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_IS_MANAGED, dp));
    printf("%u\n", u);
    TRY(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
    TRY(cuCtxSynchronize());
    printf("%u\n", ((unsigned *)(uintptr_t)both)[1]);
    TRY(cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_IS_MANAGED, both));
    printf("%u\n", u);
    TRY(cuMemFree_v2(both));
    TRY(cuLibraryLoadData(&l, ptx, NULL, NULL, 0, NULL, NULL, 0));
    TRY(cuLibraryGetManaged(&both, &sz, l, "both"));
    printf("%zu %u\n", sz, ((unsigned *)(uintptr_t)both)[2]);
    TRY(cuLibraryGetManaged(&both, &sz, l, "var"));
    TRY(cuLibraryGetManaged(&both, &sz, l, "none"));
    TRY(cuLibraryGetManaged(&both, NULL, l, "both"));
    TRY(cuLibraryGetManaged(NULL, NULL, l, "both"));
    ((unsigned *)(uintptr_t)both)[0] = 9; /* and then the variable is gone */
    TRY(cuLibraryUnload(l));
    q = 0;
    TRY(cuMemAlloc_v2(&q, SIZE));
    TRY(cuMemsetD8_v2(q, 1, SIZE));
    TRY(cuCtxSynchronize());
    TRY(cuMemFree_v2(q));
}

int main(void)
{
    TRY(cuInit(0));
    TRY(cuDeviceGet(&d, 0));
    TRY(cuDevicePrimaryCtxRetain(&c, d));
    TRY(cuMemAllocManaged(&p, SIZE, CU_MEM_ATTACH_GLOBAL)); /* no context */
    TRY(cuMemHostAlloc(&h, SIZE, 0));
    TRY(cuCtxSetCurrent(c));
    TRY(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    TRY(cuModuleLoadData(&m, ptx));
    TRY(cuModuleGetFunction(&f, m, "k"));
    managed_memory();
    page_locked_memory();
    sets_and_copies();
    registered_memory();
    memory_to_read();
    for (int i = 0; i < 4; i++)
        memory_unmapped_early(i & 1, i & 2);
    variables();
    TRY(cuModuleUnload(m));
    TRY(cuDevicePrimaryCtxRelease_v2(d));
    return 0;
}
