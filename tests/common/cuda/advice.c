/* What is said of ranges of managed memory, and what is answered for parts of them. */
#include "common/cuda/advice.h"

#include <criterion/criterion.h>

#define PAGE 4096ull

static int ask(CUmem_range_attribute attribute, uint64_t start, uint64_t size)
{
    int value = -77;
    cr_assert_eq(rg_advice_get(&value, sizeof value, attribute, start, size), CUDA_SUCCESS);
    return value;
}

Test(advice, nothing_was_said)
{
    int list[2];
    cr_assert_eq(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, PAGE, PAGE), 0);
    cr_assert_eq(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, PAGE, PAGE), CU_DEVICE_INVALID);
    cr_assert_eq(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, PAGE, PAGE), CU_DEVICE_INVALID);
    cr_assert_eq(rg_advice_get(list, sizeof list, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, PAGE, PAGE),
                 CUDA_SUCCESS);
    cr_assert(list[0] == CU_DEVICE_INVALID && list[1] == CU_DEVICE_INVALID);
}

Test(advice, parts_and_gaps)
{
    const CUmemLocation host = rg_location_of(CU_DEVICE_CPU), device = rg_location_of(3);
    cr_assert_eq(rg_advice_set(10 * PAGE, 10 * PAGE, CU_MEM_ADVISE_SET_READ_MOSTLY, &host), CUDA_SUCCESS);
    cr_assert_eq(rg_advice_set(15 * PAGE, 10 * PAGE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, &device),
                 CUDA_SUCCESS);
    cr_assert_eq(rg_advice_prefetched(12 * PAGE, PAGE, &host), CUDA_SUCCESS);
    cr_assert_eq(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 10 * PAGE, 10 * PAGE), 1);
    cr_assert_eq(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 10 * PAGE, 10 * PAGE + 1), 0);
    cr_assert_eq(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 9 * PAGE, 2 * PAGE), 0);
    cr_assert_eq(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 14 * PAGE, 2 * PAGE), CU_DEVICE_INVALID);
    cr_assert_eq(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 15 * PAGE, 10 * PAGE), 3);
    cr_assert_eq(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 12 * PAGE, 10), CU_DEVICE_CPU);
    cr_assert_eq(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, 12 * PAGE, 10),
                 CU_MEM_LOCATION_TYPE_HOST);
    cr_assert_eq(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 12 * PAGE, 2 * PAGE), CU_DEVICE_INVALID);
    cr_assert_eq(rg_advice_set(17 * PAGE, PAGE, CU_MEM_ADVISE_UNSET_READ_MOSTLY, &host), CUDA_SUCCESS);
    cr_assert_eq(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 10 * PAGE, 10 * PAGE), 0);
    cr_assert_eq(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 18 * PAGE, 2 * PAGE), 1);
    rg_advice_forget(10 * PAGE, 15 * PAGE);
    cr_assert_eq(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 18 * PAGE, PAGE), 0);
}

Test(advice, accessed_by)
{
    const CUmemLocation host = rg_location_of(CU_DEVICE_CPU), one = rg_location_of(1),
                        two = rg_location_of(2);
    int list[4];
    cr_assert_eq(rg_advice_set(PAGE, PAGE, CU_MEM_ADVISE_SET_ACCESSED_BY, &two), CUDA_SUCCESS);
    cr_assert_eq(rg_advice_set(PAGE, PAGE, CU_MEM_ADVISE_SET_ACCESSED_BY, &host), CUDA_SUCCESS);
    cr_assert_eq(rg_advice_set(PAGE, PAGE, CU_MEM_ADVISE_SET_ACCESSED_BY, &one), CUDA_SUCCESS);
    cr_assert_eq(rg_advice_set(PAGE, PAGE, CU_MEM_ADVISE_UNSET_ACCESSED_BY, &two), CUDA_SUCCESS);
    cr_assert_eq(rg_advice_get(list, sizeof list, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, PAGE, PAGE),
                 CUDA_SUCCESS);
    cr_assert(list[0] == 1 && list[1] == CU_DEVICE_CPU && list[2] == CU_DEVICE_INVALID);
    cr_assert_eq(rg_advice_get(list, 4, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, PAGE, PAGE), CUDA_SUCCESS);
    cr_assert_eq(rg_advice_get(list, 3, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, PAGE, PAGE),
                 CUDA_ERROR_INVALID_VALUE);
    cr_assert_eq(rg_advice_get(list, 4, (CUmem_range_attribute)99, PAGE, PAGE), CUDA_ERROR_INVALID_VALUE);
}
