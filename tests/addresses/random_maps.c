/*
 * random_maps.c - a program that maps much memory at random places, before it uses CUDA and while it does, and takes device
 * memory of every kind in between. No call may fail, and no address of the device's may be one of its own.
 *
 * usage: random_maps SEED
 */
#include "common/base/addresses.h"
#include "tests/fidelity/must.h"

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAPS 512u
#define MAPPED_MOST                                                                                          \
    (50ull << 30) /* bytes that the program maps in all, of which half before its first call */
#define DEVICE_MOST (80ull << 30) /* bytes of device memory */

static const char ptx[] = ".version 7.0\n"
                          ".target sm_75\n"
                          ".address_size 64\n"
                          ".visible .global .align 8 .u64 word = 77;\n"
                          ".visible .entry copy(.param .u64 to, .param .u64 from)\n"
                          "{\n"
                          "    .reg .u64 %rd<4>;\n"
                          "    ld.param.u64 %rd1, [to];\n"
                          "    ld.param.u64 %rd2, [from];\n"
                          "    ld.u64 %rd3, [%rd2];\n"
                          "    st.u64 [%rd1], %rd3;\n"
                          "    ret;\n"
                          "}\n";

static struct {
    uint64_t start, size;
} maps[MAPS];
static unsigned n_maps;
static uint64_t mapped, state;
static CUfunction copy;

static uint64_t random_below(uint64_t limit)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 16) % limit;
}

/* Maps up to `most` bytes in all: where the kernel finds room, or at some place if that is free. */
static void map_some(uint64_t most)
{
    while (mapped < most && n_maps < MAPS) {
        const uint64_t size = (1 + random_below(1024)) << 20;
        void *place = random_below(2) ? NULL : (void *)(uintptr_t)(random_below(0x7fffffff) << 16);
        void *got =
            mmap(place, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (got == MAP_FAILED) {
            perror("mmap");
            exit(1);
        }
        *(volatile char *)got = 1;
        maps[n_maps].start = (uint64_t)(uintptr_t)got;
        maps[n_maps++].size = size;
        mapped += size;
    }
}

/* The device has memory at [address, address + size): it works, and is none of the program's. */
static void use(const char *what, CUdeviceptr address, uint64_t size)
{
    for (unsigned i = 0; i < n_maps; i++)
        if (address < maps[i].start + maps[i].size && maps[i].start < address + size) {
            printf("%s: %#llx is the program's own\n", what, (unsigned long long)address);
            exit(1);
        }
    uint64_t value = address ^ size, back = 0;
    const CUdeviceptr last = address + size - sizeof value;
    CHECK(cuMemcpyHtoD_v2(last, &value, sizeof value));
    CHECK(cuMemcpyDtoH_v2(&back, last, sizeof back));
    if (back != value) {
        printf("%s: at %#llx is something else\n", what, (unsigned long long)last);
        exit(1);
    }
    map_some(mapped + (64u << 20));
}

static void linear_memory(void)
{
    for (uint64_t all = 0; all < DEVICE_MOST;) {
        CUdeviceptr p;
        const uint64_t size = random_below(4) ? (1 + random_below(2048)) << 20 : 512 + 8 * random_below(8192);
        CHECK(cuMemAlloc_v2(&p, size));
        use("cuMemAlloc", p, size);
        all += size < 1u << 20 ? 512u << 20 : size;
    }
}

static void other_memory(CUdevice device)
{
    CUdeviceptr p;
    size_t pitch;
    CHECK(cuMemAllocPitch_v2(&p, &pitch, 1000, 1000, 4));
    use("cuMemAllocPitch", p, pitch * 1000);
    CHECK(cuMemAllocAsync(&p, 3u << 20, NULL));
    use("cuMemAllocAsync", p, 3u << 20);

    const CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    const CUmemAccessDesc access = {.location = property.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle physical;
    CHECK(cuMemAddressReserve(&p, 64u << 20, 0, 0, 0));
    CHECK(cuMemCreate(&physical, 2u << 20, &property, 0));
    CHECK(cuMemMap(p, 2u << 20, 0, physical, 0));
    CHECK(cuMemSetAccess(p, 2u << 20, &access, 1));
    use("cuMemMap", p, 2u << 20);
}

/* A kernel copies from host memory that the device addresses, a variable, to managed memory, which the host reads. */
static void shared_memory(void)
{
    CUmodule module;
    CUdeviceptr word, managed;
    size_t size;
    uint64_t *host;
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&copy, module, "copy"));
    CHECK(cuModuleGetGlobal_v2(&word, &size, module, "word"));
    use("cuModuleGetGlobal", word, size);
    CHECK(cuMemAllocManaged(&managed, 1u << 20, CU_MEM_ATTACH_GLOBAL));
    if (posix_memalign((void **)&host, 4096, 1u << 20) != 0)
        exit(1);
    CHECK(cuMemHostRegister_v2(host, 1u << 20, CU_MEMHOSTREGISTER_DEVICEMAP));
    for (unsigned i = 0; i < 3; i++) {
        CUdeviceptr from = (CUdeviceptr)(uintptr_t)host;
        *host = 1234 + i;
        CHECK(cuLaunchKernel(copy, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&managed, &from}, NULL));
        CHECK(cuCtxSynchronize());
        if (*(volatile uint64_t *)(uintptr_t)managed != 1234 + i) {
            printf("the kernel's result did not arrive\n");
            exit(1);
        }
    }
    CHECK(cuMemHostUnregister(host));
    CHECK(cuMemFree_v2(managed));
}

/*
 * A program that runs for long takes and frees more page-locked memory in turn than there are addresses for it, beside some that it
 * keeps; the device must have it all the same.
 */
static void page_locked_in_turn(void)
{
    enum { ROUNDS = 12 << 10, BETWEEN = 256, KEPT = ROUNDS / BETWEEN };
    CUdeviceptr there;
    void *host, *kept[KEPT];
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(cuMemHostAlloc(&host, (size_t)1 << 30, CU_MEMHOSTALLOC_DEVICEMAP));
        if ((uintptr_t)host - RG_ADDRESS_HOST_START >= RG_ADDRESS_HOST_SIZE) {
            printf("page-locked memory at %p\n", host);
            exit(1);
        }
        if (i % BETWEEN == 0) {
            CHECK(cuMemHostGetDevicePointer_v2(&there, host, 0));
            CHECK(cuMemHostAlloc(&kept[i / BETWEEN], 4096, CU_MEMHOSTALLOC_DEVICEMAP));
        }
        CHECK(cuMemFreeHost(host));
    }
    for (int i = 0; i < KEPT; i++)
        CHECK(cuMemFreeHost(kept[i]));
}

int main(int argc, char **argv)
{
    CUdevice device;
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    state = seed;
    map_some(MAPPED_MOST / 2);
    use_first_device();
    CHECK(cuDeviceGet(&device, 0));
    for (unsigned i = 0; i < 2; i++) {
        other_memory(device);
        shared_memory();
        if (i == 0)
            linear_memory();
        map_some(MAPPED_MOST);
    }
    if (seed == 1)
        page_locked_in_turn();
    printf("ok\n");
    return 0;
}
