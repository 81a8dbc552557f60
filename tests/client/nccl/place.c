/* place.c - places that ids of communicators name: those that a client goes to, and those that would lead it elsewhere. */
#include "client/nccl/place.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct rg_nccl_way way;
static char why[512];

/* A place in IPv4. */
static struct rg_nccl_place at(const char *server, uint8_t first, uint8_t last)
{
    struct rg_nccl_place place = {
        .session = 1, .address = {first, 0, 0, last}, .port = 7600, .family = RG_NCCL_PLACE_IPV4};
    memcpy(place.server, server, strlen(server));
    return place;
}

static bool reads(const struct rg_nccl_place place)
{
    why[0] = '\0';
    return rg_nccl_place_read(&place, &way, why, sizeof why);
}

Test(nccl_place, good_ones)
{
    struct rg_nccl_place unix_place = {
        .session = 1, .family = RG_NCCL_PLACE_UNIX, .server = "/run/remote-gpu.sock"};
    cr_expect(reads(at("gpu1:7600", 10, 7)), "%s", why);
    cr_expect_str_eq(way.server, "gpu1:7600");
    cr_expect_str_eq(way.address, "tcp://10.0.0.7:7600");
    cr_expect(reads(at("localhost:7600", 127, 1)), "%s", why);
    cr_expect(reads(at("[fd00::1]:7600", 10, 7)), "%s", why);
    cr_expect(reads(unix_place), "%s", why);
    cr_expect_str_eq(way.address, "unix:/run/remote-gpu.sock");
    strcpy(unix_place.server,
           "//@another"); /* no other socket's name: it is written so that it is read again */
    cr_expect(reads(unix_place), "%s", why);
    cr_expect_str_eq(way.address, "unix:////@another");
    struct rg_nccl_place longest = at("", 10, 7);
    memset(longest.server, 'a', sizeof longest.server);
    cr_expect(reads(longest), "%s", why);
    cr_expect_eq(strlen(way.server), sizeof longest.server);
}

/* In the clear, to a socket of whoever made the id: the client would say there who it is, and what it runs. */
Test(nccl_place, what_would_lead_astray)
{
    static const char *const servers[] = {"unix:@somebody's",
                                          "unix:/tmp/socket",
                                          "mem:x",
                                          "localhost:9",
                                          "127.0.0.2:9",
                                          "[::1]:9",
                                          "::ffff:127.0.0.1",
                                          "",
                                          "gpu1\n",
                                          "gpu\x1b[31m",
                                          "gpu1:99999",
                                          "[::1"};
    for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
        cr_expect_not(reads(at(servers[i], 10, 7)), "%s", servers[i]);
        cr_expect(strstr(why, "names '") && !strchr(why, '\n') && !strchr(why, '\x1b'), "%s", why);
    }
    static const char *const paths[] = {"socket", "@", ""};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct rg_nccl_place place = at(paths[i], 0, 0);
        place.family = RG_NCCL_PLACE_UNIX;
        cr_expect_not(reads(place), "%s", paths[i]);
    }
    struct rg_nccl_place strange = at("gpu1:7600", 10, 7);
    strange.family = 9;
    cr_expect_not(reads(strange));
    strange.family = RG_NCCL_PLACE_UNKNOWN;
    cr_expect_not(reads(strange));
}
