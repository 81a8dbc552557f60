/* gpu_groups.c - GPUs that belong together: full meshes, parts of meshes that are not full, and those that are alone. */
#include "server/daemon/probe/gpu_groups.h"

#include <criterion/criterion.h>

enum { N = 8 };

/* A bit for each that a GPU is linked with. */
static bool by_bits(void *data, uint32_t one, uint32_t other)
{
    const uint8_t *links = data;
    cr_assert_neq(one, other);
    return links[one] >> other & 1;
}

Test(gpu_groups, all_are_linked)
{
    uint8_t links[N];
    int32_t group[N];
    for (int i = 0; i < N; i++)
        links[i] = 0xff;
    rg_gpu_groups(N, by_bits, links, group);
    for (int i = 0; i < N; i++)
        cr_expect_eq(group[i], 0);
}

Test(gpu_groups, who_is_linked_with_none_is_in_none)
{
    uint8_t links[N] = {[1] = 1 << 3, [3] = 1 << 1};
    int32_t group[N];
    rg_gpu_groups(N, by_bits, links, group);
    for (int i = 0; i < N; i++)
        cr_expect_eq(group[i] >= 0, i == 1 || i == 3);
    cr_expect_eq(group[1], group[3]);
    rg_gpu_groups(0, by_bits, links, group);
}

/* Two quads, each a full mesh, and one link from each GPU to its fellow in the other quad: the whole is no full mesh. */
Test(gpu_groups, of_a_cube_each_quad_is_a_group)
{
    uint8_t links[N];
    int32_t group[N];
    for (int i = 0; i < N; i++)
        links[i] = (uint8_t)((i < 4 ? 0x0f : 0xf0) | 1 << (i ^ 4));
    rg_gpu_groups(N, by_bits, links, group);
    for (int i = 0; i < N; i++)
        cr_expect_eq(group[i], group[i / 4 * 4]);
    cr_expect_neq(group[0], group[4]);
}
