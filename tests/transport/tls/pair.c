/* pair.c - see pair.h. */
#include "pair.h"

#include "authority.h"
#include "transport/connect/connect.h"
#include "transport/operations.h"
#include "transport/tls/record.h"

#include <sys/socket.h>
#include <unistd.h>

static enum rg_status accept_tls(struct rg_conn *plain, struct rg_conn **out)
{
    struct rg_tls_keys keys;
    struct rg_tls_peer peer;
    char why[512] = "";
    bool is_tls = false;
    const int fd = dup(rg_conn_fd(plain));
    CHECK(fd >= 0);
    rg_conn_destroy(plain);
    enum rg_status status = rg_tls_is_hello(fd, 5000, &is_tls);
    CHECK(status != RG_OK || is_tls);
    if (status == RG_OK)
        status = rg_tls_accept(fd, world()->server, 5000, &peer, &keys, why, sizeof why);
    if (status != RG_OK) {
        close(fd);
        return status;
    }
    CHECK(peer.shown && peer.verified && strcmp(peer.certificate.name, "alice") == 0);
    const struct rg_transport_options options = {.filters = "", .tls_keys = &keys};
    return rg_transport_adopt_fd(fd, &options, out);
}

const struct pair_security *pair_tls(void)
{
    static struct pair_security the;
    rg_transport_register(&rg_transport_tls_ops);
    the = (struct pair_security){.client = &world()->client, .accept = accept_tls};
    return &the;
}

static size_t seal(struct rg_tls_keys *keys, int type, const void *data, size_t size, unsigned char *record)
{
    struct rg_tls_direction out;
    const struct iovec part = {(void *)(uintptr_t)data, size};
    size_t record_size;
    CHECK_OK(rg_tls_direction_init(&out, keys->cipher, true, keys->send, keys->sent));
    CHECK_OK(rg_tls_seal(&out, (enum rg_tls_content)type, &part, 1, record, &record_size));
    keys->sent++;
    rg_tls_direction_fini(&out);
    return record_size;
}

void send_record(int fd, struct rg_tls_keys *keys, int type, const void *data, size_t size)
{
    unsigned char record[RG_TLS_RECORD];
    const size_t record_size = seal(keys, type, data, size, record);
    CHECK(send(fd, record, record_size, MSG_NOSIGNAL) == (ssize_t)record_size);
}

bool wire_bytes(struct rg_conn *conn, const void *data, size_t size, unsigned char *wire, size_t *wire_size,
                bool *ends)
{
    struct rg_conn_security security;
    struct rg_tls_keys keys;
    if (rg_conn_fd(conn) < 0)
        return false;
    rg_conn_security(conn, &security);
    *ends = security.encrypted;
    *wire_size = size;
    memcpy(wire, data, size);
    if (!security.encrypted)
        return true;
    if (rg_conn_tls_export(conn, &keys) != RG_OK)
        return false; /* several connections */
    *wire_size = seal(&keys, RG_TLS_DATA, data, size, wire);
    return true;
}

bool send_raw(struct rg_conn *conn, const void *data, size_t size)
{
    unsigned char wire[256 + WIRE_EXTRA];
    size_t wire_size;
    bool ends;
    CHECK(size <= 256);
    if (!wire_bytes(conn, data, size, wire, &wire_size, &ends))
        return false;
    CHECK(send(rg_conn_fd(conn), wire, wire_size, MSG_NOSIGNAL) == (ssize_t)wire_size);
    return true;
}
