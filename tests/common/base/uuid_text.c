/* uuid_text.c - UUIDs of GPUs and of their instances, as text and back. */
#include "common/base/uuid_text.h"

#include <criterion/criterion.h>
#include <string.h>

static const uint8_t uuid[16] = {0x10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255};
#define TEXT "10010203-0405-0607-0809-0a0b0c0d0eff"

Test(uuid_text, both_ways)
{
    for (int i = 0; i < 2; i++) {
        char text[RG_UUID_TEXT];
        uint8_t back[16];
        bool mig = !i;
        cr_expect_str_eq(rg_uuid_text(uuid, i, text, sizeof text), i ? "MIG-" TEXT : "GPU-" TEXT);
        cr_assert(rg_uuid_parse(text, back, &mig));
        cr_expect_eq(memcmp(back, uuid, sizeof uuid), 0);
        cr_expect_eq(mig, i == 1);
    }
}

Test(uuid_text, parse_takes_nothing_else)
{
    static const char *const wrong[] = {"",
                                        TEXT,
                                        "GPU-",
                                        "GPU-" TEXT "0",
                                        "GPU-" TEXT " ",
                                        "GPU-10010203-0405-0607-0809-0a0b0c0d0ef",
                                        "GPU-1001020304050607-0809-0a0b0c0d0eff0",
                                        "GPU-+0010203-0405-0607-0809-0a0b0c0d0eff",
                                        "MIG-GPU-" TEXT "/1/0"};
    uint8_t back[16];
    bool mig;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect(!rg_uuid_parse(wrong[i], back, &mig), "%s", wrong[i]);
}

Test(uuid_text, bare)
{
    cr_expect_str_eq(rg_uuid_bare("GPU-12"), "12");
    cr_expect_str_eq(rg_uuid_bare("mig-12"), "12");
    cr_expect_str_eq(rg_uuid_bare("12"), "12");
    cr_expect_str_eq(rg_uuid_bare("GPU"), "GPU");
}
