/* memory_level.c - amounts of memory as powers of two: never more than is left, never less than was taken. */
#include "proto/memory_level.h"

#include <criterion/criterion.h>

Test(memory_level, is_never_on_the_wrong_side)
{
    static const uint64_t some[] = {
        1, 2, 3, 4095, 4096, 4097, 1ull << 30, (1ull << 30) + 1, (1ull << 40) - 1, 1ull << 61};
    cr_expect_eq(rg_memory_level_within(0), 1);
    cr_expect_eq(rg_memory_level_of(0), 1);
    cr_expect_eq(rg_memory_level_bytes(1), 0);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        const uint64_t within = rg_memory_level_bytes(rg_memory_level_within(some[i])),
                       of = rg_memory_level_bytes(rg_memory_level_of(some[i]));
        cr_expect(within <= some[i] && some[i] < 2 * within, "%llu: %llu", (unsigned long long)some[i],
                  (unsigned long long)within);
        cr_expect(of >= some[i] && of / 2 < some[i], "%llu: %llu", (unsigned long long)some[i],
                  (unsigned long long)of);
        cr_expect(rg_memory_level_of(some[i]) <= RG_MEMORY_LEVEL_MASK);
    }
    cr_expect_eq(rg_memory_level_within(UINT64_MAX), RG_MEMORY_LEVEL_MASK);
}
