/*
 * nccl_id.c - places of other processes as ids of communicators and servers state them to a client, which is then to go there.
 *
 * The input: struct rg_nccl_place, two of them.
 */
#include "client/nccl/place.h"
#include "common/cuda/nccl_network.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"
#include "transport/address.h"

#include <string.h>

static void check(const struct rg_nccl_place *place)
{
    struct rg_nccl_way way;
    struct rg_address address;
    char why[RG_CONTROL_REASON] = "", again[RG_CONTROL_TEXT];
    if (!rg_nccl_place_read(place, &way, why, sizeof why)) {
        CHECK(why[0]);
        return;
    }
    CHECK(strlen(way.server) <= sizeof place->server && strlen(way.address) < sizeof way.address);
    CHECK(rg_address_parse(way.address, &address, NULL, 0) == RG_OK);
    rg_address_format(&address, again, sizeof again);
    CHECK(strcmp(again, way.address) == 0);
    CHECK(strcmp(address.scheme, place->family == RG_NCCL_PLACE_UNIX ? "unix" : "tcp") == 0);
    CHECK(rg_nccl_place_is_same(place, place));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rg_nccl_place places[2];
    memset(places, 0, sizeof places);
    memcpy(places, data, size < sizeof places ? size : sizeof places);
    check(&places[0]);
    check(&places[1]);
    CHECK(rg_nccl_place_is_same(&places[0], &places[1]) == rg_nccl_place_is_same(&places[1], &places[0]));
    if (size >= NCCL_UNIQUE_ID_BYTES)
        (void)rg_nccl_id_is_ours(data);
    return 0;
}

void fuzz_seeds(void)
{
    struct rg_nccl_place places[2] = {{.session = 1,
                                       .address = {10, 0, 0, 7},
                                       .port = 7600,
                                       .family = RG_NCCL_PLACE_IPV4,
                                       .server = "gpu1:7600"},
                                      {.session = 2,
                                       .address = {[15] = 1},
                                       .port = 7600,
                                       .family = RG_NCCL_PLACE_IPV6,
                                       .server = "[::1]:7600"}};
    fuzz_seed("network", places, sizeof places);
    memset(&places[1], 0, sizeof places[1]);
    places[0].family = RG_NCCL_PLACE_UNIX;
    memcpy(places[0].server, "/run/remote-gpu.sock", 21);
    memset(places[1].server, 'a', sizeof places[1].server);
    fuzz_seed("unix", places, sizeof places);
    places[0].family = RG_NCCL_PLACE_IPV4;
    memcpy(places[0].server, "unix:@evil", 11);
    fuzz_seed("astray", places, sizeof places);
}
