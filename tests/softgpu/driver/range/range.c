/* range.c - which memory the device knows: what an address belongs to, how far an access may go, reservations. */
#include "softgpu/driver/range/range.h"

#include "softgpu/driver/core/device.h"
#include "tests/softgpu/driver/support.h"

Test(range, what_an_address_belongs_to)
{
    CUdeviceptr a, b;
    struct sg_range range;
    start_device();
    OK(cuMemAlloc_v2(&a, 1000));
    OK(cuMemAlloc_v2(&b, 4096));
    cr_expect(sg_address_is_device(a) && sg_address_is_device(b));
    cr_expect_not(sg_address_is_device((uintptr_t)&range));
    cr_assert(sg_range_find(a + 999, &range));
    cr_expect(range.base == a && range.size == 1000 && range.kind == SG_RANGE_DEVICE);
    cr_expect_not(sg_range_find(a + 1000, &range));
    cr_expect(sg_range_holds(a, 1000) && sg_range_holds(a + 5, 0) && sg_range_holds(a + 999, 1));
    cr_expect_not(sg_range_holds(a, 1001));
    cr_expect_not(sg_range_holds(a + 1, 1000));
    cr_expect_not(sg_range_holds(a, UINT64_MAX));
    cr_expect_not(sg_range_holds(a, b - a + 1), "two allocations are not one");
    cr_expect_eq(sg_range_free(a, SG_RANGE_ARRAY), CUDA_ERROR_INVALID_VALUE);
    cr_expect_eq(sg_range_free(a + 1, SG_RANGE_DEVICE), CUDA_ERROR_INVALID_VALUE);
    cr_expect_eq(sg_range_free(a, SG_RANGE_DEVICE), CUDA_SUCCESS);
    cr_expect_not(sg_range_find(a, &range));
    OK(cuMemFree_v2(b));
}

Test(range, host_memory)
{
    void *host;
    struct sg_range range;
    static char own[8192];
    start_device();
    OK(cuMemHostAlloc(&host, 5000, 0));
    cr_assert(sg_range_find((uintptr_t)host + 4999, &range));
    cr_expect_eq(range.kind, SG_RANGE_HOST);
    OK(cuMemHostRegister_v2(own, sizeof own, 0));
    cr_assert(sg_range_find((uintptr_t)own + 1, &range));
    cr_expect_eq(range.kind, SG_RANGE_REGISTERED);
    EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(own + 4096, 4096, 0));
    OK(cuMemHostUnregister(own));
    cr_expect_not(sg_range_find((uintptr_t)own + 1, &range));
    OK(cuMemFreeHost(host));
}

Test(range, reservations_have_no_memory)
{
    uint64_t at = 0, again = 0;
    struct sg_range range;
    start_device();
    const uint64_t used = sg_memory_used(sg_device(0));
    cr_assert_eq(sg_range_reserve(4 * SG_GRANULARITY, 0, 0, &at), CUDA_SUCCESS);
    cr_expect_eq(at % SG_GRANULARITY, 0);
    cr_expect_not(sg_range_find(at, &range));
    cr_expect_not(sg_range_allows(at, 1, false));
    cr_expect_not(sg_range_is_mapped(at, SG_GRANULARITY));
    cr_expect_eq(sg_memory_used(sg_device(0)), used);
    cr_assert_eq(sg_range_reserve(SG_GRANULARITY, 0, at + 8 * SG_GRANULARITY, &again), CUDA_SUCCESS);
    cr_expect_eq(again, at + 8 * SG_GRANULARITY, "where it was asked for, as that was free");
    cr_expect_eq(sg_range_unreserve(at, SG_GRANULARITY), CUDA_ERROR_INVALID_VALUE, "not a part of one");
    cr_expect_eq(sg_range_unreserve(at, 4 * SG_GRANULARITY), CUDA_SUCCESS);
    cr_expect_eq(sg_range_unreserve(at, 4 * SG_GRANULARITY), CUDA_ERROR_INVALID_VALUE);
    cr_expect_eq(sg_range_unreserve(again, SG_GRANULARITY), CUDA_SUCCESS);
}

static void small_device(void)
{
    setenv("SOFTGPU_MEMORY", "64M", 1);
}

/* Memory that is mapped elsewhere counts as the device's. */
Test(range, the_account, .init = small_device)
{
    CUdeviceptr a;
    start_device();
    const struct sg_device *device = sg_device(0);
    cr_assert(sg_memory_take(device, 60 << 20));
    cr_expect_eq(sg_memory_used(device), 60 << 20);
    cr_expect_not(sg_memory_take(device, 5 << 20));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&a, 5 << 20));
    sg_memory_give_back(device, 60 << 20);
    cr_expect_eq(sg_memory_used(device), 0);
    OK(cuMemAlloc_v2(&a, 5 << 20));
}
