/* visible_devices.c - values of CUDA_VISIBLE_DEVICES. */
#include "common/cuda/visible_devices.h"

#include <criterion/criterion.h>

/* What a value makes visible of three devices, as digits. */
static const char *visible(const char *text)
{
    static char out[3 + 1];
    static const uint8_t uuids[3][16] = {{0x11, 0x22}, {0x11, 0x33}, {0x44}};
    int numbers[3];
    const int n = rg_visible_devices_choose(text, uuids, NULL, 3, numbers);
    for (int i = 0; i < n; i++)
        out[i] = (char)('0' + numbers[i]);
    out[n] = '\0';
    return out;
}

Test(visible_devices, chosen)
{
    cr_assert_str_eq(visible(NULL), "012");
    cr_assert_str_eq(visible(""), "");
    cr_assert_str_eq(visible(" "), "");
    cr_assert_str_eq(visible("1"), "1");
    cr_assert_str_eq(visible(" 2 , 1"), "21");
    cr_assert_str_eq(visible("0,1,"), "01");
    cr_assert_str_eq(visible("0,2,-1,1"), "02");
    cr_assert_str_eq(visible("-1"), "");
    cr_assert_str_eq(visible("0,3,1"), "0");
    cr_assert_str_eq(visible("99999999999999999999"), "");
    cr_assert_str_eq(visible("1,x,0"), "1");
    cr_assert_str_eq(visible("0,1,0"), "");
    cr_assert_str_eq(visible("GPU-44"), "2");
    cr_assert_str_eq(visible("GPU-44,GPU-1133,GPU-1122"), "210");
    cr_assert_str_eq(visible("GPU-44000000-0000-0000-0000-000000000000"), "2");
    cr_assert_str_eq(visible("GPU-44000000-0000-0000-0000-0000000000000"), "");
    cr_assert_str_eq(visible("GPU-44,GPU-11,GPU-1122"), "2"); /* two begin with 11 */
    cr_assert_str_eq(visible("GPU-44,GPU-44"), "");
    cr_assert_str_eq(visible("GPU-44,0"), "2");
    cr_assert_str_eq(visible("0,GPU-44"), "0");
    cr_assert_str_eq(visible("GPU-55"), "");
    cr_assert_str_eq(visible("MIG-44"), "2"); /* whoever does not say which are instances */
    cr_assert_str_eq(visible("+1"), "1");
    cr_assert_str_eq(visible("1x,0"), "10"); /* what a number begins with counts */
}

Test(visible_devices, by_uuid)
{
    cr_assert(rg_visible_devices_by_uuid(" GPU-44"));
    cr_assert_not(rg_visible_devices_by_uuid("0,GPU-44"));
    cr_assert_not(rg_visible_devices_by_uuid(""));
    cr_assert_not(rg_visible_devices_by_uuid(NULL));
}

Test(visible_devices, instances_have_names_of_their_own)
{
    static const uint8_t uuids[2][16] = {{0x11, 0x22}, {0x11, 0x33}};
    static const bool mig[2] = {false, true};
    int out[2];
    cr_assert_eq(rg_visible_devices_choose("MIG-11", uuids, mig, 2, out), 1);
    cr_assert_eq(out[0], 1);
    cr_assert_eq(rg_visible_devices_choose("GPU-11,MIG-11", uuids, mig, 2, out), 2);
    cr_assert_eq(out[0], 0);
    cr_assert_eq(rg_visible_devices_choose("GPU-1133", uuids, mig, 2, out), 0);
    cr_assert(rg_visible_devices_by_uuid("MIG-11"));
}
