/*
 * address_window.c - see address_window.h. The happy path: the window's usual place is free. Where it is not
 * (a sanitizer's shadow, a heap of the program's own) it goes into the middle of the largest gap, away from
 * where the kernel puts what is mapped next.
 */
#include "client/connect/address_window.h"

#include "client/core/address_map.h"
#include "common/base/addresses.h"
#include "common/base/log.h"
#include "common/base/valgrind.h"

#include <inttypes.h>
#include <stdio.h>

#define TRIES 4 /* another thread may map something between the look and the reservation */
#define WATCHED                                                                                              \
    (32ull << 30) /* the window's size under valgrind, which takes its time for each page that is mapped */

/* Keeps the span from `from` to `to` if it is the largest so far. */
static void consider(uint64_t from, uint64_t to, uint64_t *start, uint64_t *size)
{
    if (to > from && to - from > *size) {
        *start = from;
        *size = to - from;
    }
}

/*
 * The largest span of addresses that nothing is mapped in, of those that confined kernels can reach, and without those at
 * which they find page-locked memory.
 */
static void find_gap(uint64_t *start, uint64_t *size)
{
    const uint64_t host_end = RG_ADDRESS_HOST_START + RG_ADDRESS_HOST_SIZE;
    uint64_t end = 1ull << 32, from, to; /* below is where programs of fixed addresses and their heaps are */
    *start = *size = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        return;
    bool more = true;
    while (more && fscanf(maps, "%" SCNx64 "-%" SCNx64 "%*[^\n]", &from, &to) == 2) {
        more = from < RG_ADDRESS_CONFINED_END;
        if (!more)
            from = RG_ADDRESS_CONFINED_END;
        consider(end, from < RG_ADDRESS_HOST_START ? from : RG_ADDRESS_HOST_START, start, size);
        consider(end > host_end ? end : host_end, from, start, size);
        end = to > end ? to : end;
    }
    fclose(maps);
}

void rg_address_window_keep(unsigned session, unsigned part, bool alone, uint64_t *start, uint64_t *size)
{
    const uint64_t most = rg_under_valgrind() ? WATCHED : RG_ADDRESS_WINDOW_SIZE;
    *start = rg_address_window(part);
    *size = RG_ADDRESS_WINDOW_ALONE;
    if (alone && !rg_under_valgrind() && rg_map_reserve(session, *start, *size))
        return;
    *size = most;
    for (int i = 0; i < TRIES; i++) {
        /* of more servers than there are places, the last get what is left where confined kernels can reach */
        if (*start < RG_ADDRESS_CONFINED_END && rg_map_reserve(session, *start, *size))
            return;
        uint64_t gap, room;
        find_gap(&gap, &room);
        *size = room / 2 < most ? room / 2 : most;
        *size &= ~(RG_ADDRESS_WINDOW_LEAST - 1);
        *start = (gap + (room - *size) / 2) & ~(RG_ADDRESS_WINDOW_LEAST - 1);
        if (!*size || *start < gap)
            break;
    }
    rg_info("no window of addresses is left for device memory");
    *start = *size = 0;
}

void rg_address_window_keep_low(unsigned session)
{
    if (!rg_map_reserve(session, RG_ADDRESS_LOW_START, RG_ADDRESS_LOW_END - RG_ADDRESS_LOW_START))
        rg_debug("low addresses are in use here; device memory there is looked at piece by piece");
}
