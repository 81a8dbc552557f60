/* choice.c - which of a server's addresses are rails over TCP, for machines that there are not. */
#include "transport/topology/choice.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* This machine's interfaces: two of their own, and a second address of the first. */
static const struct rg_rail links[] = {
    {.way = {.device = "eth0", .interface = "eth0", .address = "10.0.0.2", .prefix = 24}, .number = 0},
    {.way = {.device = "eth0", .interface = "eth0", .address = "10.9.0.2", .prefix = 24}, .number = 0},
    {.way = {.device = "eth1", .interface = "eth1", .address = "10.0.1.2", .prefix = 24}, .number = 1},
    {.way = {.device = "eth2", .interface = "eth2", .address = "10.0.0.3", .prefix = 24}, .number = 2},
};

static struct rg_rail_way way(const char *host, uint32_t there, int link, bool direct)
{
    return (struct rg_rail_way){
        .host = host, .there = there, .by = link < 0 ? NULL : &links[link], .direct = direct};
}

static void expect(const struct rg_rail_way *ways, unsigned n, unsigned first, unsigned wanted, bool named,
                   const char *rails, const enum rg_rail_verdict *verdicts)
{
    enum rg_rail_verdict got[8];
    unsigned out[8];
    char text[32] = "";
    const unsigned n_out = rg_rail_choose(ways, n, first, wanted, named, out, got);
    for (unsigned i = 0; i < n_out; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%u ", out[i]);
    cr_assert_str_eq(text, rails);
    for (unsigned i = 0; i < n; i++)
        cr_assert_eq(got[i], verdicts[i], "way %u: %s, not: %s", i, rg_rail_words(got[i]),
                     rg_rail_words(verdicts[i]));
}

Test(choice, an_address_on_another_network_at_both_ends_is_a_rail)
{
    const struct rg_rail_way ways[] = {way("10.0.0.1", 0, 0, true), way("10.0.1.1", 1, 2, true)};
    expect(ways, 2, 0, 8, false, "0 1 ", (enum rg_rail_verdict[]){RG_RAIL_USED, RG_RAIL_USED});
    expect(ways, 2, 1, 8, false, "1 0 ", (enum rg_rail_verdict[]){RG_RAIL_USED, RG_RAIL_USED});
    expect(ways, 2, 0, 1, false, "0 ", (enum rg_rail_verdict[]){RG_RAIL_USED, RG_RAIL_ENOUGH});
}

Test(choice, what_shares_an_interface_or_a_network_is_none)
{
    const struct rg_rail_way ways[] = {way("10.0.0.1", 0, 0, true), way("10.9.0.1", 1, 1, true),
                                       way("10.0.1.1", 0, 2, true), way("10.0.0.4", 2, 3, true)};
    expect(
        ways, 4, 0, 8, false, "0 ",
        (enum rg_rail_verdict[]){RG_RAIL_USED, RG_RAIL_SAME_HERE, RG_RAIL_SAME_THERE, RG_RAIL_SAME_NETWORK});
    expect(ways, 4, 0, 8, true, "0 3 ", /* who names interfaces knows that they are apart */
           (enum rg_rail_verdict[]){RG_RAIL_USED, RG_RAIL_SAME_HERE, RG_RAIL_SAME_THERE, RG_RAIL_USED});
}

Test(choice, what_is_not_reached_directly_is_none_unless_named)
{
    const struct rg_rail_way ways[] = {way("10.0.0.1", 0, 0, true), way("172.16.0.1", 1, 2, false),
                                       way("172.17.0.1", 2, -1, false), way("10.0.1.2", 3, 2, true)};
    expect(ways, 4, 0, 8, false, "0 ",
           (enum rg_rail_verdict[]){RG_RAIL_USED, RG_RAIL_ROUTED, RG_RAIL_NO_LINK, RG_RAIL_OWN});
    expect(ways, 4, 0, 8, true, "0 1 ",
           (enum rg_rail_verdict[]){RG_RAIL_USED, RG_RAIL_USED, RG_RAIL_NO_LINK, RG_RAIL_OWN});
}

Test(choice, beside_a_way_of_which_nothing_is_known_there_is_no_other)
{
    const struct rg_rail_way ways[] = {way("192.0.2.1", UINT32_MAX, -1, false), way("10.0.1.1", 1, 2, true)};
    expect(ways, 2, 0, 8, false, "0 ", (enum rg_rail_verdict[]){RG_RAIL_USED, RG_RAIL_NO_LINK});
}

Test(choice, numbers_that_other_machines_can_have)
{
    const char *const good[] = {"10.0.0.1", "192.0.2.1", "fd77::1", "2001:db8::1"};
    const char *const bad[] = {"127.0.0.1", "0.0.0.0", "169.254.0.1",     "224.0.0.1", "::1", "::",
                               "fe80::1",   "ff02::1", "::ffff:10.0.0.1", "name",      ""};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_assert(rg_rail_is_candidate(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_not(rg_rail_is_candidate(bad[i]), "%s", bad[i]);
}
