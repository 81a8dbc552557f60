/*
 * client.c - the client's end of an upgrade: which of the server's addresses to go to, which pairs of adapters are rails, and opening
 * them.
 *
 * What cannot be reached is passed over; with nothing left the session stays on TCP, unless the user wants RDMA. The thread that begins
 * the session; rails are opened by the connection's own (transport/multirail/).
 */
#include "transport/upgrade/internal.h"

#include "common/base/log.h"
#include "transport/address.h"
#include "transport/connect/connect.h"
#include "transport/control.h"
#include "transport/multirail/multirail.h"
#include "transport/topology/rails.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONNECT_MS = 3000, /* for one address */
    AGAIN_MS = 1500,   /* for a rail that was there before */
};

/* Connects to one of the server's addresses and shows the token. */
static enum rg_status go_to(const char *address, const uint8_t token[RG_UPGRADE_TOKEN], const char *purpose,
                            uint32_t number, int timeout_ms, struct rg_conn **out, char *why, size_t why_size)
{
    const bool rail = strcmp(purpose, "rail") == 0;
    const struct rg_transport_options options = {
        .connect_timeout_ms = timeout_ms, .bulk = rail, .token = token};
    struct rg_conn *conn;
    RG_TRY(rg_transport_connect(address, &options, why, why_size, &conn));
    struct rg_control message;
    rg_upgrade_init(&message, purpose);
    message.upgrade.has_token = true;
    message.upgrade.rails = number;
    memcpy(message.upgrade.token, token, RG_UPGRADE_TOKEN);
    enum rg_status status = rg_control_send(conn, &message);
    if (status != RG_OK) {
        rg_explain(why, why_size, "%s", rg_status_string(status));
        rg_conn_destroy(conn);
        return status;
    }
    *out = conn;
    return RG_OK;
}

/* An address of the server's, and how it is reached. */
struct candidate {
    const char *address;
    char host[64];
    uint32_t there; /* number of the server's rail */
    int here;       /* of ours; -1: none that we know */
    char own[64];   /* our address; "" if not known */
    unsigned prefix;
    int rank; /* less is better; the server's order among equals */
};

enum { ON_OUR_NETWORK, SAME_AS_NOW, BY_A_RAIL, SOMEHOW, RANKS };

/* The addresses that may be used; returns how many. */
static unsigned find_candidates(const struct rg_server_hello *hello, const char *peer,
                                struct candidate *candidates)
{
    struct rg_rail rails[RG_CONTROL_ADDRESSES];
    const unsigned n_rails = rg_rails_here(NULL, 0, rails, RG_CONTROL_ADDRESSES);
    unsigned n = 0;
    for (uint32_t i = 0; i < hello->n_addresses; i++) {
        struct rg_address address;
        bool direct;
        char why[128];
        if (rg_address_parse(hello->addresses[i], &address, why, sizeof why) != RG_OK ||
            strcmp(address.scheme, "rdma") != 0)
            continue;
        const struct rg_rail *rail = rg_rails_to(address.host, rails, n_rails, &direct);
        if (!rail && n_rails && rg_rails_named())
            continue;
        const size_t length = strlen(address.host);
        const bool same = strncmp(peer, address.host, length) == 0 && peer[length] == ':';
        candidates[n++] = (struct candidate){.address = hello->addresses[i],
                                             .there = hello->has_rails ? hello->address_rails[i] : i,
                                             .here = rail ? (int)rail->number : -1,
                                             .prefix = rail ? rail->way.prefix : 0,
                                             .rank = rail && direct && hello->has_rails ? ON_OUR_NETWORK
                                                     : same                             ? SAME_AS_NOW
                                                     : rail                             ? BY_A_RAIL
                                                                                        : SOMEHOW};
        snprintf(candidates[n - 1].own, sizeof candidates[n - 1].own, "%s", rail ? rail->way.address : "");
        snprintf(candidates[n - 1].host, sizeof candidates[n - 1].host, "%.63s", address.host);
    }
    return n;
}

bool rg_upgrade_has_port(const struct rg_server_hello *hello)
{
    struct rg_rail rails[RG_CONTROL_ADDRESSES];
    const unsigned n = rg_rails_here(NULL, 0, rails, RG_CONTROL_ADDRESSES);
    for (uint32_t i = 0; i < hello->n_addresses; i++) {
        struct rg_address address;
        bool direct;
        char why[128];
        if (rg_address_parse(hello->addresses[i], &address, why, sizeof why) == RG_OK &&
            rg_rails_to(address.host, rails, n, &direct))
            return true;
    }
    return false;
}

/* What the rails of a session are opened from. */
struct rails {
    uint8_t token[RG_UPGRADE_TOKEN];
    unsigned n;
    char addresses[RG_RAILS_MAX][RG_CONTROL_TEXT];
    bool tried[RG_RAILS_MAX];
};

/* Whether one of two ways is of use beside the other: they are on networks of their own, at both ends. */
static bool is_apart(const struct candidate *one, const struct candidate *other)
{
    return !rg_rails_same_network(one->own, other->own, one->prefix) &&
           !rg_rails_same_network(one->host, other->host, one->prefix);
}

/*
 * The session's first connection takes `first`: the same way once more for bulk data, and each other pair of
 * adapters.
 */
static void plan_rails(const struct candidate *candidates, unsigned n_candidates,
                       const struct candidate *first, struct rails *out)
{
    const unsigned wanted = rg_rails_wanted();
    const struct candidate *taken[RG_RAILS_MAX];
    out->n = 0;
    for (unsigned i = 0; i <= n_candidates && out->n < wanted; i++) {
        const struct candidate *candidate = i == 0 ? first : &candidates[i - 1];
        bool good = candidate->here >= 0;
        for (unsigned k = 0; k < out->n && good; k++)
            good = candidate->here != taken[k]->here && candidate->there != taken[k]->there &&
                   (rg_rails_named() || is_apart(candidate, taken[k]));
        if (!good)
            continue;
        taken[out->n] = candidate;
        snprintf(out->addresses[out->n++], sizeof out->addresses[0], "%s", candidate->address);
    }
    if (out->n < 2)
        out->n = 0; /* the one there is carries everything */
}

static struct rg_conn *open_rail(void *user, unsigned index)
{
    struct rails *rails = user;
    struct rg_rail here[RG_CONTROL_ADDRESSES];
    struct rg_address address;
    struct rg_conn *conn;
    char why[256] = "";
    bool direct;
    if (rg_address_parse(rails->addresses[index], &address, why, sizeof why) != RG_OK)
        return NULL;
    const bool again = rails->tried[index];
    rails->tried[index] = true;
    if (again &&
        !rg_rails_to(address.host, here, rg_rails_here(NULL, 0, here, RG_CONTROL_ADDRESSES), &direct)) {
        rg_debug("no rail to %s: no active port leads there", rails->addresses[index]);
        return NULL;
    }
    if (go_to(rails->addresses[index], rails->token, "rail", index, again ? AGAIN_MS : CONNECT_MS, &conn, why,
              sizeof why) == RG_OK)
        return conn;
    rg_info("no rail to %s: %s", rails->addresses[index], why);
    return NULL;
}

/* The server's addresses, the best first. */
static enum rg_status go(const struct rg_server_hello *hello, const char *peer, struct rg_conn **out,
                         struct rails *rails, char *why, size_t why_size)
{
    struct candidate candidates[RG_CONTROL_ADDRESSES];
    const unsigned n = find_candidates(hello, peer, candidates);
    if (!n)
        rg_explain(why, why_size,
                   "none of the server's addresses is reached by a device that REMOTE_GPU_RAILS names");
    for (int rank = 0; rank < RANKS; rank++)
        for (unsigned i = 0; i < n; i++)
            if (candidates[i].rank == rank && go_to(candidates[i].address, hello->move_token, "rdma", 0,
                                                    CONNECT_MS, out, why, why_size) == RG_OK) {
                plan_rails(candidates, n, &candidates[i], rails);
                memcpy(rails->token, hello->move_token, RG_UPGRADE_TOKEN);
                if (!hello->has_rails)
                    rails->n = 0;
                return RG_OK;
            }
    return RG_ERR_UNREACHABLE;
}

/* Makes the session's connection one that opens rails once they are worth it. */
static enum rg_status use_rails(const struct rails *plan, struct rg_conn **conn)
{
    struct rails *rails = malloc(sizeof *rails);
    if (!rails)
        return RG_ERR_NO_MEMORY;
    *rails = *plan;
    const struct rg_multirail_options options = {
        .rails = rails->n, .adaptive = !rg_rails_always(), .open = open_rail, .user = rails, .done = free};
    enum rg_status status = rg_multirail_wrap(*conn, &options, conn);
    if (status != RG_OK)
        free(rails);
    return status;
}

enum rg_status rg_upgrade_follow(enum rg_transport_choice choice, const struct rg_server_hello *hello,
                                 struct rg_conn **conn, struct rg_conn **control_conn, char *why,
                                 size_t why_size)
{
    *control_conn = NULL;
    if (!rg_upgrade_has(&hello->transports, "rdma") || hello->n_addresses == 0) {
        rg_explain(why, why_size, "the server has no RDMA device with an active port and an address");
        return choice == RG_TRANSPORT_RDMA ? RG_ERR_UNREACHABLE : RG_OK;
    }
    struct rg_conn *upgraded = NULL;
    struct rails rails = {.n = 0};
    enum rg_status status = RG_ERR_REFUSED;
    if (choice == RG_TRANSPORT_TCP) /* whoever the server is: policy may forbid it */
        rg_explain(why, why_size, "the server offers it, and it was not asked for");
    else
        status = go(hello, rg_conn_peer(*conn), &upgraded, &rails, why, why_size);
    struct rg_control message;
    rg_upgrade_init(&message, status == RG_OK ? "rdma" : "tcp");
    message.upgrade.rails = status == RG_OK ? rails.n : 0;
    message.upgrade.rails_always = rg_rails_always();
    if (status != RG_OK && choice == RG_TRANSPORT_RDMA)
        return RG_ERR_UNREACHABLE;
    if (status != RG_OK)
        rg_warn("RDMA cannot be used (%s); going on over TCP", why);
    status = rg_control_send(*conn, &message);
    if (upgraded)
        rg_conn_set_control(upgraded, *conn);
    if (status == RG_OK && rails.n)
        status = use_rails(&rails, &upgraded);
    if (status != RG_OK) {
        rg_explain(why, why_size, "%s", rg_status_string(status));
        rg_conn_destroy(upgraded);
        return RG_ERR_UNREACHABLE;
    }
    if (upgraded) {
        *control_conn = *conn;
        *conn = upgraded;
    }
    return RG_OK;
}
