/*
 * upgrade.c - both ends of a session's upgrade to another transport, which is a script as all connections are: what a server
 * offers, and what clients and strangers say on the first connection and on those that follow.
 *
 * The input: u8 end (even: the client's, odd: the server's) and u8 choice; then of a client the server's offer: u8 flags (1: rails,
 * 2: the addresses refuse) and addresses, each ended by 0; of a server messages, of the first connection and of each that is
 * accepted: u8 form (see `FORMS`), u8 rails.
 */
#include "transport/upgrade/upgrade.h"
#include "proto/codec.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/scripted_conn.h"
#include "transport/connect/connect.h"
#include "transport/topology/rails.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bits of a message's form; without RDMA, TCP and RAIL its transport is a word that there is not. */
enum FORMS {
    RDMA = 1,
    TCP = 2,
    RAIL = 4,
    TOKEN = 8,
    WRONG_TOKEN = 16,
    OTHER_KIND = 32,
    CUT = 64,
    ALWAYS = 128
};

static struct {
    struct rg_reader in;
    bool refuse;
    uint8_t token[RG_UPGRADE_TOKEN];
} peer;

/* --- the rails of this machine ----------------------------------------------------------------------------- */

unsigned rg_rails_here(const char *const *gpus, unsigned n_gpus, struct rg_rail *out, unsigned max)
{
    (void)gpus, (void)n_gpus;
    for (unsigned i = 0; i < 2 && i < max; i++) {
        out[i] = (struct rg_rail){.number = i};
        out[i].way.prefix = 24;
        snprintf(out[i].way.address, sizeof out[i].way.address, "10.0.%u.1", i);
    }
    return max < 2 ? max : 2;
}

const struct rg_rail *rg_rails_to(const char *host, const struct rg_rail *rails, unsigned n, bool *direct)
{
    for (unsigned i = 0; i < n; i++)
        if (strncmp(host, rails[i].way.address, 7) == 0) {
            *direct = true;
            return &rails[i];
        }
    *direct = false;
    return NULL;
}

unsigned rg_rails_wanted(void)
{
    return RG_RAILS_MAX;
}

bool rg_rails_named(void)
{
    return false;
}

bool rg_rails_always(void)
{
    return false;
}

bool rg_rails_same_network(const char *one, const char *other, unsigned prefix)
{
    (void)prefix;
    return strncmp(one, other, 7) == 0;
}

/* --- transport rdma ---------------------------------------------------------------------------------------- */

/* The next message of the input; false: there is none. */
static bool push_message(struct rg_conn *conn)
{
    struct rg_control message;
    unsigned char form, rails;
    void *packed;
    size_t size;
    if (rg_left(&peer.in) < 2)
        return false;
    rg_get_into(&peer.in, &form, sizeof form);
    rg_get_into(&peer.in, &rails, sizeof rails);
    rg_upgrade_init(&message, form & RDMA ? "rdma" : form & TCP ? "tcp" : form & RAIL ? "rail" : "what");
    message.upgrade.rails = rails;
    message.upgrade.rails_always = form & ALWAYS;
    message.upgrade.has_token = form & TOKEN;
    memcpy(message.upgrade.token, peer.token, sizeof peer.token);
    message.upgrade.token[0] ^= form & WRONG_TOKEN ? 1 : 0;
    if (form & OTHER_KIND)
        rg_server_hello_init(&message);
    CHECK(rg_control_pack(&message, &packed, &size) == RG_OK);
    fuzz_conn_push(conn, packed, form & CUT ? size / 2 : size, NULL, 0);
    free(packed);
    rg_control_fini(&message);
    return true;
}

static enum rg_status connect_to(const struct rg_address *address, const struct rg_transport_options *options,
                                 char *why, size_t why_size, struct rg_conn **out)
{
    (void)address, (void)options;
    if (peer.refuse) {
        rg_explain(why, why_size, "refused");
        return RG_ERR_UNREACHABLE;
    }
    *out = fuzz_conn_create(NULL, NULL);
    return RG_OK;
}

static enum rg_status listen_at(const struct rg_address *address, const struct rg_transport_options *options,
                                char *why, size_t why_size, struct rg_listener **out)
{
    (void)address, (void)why, (void)why_size;
    struct rg_listener *listener = calloc(1, sizeof *listener);
    CHECK(listener && options->token);
    memcpy(peer.token, options->token, sizeof peer.token);
    snprintf(listener->address, sizeof listener->address, "rdma://0.0.0.0:7");
    *out = listener;
    return RG_OK;
}

static enum rg_status accept_one(struct rg_listener *listener, int timeout_ms, struct rg_conn **out)
{
    (void)listener, (void)timeout_ms;
    struct rg_conn *conn = fuzz_conn_create(NULL, NULL);
    if (push_message(conn)) {
        fuzz_conn_finish(conn);
        *out = conn;
        return RG_OK;
    }
    rg_conn_destroy(conn);
    return RG_ERR_CLOSED;
}

static void interrupt_listener(struct rg_listener *listener)
{
    (void)listener;
}

static void destroy_listener(struct rg_listener *listener)
{
    free(listener);
}

/* What makes connections; those that it makes are scripts, with operations of their own. */
static struct rg_transport_ops ops;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    struct rg_conn *any = fuzz_conn_create(NULL, NULL);
    ops = *any->ops;
    rg_conn_destroy(any);
    ops.name = "rdma";
    ops.connect = connect_to;
    ops.listen = listen_at;
    ops.accept = accept_one;
    ops.listener_interrupt = interrupt_listener;
    ops.listener_destroy = destroy_listener;
    rg_transport_register(&ops);
    return 0;
}

/* --- the two ends ------------------------------------------------------------------------------------------ */

static void client(unsigned choice)
{
    struct rg_control offer;
    struct rg_conn *first = fuzz_conn_create(NULL, NULL), *conn = first, *control_conn = NULL;
    unsigned char flags = 0;
    char why[256] = "";
    rg_server_hello_init(&offer);
    struct rg_server_hello *hello = &offer.server_hello;
    rg_get_into(&peer.in, &flags, sizeof flags);
    hello->transports.n = 1;
    strcpy(hello->transports.names[0], "rdma");
    hello->has_rails = flags & 1;
    peer.refuse = flags & 2;
    while (rg_left(&peer.in) && hello->n_addresses < RG_CONTROL_ADDRESSES) {
        char *to = hello->addresses[hello->n_addresses], c = 1;
        for (size_t n = 0; c && rg_left(&peer.in); n++) {
            rg_get_into(&peer.in, &c, 1);
            if (n < sizeof hello->addresses[0] - 1)
                to[n] = c;
        }
        hello->address_rails[hello->n_addresses] = hello->n_addresses;
        hello->n_addresses++;
    }
    const enum rg_status status = rg_upgrade_follow((enum rg_transport_choice)(choice % 3), hello, &conn,
                                                    &control_conn, why, sizeof why);
    CHECK(status == RG_OK || (conn == first && !control_conn && *why));
    CHECK(!control_conn || (control_conn == first && conn != first));
    if (conn != first)
        rg_conn_destroy(conn);
    rg_conn_destroy(first);
    rg_control_fini(&offer);
}

static void server(void)
{
    struct rg_control answer;
    const struct rg_transport_list offered = {.n = 1, .names = {"rdma"}};
    struct rg_conn *first = fuzz_conn_create(NULL, NULL), *conn = first, *control_conn = NULL;
    rg_server_hello_init(&answer);
    struct rg_upgrade *upgrade = rg_upgrade_open(&offered, &answer.server_hello);
    CHECK(upgrade && answer.server_hello.n_addresses == 2);
    (void)push_message(first);
    fuzz_conn_finish(first);
    const enum rg_status status = rg_upgrade_finish(upgrade, &conn, &control_conn);
    CHECK(status == RG_OK || (conn == first && !control_conn));
    CHECK(!control_conn || (control_conn == first && conn != first));
    if (conn != first)
        rg_conn_destroy(conn);
    rg_conn_destroy(first);
    rg_control_fini(&answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char end, choice;
    if (size < 2)
        return 0;
    memset(&peer, 0, sizeof peer);
    peer.in = rg_reader_of(data, size);
    rg_get_into(&peer.in, &end, sizeof end);
    rg_get_into(&peer.in, &choice, sizeof choice);
    if (end % 2)
        server();
    else
        client(choice);
    return 0;
}

/* --- seeds ------------------------------------------------------------------------------------------------- */

void fuzz_seeds(void)
{
    static const char two[] = "\0\0\1rdma://10.0.0.2:7\0rdma://10.0.1.2:7",
                      one[] = "\0\2\0rdma://[fe80::1]:7", refused[] = "\0\0\2rdma://10.0.0.2:7",
                      stays[] = "\1\0\2", moves[] = {1, 0, RDMA, 0, RDMA | TOKEN, 0},
                      rails[] = {1, 0, RDMA, 2, RDMA | TOKEN, 0, RAIL | TOKEN, 0, RAIL | TOKEN, 1},
                      stranger[] = {1,          0, RDMA,         0, RDMA | TOKEN | WRONG_TOKEN, 0,
                                    OTHER_KIND, 0, RDMA | TOKEN, 0};
    fuzz_seed("two-addresses", two, sizeof two);
    fuzz_seed("one-address", one, sizeof one);
    fuzz_seed("refused", refused, sizeof refused);
    fuzz_seed("stays", stays, sizeof stays);
    fuzz_seed("moves", moves, sizeof moves);
    fuzz_seed("rails", rails, sizeof rails);
    fuzz_seed("stranger", stranger, sizeof stranger);
}
