/*
 * certificates.c - who is believed: every case of a certificate, key or server that is not good, with its sentence.
 *
 *   transport_tls_certificates [FOLDER]      FOLDER: the client's side is FOLDER/transport/tls.so
 */
#include "authority.h"
#include "pair.h"

#include "transport/connect/connect.h"
#include "transport/operations.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct rg_listener *listener;

/* --- a server for one connection --- */

struct service {
    struct rg_tls_server *server; /* NULL: says `text` and closes */
    const char *text;
    int pause_ms;
    enum rg_status status;
    struct rg_tls_peer peer;
    char why[512];
};

static void *serve_one(void *arg)
{
    struct service *s = arg;
    struct rg_conn *plain;
    struct rg_tls_keys keys;
    CHECK_OK(rg_listener_accept(listener, 5000, &plain));
    const int fd = rg_conn_fd(plain);
    if (s->server) {
        s->status = rg_tls_accept(fd, s->server, 3000, &s->peer, &keys, s->why, sizeof s->why);
    } else {
        usleep((useconds_t)s->pause_ms * 1000);
        if (s->text)
            CHECK(send(fd, s->text, strlen(s->text), MSG_NOSIGNAL) >= 0);
    }
    rg_conn_destroy(plain);
    return NULL;
}

/* Connects to such a server; the client's sentence in `why`. */
static enum rg_status try_it(struct service *s, const struct rg_tls_client *client, char *why,
                             size_t why_size, int timeout_ms)
{
    pthread_t thread;
    struct rg_conn *conn = NULL;
    const struct rg_transport_options options = {
        .filters = "", .tls = client, .connect_timeout_ms = timeout_ms};
    why[0] = '\0';
    CHECK(pthread_create(&thread, NULL, serve_one, s) == 0);
    enum rg_status status =
        rg_transport_connect(rg_listener_address(listener), &options, why, why_size, &conn);
    pthread_join(thread, NULL);
    if (status == RG_OK) {
        struct rg_conn_security security;
        rg_conn_security(conn, &security);
        CHECK(security.encrypted && security.peer[0]);
        uint8_t exporter[RG_TLS_EXPORTER_SIZE];
        CHECK_OK(rg_conn_tls_exporter(conn, exporter));
        CHECK(memcmp(exporter, s->peer.exporter, sizeof exporter) == 0);
    }
    rg_conn_destroy(conn);
    return status;
}

static void expect_words(const char *text, const char *const words[])
{
    for (int i = 0; words[i]; i++) {
        if (!strstr(text, words[i]))
            fprintf(stderr, "'%s' lacks '%s'\n", text, words[i]);
        CHECK(strstr(text, words[i]));
    }
}

#define WORDS(...)                                                                                           \
    (const char *const[])                                                                                    \
    {                                                                                                        \
        __VA_ARGS__, NULL                                                                                    \
    }

/* --- servers that a client does not believe --- */

static void refuse_server(const struct authority *from, const struct request *request,
                          const struct rg_tls_client *client, const char *const words[])
{
    char why[512];
    struct issued its = authority_issue(from, request);
    struct service s = {.server = server_of(&world()->authority, &its)};
    CHECK_STATUS(try_it(&s, client, why, sizeof why, 3000), RG_ERR_REFUSED);
    expect_words(why, words);
    CHECK(s.status != RG_OK);
    rg_tls_server_release(s.server);
    issued_free(&its);
}

static void test_servers(void)
{
    const struct world *w = world();
    struct authority other = authority_create("another authority");
    const char *names = "DNS:localhost,IP:127.0.0.1";
    refuse_server(&w->authority,
                  &(struct request){"old", names, "serverAuth", -86400 * 20, -86400 * 10, NULL, 0},
                  &w->client, WORDS("the server's certificate ('old') expired on 20", "it is 20", "renew"));
    refuse_server(&w->authority, &(struct request){"new", names, "serverAuth", 86400, 86400 * 2, NULL, 0},
                  &w->client, WORDS("('new') is not valid before 20", "it is 20", "clock"));
    refuse_server(&other, &(struct request){"foreign", names, "serverAuth", 0, 0, NULL, 0}, &w->client,
                  WORDS("('foreign') is not of the authority that is trusted here", "join"));
    refuse_server(&w->authority,
                  &(struct request){"elsewhere", "DNS:gpu.example,IP:10.0.0.7", "serverAuth", 0, 0, NULL, 0},
                  &w->client, WORDS("is for gpu.example, 10.0.0.7, not for '127.0.0.1'", "--tls-name"));
    struct rg_tls_client named = w->client;
    named.server_name = "gpu.elsewhere";
    refuse_server(&w->authority, &(struct request){"server", names, "serverAuth", 0, 0, NULL, 0}, &named,
                  WORDS("not for 'gpu.elsewhere'"));
    named.server_name = "spiffe://example/other";
    refuse_server(&w->authority,
                  &(struct request){"server", "URI:spiffe://example/gpu", "serverAuth", 0, 0, NULL, 0},
                  &named, WORDS("is for spiffe://example/gpu, not for 'spiffe://example/other'"));
    uint8_t hash[RG_TLS_FINGERPRINT_SIZE];
    CHECK_OK(rg_tls_tools.key_hash(other.pem, strlen(other.pem), hash));
    refuse_server(&w->authority, &(struct request){"server", names, "serverAuth", 0, 0, NULL, 0},
                  &(struct rg_tls_client){.ca_hash = hash}, WORDS("not of the authority"));
    authority_destroy(&other);
}

/* --- servers that are believed --- */

static void test_good(void)
{
    char why[512];
    const struct world *w = world();
    uint8_t hash[RG_TLS_FINGERPRINT_SIZE];
    struct service s = {.server = w->server};
    CHECK_OK(try_it(&s, &w->client, why, sizeof why, 3000));
    CHECK_OK(s.status);
    CHECK(s.peer.shown && s.peer.verified && !s.peer.why[0] && !strcmp(s.peer.certificate.name, "alice"));
    CHECK(s.peer.certificate.serial_size == 2 && s.peer.certificate.serial[0] == 4711 >> 8);
    CHECK(s.peer.certificate.not_after > s.peer.certificate.not_before);
    /* who joins knows the hash of the authority's key, and has no certificate yet */
    CHECK_OK(rg_tls_tools.key_hash(w->authority.pem, strlen(w->authority.pem), hash));
    CHECK_OK(try_it(&s, &(struct rg_tls_client){.ca_hash = hash}, why, sizeof why, 3000));
    CHECK_OK(s.status);
    CHECK(!s.peer.shown && !s.peer.verified);
    struct issued its = authority_issue(
        &w->authority, &(struct request){"node", "URI:spiffe://example/gpu", "serverAuth", 0, 0, NULL, 0});
    struct rg_tls_client named = w->client;
    named.server_name = "spiffe://example/gpu";
    s.server = server_of(&w->authority, &its);
    CHECK_OK(try_it(&s, &named, why, sizeof why, 3000));
    rg_tls_server_release(s.server);
    issued_free(&its);
}

/* --- clients that a server does not believe: the handshake ends well, so that it can say so --- */

static void refuse_client(const struct authority *from, const struct request *request,
                          const char *const words[])
{
    char why[512];
    struct issued its = authority_issue(from, request);
    struct service s = {.server = world()->server};
    const struct rg_tls_client client = {.ca_file = world()->client.ca_file,
                                         .certificate_file = write_file("refused.crt", its.certificate, 0644),
                                         .key_file = write_file("refused.key", its.key, 0600)};
    CHECK_OK(try_it(&s, &client, why, sizeof why, 3000));
    CHECK_OK(s.status);
    CHECK(s.peer.shown && !s.peer.verified);
    expect_words(s.peer.why, words);
    issued_free(&its);
}

static void test_clients(void)
{
    const struct world *w = world();
    struct authority other = authority_create("another authority");
    refuse_client(&w->authority, &(struct request){"bob", NULL, NULL, -86400 * 3, -86400, NULL, 0},
                  WORDS("your certificate ('bob') expired on 20", "remote-gpu join"));
    refuse_client(&w->authority, &(struct request){"bob", NULL, NULL, 3600, 86400, NULL, 0},
                  WORDS("your certificate ('bob') is not valid before 20", "clock"));
    refuse_client(&other, &(struct request){"bob", NULL, NULL, 0, 0, NULL, 0},
                  WORDS("your certificate ('bob') is not of an authority that this server trusts"));
    authority_destroy(&other);
}

/* Names are what identity goes by. */
static void test_names(void)
{
    static const struct {
        const char *common, *alternative, *expected;
    } names[] = {
        {"alice", "URI:spiffe://example/team/alice,DNS:x", "spiffe://example/team/alice"},
        {"alice", "URI:https://example/,URI:spiffe://example/b", "spiffe://example/b"},
        {"alice", "DNS:bob", "alice"},
        {"al\033[1mice", NULL, ""}, /* nothing that could be taken for another when it is shown */
        {"Jörg", NULL, "Jörg"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct rg_tls_certificate said;
        struct issued its =
            authority_issue(&world()->authority,
                            &(struct request){.name = names[i].common, .alternative = names[i].alternative});
        CHECK_OK(rg_tls_tools.describe(its.certificate, strlen(its.certificate), &said));
        CHECK(strcmp(said.name, names[i].expected) == 0);
        issued_free(&its);
    }
}

/* --- files --- */

static void refuse_files(const struct rg_tls_client *client, const char *const words[])
{
    char why[512] = "";
    struct service s = {.text = ""}; /* the connection closes without a byte */
    CHECK_STATUS(try_it(&s, client, why, sizeof why, 3000), RG_ERR_INVALID);
    expect_words(why, words);
}

static void test_files(void)
{
    const struct world *w = world();
    struct issued its = authority_issue(&w->authority, &(struct request){0});
    struct issued server = authority_issue(&w->authority, &(struct request){.usage = "serverAuth"});
    struct rg_tls_client client = w->client;
    client.key_file = write_file("other.key", its.key, 0600);
    refuse_files(&client, WORDS("other.key) does not fit the certificate (", ".crt)"));
    client.key_file = write_file("open.key", its.key, 0644);
    refuse_files(&client, WORDS("open.key can be read by others (mode 0644)", "chmod 600"));
    client.key_file = write_file("group.key", its.key, 0640);
    if (geteuid() == 0) { /* root's may be read by a group */
        refuse_files(&client, WORDS("group.key) does not fit the certificate ("));
        CHECK(chmod(client.key_file, 0660) == 0);
        refuse_files(&client, WORDS("can be read by others (mode 0660)"));
        CHECK(chmod(client.key_file, 0640) == 0 && chown(client.key_file, 65534, 65534) == 0);
    }
    refuse_files(&client, WORDS("can be read by others"));
    client.key_file = write_file("empty.key", "", 0600);
    refuse_files(&client, WORDS("empty.key is empty"));
    client.key_file = write_file("half.key", "-----BEGIN PRIVATE KEY-----\nMIGH", 0600);
    refuse_files(&client, WORDS("half.key", "is not PEM"));
    client.key_file = "/nowhere/tls.key";
    refuse_files(&client, WORDS("/nowhere/tls.key cannot be read: No such file"));
    client.key_file = folder();
    refuse_files(&client, WORDS("is not a file"));
    client = w->client;
    client.certificate_file = write_file("half.crt", "-----BEGIN CERTIFICATE-----\nMIIB", 0644);
    refuse_files(&client, WORDS("half.crt holds no certificates in PEM"));
    client.certificate_file = write_file("server.crt", server.certificate, 0644);
    client.key_file = write_file("server.key", server.key, 0600);
    refuse_files(&client, WORDS("is not for clients", "clientAuth"));
    client = w->client;
    client.ca_file = write_file("no-ca.crt", "nothing", 0644);
    refuse_files(&client, WORDS("the authority's certificate", "no-ca.crt"));
    client.ca_file = NULL;
    refuse_files(&client, WORDS("no authority is known"));

    struct rg_tls_server *none = NULL;
    char why[512] = "";
    struct rg_tls_pem pem = {.ca = w->authority.pem,
                             .ca_size = strlen(w->authority.pem),
                             .certificate = its.certificate,
                             .certificate_size = strlen(its.certificate),
                             .key = its.key,
                             .key_size = strlen(its.key)};
    CHECK_STATUS(rg_tls_server_create(&pem, &none, why, sizeof why), RG_ERR_INVALID);
    expect_words(why, WORDS("is not for servers", "serverAuth"));
    pem.key = server.key;
    pem.key_size = strlen(server.key);
    CHECK_STATUS(rg_tls_server_create(&pem, &none, why, sizeof why), RG_ERR_INVALID);
    expect_words(why, WORDS("does not fit the certificate"));
    issued_free(&its);
    issued_free(&server);
}

/* --- peers that do not speak TLS, or not to the end --- */

static void test_strangers(void)
{
    char why[512];
    const struct world *w = world();
    struct service s = {.text = "HTTP/1.1 400 Bad Request\r\n\r\n"};
    CHECK_STATUS(try_it(&s, &w->client, why, sizeof why, 3000), RG_ERR_UNREACHABLE);
    expect_words(why, WORDS("does not speak TLS"));
    s = (struct service){0};
    CHECK_STATUS(try_it(&s, &w->client, why, sizeof why, 3000), RG_ERR_UNREACHABLE);
    expect_words(why, WORDS("does not speak TLS"));
    s = (struct service){.pause_ms = 1600};
    CHECK_STATUS(try_it(&s, &w->client, why, sizeof why, 200), RG_ERR_UNREACHABLE);
    expect_words(why, WORDS("no answer", "in time"));

    int fds[2];
    bool is_tls = true;
    struct rg_tls_peer peer;
    struct rg_tls_keys keys;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    CHECK_STATUS(rg_tls_is_hello(fds[1], 10, &is_tls), RG_ERR_TIMEOUT);
    CHECK_STATUS(rg_tls_accept(fds[1], w->server, 10, &peer, &keys, why, sizeof why), RG_ERR_TIMEOUT);
    CHECK(send(fds[0], "RGP1", 4, 0) == 4);
    CHECK_OK(rg_tls_is_hello(fds[1], 1000, &is_tls));
    CHECK(!is_tls);
    CHECK_STATUS(rg_tls_accept(fds[1], w->server, 1000, &peer, &keys, why, sizeof why), RG_ERR_TIMEOUT);
    close(fds[0]);
    CHECK_STATUS(rg_tls_accept(fds[1], w->server, 1000, &peer, &keys, why, sizeof why), RG_ERR_CLOSED);
    CHECK_STATUS(rg_tls_is_hello(fds[1], 1000, &is_tls), RG_ERR_CLOSED);
    close(fds[1]);
    /* records without end: what a handshake may take is limited */
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    static unsigned char record[5 + 16384] = {22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff};
    for (int i = 0; i < 8; i++)
        (void)!send(fds[0], record, sizeof record, MSG_DONTWAIT | MSG_NOSIGNAL);
    CHECK_STATUS(rg_tls_accept(fds[1], w->server, 1000, &peer, &keys, why, sizeof why), RG_ERR_PROTOCOL);
    close(fds[0]);
    close(fds[1]);
}

/* --- enrolment --- */

static void test_enrolment(void)
{
    const struct rg_tls_tools *tools = rg_transport_tls_tools(NULL, 0);
    CHECK(tools);
    char pem[RG_TLS_KEY_PEM_SIZE], other[RG_TLS_KEY_PEM_SIZE];
    uint8_t point[RG_TLS_POINT_SIZE], again[RG_TLS_POINT_SIZE], other_point[RG_TLS_POINT_SIZE];
    uint8_t exporter[RG_TLS_EXPORTER_SIZE] = {1, 2, 3}, signature[RG_TLS_SIGNATURE_SIZE];
    size_t size;
    CHECK_OK(tools->make_key(pem, point));
    CHECK_OK(tools->make_key(other, other_point));
    CHECK_OK(tools->public_key(pem, strlen(pem), again));
    CHECK(memcmp(point, again, sizeof point) == 0 && memcmp(point, other_point, sizeof point) != 0);
    CHECK_OK(tools->prove(pem, strlen(pem), exporter, signature, &size));
    CHECK(rg_tls_verify_proof(point, exporter, signature, size));
    CHECK(!rg_tls_verify_proof(other_point, exporter, signature, size));
    CHECK(!rg_tls_verify_proof(point, exporter, signature, size - 1));
    exporter[31] ^= 1; /* another connection */
    CHECK(!rg_tls_verify_proof(point, exporter, signature, size));
    exporter[31] ^= 1;
    point[1] ^= 1; /* no point of the curve */
    CHECK(!rg_tls_verify_proof(point, exporter, signature, size));
    CHECK_STATUS(tools->prove("nothing", 7, exporter, signature, &size), RG_ERR_INVALID);

    char why[512] = "";
    struct issued its = authority_issue(&world()->authority, &(struct request){0});
    struct rg_tls_pem all = {.ca = world()->authority.pem,
                             .ca_size = strlen(world()->authority.pem),
                             .certificate = its.certificate,
                             .certificate_size = strlen(its.certificate),
                             .key = its.key,
                             .key_size = strlen(its.key)};
    CHECK_OK(tools->check(&all, why, sizeof why));
    all.key = pem;
    all.key_size = strlen(pem);
    CHECK_STATUS(tools->check(&all, why, sizeof why), RG_ERR_INVALID);
    expect_words(why, WORDS("does not fit the key"));
    issued_free(&its);
}

int main(int argc, char **argv)
{
    test_begin();
    if (argc > 1) /* the client's side by the loadable part, which has an OpenSSL of its own inside */
        CHECK(setenv("REMOTE_GPU_LIBDIR", argv[1], 1) == 0);
    else
        rg_transport_register(&rg_transport_tls_ops);
    CHECK_OK(rg_transport_listen("127.0.0.1:0", NULL, NULL, 0, &listener));
    test_good();
    test_servers();
    test_clients();
    test_names();
    test_files();
    test_strangers();
    test_enrolment();
    rg_listener_destroy(listener);
    return 0;
}
