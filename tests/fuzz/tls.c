/*
 * tls.c - transport tls against a peer: records, in order and with the right keys or not; what is in certificates; and
 * the first bytes that a stranger sends to a server.
 *
 * The input: u8 which; RECORDS (with flags: reads ahead, takes little at a time): steps of u8 content type, u8 flags (1: not
 * sealed), u16 size and bytes; CERTIFICATE: DER; HELLO: bytes of the stream.
 */
#include "proto/codec.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/transport/tls/authority.h"
#include "transport/connect/connect.h"
#include "transport/frame.h"
#include "transport/operations.h"
#include "transport/tls/certificate.h"
#include "transport/tls/record.h"

#include <openssl/evp.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RECORDS, CERTIFICATE, HELLO, KINDS };
enum { AHEAD = 64, LITTLE = 128, STREAM_MAX = 96 << 10, CIPHER = 0x1302, SECRET = 48 };

static char why[1024];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    rg_transport_register(&rg_transport_tls_ops);
    rg_tls_start();
    return 0;
}

/* Receives all that the peer has written, and looks at it. */
static void receive(struct rg_conn *conn, unsigned how)
{
    struct rg_message message;
    if (how & AHEAD)
        rg_conn_set_read_ahead(conn);
    while (rg_conn_recv(conn, 1000, &message) == RG_OK) {
        CHECK(message.size <= RG_MESSAGE_MAX && message.bulk_size <= RG_BULK_MAX);
        fuzz_read(message.data, message.size);
        for (size_t left = message.bulk_size; left;) {
            const size_t now = how & LITTLE && left > 1000 ? 1000 : left;
            if (rg_conn_recv_bulk(conn, fuzz_room(now, RG_BULK_MAX), now) != RG_OK)
                return;
            left -= now;
        }
    }
}

static size_t make_stream(struct rg_reader *in, unsigned char *stream, struct rg_tls_keys *keys)
{
    struct rg_tls_direction out = {0};
    size_t used = 0;
    CHECK(rg_tls_direction_init(&out, CIPHER, true, keys->receive, 0) == RG_OK);
    while (rg_left(in) >= 4) {
        unsigned char head[2];
        uint16_t size;
        rg_get_into(in, head, sizeof head);
        rg_get_into(in, &size, sizeof size);
        struct iovec part = {.iov_len = size < rg_left(in) ? size : rg_left(in)};
        part.iov_len = part.iov_len < RG_TLS_PLAIN ? part.iov_len : RG_TLS_PLAIN;
        part.iov_base = (void *)(uintptr_t)rg_get(in, part.iov_len);
        size_t made = part.iov_len;
        if (used + made + RG_TLS_OVERHEAD > STREAM_MAX)
            break;
        if (head[1] & 1)
            memcpy(stream + used, part.iov_base, part.iov_len);
        else
            CHECK(rg_tls_seal(&out, (enum rg_tls_content)head[0], &part, 1, stream + used, &made) == RG_OK);
        used += made;
    }
    rg_tls_direction_fini(&out);
    return used;
}

static void records(unsigned how, struct rg_reader *in)
{
    static unsigned char stream[STREAM_MAX];
    struct rg_tls_keys keys = {.cipher = CIPHER, .is_server = 1, .secret_size = SECRET};
    int ends[2];
    struct rg_conn *conn;
    memset(keys.send, 1, sizeof keys.send);
    memset(keys.receive, 2, sizeof keys.receive);
    const size_t size = make_stream(in, stream, &keys);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    CHECK(!size || write(ends[0], stream, size) == (ssize_t)size);
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    const struct rg_transport_options options = {.filters = "", .tls_keys = &keys};
    CHECK(rg_transport_adopt_fd(ends[1], &options, &conn) == RG_OK);
    receive(conn, how);
    close(ends[0]);
    rg_conn_destroy(conn);
}

static void certificate(const unsigned char *data, size_t size)
{
    static const char begin[] = "-----BEGIN CERTIFICATE-----\n", end[] = "-----END CERTIFICATE-----\n";
    struct rg_tls_certificate described;
    uint8_t hash[32] = {0};
    int error;
    char *pem = malloc(sizeof begin + sizeof end + 2 * size + 80), *at = pem;
    CHECK(pem);
    at = stpcpy(at, begin);
    for (size_t i = 0; i < size; i += 48) {
        at += EVP_EncodeBlock((unsigned char *)at, data + i, (int)(size - i < 48 ? size - i : 48));
        *at++ = '\n';
    }
    at = stpcpy(at, end);
    STACK_OF(X509) *read = rg_tls_read_certificates(pem, (size_t)(at - pem));
    if (read) {
        X509 *leaf = sk_X509_value(read, 0);
        rg_tls_describe(leaf, &described);
        CHECK(memchr(described.name, 0, sizeof described.name));
        (void)rg_tls_serves_as(leaf, RG_TLS_ROLE_SERVER);
        (void)rg_tls_serves_as(leaf, RG_TLS_ROLE_CLIENT);
        for (unsigned i = 0; i < 2; i++) {
            const struct rg_tls_judgement judgement = {.role = i ? RG_TLS_ROLE_SERVER : RG_TLS_ROLE_CLIENT,
                                                       .roots = i ? NULL : read,
                                                       .root_hash = i ? hash : NULL,
                                                       .name = i ? "gpu-machine" : NULL,
                                                       .owner = "the certificate"};
            const enum rg_status status = rg_tls_judge(&judgement, leaf, read, &error, why, sizeof why);
            CHECK(status == RG_OK || strlen(why) > 0);
        }
        sk_X509_pop_free(read, X509_free);
    }
    free(pem);
}

static void hello(const unsigned char *data, size_t size)
{
    int ends[2];
    struct rg_tls_keys keys;
    struct rg_tls_peer peer;
    CHECK(size <= STREAM_MAX && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    CHECK(!size || write(ends[0], data, size) == (ssize_t)size);
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    CHECK(rg_tls_accept(ends[1], world()->server, 1000, &peer, &keys, why, sizeof why) != RG_OK);
    close(ends[0]);
    close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > STREAM_MAX / 2)
        return 0;
    unsigned char *exact = malloc(size);
    CHECK(exact);
    memcpy(exact, data + 1, size - 1);
    struct rg_reader in = rg_reader_of(exact, size - 1);
    switch (data[0] % 64 % KINDS) {
    case RECORDS:
        records(data[0], &in);
        break;
    case CERTIFICATE:
        certificate(exact, size - 1);
        break;
    default:
        hello(exact, size - 1);
    }
    free(exact);
    return 0;
}

static void put_step(struct rg_writer *w, unsigned type, const void *data, size_t size)
{
    rg_put(w, &(unsigned char[]){(unsigned char)type, 0}, 2);
    rg_put(w, &(uint16_t){(uint16_t)size}, 2);
    rg_put(w, data, size);
}

void fuzz_seeds(void)
{
    unsigned char seed[1024] = {RECORDS}, message[100] = {0};
    struct rg_writer w = {seed + 1};
    const struct rg_frame frame = rg_frame_encode(24, 60);
    memcpy(message, &frame, sizeof frame);
    put_step(&w, RG_TLS_DATA, message, sizeof message);
    put_step(&w, RG_TLS_HANDSHAKE, "\x18\0\0\1\0", 5); /* KeyUpdate */
    fuzz_seed("update", seed, (size_t)(w.at - seed));
    w.at = seed + 1;
    put_step(&w, RG_TLS_DATA, message, 7);
    put_step(&w, RG_TLS_DATA, message + 7, 93);
    put_step(&w, RG_TLS_ALERT, "\1\0", 2); /* close_notify */
    seed[0] = AHEAD | RECORDS;
    fuzz_seed("close", seed, (size_t)(w.at - seed));
    seed[0] = HELLO;
    memcpy(seed + 1, "\x16\3\1\0\5\1\0\0\1\0", 10);
    fuzz_seed("hello", seed, 11);
    unsigned char *der = NULL;
    const int size = i2d_X509(world()->authority.certificate, &der);
    CHECK(size > 0 && size < (int)sizeof seed);
    seed[0] = CERTIFICATE;
    memcpy(seed + 1, der, (size_t)size);
    fuzz_seed("certificate", seed, 1 + (size_t)size);
    OPENSSL_free(der);
}
