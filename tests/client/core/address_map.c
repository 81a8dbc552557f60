/* Ranges by address, and reservations that never take what is in use. */
#include "client/core/address_map.h"

#include <criterion/criterion.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define BASE 0x200000000000ull

static void add(uint64_t start, uint64_t size, enum rg_range_kind kind, uint64_t context)
{
    cr_assert(rg_map_add(&(struct rg_range){.start = start, .size = size, .kind = kind, .context = context}));
}

Test(address_map, containment)
{
    struct rg_range range;
    add(BASE + 4096, 100, RG_RANGE_DEVICE, 1);
    add(BASE, 4096, RG_RANGE_DEVICE, 1);
    cr_assert(rg_map_find(BASE, &range) && range.start == BASE);
    cr_assert(rg_map_find(BASE + 4095, &range) && range.start == BASE);
    cr_assert(rg_map_find(BASE + 4096 + 99, &range) && range.start == BASE + 4096);
    cr_assert(!rg_map_find(BASE + 4096 + 100, &range));
    cr_assert(!rg_map_find(BASE - 1, &range));
    cr_assert(!rg_map_remove(BASE + 1, 1u << RG_RANGE_DEVICE, NULL), "only at its beginning");
    cr_assert(!rg_map_remove(BASE, 1u << RG_RANGE_HOST, NULL), "only of its kind");
    cr_assert(rg_map_remove(BASE, 1u << RG_RANGE_DEVICE, &range) && range.size == 4096);
    cr_assert(!rg_map_find(BASE, &range));
}

Test(address_map, mappings_side_by_side_are_one_area)
{
    add(BASE, 4096, RG_RANGE_VIRTUAL, 0);
    add(BASE + 4096, 4096, RG_RANGE_VIRTUAL, 0);
    add(BASE + 8192, 4096, RG_RANGE_DEVICE, 1);
    cr_assert(rg_on_device(BASE + 100, 0, 8092, 1));
    cr_assert(rg_on_device(BASE + 100, 4096, 96, 2));
    cr_assert(!rg_on_device(BASE + 8192, 0, 4097, 1), "two allocations are not");
    rg_map_remove_context(1);
    cr_assert(!rg_on_device(BASE + 100, 0, 8093, 1));
    cr_assert(rg_on_device(BASE + 8191, 0, 1, 1), "mappings belong to no context");
    cr_assert(rg_map_remove(BASE + 4096, 1u << RG_RANGE_VIRTUAL, NULL));
    cr_assert(!rg_on_device(BASE, 0, 4097, 1));
}

Test(address_map, overlaps)
{
    add(BASE + 1000, 1000, RG_RANGE_REGISTERED, 1);
    cr_assert(rg_map_overlaps(BASE + 1000, 1) && rg_map_overlaps(BASE, 1001) &&
              rg_map_overlaps(BASE + 1999, 10));
    cr_assert(!rg_map_overlaps(BASE, 1000) && !rg_map_overlaps(BASE + 2000, 10));
}

Test(address_map, a_context_takes_its_device_memory_along)
{
    struct rg_range range;
    add(BASE, 16, RG_RANGE_DEVICE, 1);
    add(BASE + 16, 16, RG_RANGE_HOST, 1);
    add(BASE + 32, 16, RG_RANGE_DEVICE, 2);
    rg_map_remove_context(1);
    cr_assert(!rg_map_find(BASE, &range));
    cr_assert(rg_map_find(BASE + 16, &range));
    cr_assert(rg_map_find(BASE + 32, &range));
}

Test(address_map, reservations)
{
    void *used = mmap((void *)(BASE + 0x10000), 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    cr_assert_eq(used, (void *)(BASE + 0x10000));
    *(char *)used = 42;
    cr_assert(rg_map_reserve(0, BASE + 100, 0x8000));
    cr_assert(rg_map_reserve(0, BASE + 0x4000, 0x8000), "what is reserved already is no conflict");
    cr_assert(rg_map_reserve(0, BASE, 0x1000));
    cr_assert(!rg_map_reserve(0, BASE + 0xf000, 0x2000), "memory in use is");
    cr_assert(rg_map_reserve(0, BASE + 0x20000, 0x1000));
    cr_assert(!rg_map_reserve(1, BASE + 0x20000, 0x100), "what is another server's stays that");
    cr_assert(!rg_map_reserve(1, BASE + 0x1f000, 0x3000));
    cr_assert_eq(rg_map_reserved_by(BASE + 0x20fff), 0);
    cr_assert_eq(rg_map_reserved_by(BASE + 0x21000), -1);
    cr_assert(rg_map_reserve(0, BASE + 0x11000, 0x20000), "over a reservation in the middle");
    cr_assert_eq(*(char *)used, 42);
    void *again = mmap((void *)(BASE + 0x5000), 4096, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    cr_assert_eq(again, MAP_FAILED, "the range is taken");
}

Test(address_map, a_servers_word_leads_to_nothing_that_is_not_reserved)
{
    cr_assert(!rg_map_reserve(0, BASE, UINT64_MAX - BASE + 2), "beyond the last address");
    cr_assert(!rg_map_reserve(0, BASE, UINT64_MAX - BASE - 4), "whose last page is there no more");
    cr_assert(rg_map_reserve(0, BASE, 0x3000) && rg_map_reserve(0, BASE + 0x5000, 0x1000));
    cr_assert(rg_map_is_reserved(0, BASE + 100, 0x2000) && rg_map_is_reserved(0, BASE, 0x3000));
    cr_assert(!rg_map_is_reserved(0, BASE, 0x3001) && !rg_map_is_reserved(0, BASE + 0x2000, 0x4000));
    cr_assert(!rg_map_is_reserved(1, BASE, 0x1000), "another server's");
    cr_assert(!rg_map_is_reserved(0, BASE, UINT64_MAX - BASE + 2));
    cr_assert(rg_map_reserve(0, BASE + 0x3000, 0x2000));
    cr_assert(rg_map_is_reserved(0, BASE, 0x6000), "one behind the other");
}

Test(address_map, without_room_nothing_is_reserved)
{
    struct rlimit before;
    cr_assert_eq(getrlimit(RLIMIT_AS, &before), 0);
    const struct rlimit limit = {1ull << 34, before.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    const bool reserved = rg_map_reserve(0, BASE, 1ull << 36);
    cr_assert_eq(setrlimit(RLIMIT_AS, &before), 0); /* sanitizers need room at the end */
    cr_assert(reserved, "no room is no conflict");
    cr_assert(!rg_map_is_reserved(0, BASE, 0x1000));
}
