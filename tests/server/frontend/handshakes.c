/* handshakes.c - clients of the pool that take their time: one address leaves room for others. */
#include "server/frontend/handshake_internal.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct rg_handshakes handshakes;

/* One more connection of an address. */
static struct rg_handshake *connect_from(uint8_t address)
{
    struct rg_handshake *handshake = calloc(1, sizeof *handshake);
    handshake->owner = &handshakes;
    handshake->origin = (struct rg_origin){.family = 2, .bytes = {10, 0, 0, address}};
    handshake->next = handshakes.running;
    handshakes.running = handshake;
    return handshake;
}

Test(handshakes, one_address_leaves_room_for_others_at_the_pool)
{
    uint32_t n = 0;
    const char *why;
    cr_assert_eq(rg_handshakes_init(&handshakes, NULL), RG_OK);
    while (!(why = rg_handshake_begin_waiting(connect_from(1))) && n < RG_POOL_CLIENTS_MAX)
        n++;
    cr_assert_eq(n, RG_POOL_CLIENTS_MAX / 4 * 3);
    cr_expect(strstr(why, "from your address"), "%s", why);
    while (!(why = rg_handshake_begin_waiting(connect_from((uint8_t)(2 + n % 2)))) && n < RG_POOL_CLIENTS_MAX)
        n++;
    cr_assert_eq(n, RG_POOL_CLIENTS_MAX);
    cr_expect(strstr(why, "too many clients of the pool"), "%s", why);
}
