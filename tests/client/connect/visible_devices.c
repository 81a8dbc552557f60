/* CUDA_VISIBLE_DEVICES: numbers up to the first that is none. */
#include "client/connect/visible_devices.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static void expect(const char *text, uint32_t n, uint32_t first, uint32_t last)
{
    uint32_t out[4], got;
    setenv("CUDA_VISIBLE_DEVICES", text, 1);
    cr_assert(rg_visible_devices(out, 4, &got), "'%s' is understood", text);
    cr_assert_eq(got, n, "'%s' gives %u", text, got);
    if (n)
        cr_assert(out[0] == first && out[n - 1] == last, "'%s'", text);
}

Test(visible, numbers)
{
    expect("0", 1, 0, 0);
    expect("2,0,1", 3, 2, 1);
    expect(" 1 , 3 ", 2, 1, 3);
    expect("0,1,2,3,4,5", 4, 0, 3);
}

Test(visible, the_first_bad_entry_ends_it)
{
    expect("", 0, 0, 0);
    expect("-1", 0, 0, 0);
    expect("none", 0, 0, 0);
    expect("1,-1,0", 1, 1, 1);
    expect("1,x", 1, 1, 1);
    expect("4294967296", 0, 0, 0);
    expect("0,1,0", 0, 0, 0);
}

Test(visible, left_alone)
{
    uint32_t out[4], n;
    unsetenv("CUDA_VISIBLE_DEVICES");
    cr_assert(!rg_visible_devices(out, 4, &n));
    setenv("CUDA_VISIBLE_DEVICES", "GPU-12345678", 1);
    cr_assert(!rg_visible_devices(out, 4, &n));
}
