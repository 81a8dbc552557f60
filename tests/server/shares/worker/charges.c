/*
 * charges.c - what of a device's memory a session is charged for, on a driver that keeps count itself: every way of taking and
 * freeing it, drivers that refuse, what is too much and is undone, and functions that the driver does not have.
 */
#include "server/shares/worker/memory.h"
#include "server/shares/worker/share.h"
#include "tests/check.h"

#include <string.h>
#include <unistd.h>

#define MB       (1ull << 20)
#define CAPACITY (256 * MB)
#define CONTEXT  (40 * MB) /* that the driver takes for a context … */
#define MODULE   (4 * MB)  /* … and a module */

/* --- the driver -------------------------------------------------------------------------------------------- */

static struct {
    uint64_t used;         /* by contexts and modules, which only this tells */
    unsigned asked, freed; /* calls that take memory, and that free it */
    CUresult answer;
    bool context; /* the calling thread has one */
} driver;

static CUresult answer(void *out, size_t size)
{
    static uint64_t next = 0x10000;
    driver.asked++;
    if (driver.answer != CUDA_SUCCESS)
        return driver.answer;
    next += 0x10000;
    memcpy(out, &next, size);
    return CUDA_SUCCESS;
}

static CUresult released(void)
{
    driver.freed++;
    return driver.answer;
}

static CUresult current_device(CUdevice *device)
{
    *device = 0;
    return driver.context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult current(CUcontext *context)
{
    *context = (CUcontext)(uintptr_t)1;
    return CUDA_SUCCESS;
}

static CUresult info(size_t *available, size_t *total)
{
    *available = CAPACITY - driver.used;
    *total = CAPACITY;
    return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *out, size_t size)
{
    (void)size;
    return answer(out, sizeof *out);
}

static CUresult allocate_pitch(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element)
{
    (void)height, (void)element;
    *pitch = (width + 511) & ~511ull;
    return answer(out, sizeof *out);
}

static CUresult free_memory(CUdeviceptr address)
{
    (void)address;
    return released();
}

static CUresult create_array(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *wanted)
{
    (void)wanted;
    return answer(out, sizeof *out);
}

static CUresult destroy_array(CUarray array)
{
    (void)array;
    return released();
}

static CUresult create_mipmapped(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *wanted,
                                 unsigned levels)
{
    (void)wanted, (void)levels;
    return answer(out, sizeof *out);
}

static CUresult destroy_mipmapped(CUmipmappedArray array)
{
    (void)array;
    return released();
}

static CUresult create_physical(CUmemGenericAllocationHandle *out, size_t size,
                                const CUmemAllocationProp *properties, unsigned long long flags)
{
    (void)size, (void)properties, (void)flags;
    return answer(out, sizeof *out);
}

static CUresult release_physical(CUmemGenericAllocationHandle handle)
{
    (void)handle;
    return released();
}

static CUresult map(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags)
{
    (void)address, (void)size, (void)offset, (void)handle, (void)flags;
    return driver.answer;
}

static CUresult unmap(CUdeviceptr address, size_t size)
{
    (void)address, (void)size;
    return driver.answer;
}

static CUresult load(CUmodule *out, const void *image)
{
    (void)image;
    const CUresult result = answer(out, sizeof *out);
    driver.used += result == CUDA_SUCCESS ? MODULE : 0;
    return result;
}

static CUresult unload(CUmodule module)
{
    (void)module;
    driver.used -= MODULE;
    return released();
}

static CUresult create_context(CUcontext *out, unsigned flags, CUdevice device)
{
    (void)flags, (void)device;
    const CUresult result = answer(out, sizeof *out);
    driver.used += result == CUDA_SUCCESS ? CONTEXT : 0;
    return result;
}

static CUresult destroy_context(CUcontext context)
{
    (void)context;
    driver.used -= CONTEXT;
    return released();
}

/* --- a session of one device ------------------------------------------------------------------------------- */

static struct rg_share_account *account = &rg_share.accounts[0];

static void begin(uint64_t limit)
{
    struct rg_share_grant grant = {.n_devices = 1, .devices[0].memory_limit = limit};
    struct rg_share_device device;
    int page = -1, slot = -1;
    memset(&rg_share, 0, sizeof rg_share);
    memset(&driver, 0, sizeof driver);
    driver.context = true;
    CHECK(rg_share_device_create(4, CAPACITY, &device, &page) == RG_OK);
    grant.devices[0].place = rg_share_device_take(&device, 1);
    rg_share.slot = rg_share_slot_create(&grant, &slot);
    CHECK(rg_share.slot);
    rg_share.n_devices = 1;
    *account = (struct rg_share_account){
        .device = device, .place = grant.devices[0].place, .session = 1, .limit = limit};
    close(page);
    close(slot);
    rg_driver = rg_driver_absent;
    rg_driver.cuCtxGetDevice = current_device;
    rg_driver.cuCtxGetCurrent = current;
    rg_driver.cuMemGetInfo_v2 = info;
    rg_driver.cuMemAlloc_v2 = allocate;
    rg_driver.cuMemAllocPitch_v2 = allocate_pitch;
    rg_driver.cuMemFree_v2 = free_memory;
    rg_driver.cuArray3DCreate_v2 = create_array;
    rg_driver.cuArrayDestroy = destroy_array;
    rg_driver.cuMipmappedArrayCreate = create_mipmapped;
    rg_driver.cuMipmappedArrayDestroy = destroy_mipmapped;
    rg_driver.cuMemCreate = create_physical;
    rg_driver.cuMemRelease = release_physical;
    rg_driver.cuMemMap = map;
    rg_driver.cuMemUnmap = unmap;
    rg_driver.cuModuleLoadData = load;
    rg_driver.cuModuleUnload = unload;
    rg_driver.cuCtxCreate_v2 = create_context;
    rg_driver.cuCtxDestroy_v2 = destroy_context;
    rg_share_enter_driver();
}

static void end(void)
{
    rg_share_slot_close(rg_share.slot);
    rg_share_device_close(&account->device);
}

static uint64_t held(void)
{
    return rg_share_held(account);
}

static void test_linear(void)
{
    CUdeviceptr a, b, c;
    size_t available, total;
    begin(64 * MB);
    CHECK(rg_driver.cuMemAlloc_v2(&a, 5 * MB) == CUDA_SUCCESS && held() == 6 * MB); /* blocks of 2 MiB */
    CHECK(rg_driver.cuMemAlloc_v2(&b, 100) == CUDA_SUCCESS && held() == 6 * MB + 512);
    CHECK(rg_driver.cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS);
    CHECK(total == 64 * MB && available == 58 * MB - 512);
    const unsigned asked = driver.asked;
    CHECK(rg_driver.cuMemAlloc_v2(&c, 58 * MB) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(driver.asked == asked && held() == 6 * MB + 512); /* and the driver is not asked */
    driver.answer = CUDA_ERROR_ILLEGAL_ADDRESS;
    CHECK(rg_driver.cuMemAlloc_v2(&c, MB) == CUDA_ERROR_ILLEGAL_ADDRESS && held() == 6 * MB + 512);
    CHECK(rg_driver.cuMemFree_v2(a) == CUDA_ERROR_ILLEGAL_ADDRESS && held() == 6 * MB + 512);
    driver.answer = CUDA_SUCCESS;
    CHECK(rg_driver.cuMemFree_v2(a) == CUDA_SUCCESS && held() == 512);
    CHECK(rg_driver.cuMemFree_v2(a) == CUDA_SUCCESS && held() == 512); /* the driver's to refuse */
    CHECK(rg_driver.cuMemFree_v2(b) == CUDA_SUCCESS && held() == 0);
    driver.context = false;
    CHECK(rg_driver.cuMemAlloc_v2(&c, 100 * MB) == CUDA_SUCCESS &&
          held() == 0); /* of no device: nothing to charge */
    end();
}

/* The driver decides how long rows are: what is too much by that is freed again. */
static void test_rows(void)
{
    CUdeviceptr a;
    size_t pitch;
    begin(64 * MB);
    CHECK(rg_driver.cuMemAllocPitch_v2(&a, &pitch, 300, 8192, 4) == CUDA_SUCCESS && pitch == 512);
    CHECK(held() == 4 * MB);
    CHECK(rg_driver.cuMemFree_v2(a) == CUDA_SUCCESS && held() == 0);
    CHECK(rg_driver.cuMemAllocPitch_v2(&a, &pitch, 260, 160 * 1024, 4) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(held() == 0 && driver.freed == 2);
    end();
}

static void test_arrays(void)
{
    static const struct {
        CUDA_ARRAY3D_DESCRIPTOR of;
        uint64_t bytes;
    } arrays[] = {
        {{.Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4}, 16 * MB},
        {{.Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_HALF, .NumChannels = 2}, 4 * MB},
        {{.Width = 1024, .Height = 1024, .Depth = 8, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1},
         8 * MB},
        {{.Width = 2048, .Height = 1024, .Format = CU_AD_FORMAT_BC1_UNORM, .NumChannels = 4}, 2 * MB},
        {{.Width = 100, .Format = CU_AD_FORMAT_SIGNED_INT32, .NumChannels = 1}, 512},
        {{.Width = 1024,
          .Height = 1024,
          .Format = CU_AD_FORMAT_FLOAT,
          .NumChannels = 4,
          .Flags = CUDA_ARRAY3D_SPARSE},
         0},
    };
    begin(64 * MB);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        CUarray array;
        CHECK(rg_driver.cuArray3DCreate_v2(&array, &arrays[i].of) == CUDA_SUCCESS &&
              held() == arrays[i].bytes);
        CHECK(rg_driver.cuArrayDestroy(array) == CUDA_SUCCESS && held() == 0);
    }
    CUarray huge;
    const CUDA_ARRAY3D_DESCRIPTOR endless = {
        .Width = 1ull << 40, .Height = 1ull << 40, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CHECK(rg_driver.cuArray3DCreate_v2(&huge, &endless) == CUDA_ERROR_OUT_OF_MEMORY && held() == 0);
    CUmipmappedArray levels;
    CHECK(rg_driver.cuMipmappedArrayCreate(&levels, &arrays[0].of, 3) == CUDA_SUCCESS);
    CHECK(held() == rg_meter_round((16 + 4 + 1) * MB));
    CHECK(rg_driver.cuMipmappedArrayDestroy(levels) == CUDA_SUCCESS && held() == 0);
    end();
}

/* Physical memory is there as long as it has a handle or is mapped. */
static void test_physical(void)
{
    const CUmemAllocationProp here = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUdeviceptr at = 0x100000000;
    CUmemGenericAllocationHandle handle, other;
    begin(64 * MB);
    CHECK(rg_driver.cuMemCreate(&handle, 32 * MB, &here, 0) == CUDA_SUCCESS && held() == 32 * MB);
    CHECK(rg_driver.cuMemCreate(&other, 34 * MB, &here, 0) == CUDA_ERROR_OUT_OF_MEMORY && held() == 32 * MB);
    CHECK(rg_driver.cuMemMap(at, 32 * MB, 0, handle, 0) == CUDA_SUCCESS);
    CHECK(rg_driver.cuMemRelease(handle) == CUDA_SUCCESS && held() == 32 * MB);
    CHECK(rg_driver.cuMemUnmap(at, 32 * MB) == CUDA_SUCCESS && held() == 0);
    CHECK(rg_driver.cuMemCreate(&handle, 2 * MB, &here, 0) == CUDA_SUCCESS);
    CHECK(rg_driver.cuMemRelease(handle) == CUDA_SUCCESS && held() == 0);
    end();
}

/* Of these only the device's free memory tells what they take. */
static void test_measured(void)
{
    CUcontext context;
    CUmodule module, another;
    begin(46 * MB);
    CHECK(rg_driver.cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS && held() == CONTEXT);
    CHECK(rg_driver.cuModuleLoadData(&module, "") == CUDA_SUCCESS && held() == CONTEXT + MODULE);
    CHECK(rg_driver.cuModuleLoadData(&another, "") == CUDA_ERROR_OUT_OF_MEMORY); /* and is unloaded again */
    CHECK(driver.used == CONTEXT + MODULE && held() == CONTEXT + MODULE);
    CHECK(rg_driver.cuModuleUnload(module) == CUDA_SUCCESS && held() == CONTEXT);
    CHECK(rg_driver.cuCtxDestroy_v2(context) == CUDA_SUCCESS && held() == 0 && driver.used == 0);
    end();
}

/* Nothing is put in front of what is not there, so that whoever must decide without it can see that. */
static void test_absent(void)
{
    CUdeviceptr a;
    CUarray array;
    begin(0);
    CHECK(!rg_driver_has(cuMemAllocManaged) && !rg_driver_has(cuArrayCreate_v2) &&
          rg_driver_has(cuMemAlloc_v2));
    CHECK(rg_driver.cuMemAllocManaged(&a, MB, CU_MEM_ATTACH_GLOBAL) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(rg_driver.cuArrayCreate_v2(&array, &(CUDA_ARRAY_DESCRIPTOR){.Width = 1}) ==
          CUDA_ERROR_NOT_SUPPORTED);
    CHECK(held() == 0);
    end();
}

int main(void)
{
    test_linear();
    test_rows();
    test_arrays();
    test_physical();
    test_measured();
    test_absent();
    return 0;
}
