/* Addresses kept free for device memory: in their usual place, elsewhere where that is taken, and none where
 * none are left. */
#include "client/connect/address_window.h"
#include "client/core/address_map.h"
#include "common/base/addresses.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

static void *map(uint64_t start, uint64_t size, int flags)
{
    return mmap((void *)(uintptr_t)start, size, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

/* Whether nothing is mapped there. Criterion's arena, which this process inherits, lies at a random address: sometimes there. */
static bool is_free(uint64_t start, uint64_t size)
{
    uint64_t from, to;
    bool free = true;
    FILE *maps = fopen("/proc/self/maps", "r");
    cr_assert_not_null(maps);
    while (free && fscanf(maps, "%" SCNx64 "-%" SCNx64 "%*[^\n]", &from, &to) == 2)
        free = to <= start || from >= start + size;
    fclose(maps);
    return free;
}

/* A window that was kept: its own place in full if that was free, else one elsewhere that is large enough to work with. */
static void expect_place(uint64_t usual, bool was_free, uint64_t start, uint64_t size)
{
    if (was_free) {
        cr_assert_eq(start, usual);
        cr_assert_eq(size, RG_ADDRESS_WINDOW_SIZE);
    } else {
        cr_assert_neq(start, usual);
        cr_assert_geq(size, 1ull << 40);
    }
}

static void expect_kept(unsigned session, uint64_t start, uint64_t size)
{
    cr_assert_eq(rg_map_reserved_by(start), (int)session);
    cr_assert_eq(rg_map_reserved_by(start + size - 1), (int)session);
    cr_assert_eq(map(start + size / 2, 4096, MAP_FIXED_NOREPLACE), MAP_FAILED, "nobody gets them");
    for (int i = 0; i < 100; i++) {
        const uint64_t at = (uint64_t)(uintptr_t)map(0, 1ull << 30, 0);
        cr_assert(at + (1ull << 30) <= start || at >= start + size, "the kernel gives nobody any of them");
    }
}

Test(window, the_usual_place)
{
    uint64_t start, size;
    const bool was_free = is_free(RG_ADDRESS_WINDOW_START, RG_ADDRESS_WINDOW_SIZE);
    rg_address_window_keep(0, 0, false, &start, &size);
    expect_place(RG_ADDRESS_WINDOW_START, was_free, start, size);
    expect_kept(0, start, size);
    cr_assert(rg_map_reserve(0, start + 4096, 1ull << 30), "device memory there is as it should be");
    cr_assert(!rg_map_reserve(1, start + 4096, 1ull << 30), "but not another server's");
}

/* Of a program with one server: as much as there is up to the page-locked memory, or what servers of several have. */
Test(window, of_one_server)
{
    uint64_t start, size, guest, guest_size;
    const bool all_free = is_free(RG_ADDRESS_WINDOW_START, RG_ADDRESS_WINDOW_ALONE),
               was_free = is_free(RG_ADDRESS_WINDOW_START, RG_ADDRESS_WINDOW_SIZE);
    rg_address_window_keep(0, 0, true, &start, &size);
    if (all_free) {
        cr_assert_eq(start, RG_ADDRESS_WINDOW_START);
        cr_assert_eq(size, RG_ADDRESS_WINDOW_ALONE);
    } else {
        expect_place(RG_ADDRESS_WINDOW_START, was_free, start, size);
    }
    expect_kept(0, start, size);
    rg_address_window_keep(1, 1, false, &guest, &guest_size);
    cr_assert_geq(guest_size, 1ull << 40, "one that comes later finds room");
    cr_assert(guest >= start + size || guest + guest_size <= start);
    expect_kept(1, guest, guest_size);
}

Test(window, of_several_servers)
{
    uint64_t start[6], size[6];
    for (unsigned i = 0; i < 6; i++) {
        const uint64_t usual = rg_address_window(i);
        const bool was_free = usual < RG_ADDRESS_CONFINED_END && is_free(usual, RG_ADDRESS_WINDOW_SIZE);
        rg_address_window_keep(i, i, false, &start[i], &size[i]);
        expect_place(usual, was_free, start[i], size[i]);
        cr_assert(start[i] >= RG_ADDRESS_HOST_START + RG_ADDRESS_HOST_SIZE ||
                      start[i] + size[i] <= RG_ADDRESS_HOST_START,
                  "page-locked memory is elsewhere");
        for (unsigned k = 0; k < i; k++)
            cr_assert(start[i] >= start[k] + size[k] || start[k] >= start[i] + size[i], "they share nothing");
    }
    expect_kept(5, start[5], size[5]);
}

Test(window, a_place_that_is_taken)
{
    uint64_t start, size;
    if (is_free(RG_ADDRESS_WINDOW_START, RG_ADDRESS_WINDOW_SIZE))
        cr_assert_neq(map(RG_ADDRESS_WINDOW_START + (1ull << 30), 4096, MAP_FIXED_NOREPLACE), MAP_FAILED);
    rg_address_window_keep(0, 0, false, &start, &size);
    cr_assert_neq(start, RG_ADDRESS_WINDOW_START);
    cr_assert_geq(size, 1ull << 40);
    expect_kept(0, start, size);
}

/* Maps all of [start, end) that is not mapped yet. */
static void fill(uint64_t start, uint64_t end)
{
    uint64_t from, to;
    bool again = true;
    while (again) { /* what is mapped while the file is read changes it */
        again = false;
        FILE *maps = fopen("/proc/self/maps", "r");
        cr_assert_not_null(maps);
        uint64_t at = start;
        while (!again && at < end && fscanf(maps, "%" SCNx64 "-%" SCNx64 "%*[^\n]", &from, &to) == 2) {
            if (from > at)
                again = map(at, (from < end ? from : end) - at, MAP_FIXED_NOREPLACE) != MAP_FAILED;
            at = to > at ? to : at;
        }
        fclose(maps);
    }
}

/* Fills all of the address space but for one gap. */
static void leave(uint64_t start, uint64_t size)
{
    fill(1ull << 32, start);
    fill(start + size, RG_ADDRESS_END - (1ull << 16));
}

Test(window, the_largest_gap)
{
    uint64_t start, size;
    leave(0x234000000000, 8ull << 30);
    rg_address_window_keep(0, 0, false, &start, &size);
    cr_assert_eq(size, 4ull << 30, "the program keeps as much");
    cr_assert(start >= 0x234000000000 && start + size <= 0x234000000000 + (8ull << 30));
    cr_assert_eq(rg_map_reserved_by(start), 0);
}

Test(window, no_gap)
{
    uint64_t start, size;
    leave(0x234000000000, 1ull << 30);
    rg_address_window_keep(0, 0, false, &start, &size);
    cr_assert_eq(size, 0);
}

#if !defined(RG_SANITIZED) /* which would not be left enough themselves */
Test(window, a_limit_of_addresses)
{
    uint64_t start, size;
    const struct rlimit limit = {1ull << 32, 1ull << 32};
    const bool was_free = is_free(RG_ADDRESS_WINDOW_START, RG_ADDRESS_WINDOW_SIZE);
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    rg_address_window_keep(0, 0, false, &start, &size);
    cr_assert((start == RG_ADDRESS_WINDOW_START) == was_free,
              "it is far from what the kernel gives a process that may have so few");
    cr_assert(rg_map_reserve(0, start, 1ull << 30), "what cannot be reserved is no conflict");
}
#endif
