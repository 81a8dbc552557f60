/*
 * stats.c - the counters, and the line of JSON that REMOTE_GPU_STATS=FILE asks for at the end of the process.
 */
#include "client/core/stats.h"

#include "client/core/session.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/sync/scoped_lock.h"
#include "transport/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t started;
static pid_t owner;
static pthread_mutex_t links_lock = PTHREAD_MUTEX_INITIALIZER;

void rg_stats_start(void)
{
    started = rg_now_ns();
    owner = getpid();
}

/* A name in a certificate, as what stands between the quotes of a JSON string. */
static void json_name(const char *name, char *out, size_t size)
{
    snprintf(out, size, "%s", name);
    for (char *at = out; *at; at++)
        if (*at == '"' || *at == '\\')
            *at = '?';
    rg_printable_clean(out);
}

void rg_stats_link(struct rg_session *session, const char *transport, uint64_t since_ns)
{
    struct rg_stats *stats = &session->stats;
    RG_SCOPED_LOCK(&links_lock);
    if (stats->n_links < RG_STATS_LINKS)
        stats->n_links++;
    stats->links[stats->n_links - 1] = (struct rg_stats_link){transport, since_ns};
}

/* What the first session was connected by, one after the other, and for how long: a list in JSON. */
static void json_links(uint64_t now, char *out, size_t size)
{
    const struct rg_stats *stats = &rg_sessions[0].stats;
    struct rg_stats_link link = {rg_conn_transport(rg_sessions[0].conn), started};
    size_t used = 0;
    RG_SCOPED_LOCK(&links_lock);
    for (unsigned i = 0; i <= stats->n_links && used < size; i++) {
        const uint64_t until = i < stats->n_links ? stats->links[i].since_ns : now;
        const unsigned long long us = until > link.since_ns ? (until - link.since_ns) / 1000 : 0;
        used += (size_t)snprintf(out + used, size - used, "%s{\"transport\":\"%s\",\"seconds\":%llu.%06llu}",
                                 i ? "," : "", link.transport, us / 1000000, us % 1000000);
        if (i < stats->n_links)
            link = stats->links[i];
    }
}

/* Of all sessions together. */
struct sums {
    struct rg_stats stats;
    struct rg_conn_statistics bulk;
    bool encrypted;
};

static void add_session(struct sums *sums, const struct rg_session *session)
{
    const struct rg_stats *stats = &session->stats;
    struct rg_stats *sum = &sums->stats;
    struct rg_conn_statistics one, *bulk = &sums->bulk;
    struct rg_conn_security security;
    sum->calls += stats->calls;
    sum->round_trips += stats->round_trips;
    sum->sent_messages += stats->sent_messages;
    sum->inline_messages += stats->inline_messages;
    sum->sender_wakes += stats->sender_wakes;
    sum->received_messages += stats->received_messages;
    sum->sent_bytes += stats->sent_bytes;
    sum->repeated_bytes += stats->repeated_bytes;
    sum->received_bytes += stats->received_bytes;
    sum->peer_direct += stats->peer_direct;
    sum->peer_rdma += stats->peer_rdma;
    sum->peer_by_client += stats->peer_by_client;
    sum->peer_waits_direct += stats->peer_waits_direct;
    sum->peer_waits_by_client += stats->peer_waits_by_client;
    sum->waited_ns += stats->waited_ns;
    sum->resumed += stats->resumed;
    sum->without_ns += stats->without_ns;
    sum->upgraded_again += stats->upgraded_again;
    rg_conn_get_statistics(session->conn, &one);
    bulk->bulk_copied_sent += one.bulk_copied_sent;
    bulk->bulk_copied_received += one.bulk_copied_received;
    bulk->bulk_direct_sent += one.bulk_direct_sent;
    bulk->bulk_direct_received += one.bulk_direct_received;
    bulk->bulk_kept += one.bulk_kept;
    bulk->channels += one.channels;
    bulk->compressed_from += one.compressed_from;
    bulk->compressed_to += one.compressed_to;
    rg_conn_security(session->conn, &security);
    sums->encrypted = sums->encrypted && security.encrypted;
}

/* How the sessions share the GPUs of their servers: a name of rg_sharing_name's, or that they do in several ways. */
static const char *sharing_name(void)
{
    const enum rg_sharing first = rg_sessions[0].hello.sharing;
    for (unsigned i = 1; i < rg_n_own_sessions; i++)
        if (rg_sessions[i].hello.sharing != first)
            return "several";
    return rg_sharing_name(first);
}

/* GPUs that are instances of others, which MIG has divided. */
static unsigned count_instances(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < rg_n_own_sessions; i++)
        for (uint32_t j = 0; j < rg_sessions[i].hello.n_devices; j++)
            n += rg_sessions[i].hello.devices[j].mig;
    return n;
}

/* What was counted, as the members of an object in JSON. In integers: %f would write the decimal point of the program's locale. */
static void json_counts(const struct sums *sums, uint64_t now, char *out, size_t size)
{
    const struct rg_stats *sum = &sums->stats;
    const struct rg_conn_statistics *bulk = &sums->bulk;
    const unsigned long long us = (now - started) / 1000, waited_us = sum->waited_ns / 1000;
    snprintf(
        out, size,
        "\"seconds\":%llu.%06llu,\"waited\":%llu.%06llu,\"calls\":%llu,\"round_trips\":%llu,"
        "\"messages_sent\":%llu,\"messages_inline\":%llu,\"sender_wakes\":%llu,\"messages_received\":%llu,"
        "\"bytes_sent\":%llu,\"bytes_repeated\":%llu,\"bytes_received\":%llu,\"bulk_copied\":%llu,"
        "\"bulk_direct\":%llu,\"bulk_kept\":%llu,\"bulk_connections\":%u,\"compressed_from\":%llu,"
        "\"compressed_to\":%llu,\"peer_direct\":%llu,\"peer_rdma\":%llu,\"peer_by_client\":%llu,"
        "\"peer_waits_direct\":%llu,\"peer_waits_by_client\":%llu",
        us / 1000000, us % 1000000, waited_us / 1000000, waited_us % 1000000, (unsigned long long)sum->calls,
        (unsigned long long)sum->round_trips, (unsigned long long)sum->sent_messages,
        (unsigned long long)sum->inline_messages, (unsigned long long)sum->sender_wakes,
        (unsigned long long)sum->received_messages, (unsigned long long)sum->sent_bytes,
        (unsigned long long)sum->repeated_bytes, (unsigned long long)sum->received_bytes,
        (unsigned long long)(bulk->bulk_copied_sent + bulk->bulk_copied_received),
        (unsigned long long)(bulk->bulk_direct_sent + bulk->bulk_direct_received),
        (unsigned long long)bulk->bulk_kept, bulk->channels, (unsigned long long)bulk->compressed_from,
        (unsigned long long)bulk->compressed_to, (unsigned long long)sum->peer_direct,
        (unsigned long long)sum->peer_rdma, (unsigned long long)sum->peer_by_client,
        (unsigned long long)sum->peer_waits_direct, (unsigned long long)sum->peer_waits_by_client);
}

/* The rails of all sessions over TCP, and what each carried, as the elements of an array. */
static void json_rails(char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "%s", "");
    const char *separator = "";
    for (unsigned i = 0; i < rg_n_sessions; i++) {
        struct rg_conn_statistics way;
        rg_conn_get_statistics(rg_sessions[i].conn, &way);
        for (unsigned k = 0; k < RG_CONN_RAILS && used < size; k++) {
            const struct rg_stats_rail *rail = &rg_sessions[i].stats.rails[k];
            if (!*rail->address)
                continue;
            const int length =
                snprintf(out + used, size - used,
                         "%s{\"address\":\"%s\",\"sent\":%llu,\"received\":%llu,\"lost\":%u,\"returned\":%u}",
                         separator, rail->address, (unsigned long long)way.rail_sent[k],
                         (unsigned long long)way.rail_received[k], rail->lost, rail->returned);
            if ((size_t)length >= size - used) { /* of many sessions only as many as fit */
                out[used] = 0;
                return;
            }
            used += (size_t)length;
            separator = ",";
        }
    }
}

/* The addresses of servers that carry no bulk data, and why, likewise. */
static void json_unused(char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "%s", "");
    for (unsigned i = 0; i < rg_n_sessions; i++)
        for (unsigned k = 0; k < RG_CONN_RAILS; k++) {
            const struct rg_stats_unused *one = &rg_sessions[i].stats.unused[k];
            const int length =
                !*one->address ? 0
                               : snprintf(out + used, size - used, "%s{\"address\":\"%s\",\"why\":\"%s\"}",
                                          used ? "," : "", one->address, one->why);
            if ((size_t)length >= size - used) {
                out[used] = 0;
                return;
            }
            used += (size_t)length;
        }
}

/*
 * Runs when the client core is unloaded, which is at exit: after main and the application's own handlers, and before
 * the core's other destructors, which run in the order of their numbers from above: what they do is not the program's.
 */
__attribute__((destructor(104))) static void write_stats(void)
{
    const char *path = secure_getenv("REMOTE_GPU_STATS");
    if (!path || !*path || !started || getpid() != owner)
        return;
    struct sums sums = {.encrypted = rg_n_sessions > 0};
    struct rg_conn_security security;
    char identity[256], line[8000], counts[1400], links[1400], rails[2000], unused[2000];
    const uint64_t now = rg_now_ns();
    for (unsigned i = 0; i < rg_n_sessions; i++)
        add_session(&sums, &rg_sessions[i]);
    rg_conn_security(rg_sessions[0].conn, &security);
    json_name(rg_sessions[0].credentials.name, identity, sizeof identity);
    json_counts(&sums, now, counts, sizeof counts);
    json_links(now, links, sizeof links);
    json_rails(rails, sizeof rails);
    json_unused(unused, sizeof unused);
    const unsigned long long without_us = sums.stats.without_ns / 1000;
    const int length =
        snprintf(line, sizeof line,
                 "{\"pid\":%d,\"transport\":\"%s\",%s,\"encrypted\":%s,\"cipher\":\"%s\",\"identity\":\"%s\","
                 "\"links\":[%s],\"rails\":[%s],\"rails_unused\":[%s],\"resumed\":%llu,\"upgraded_again\":%"
                 "llu,\"without_"
                 "connection\":%llu.%06llu,"
                 "\"sharing\":\"%s\",\"mig_instances\":%u}\n",
                 (int)owner, rg_conn_transport(rg_sessions[0].conn), counts,
                 sums.encrypted ? "true" : "false", security.cipher, identity, links, rails, unused,
                 (unsigned long long)sums.stats.resumed, (unsigned long long)sums.stats.upgraded_again,
                 without_us / 1000000, without_us % 1000000, sharing_name(), count_instances());
    int fd = strcmp(path, "-") == 0 ? dup(2) : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0 || !rg_file_write(fd, line, (size_t)length))
        rg_warn("cannot write statistics to %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
}
