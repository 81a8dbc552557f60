/* multipath.c - see multipath.h. */
#include "client/connect/multipath.h"

#include "client/connect/rails.h"
#include "client/core/session.h"
#include "common/base/log.h"
#include "transport/multipath/join.h"
#include "transport/multipath/multipath.h"
#include "transport/topology/rails.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/*
 * What is wrong with the environment is told once, although it is asked for each session and in the question
 * before it.
 */
static atomic_flag compression_told = ATOMIC_FLAG_INIT, connections_told = ATOMIC_FLAG_INIT;

static enum rg_compression compression_asked(void)
{
    const char *text = secure_getenv("REMOTE_GPU_COMPRESS");
    enum rg_compression compression = RG_COMPRESS_NONE;
    if (text && rg_compression_parse(text, &compression) != RG_OK &&
        !atomic_flag_test_and_set(&compression_told))
        rg_warn("REMOTE_GPU_COMPRESS=%s is not one of none, lz4, zstd, auto; not compressing", text);
    if (compression != RG_COMPRESS_NONE && !rg_codec_available(compression)) {
        if (!atomic_flag_test_and_set(&compression_told))
            rg_warn("not compressing: this machine has no library for that (liblz4.so.1, libzstd.so.1)");
        compression = RG_COMPRESS_NONE;
    }
    return compression;
}

/* How many connections for bulk data the user asked for; *adaptive: as many as make it faster. */
static unsigned connections_asked(bool *adaptive)
{
    const char *text = secure_getenv("REMOTE_GPU_CONNECTIONS");
    unsigned wanted;
    char why[160];
    if (rg_multipath_channels_parse(text ? text : "", &wanted, adaptive, why, sizeof why) == RG_OK)
        return wanted;
    if (!atomic_flag_test_and_set(&connections_told))
        rg_warn("REMOTE_GPU_CONNECTIONS: %s; taking auto", why);
    *adaptive = true;
    return RG_MULTIPATH_CHANNELS;
}

void rg_multipath_ask(bool local, struct rg_client_hello *hello)
{
    bool adaptive;
    const enum rg_compression compression = compression_asked();
    unsigned connections = connections_asked(&adaptive);
    if (local && adaptive)
        connections = 0; /* the one is as fast as this machine copies */
    if (compression != RG_COMPRESS_NONE && !connections)
        connections = 1; /* it is the connections for bulk data that compress */
    hello->bulk_connections = connections;
    hello->bulk_adaptive = adaptive && !rg_rails_always();
    hello->bulk_compression = compression;
    hello->bulk_codecs = compression == RG_COMPRESS_NONE ? 0 : rg_codecs_here();
}

/* The address that the session's connection has led to: a name may mean another server the next time. */
static const char *address_of(const struct rg_session *session)
{
    return strstr(rg_conn_transport(session->conn), "unix") ? session->server : rg_conn_peer(session->conn);
}

static struct rg_conn *open_one(void *user, unsigned index)
{
    struct rg_session *session = user;
    bool automatic;
    (void)connections_asked(&automatic);
    const bool one_each = automatic && rg_rails_always();
    if (rg_rails_possible(session))
        return rg_rails_open(session, index, one_each);
    if (one_each && index) /* the server takes more at once than are of use on one link */
        return NULL;
    struct rg_conn *conn = NULL;
    char why[768] = "";
    struct rg_tls_client tls;
    if (rg_multipath_join(address_of(session), rg_credentials_tls(&session->credentials, &tls),
                          &session->hello, &conn, why, sizeof why) == RG_OK)
        return conn;
    rg_info("no further connection to %s for bulk data: %s", session->server, why);
    return NULL;
}

bool rg_multipath_begin(struct rg_session *session, struct rg_conn **conn)
{
    const struct rg_server_hello *hello = &session->hello;
    struct rg_client_hello asked;
    memset(&asked, 0, sizeof asked);
    rg_multipath_ask(strstr(rg_conn_transport(*conn), "unix") != NULL, &asked);
    if (!hello->bulk_connections || !asked.bulk_connections)
        return true;
    struct rg_multipath_options options = {
        .channels = hello->bulk_connections < asked.bulk_connections ? hello->bulk_connections
                                                                     : asked.bulk_connections,
        .adaptive = asked.bulk_adaptive,
        .open = open_one,
        .user = session,
    };
    if (rg_rails_possible(session)) {
        options.again_ns = RG_RAILS_AGAIN_NS;
        options.rail_of = rg_rails_of;
        options.lost = rg_rails_lost;
    }
    rg_codecs_agree(asked.bulk_compression, hello->bulk_codecs, &options);
    if (asked.bulk_compression && !options.compress)
        rg_warn("%s cannot decompress that; not compressing", session->server);
    return rg_multipath_wrap(*conn, &options, conn) == RG_OK;
}
