/*
 * tls_wire.c - what TLS costs: the transport with it against the transport without, and against bare pairs of sockets
 * under OpenSSL and under the kernel's TLS, on the same cores and by turns.
 *
 *   tls_wire [--quick]
 *
 * This process and another, each on half of the cores, have a connection of each kind: transport tcp, transport tls,
 * OpenSSL on a blocking socket (SSL_write and SSL_read of 1 MiB, as much as it takes), where the kernel has TLS a socket of which it
 * seals and opens the records (send and recv of 1 MiB, the cipher and the version of TLS as with the others), and two of transport tls at
 * once.
 * All wait in a blocking call, one at a time is used. Measured are round trips of 64 bytes and streams both ways of
 * messages with 1 MiB of bulk data, from and to memory of the whole size. Prints samples, as measure.h says; those of
 * the product begin with "tls_".
 */
#include "measure.h"

#include "tests/transport/tls/authority.h"
#include "transport/connect/connect.h"
#include "transport/operations.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tls.h>
#include <netinet/tcp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PART = 1 << 20, SMALL = 48, LANES = 2 };

static size_t bulk = (size_t)64 << 20;
static unsigned char *memory;

/* --- one connection of any kind --- */

struct link {
    struct rg_conn *lanes[LANES];
    int n_lanes;
    SSL *ssl;
    int kernel; /* the socket, where the kernel's TLS is used; else 0 */
};

static void ssl_all(SSL *ssl, bool out, unsigned char *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        const size_t most = size - at < PART ? size - at : PART;
        const int n = out ? SSL_write(ssl, data + at, (int)most) : SSL_read(ssl, data + at, (int)most);
        if (n <= 0)
            fail("OpenSSL: %d", SSL_get_error(ssl, n));
        at += (size_t)n;
    }
}

static void kernel_all(int fd, bool out, unsigned char *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        const size_t most = size - at < PART ? size - at : PART;
        const ssize_t n = out ? send(fd, data + at, most, MSG_NOSIGNAL) : recv(fd, data + at, most, 0);
        if (n <= 0)
            fail("the kernel's TLS: %s", n ? strerror(errno) : "the end");
        at += (size_t)n;
    }
}

static void small(struct link *link, bool out)
{
    unsigned char word[64] = {0};
    struct rg_message message;
    const struct iovec part = {word, SMALL};
    if (link->ssl)
        ssl_all(link->ssl, out, word, sizeof word);
    else if (link->kernel)
        kernel_all(link->kernel, out, word, sizeof word);
    else if (out ? rg_conn_send(link->lanes[0], &(struct rg_send){.msg = &part, .n_msg = 1}) != RG_OK
                 : rg_conn_recv(link->lanes[0], -1, &message) != RG_OK)
        fail("a small message is lost");
}

struct lane {
    struct rg_conn *conn;
    unsigned char *memory;
    size_t size;
    bool out;
};

static void *run_lane(void *arg)
{
    const struct lane *lane = arg;
    for (size_t at = 0; at < lane->size; at += PART) {
        const struct iovec head = {(void *)(uintptr_t) "part", 4}, data = {lane->memory + at, PART};
        struct rg_message message;
        if (lane->out ? rg_conn_send(
                            lane->conn,
                            &(struct rg_send){.msg = &head, .n_msg = 1, .bulk = &data, .n_bulk = 1}) != RG_OK
                      : rg_conn_recv(lane->conn, -1, &message) != RG_OK ||
                            rg_conn_recv_bulk(lane->conn, lane->memory + at, PART) != RG_OK)
            fail("bulk data is lost");
    }
    return NULL;
}

static void stream(struct link *link, bool out)
{
    struct lane lanes[LANES];
    pthread_t threads[LANES];
    if (link->ssl) {
        ssl_all(link->ssl, out, memory, bulk);
        return;
    }
    if (link->kernel) {
        kernel_all(link->kernel, out, memory, bulk);
        return;
    }
    const size_t share = bulk / (size_t)link->n_lanes;
    for (int i = 0; i < link->n_lanes; i++)
        lanes[i] = (struct lane){link->lanes[i], memory + (size_t)i * share, share, out};
    for (int i = 1; i < link->n_lanes; i++)
        if (pthread_create(&threads[i], NULL, run_lane, &lanes[i]) != 0)
            fail("no thread");
    run_lane(&lanes[0]);
    for (int i = 1; i < link->n_lanes; i++)
        pthread_join(threads[i], NULL);
}

/* --- making them --- */

static int listener;
static struct sockaddr_in name = {.sin_family = AF_INET};

static int accept_socket(void)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), on = 1;
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        fail("nobody came");
    return fd;
}

static int connect_socket(void)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (connect(fd, (struct sockaddr *)&name, sizeof name) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        fail("not connected");
    return fd;
}

static struct rg_conn *connect_one(const struct rg_tls_client *tls, bool carries_bulk)
{
    char address[64], why[512] = "";
    struct rg_conn *conn;
    const struct rg_transport_options options = {
        .filters = "", .wait = RG_WAIT_BLOCK, .tls = tls, .bulk = carries_bulk};
    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(name.sin_port));
    if (rg_transport_connect(address, &options, why, sizeof why, &conn) != RG_OK)
        fail("%s", why);
    return conn;
}

static struct rg_conn *accept_one(bool tls, bool carries_bulk)
{
    struct rg_tls_keys keys;
    struct rg_tls_peer peer;
    struct rg_conn *conn;
    char why[512] = "";
    const int fd = accept_socket();
    struct rg_transport_options options = {.filters = "", .wait = RG_WAIT_BLOCK, .bulk = carries_bulk};
    if (tls && rg_tls_accept(fd, world()->server, 5000, &peer, &keys, why, sizeof why) != RG_OK)
        fail("%s", why);
    if (tls)
        options.tls_keys = &keys;
    if (rg_transport_adopt_fd(fd, &options, &conn) != RG_OK)
        fail("not adopted");
    if (!carries_bulk)
        rg_conn_set_read_ahead(conn);
    return conn;
}

static SSL *bare(bool server, const struct issued *its)
{
    SSL_CTX *context = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    SSL *ssl = NULL;
    int fd = -1;
    if (server) {
        BIO *text = BIO_new_mem_buf(its->certificate, -1), *secret = BIO_new_mem_buf(its->key, -1);
        X509 *certificate = PEM_read_bio_X509(text, NULL, NULL, NULL);
        EVP_PKEY *key = PEM_read_bio_PrivateKey(secret, NULL, NULL, NULL);
        if (SSL_CTX_use_certificate(context, certificate) != 1 || SSL_CTX_use_PrivateKey(context, key) != 1)
            fail("no certificate");
        fd = accept_socket();
    } else {
        fd = connect_socket();
    }
    ssl = SSL_new(context);
    if (!ssl || SSL_set_fd(ssl, fd) != 1 || (server ? SSL_accept(ssl) : SSL_connect(ssl)) != 1)
        fail("no handshake of OpenSSL's");
    return ssl;
}

/* The kernel's TLS with keys that both sides know, which a handshake would have made. 0: it has none. */
static int in_kernel(int fd)
{
    struct tls12_crypto_info_aes_gcm_256 keys = {
        .info = {.version = TLS_1_3_VERSION, .cipher_type = TLS_CIPHER_AES_GCM_256}};
    memset(keys.key, 7, sizeof keys.key);
    if (setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof "tls") != 0) {
        close(fd);
        return 0;
    }
    if (setsockopt(fd, SOL_TLS, TLS_TX, &keys, sizeof keys) != 0 ||
        setsockopt(fd, SOL_TLS, TLS_RX, &keys, sizeof keys) != 0)
        fail("the kernel's TLS takes no keys: %s", strerror(errno));
    return fd;
}

enum { PLAIN, TLS, OPENSSL, KERNEL, PAIR, KINDS };

static void open_links(struct link links[KINDS], bool server, const struct issued *its)
{
    const struct rg_tls_client *client = &world()->client;
    memset(links, 0, KINDS * sizeof *links);
    for (int kind = 0; kind < KINDS; kind++) {
        struct link *link = &links[kind];
        if (kind == OPENSSL) {
            link->ssl = bare(server, its);
            continue;
        }
        if (kind == KERNEL) {
            link->kernel = in_kernel(server ? accept_socket() : connect_socket());
            continue;
        }
        link->n_lanes = kind == PAIR ? LANES : 1;
        for (int i = 0; i < link->n_lanes; i++)
            link->lanes[i] = server ? accept_one(kind != PLAIN, kind == PAIR)
                                    : connect_one(kind == PLAIN ? NULL : client, kind == PAIR);
    }
}

/* --- both sides --- */

static const char *const round_trip_names[KINDS] = {"plain_round_trip", "tls_round_trip",
                                                    "openssl_round_trip", "kernel_round_trip"};
static const char *const stream_names[KINDS][2] = {{"plain_stream_out", "plain_stream_in"},
                                                   {"tls_stream_out", "tls_stream_in"},
                                                   {"openssl_stream_out", "openssl_stream_in"},
                                                   {"kernel_stream_out", "kernel_stream_in"},
                                                   {"tls_lanes_out", "tls_lanes_in"}};

static struct samples *of(int kind, int what)
{
    static struct samples *all[KINDS][3];
    if (!all[kind][what] && !(all[kind][what] = calloc(1, sizeof(struct samples))))
        fail("no memory");
    return all[kind][what];
}

static bool is_there(const struct link links[KINDS], int kind)
{
    return kind != KERNEL || links[KERNEL].kernel;
}

static void turns(struct link links[KINDS], bool measures, int rounds, int repeats)
{
    for (int round = -1; round < rounds; round++) { /* the first warms up */
        for (int i = 0; i < repeats; i++)
            for (int kind = 0; kind < PAIR; kind++) {
                const uint64_t start = now_ns();
                if (!is_there(links, kind))
                    continue;
                small(&links[kind], measures);
                small(&links[kind], !measures);
                if (measures && round >= 0)
                    samples_add(of(kind, 0), (double)(now_ns() - start));
            }
        for (int way = 0; way < 2; way++)
            for (int kind = 0; kind < KINDS; kind++) {
                const uint64_t start = now_ns();
                if (!is_there(links, kind))
                    continue;
                stream(&links[kind], measures == (way == 0));
                if (measures == (way == 0))
                    small(&links[kind], false); /* its word that all has come */
                else
                    small(&links[kind], true);
                if (measures && round >= 0)
                    samples_add(of(kind, 1 + way), (double)bulk * 1e9 / (double)(now_ns() - start));
            }
    }
}

/* Half of the cores for each side, as far as there are several. */
static void take_half(bool second)
{
    cpu_set_t all, half;
    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2)
        return;
    CPU_ZERO(&half);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && (seen++ >= CPU_COUNT(&all) / 2) == second)
            CPU_SET(cpu, &half);
    (void)!sched_setaffinity(0, sizeof half, &half);
}

int main(int argc, char **argv)
{
    const bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    const int rounds = quick ? 3 : 8, repeats = quick ? 200 : 1000;
    struct link links[KINDS];
    socklen_t size = sizeof name;
    rg_transport_register(&rg_transport_tcp_ops);
    rg_transport_register(&rg_transport_tls_ops);
    memory = memory_of_pages(bulk);
    fill_random(memory, bulk, 5);
    struct issued its =
        authority_issue(&world()->authority, &(struct request){.name = "server", .usage = "serverAuth"});
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&name, size) != 0 || listen(listener, 8) != 0 ||
        getsockname(listener, (struct sockaddr *)&name, &size) != 0)
        fail("cannot listen");
    const pid_t child = fork();
    if (child == 0) {
        take_half(true);
        open_links(links, true, &its);
        turns(links, false, rounds, repeats);
        _exit(0);
    }
    take_half(false);
    open_links(links, false, &its);
    turns(links, true, rounds, repeats);
    for (int kind = 0; kind < KINDS; kind++) {
        if (!is_there(links, kind))
            continue;
        if (kind < PAIR)
            samples_print(of(kind, 0), round_trip_names[kind], "ns");
        for (int way = 0; way < 2; way++)
            samples_print(of(kind, 1 + way), stream_names[kind][way], "B/s");
    }
    return waitpid(child, NULL, 0) == child ? 0 : 1;
}
