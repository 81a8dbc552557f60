/*
 * server.c - the server's end of an upgrade: a listener for one session, whose token the client shows; then a connection for each rail
 * that it opens.
 *
 * Whoever connects without the token is sent away. The thread that does the handshake; once there are rails, one that takes them.
 */
#include "transport/upgrade/internal.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/log_limit.h"
#include "common/base/thread.h"
#include "transport/address.h"
#include "transport/connect/connect.h"
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
    CHOOSE_MS = 30000, /* patience: all addresses, tried in vain */
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
    unsigned n = rg_upgrade_has(offered, "rdma") ? find_rails(hello, rails) : 0;
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
    rg_upgrade_add(&hello->transports, "rdma");
    rg_upgrade_add(&hello->transports, "tcp");
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
