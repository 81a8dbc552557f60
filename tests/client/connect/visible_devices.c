/* CUDA_VISIBLE_DEVICES as the client reads it; what values mean is tests/common/cuda/visible_devices.c's. */
#include "client/connect/visible_devices.h"

#include "common/base/limits.h"

#include <criterion/criterion.h>
#include <stdlib.h>

Test(visible, numbers)
{
    uint32_t out[RG_DEVICES_MAX];
    setenv("CUDA_VISIBLE_DEVICES", "2,0,64", 1);
    cr_assert_eq(rg_visible_kind(), RG_VISIBLE_NUMBERS);
    cr_assert_eq(rg_visible_choose(NULL, RG_DEVICES_MAX, out), 2);
    cr_assert(out[0] == 2 && out[1] == 0);
    cr_assert_eq(rg_visible_choose(NULL, 2, out), 0);
}

Test(visible, uuids)
{
    static const uint8_t uuids[2][16] = {{0x12, 0x34}, {0xab}};
    uint32_t out[RG_DEVICES_MAX];
    setenv("CUDA_VISIBLE_DEVICES", "GPU-ab", 1);
    cr_assert_eq(rg_visible_kind(), RG_VISIBLE_UUIDS);
    cr_assert_eq(rg_visible_choose(uuids, 2, out), 1);
    cr_assert_eq(out[0], 1);
}

Test(visible, all)
{
    unsetenv("CUDA_VISIBLE_DEVICES");
    cr_assert_eq(rg_visible_kind(), RG_VISIBLE_ALL);
}
