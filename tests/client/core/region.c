/* Regions: cut anywhere, the parts make the whole; what has no gaps is one row. */
#include "client/core/region.h"

#include <criterion/criterion.h>

static struct rg_region box(uint64_t address)
{
    return (struct rg_region){.kind = RG_REGION_HOST,
                              .width = 5,
                              .height = 3,
                              .depth = 4,
                              .address = address,
                              .pitch = 7,
                              .slice = 40};
}

Test(region, parts_make_the_whole)
{
    const struct rg_region whole = box(1000);
    cr_assert_eq(rg_region_extent(&whole), 3 * 40 + 2 * 7 + 5);
    for (size_t most = 1; most <= rg_region_size(&whole); most++)
        for (size_t offset = 0, size; offset < rg_region_size(&whole); offset += size) {
            const struct rg_region part = rg_region_cut(&whole, offset, most);
            size = rg_region_size(&part);
            cr_assert(size && size <= most);
            cr_assert_eq(part.address,
                         1000 + offset / 15 * 40 + offset / 5 % 3 * 7 + offset % 5); /* slice, row, byte */
            cr_assert(part.x == offset % 5 && part.y == offset / 5 % 3 && part.z == offset / 15);
            cr_assert(part.depth == 1 || part.height == 3, "slices are whole");
            cr_assert(part.height == 1 || part.width == 5, "rows are whole");
        }
}

Test(region, slices_of_one_row_keep_their_gaps)
{
    struct rg_region gaps = {
        .kind = RG_REGION_HOST, .width = 100, .height = 1, .depth = 4, .pitch = 256, .slice = 256};
    struct rg_region packed = gaps;
    packed.pitch = packed.slice = 100;
    const size_t extent = rg_region_extent(&gaps);
    rg_region_fold(&gaps, &packed);
    cr_assert(gaps.width == 100 && gaps.height == 4 && gaps.depth == 1 && gaps.pitch == 256);
    cr_assert(packed.width == 100 && packed.height == 4 && packed.depth == 1 && packed.pitch == 100);
    cr_assert_eq(rg_region_extent(&gaps), extent);
}

Test(region, rest_is_row_then_slice_then_slices)
{
    const struct rg_region whole = box(0);
    size_t offset = 2 * 15 - 5 - 3; /* three bytes of the row before the last of slice 1 */
    static const size_t sizes[] = {3, 5, 30};
    for (int i = 0; i < 3; i++) {
        const struct rg_region part = rg_region_cut(&whole, offset, SIZE_MAX);
        cr_assert_eq(rg_region_size(&part), sizes[i]);
        offset += sizes[i];
    }
    cr_assert_eq(offset, rg_region_size(&whole));
}

Test(region, rows_without_gaps_are_one)
{
    struct rg_region one = rg_region_line(RG_REGION_HOST, 64, 8), other = one;
    one.height = other.height = 4;
    one.depth = other.depth = 2;
    one.slice = other.slice = 32;
    struct rg_region gaps = other;
    gaps.pitch = 16;
    gaps.slice = 64;
    rg_region_fold(&one, &other);
    cr_assert(rg_region_is_line(&one) && rg_region_is_line(&other));
    cr_assert_eq(one.width, 64);
    struct rg_region packed = box(0), array = {.kind = RG_REGION_ARRAY, .width = 8, .height = 4, .depth = 2};
    packed = gaps;
    other = gaps;
    other.pitch = 8;
    other.slice = 32;
    rg_region_fold(&gaps, &other);
    cr_assert(gaps.width == 8 && gaps.height == 8 && gaps.depth == 1, "slices fold, rows do not");
    cr_assert(other.width == 8 && other.height == 8 && other.depth == 1);
    rg_region_fold(&packed, &array);
    cr_assert(packed.height == 4 && packed.depth == 2 && array.height == 4 && array.depth == 2);
}

Test(region, moves_and_iovecs_agree)
{
    unsigned char from[200], to[200] = {0}, packed[60];
    for (int i = 0; i < 200; i++)
        from[i] = (unsigned char)(i + 1);
    const struct rg_region source = box((uintptr_t)from), target = box((uintptr_t)to);
    rg_region_move(&target, &source);
    size_t covered, done = 0;
    for (size_t offset = 0; offset < sizeof packed; offset += covered) {
        struct iovec rows[3];
        const int n = rg_region_iovec(&source, offset, sizeof packed - offset, rows, 3, &covered);
        for (int i = 0; i < n; done += rows[i++].iov_len)
            memcpy(packed + done, rows[i].iov_base, rows[i].iov_len);
    }
    cr_assert_eq(done, sizeof packed);
    for (size_t i = 0; i < sizeof packed; i++) {
        const size_t at = i / 15 * 40 + i / 5 % 3 * 7 + i % 5;
        cr_assert(packed[i] == from[at] && to[at] == from[at]);
    }
    cr_assert_eq(to[5], 0, "gaps stay as they are");
}

Test(region, meets_what_it_covers)
{
    const struct rg_region region = box(1000), none = {0};
    cr_assert(rg_region_meets(&region, 1138, 1) && !rg_region_meets(&region, 1139, 1));
    cr_assert(rg_region_meets(&region, 900, 101) && !rg_region_meets(&region, 900, 100));
    cr_assert(!rg_region_meets(&none, 0, 100));
}
