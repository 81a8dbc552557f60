/* upgrade.c - see upgrade.h. */
#include "transport/upgrade/upgrade.h"
#include "transport/connect/connect.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/log_limit.h"
#include "common/base/thread.h"
#include "transport/address.h"
#include "transport/control.h"
#include "transport/multirail/multirail.h"
#include "transport/topology/rails.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    CONNECT_MS = 3000, /* for one address */
    AGAIN_MS = 1500,   /* for a rail that was there before */
    CHOOSE_MS = 30000, /* the worker's patience: all addresses, tried in vain */
    TOKEN_MS = 5000,
};

static_assert((int)RG_UPGRADE_TOKEN == (int)RG_TRANSPORT_TOKEN,
              "a session's token is shown to its transport as it is");

struct rg_upgrade {
    struct rg_listener *listener;
    uint8_t token[RG_UPGRADE_TOKEN];
    /* once there are rails */
    struct rg_conn *multirail;
    bool has_thread;
    pthread_t thread;
};

enum rg_status rg_transport_choice_parse(const char *text, enum rg_transport_choice *out)
{
    static const struct {
        const char *name;
        enum rg_transport_choice choice;
    } names[] = {{"", RG_TRANSPORT_AUTO},
                 {"auto", RG_TRANSPORT_AUTO},
                 {"tcp", RG_TRANSPORT_TCP},
                 {"rdma", RG_TRANSPORT_RDMA}};
    for (size_t i = 0; text && i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i].name) == 0) {
            *out = names[i].choice;
            return RG_OK;
        }
    return RG_ERR_INVALID;
}

static void add(struct rg_transport_list *list, const char *name)
{
    if (list->n < RG_CONTROL_TRANSPORTS)
        snprintf(list->names[list->n++], sizeof list->names[0], "%s", name);
}

static bool has(const struct rg_transport_list *list, const char *name)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (strcmp(list->names[i], name) == 0)
            return true;
    return false;
}

void rg_upgrade_offer(enum rg_transport_choice choice, struct rg_transport_list *out)
{
    struct rg_rail any;
    out->n = 0;
    if (choice == RG_TRANSPORT_RDMA || (choice == RG_TRANSPORT_AUTO && rg_rails_here(NULL, 0, &any, 1) > 0))
        add(out, "rdma");
    add(out, "tcp");
}

bool rg_upgrade_is_offered(const struct rg_transport_list *offered)
{
    return has(offered, "rdma");
}

/* --- the server --- */

static void write_addresses(const struct rg_rail *rails, unsigned n, uint16_t port,
                            struct rg_server_hello *hello)
{
    for (unsigned i = 0; i < n; i++) {
        const char *number = rails[i].way.address;
        bool brackets = strchr(number, ':') != NULL;
        snprintf(hello->addresses[i], sizeof hello->addresses[i], "rdma://%s%s%s:%u", brackets ? "[" : "",
                 number, brackets ? "]" : "", port);
        hello->address_rails[i] = rails[i].number;
    }
    hello->n_addresses = n;
    hello->has_rails = true;
}

/* The rails of this machine, those near the session's devices first. */
static unsigned find_rails(const struct rg_server_hello *hello, struct rg_rail *rails)
{
    const char *gpus[RG_DEVICES_MAX];
    for (uint32_t i = 0; i < hello->n_devices; i++)
        gpus[i] = hello->devices[i].pci;
    return rg_rails_here(gpus, hello->n_devices, rails, RG_CONTROL_ADDRESSES);
}

struct rg_upgrade *rg_upgrade_open(const struct rg_transport_list *offered, struct rg_server_hello *hello)
{
    struct rg_rail rails[RG_CONTROL_ADDRESSES];
    unsigned n = has(offered, "rdma") ? find_rails(hello, rails) : 0;
    if (n == 0)
        return NULL;
    struct rg_upgrade *upgrade = calloc(1, sizeof *upgrade);
    char why[256] = "";
    struct rg_address bound;
    enum rg_status status = upgrade ? RG_OK : RG_ERR_NO_MEMORY;
    if (status == RG_OK && getrandom(upgrade->token, sizeof upgrade->token, 0) != sizeof upgrade->token)
        status = RG_ERR_IO;
    const struct rg_transport_options options = {.token = upgrade ? upgrade->token : NULL};
    if (status == RG_OK)
        status = rg_transport_listen("rdma://*:0", &options, why, sizeof why, &upgrade->listener);
    if (status == RG_OK)
        status = rg_address_parse(rg_listener_address(upgrade->listener), &bound, why, sizeof why);
    if (status != RG_OK) {
        rg_info("the session stays on TCP: RDMA: %s", *why ? why : rg_status_string(status));
        rg_upgrade_abandon(upgrade);
        return NULL;
    }
    write_addresses(rails, n, bound.port, hello);
    memcpy(hello->move_token, upgrade->token, sizeof upgrade->token);
    hello->transports.n = 0;
    add(&hello->transports, "rdma");
    add(&hello->transports, "tcp");
    return upgrade;
}

/*
 * The next connection that shows the token, for `purpose`; others are closed. Waits up to `patience_ms` (-1:
 * for ever). *number: what it says of rails; may be NULL.
 */
static enum rg_status accept_upgraded(struct rg_upgrade *upgrade, const char *purpose, int patience_ms,
                                      uint32_t *number, struct rg_conn **out)
{
    const uint64_t deadline = patience_ms < 0 ? UINT64_MAX : rg_now_ns() + (uint64_t)patience_ms * 1000000u;
    for (;;) {
        uint64_t now = rg_now_ns();
        struct rg_conn *conn = NULL;
        struct rg_control message = {0};
        if (now >= deadline)
            return RG_ERR_TIMEOUT;
        int left = patience_ms < 0 ? -1 : (int)((deadline - now) / 1000000u) + 1;
        RG_TRY(rg_listener_accept(upgrade->listener, left, &conn));
        enum rg_status status = rg_control_receive(conn, left < 0 ? TOKEN_MS : left, &message);
        bool good = status == RG_OK && message.kind == RG_CONTROL_UPGRADE && message.upgrade.has_token &&
                    strcmp(message.upgrade.transport, purpose) == 0 &&
                    rg_token_equal(message.upgrade.token, upgrade->token, RG_UPGRADE_TOKEN);
        if (good && number)
            *number = message.upgrade.rails;
        rg_control_fini(&message);
        if (good) {
            *out = conn;
            return RG_OK;
        }
        static struct rg_log_limit limit = RG_LOG_LIMIT_INIT;
        rg_log_limited(&limit, rg_now_ns(), RG_LOG_WARN, "%s connected for a session without its token",
                       rg_conn_peer(conn));
        rg_conn_destroy(conn);
    }
}

/* --- rails of a session that has moved --- */

static void *rails_main(void *arg)
{
    struct rg_upgrade *upgrade = arg;
    struct rg_conn *rail;
    uint32_t number;
    while (accept_upgraded(upgrade, "rail", -1, &number, &rail) == RG_OK)
        if (rg_multirail_add(upgrade->multirail, rail, number) != RG_OK)
            rg_conn_destroy(rail);
    return NULL;
}

/* The connection ends. */
static void rails_done(void *user)
{
    struct rg_upgrade *upgrade = user;
    rg_listener_interrupt(upgrade->listener);
    if (upgrade->has_thread)
        pthread_join(upgrade->thread, NULL);
    rg_upgrade_abandon(upgrade);
}

/* Takes `rails` connections for bulk data as they come. On success `upgrade` is the connection's. */
static enum rg_status take_rails(struct rg_upgrade *upgrade, uint32_t rails, bool always,
                                 struct rg_conn **conn)
{
    const struct rg_multirail_options options = {.rails = rails < RG_MULTIRAIL_MAX ? rails : RG_MULTIRAIL_MAX,
                                                 .adaptive = !always && !rg_rails_always(),
                                                 .user = upgrade,
                                                 .done = rails_done};
    RG_TRY(rg_multirail_wrap(*conn, &options, conn));
    upgrade->multirail = *conn;
    upgrade->has_thread = rg_thread_create(&upgrade->thread, "rg-rails", rails_main, upgrade) == RG_OK;
    return RG_OK; /* without a thread none comes, and the client goes on without */
}

enum rg_status rg_upgrade_finish(struct rg_upgrade *upgrade, struct rg_conn **conn,
                                 struct rg_conn **control_conn)
{
    struct rg_control choice = {0};
    *control_conn = NULL;
    enum rg_status status = rg_control_receive(*conn, CHOOSE_MS, &choice);
    const uint32_t rails = status == RG_OK && choice.kind == RG_CONTROL_UPGRADE ? choice.upgrade.rails : 0;
    if (status == RG_OK && choice.kind != RG_CONTROL_UPGRADE)
        status = RG_ERR_PROTOCOL;
    if (status == RG_OK && strcmp(choice.upgrade.transport, "rdma") == 0) {
        struct rg_conn *upgraded;
        status = accept_upgraded(upgrade, "rdma", TOKEN_MS, NULL, &upgraded);
        if (status == RG_OK)
            rg_conn_set_control(upgraded, *conn);
        if (status == RG_OK && rails) {
            status = take_rails(upgrade, rails, choice.upgrade.rails_always, &upgraded);
            if (status == RG_OK)
                upgrade = NULL;
            else
                rg_conn_destroy(upgraded);
        }
        if (status == RG_OK) {
            *control_conn = *conn;
            *conn = upgraded;
        }
    } else if (status == RG_OK && strcmp(choice.upgrade.transport, "tcp") != 0) {
        status = RG_ERR_PROTOCOL;
    }
    rg_control_fini(&choice);
    rg_upgrade_abandon(upgrade);
    return status;
}

void rg_upgrade_abandon(struct rg_upgrade *upgrade)
{
    if (upgrade)
        rg_listener_destroy(upgrade->listener);
    free(upgrade);
}

/* --- the client --- */

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
    if (!has(&hello->transports, "rdma") || hello->n_addresses == 0) {
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
