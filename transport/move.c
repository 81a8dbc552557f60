/* move.c - see move.h. */
#include "transport/move.h"

#include "common/clock.h"
#include "common/log.h"
#include "transport/address.h"
#include "transport/control.h"
#include "transport/devices.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    CONNECT_MS = 3000, /* for one address */
    CHOOSE_MS = 30000, /* the worker's patience: all addresses, tried in vain */
    TOKEN_MS = 5000,
};

struct rg_move {
    struct rg_listener *listener;
    uint8_t token[RG_MOVE_TOKEN];
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

void rg_move_offer(enum rg_transport_choice choice, struct rg_transport_list *out)
{
    struct rg_rdma_address any;
    out->n = 0;
    if (choice == RG_TRANSPORT_RDMA || (choice == RG_TRANSPORT_AUTO && rg_rdma_addresses(&any, 1) > 0))
        add(out, "rdma");
    add(out, "tcp");
}

/* --- the server --- */

static void write_addresses(const struct rg_rdma_address *addresses, unsigned n, uint16_t port,
                            struct rg_server_hello *hello)
{
    for (unsigned i = 0; i < n; i++) {
        bool brackets = strchr(addresses[i].address, ':') != NULL;
        snprintf(hello->addresses[i], sizeof hello->addresses[i], "rdma://%s%s%s:%u", brackets ? "[" : "",
                 addresses[i].address, brackets ? "]" : "", port);
    }
    hello->n_addresses = n;
}

struct rg_move *rg_move_open(const struct rg_transport_list *offered, struct rg_server_hello *hello)
{
    struct rg_rdma_address addresses[RG_CONTROL_ADDRESSES];
    unsigned n = has(offered, "rdma") ? rg_rdma_addresses(addresses, RG_CONTROL_ADDRESSES) : 0;
    if (n == 0)
        return NULL;
    struct rg_move *move = calloc(1, sizeof *move);
    char why[256] = "";
    struct rg_address bound;
    enum rg_status status = move ? RG_OK : RG_ERR_NO_MEMORY;
    if (status == RG_OK)
        status = rg_transport_listen("rdma://*:0", NULL, why, sizeof why, &move->listener);
    if (status == RG_OK)
        status = rg_address_parse(rg_listener_address(move->listener), &bound, why, sizeof why);
    if (status == RG_OK && getrandom(move->token, sizeof move->token, 0) != sizeof move->token)
        status = RG_ERR_IO;
    if (status != RG_OK) {
        rg_info("the session stays on TCP: RDMA: %s", *why ? why : rg_status_string(status));
        rg_move_abandon(move);
        return NULL;
    }
    write_addresses(addresses, n, bound.port, hello);
    memcpy(hello->move_token, move->token, sizeof move->token);
    hello->transports.n = 0;
    add(&hello->transports, "rdma");
    add(&hello->transports, "tcp");
    return move;
}

/* The connection that shows the token; others are closed. */
static enum rg_status accept_moved(struct rg_move *move, struct rg_conn **out)
{
    uint64_t deadline = rg_now_ns() + (uint64_t)TOKEN_MS * 1000000u;
    for (;;) {
        uint64_t now = rg_now_ns();
        struct rg_conn *conn = NULL;
        struct rg_control message = {0};
        if (now >= deadline)
            return RG_ERR_TIMEOUT;
        int left = (int)((deadline - now) / 1000000u) + 1;
        enum rg_status status = rg_listener_accept(move->listener, left, &conn);
        if (status != RG_OK)
            return status;
        status = rg_control_receive(conn, left, &message);
        bool good = status == RG_OK && message.kind == RG_CONTROL_MOVE && message.move.has_token &&
                    rg_token_equal(message.move.token, move->token, RG_MOVE_TOKEN);
        rg_control_fini(&message);
        if (good) {
            *out = conn;
            return RG_OK;
        }
        rg_warn("%s connected for a session without its token", rg_conn_peer(conn));
        rg_conn_destroy(conn);
    }
}

enum rg_status rg_move_finish(struct rg_move *move, struct rg_conn **conn, struct rg_conn **tether)
{
    struct rg_control choice;
    *tether = NULL;
    enum rg_status status = rg_control_receive(*conn, CHOOSE_MS, &choice);
    if (status == RG_OK && choice.kind != RG_CONTROL_MOVE)
        status = RG_ERR_PROTOCOL;
    if (status == RG_OK && strcmp(choice.move.transport, "rdma") == 0) {
        struct rg_conn *moved;
        status = accept_moved(move, &moved);
        if (status == RG_OK) {
            *tether = *conn;
            *conn = moved;
        }
    } else if (status == RG_OK && strcmp(choice.move.transport, "tcp") != 0) {
        status = RG_ERR_PROTOCOL;
    }
    rg_control_fini(&choice);
    rg_move_abandon(move);
    return status;
}

void rg_move_abandon(struct rg_move *move)
{
    if (move)
        rg_listener_destroy(move->listener);
    free(move);
}

/* --- the client --- */

/* Connects to one of the server's addresses and shows the token. */
static enum rg_status go_to(const char *address, const struct rg_server_hello *hello, struct rg_conn **out,
                            char *why, size_t why_size)
{
    const struct rg_transport_options options = {.connect_timeout_ms = CONNECT_MS};
    struct rg_conn *conn;
    enum rg_status status = rg_transport_connect(address, &options, why, why_size, &conn);
    if (status != RG_OK)
        return status;
    struct rg_control message;
    rg_move_init(&message, "rdma");
    message.move.has_token = true;
    memcpy(message.move.token, hello->move_token, RG_MOVE_TOKEN);
    status = rg_control_send(conn, &message);
    if (status != RG_OK) {
        rg_explain(why, why_size, "%s", rg_status_string(status));
        rg_conn_destroy(conn);
        return status;
    }
    *out = conn;
    return RG_OK;
}

/* The server's addresses, the one that the session came by first. */
static enum rg_status go(const struct rg_server_hello *hello, const char *peer, struct rg_conn **out,
                         char *why, size_t why_size)
{
    for (int other = 0; other < 2; other++)
        for (uint32_t i = 0; i < hello->n_addresses; i++) {
            struct rg_address address;
            if (rg_address_parse(hello->addresses[i], &address, why, why_size) != RG_OK ||
                strcmp(address.scheme, "rdma") != 0)
                continue;
            size_t length = strlen(address.host);
            bool same = strncmp(peer, address.host, length) == 0 && peer[length] == ':';
            if (same == (other == 0) && go_to(hello->addresses[i], hello, out, why, why_size) == RG_OK)
                return RG_OK;
        }
    return RG_ERR_UNREACHABLE;
}

enum rg_status rg_move_follow(enum rg_transport_choice choice, const struct rg_server_hello *hello,
                              struct rg_conn **conn, struct rg_conn **tether, char *why, size_t why_size)
{
    *tether = NULL;
    if (!has(&hello->transports, "rdma") || hello->n_addresses == 0) {
        rg_explain(why, why_size, "the server has no RDMA device with an active port and an address");
        return choice == RG_TRANSPORT_RDMA ? RG_ERR_UNREACHABLE : RG_OK;
    }
    struct rg_conn *moved = NULL;
    enum rg_status status = go(hello, rg_conn_peer(*conn), &moved, why, why_size);
    struct rg_control message;
    rg_move_init(&message, status == RG_OK ? "rdma" : "tcp");
    if (status != RG_OK && choice == RG_TRANSPORT_RDMA)
        return RG_ERR_UNREACHABLE;
    if (status != RG_OK)
        rg_warn("RDMA cannot be used (%s); going on over TCP", why);
    status = rg_control_send(*conn, &message);
    if (status != RG_OK) {
        rg_explain(why, why_size, "%s", rg_status_string(status));
        rg_conn_destroy(moved);
        return RG_ERR_UNREACHABLE;
    }
    if (moved) {
        *tether = *conn;
        *conn = moved;
    }
    return RG_OK;
}
