/*
 * connections.c - what TLS adds to a connection: changes of keys, ends that are told and ends that are not, peers that
 * break its rules, connections that change hands; and that OpenSSL itself understands all of it.
 */
#include "authority.h"
#include "pair.h"

#include "transport/connect/connect.h"
#include "transport/frame.h"
#include "transport/state.h"
#include "transport/tls/internal.h"

#include <openssl/ssl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct pair open_pair(void)
{
    return pair_open_secured("127.0.0.1:0", "", RG_WAIT_AUTO, pair_tls());
}

/* --- keys --- */

struct traffic {
    struct rg_conn *conn;
    uint64_t seed;
};

static void *send_much(void *arg)
{
    const struct traffic *t = arg;
    for (uint64_t i = 0; i < WORK(200); i++)
        CHECK_OK(send_pattern(t->conn, 100 + i * 97 % 30000, i * 1013 % 200000, t->seed + i));
    return NULL;
}

static void *receive_much(void *arg)
{
    const struct traffic *t = arg;
    for (uint64_t i = 0; i < WORK(200); i++)
        expect_pattern(t->conn, 100 + i * 97 % 30000, i * 1013 % 200000, t->seed + i);
    return NULL;
}

/* Both ways at once, with new keys after every few records, also in the middle of messages. */
static void test_key_updates(void)
{
    struct pair pair = open_pair();
    rg_tls_conn_set_records_per_key(pair.a, 3);
    rg_tls_conn_set_records_per_key(pair.b, 5);
    struct traffic there = {pair.a, 100}, here = {pair.b, 9000}, at_b = {pair.b, 100}, at_a = {pair.a, 9000};
    pthread_t threads[4];
    CHECK(pthread_create(&threads[0], NULL, send_much, &there) == 0);
    CHECK(pthread_create(&threads[1], NULL, send_much, &here) == 0);
    CHECK(pthread_create(&threads[2], NULL, receive_much, &at_b) == 0);
    CHECK(pthread_create(&threads[3], NULL, receive_much, &at_a) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    /* and goes on in other hands */
    struct rg_tls_keys keys;
    const int fd = dup(rg_conn_fd(pair.b));
    CHECK_OK(rg_conn_tls_export(pair.b, &keys));
    CHECK(keys.is_server && keys.sent <= 6 && keys.secret_size == 48);
    rg_conn_destroy(pair.b);
    CHECK_OK(
        rg_transport_adopt_fd(fd, &(struct rg_transport_options){.filters = "", .tls_keys = &keys}, &pair.b));
    expect_good(pair.a, pair.b);
    pair_close(&pair);
}

/* --- ends --- */

static void test_ends(void)
{
    struct rg_message m;
    struct pair pair = open_pair(); /* told */
    CHECK_OK(send_pattern(pair.a, 10, 100, 1));
    rg_conn_destroy(pair.a);
    pair.a = NULL;
    expect_pattern(pair.b, 10, 100, 1);
    CHECK_STATUS(rg_conn_recv(pair.b, 5000, &m), RG_ERR_CLOSED);
    CHECK_STATUS(rg_conn_recv(pair.b, 5000, &m), RG_ERR_CLOSED);
    pair_close(&pair);

    pair = open_pair(); /* cut between two messages, where plain TCP sees an orderly end */
    CHECK_OK(send_pattern(pair.a, 10, 100, 1));
    CHECK(shutdown(rg_conn_fd(pair.a), SHUT_WR) == 0);
    expect_pattern(pair.b, 10, 100, 1);
    CHECK_STATUS(rg_conn_recv(pair.b, 5000, &m), RG_ERR_LOST);
    CHECK_STATUS(rg_conn_recv(pair.b, 5000, &m), RG_ERR_LOST);
    pair_close(&pair);

    pair = open_pair(); /* cut in a record */
    CHECK(send(rg_conn_fd(pair.a), "\x17\x03\x03\x00\x40half", 9, 0) == 9);
    CHECK(shutdown(rg_conn_fd(pair.a), SHUT_WR) == 0);
    CHECK_STATUS(rg_conn_recv(pair.b, 5000, &m), RG_ERR_LOST);
    pair_close(&pair);
}

/* --- peers that break the rules --- */

struct violation {
    const char *name;
    int type;
    size_t size;
    const char *data;
    enum rg_status expected;
};

static void test_violations(void)
{
    static const struct violation violations[] = {
        {"padding", 0, 20, "aaaaaaaaaaaaaaaaaaaa", RG_ERR_PROTOCOL},
        {"a change of ciphers", 20, 1, "\1", RG_ERR_PROTOCOL},
        {"no such type", 99, 4, "abcd", RG_ERR_PROTOCOL},
        {"a malformed alert", RG_TLS_ALERT, 3, "\1\0\0", RG_ERR_PROTOCOL},
        {"a fatal alert", RG_TLS_ALERT, 2, "\2\50", RG_ERR_LOST},
        {"a close", RG_TLS_ALERT, 2, "\1\0", RG_ERR_CLOSED},
        {"a ticket", RG_TLS_HANDSHAKE, 5, "\4\0\0\1\0", RG_ERR_PROTOCOL},
        {"a change of keys with more behind it", RG_TLS_HANDSHAKE, 6, "\30\0\0\1\0\0", RG_ERR_PROTOCOL},
        {"half a change of keys", RG_TLS_HANDSHAKE, 3, "\30\0\0", RG_ERR_PROTOCOL},
        {"a change of keys that is none", RG_TLS_HANDSHAKE, 5, "\30\0\0\1\2", RG_ERR_PROTOCOL},
        {"data of others", RG_TLS_DATA, 16, "GET / HTTP/1.1\r\n", RG_ERR_PROTOCOL},
    };
    struct rg_message m;
    for (size_t i = 0; i < sizeof violations / sizeof violations[0]; i++) {
        const struct violation *v = &violations[i];
        struct pair pair = open_pair();
        struct rg_tls_keys keys;
        CHECK_OK(send_pattern(pair.a, 10, 100, 1));
        const int fd = rg_conn_fd(pair.a);
        CHECK_OK(rg_conn_tls_export(pair.a, &keys));
        send_record(fd, &keys, v->type, v->data, v->size);
        expect_pattern(pair.b, 10, 100, 1); /* what came before is whole */
        enum rg_status status = rg_conn_recv(pair.b, 5000, &m);
        if (status != v->expected)
            fprintf(stderr, "%s\n", v->name);
        CHECK_STATUS(status, v->expected);
        CHECK_STATUS(rg_conn_recv(pair.b, 5000, &m), v->expected);
        pair_close(&pair);
    }
}

/* A record that was repeated on its way, and one that was changed. */
static void test_tampering(void)
{
    struct rg_message m;
    for (int how = 0; how < 2; how++) {
        struct pair pair = open_pair();
        unsigned char frame[sizeof(struct rg_frame) + 4] = {0}, wire[sizeof frame + WIRE_EXTRA];
        const struct rg_frame header = rg_frame_encode(4, 0);
        size_t size;
        bool ends;
        memcpy(frame, &header, sizeof header);
        CHECK(wire_bytes(pair.a, frame, sizeof frame, wire, &size, &ends));
        const int fd = rg_conn_fd(pair.a);
        if (how == 0) {
            CHECK(send(fd, wire, size, 0) == (ssize_t)size && send(fd, wire, size, 0) == (ssize_t)size);
            CHECK_OK(rg_conn_recv(pair.b, 5000, &m));
            CHECK(m.size == 4);
        } else {
            wire[size - 20] ^= 1;
            CHECK(send(fd, wire, size, 0) == (ssize_t)size);
        }
        CHECK_STATUS(rg_conn_recv(pair.b, 5000, &m), RG_ERR_PROTOCOL);
        pair_close(&pair);
    }
}

/* In the middle of bulk data: what was written of it is not what was sent, and the connection ends. */
static void test_tampering_bulk(void)
{
    struct pair pair = open_pair();
    static unsigned char taken[40000];
    unsigned char garbage[RG_TLS_RECORD] = {23, 3, 3, 0x40, 0x11};
    struct rg_tls_keys keys;
    struct rg_frame frame = rg_frame_encode(0, sizeof taken);
    struct rg_message m;
    const int fd = rg_conn_fd(pair.a);
    CHECK_OK(rg_conn_tls_export(pair.a, &keys));
    send_record(fd, &keys, RG_TLS_DATA, &frame, sizeof frame);
    CHECK(send(fd, garbage, sizeof garbage, 0) == sizeof garbage);
    CHECK_OK(rg_conn_recv(pair.b, 5000, &m));
    memset(taken, 0xee, sizeof taken);
    CHECK_STATUS(rg_conn_recv_bulk(pair.b, taken, sizeof taken), RG_ERR_PROTOCOL);
    for (size_t i = 0; i < sizeof taken; i++)
        CHECK(taken[i] == (i < RG_TLS_PLAIN ? 0 : 0xee));
    pair_close(&pair);
}

static void test_flood_of_updates(void)
{
    struct pair pair = open_pair();
    struct rg_tls_keys keys;
    struct rg_tls_direction out;
    struct rg_message m;
    unsigned char record[64];
    const struct iovec update = {(void *)(uintptr_t) "\30\0\0\1\1", 5};
    const int fd = rg_conn_fd(pair.a);
    size_t size;
    CHECK_OK(rg_conn_tls_export(pair.a, &keys));
    CHECK_OK(rg_tls_direction_init(&out, keys.cipher, true, keys.send, keys.sent));
    for (unsigned i = 0; i <= RG_TLS_UPDATES_MAX; i++) {
        CHECK_OK(rg_tls_seal(&out, RG_TLS_HANDSHAKE, &update, 1, record, &size));
        CHECK(send(fd, record, size, MSG_NOSIGNAL) == (ssize_t)size);
        CHECK_OK(rg_tls_direction_update(&out));
    }
    rg_tls_direction_fini(&out);
    CHECK_STATUS(rg_conn_recv(pair.b, 5000, &m), RG_ERR_LIMIT);
    pair_close(&pair);
}

/* Two messages in one record: who would hand the connection on has read too much. */
static void test_export_refuses(void)
{
    struct pair pair = open_pair();
    const struct rg_frame frames[2] = {rg_frame_encode(0, 0), rg_frame_encode(0, 0)};
    struct rg_tls_keys keys;
    struct rg_message m;
    CHECK(send_raw(pair.a, frames, sizeof frames));
    CHECK_OK(rg_conn_recv(pair.b, 5000, &m));
    CHECK_STATUS(rg_conn_tls_export(pair.b, &keys), RG_ERR_PROTOCOL);
    CHECK_OK(rg_conn_recv(pair.b, 5000, &m));
    CHECK_OK(rg_conn_tls_export(pair.b, &keys));
    pair_close(&pair);
}

/* No byte of a message is on the wire; and what layers tell of protection. */
static void test_nothing_in_clear(void)
{
    static const char secret[] = "a word that nobody else may read, repeated so that it would be found";
    struct pair pair = open_pair();
    struct rg_conn_security security;
    char wire[4096];
    CHECK_OK(send_bytes(pair.a, secret, sizeof secret, secret, sizeof secret));
    ssize_t n = 0;
    for (int i = 0; i < 100 && n < (ssize_t)(2 * sizeof secret); i++) {
        n = recv(rg_conn_fd(pair.b), wire, sizeof wire, MSG_PEEK);
        usleep(1000);
    }
    CHECK(n > (ssize_t)(2 * sizeof secret));
    CHECK(!memmem(wire, (size_t)n, secret, 8) && !memmem(wire, (size_t)n, "RGP1", 4));
    pair_multipath(&pair, "", 2, RG_COMPRESS_NONE);
    rg_conn_security(pair.a, &security);
    CHECK(security.encrypted && strcmp(security.peer, "server") == 0);
    CHECK(strncmp(security.cipher, "TLS_", 4) == 0);
    pair_close(&pair);
    pair = pair_open("127.0.0.1:0", "", RG_WAIT_AUTO);
    rg_conn_security(pair.a, &security);
    CHECK(!security.encrypted && !security.cipher[0] && !security.peer[0]);
    pair_close(&pair);
}

/* --- OpenSSL at the other end --- */

static void *connect_openssl(void *arg)
{
    SSL *ssl = arg;
    CHECK(SSL_connect(ssl) == 1);
    return NULL;
}

static void test_openssl(void)
{
    int fds[2];
    pthread_t thread;
    struct rg_tls_keys keys;
    struct rg_tls_peer peer;
    struct rg_conn *conn;
    struct rg_message m;
    char why[256] = "";
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    CHECK(context && SSL_CTX_load_verify_locations(context, world()->client.ca_file, NULL) == 1);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL *ssl = SSL_new(context);
    CHECK(ssl && SSL_set_fd(ssl, fds[0]) == 1 && SSL_set1_host(ssl, "localhost") == 1);
    CHECK(pthread_create(&thread, NULL, connect_openssl, ssl) == 0);
    enum rg_status status = rg_tls_accept(fds[1], world()->server, 5000, &peer, &keys, why, sizeof why);
    if (status != RG_OK)
        fprintf(stderr, "%s\n", why);
    CHECK_OK(status);
    pthread_join(thread, NULL);
    CHECK(!peer.shown && !peer.verified);
    CHECK_OK(rg_transport_adopt_fd(fds[1], &(struct rg_transport_options){.filters = "", .tls_keys = &keys},
                                   &conn));
    unsigned char exporter[RG_TLS_EXPORTER_SIZE];
    CHECK(SSL_export_keying_material(ssl, exporter, sizeof exporter, "EXPORTER-remote-gpu-join", 24, NULL, 0,
                                     0) == 1);
    CHECK(memcmp(exporter, peer.exporter, sizeof exporter) == 0);
    for (int round = 0; round < 3; round++) {
        struct {
            struct rg_frame frame;
            char text[8];
        } message = {rg_frame_encode(8, 0), "message"}, answer;
        CHECK(SSL_write(ssl, &message, sizeof message) == sizeof message);
        CHECK_OK(rg_conn_recv(conn, 5000, &m));
        CHECK(m.size == 8 && strcmp(m.data, "message") == 0);
        CHECK_OK(send_bytes(conn, "answer.", 8, NULL, 0));
        size_t got = 0;
        while (got < sizeof answer) {
            const int n = SSL_read(ssl, (char *)&answer + got, (int)(sizeof answer - got));
            CHECK(n > 0);
            got += (size_t)n;
        }
        CHECK(strcmp(answer.text, "answer.") == 0);
        /* its new keys, and ours asked for */
        CHECK(SSL_key_update(ssl, round ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
        CHECK(SSL_do_handshake(ssl) == 1);
    }
    CHECK_STATUS(rg_conn_recv(conn, 0, &m), RG_ERR_TIMEOUT);
    CHECK(SSL_shutdown(ssl) == 0);
    CHECK_STATUS(rg_conn_recv(conn, 5000, &m), RG_ERR_CLOSED);
    rg_conn_destroy(conn);
    CHECK(SSL_shutdown(ssl) == 1); /* our close_notify has come */
    SSL_free(ssl);
    SSL_CTX_free(context);
    close(fds[0]);
}

int main(void)
{
    test_begin();
    test_key_updates();
    test_ends();
    test_violations();
    test_tampering();
    test_tampering_bulk();
    test_flood_of_updates();
    test_export_refuses();
    test_nothing_in_clear();
    test_openssl();
    return 0;
}
