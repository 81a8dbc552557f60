/*
 * perf_link.c - connections that are measured: opened as a session would, then used in bursts (perf_link.h).
 *
 * Latency is sampled round trip by round trip until the time is over; bandwidth by bursts that grow until one takes long enough to count.
 * On a bare socket (RG_PERF_LINK_RAW) how much travels is agreed before each burst. Whatever fails is a status, and in opening a sentence.
 */
#include "client/cli/base/perf_link.h"

#include "client/credentials/connect.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "proto/netperf.h"
#include "transport/address.h"
#include "transport/connect/connect.h"
#include "transport/control.h"
#include "transport/memory.h"
#include "transport/multirail/multirail.h"
#include "transport/topology/rails.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { REPLY_MS = 20000, SAMPLES_MAX = 20000, SAMPLES_MIN = 20, WARM = 5 };

enum rg_status rg_perf_link_filter(const char *description, char *filter, size_t filter_size, char *why,
                                   size_t why_size)
{
    if (!*description || strchr(description, ';') ||
        snprintf(filter, filter_size, "delay:%s", description) >= (int)filter_size)
        return RG_FAILED(RG_ERR_INVALID, why, why_size,
                         "'%s' does not describe a network (like oneway=1ms,bandwidth=10Gb)", description);
    return rg_transport_check_filters(filter, why, why_size);
}

/* --- opening --- */

static enum rg_status say_hello(struct rg_perf_link *link, enum rg_transport_choice choice, int timeout_ms,
                                struct rg_control *answer, char *why, size_t why_size)
{
    struct rg_control *hello = calloc(1, sizeof *hello);
    if (!hello)
        return RG_ERR_NO_MEMORY;
    rg_client_hello_init(hello, RG_PURPOSE_NETPERF);
    rg_upgrade_offer(choice, &hello->client_hello.transports);
    const enum rg_status status = rg_control_ask(link->conn, hello, timeout_ms, answer);
    free(hello);
    if (status != RG_OK) {
        rg_explain(why, why_size, "the server did not answer (%s)", rg_status_string(status));
        return status;
    }
    if (answer->kind == RG_CONTROL_SERVER_HELLO)
        return RG_OK;
    if (answer->kind == RG_CONTROL_REFUSAL && answer->refusal.code == RG_REFUSAL_MALFORMED)
        rg_explain(why, why_size, "the server's release cannot be measured; install this one there");
    else if (answer->kind == RG_CONTROL_REFUSAL)
        rg_explain(why, why_size, "the server refused: %s", answer->refusal.reason);
    else
        rg_explain(why, why_size, "the server gave an answer that was not asked for");
    rg_control_fini(answer);
    return RG_ERR_REFUSED;
}

static enum rg_status begin(struct rg_perf_link *link, const char *server, unsigned index, int timeout_ms,
                            char *why, size_t why_size)
{
    /* A filter of the environment delays a session, so it delays what is measured; it cannot be below raw
     * bytes. */
    const struct rg_transport_options options = {.filters = link->kind == RG_PERF_LINK_RAW ? "" : NULL,
                                                 .connect_timeout_ms = timeout_ms};
    enum rg_transport_choice choice = link->kind == RG_PERF_LINK_RDMA || link->kind == RG_PERF_LINK_RAILS
                                          ? RG_TRANSPORT_RDMA
                                          : RG_TRANSPORT_TCP;
    enum rg_status status =
        rg_client_connect(server, &options, &link->credentials, why, why_size, &link->conn);
    if (status == RG_OK && link->kind == RG_PERF_LINK_RAW && link->credentials.found) {
        rg_explain(why, why_size, "the server is used by TLS alone");
        status = RG_ERR_UNSUPPORTED;
    }
    if (status == RG_OK && choice == RG_TRANSPORT_RDMA &&
        !rg_credentials_allow_rdma(&link->credentials, why, why_size))
        status = RG_ERR_UNSUPPORTED;
    if (status != RG_OK)
        return status;
    struct rg_control *answer = calloc(1, sizeof *answer);
    if (!answer)
        return RG_ERR_NO_MEMORY;
    status = say_hello(link, choice, timeout_ms, answer, why, why_size);
    if (status == RG_OK) {
        struct rg_server_hello *hello = &answer->server_hello;
        link->n_addresses = hello->n_addresses;
        link->n_tcp_addresses = hello->n_tcp_addresses;
        memcpy(link->tcp_addresses, hello->tcp_addresses, sizeof link->tcp_addresses);
        memcpy(link->tcp_rails, hello->tcp_rails, sizeof link->tcp_rails);
        if (link->kind == RG_PERF_LINK_RDMA && index < hello->n_addresses) {
            memmove(hello->addresses[0], hello->addresses[index], sizeof hello->addresses[0]);
            hello->address_rails[0] = hello->address_rails[index];
            hello->n_addresses = 1;
            struct rg_address address; /* without the port, which is another one each time */
            if (rg_address_parse(hello->addresses[0], &address, NULL, 0) == RG_OK)
                snprintf(link->address, sizeof link->address, "%s", address.host);
        }
        const bool always = link->kind != RG_PERF_LINK_RAILS || rg_rails_always();
        if (!always) /* they are measured here */
            setenv("REMOTE_GPU_RAILS", "always", 1);
        status = rg_upgrade_follow(choice, hello, &link->conn, &link->control, why, why_size);
        if (!always)
            unsetenv("REMOTE_GPU_RAILS"); /* as good as auto */
        if (status == RG_OK && link->kind == RG_PERF_LINK_RAILS) {
            rg_multirail_open(link->conn);
            link->n_rails = rg_multirail_count(link->conn);
        }
        rg_control_fini(answer);
    }
    free(answer);
    return status;
}

enum rg_status rg_perf_link_open(struct rg_perf_link *link, const char *server, enum rg_perf_link_kind kind,
                                 unsigned index, uint64_t timeout_ns, char *why, size_t why_size)
{
    *link = (struct rg_perf_link){.kind = kind};
    uint64_t milliseconds = timeout_ns / 1000000u;
    enum rg_status status =
        begin(link, server, index, milliseconds > INT_MAX ? INT_MAX : (int)milliseconds, why, why_size);
    if (status == RG_OK) {
        link->message = calloc(1, RG_MESSAGE_MAX);
        void *bulk = mmap(NULL, RG_PERF_LINK_MAX, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        link->bulk = bulk == MAP_FAILED ? NULL : bulk;
        status = link->message && link->bulk ? RG_OK : RG_ERR_NO_MEMORY;
        if (status != RG_OK)
            rg_explain(why, why_size, "out of memory");
    }
    if (status == RG_OK && kind != RG_PERF_LINK_RAW) {
        rg_conn_set_read_ahead(link->conn);
        enum rg_status registered = rg_conn_register(link->conn, link->bulk, RG_PERF_LINK_MAX);
        if (registered != RG_OK && registered != RG_ERR_UNSUPPORTED)
            rg_warn("memory cannot be registered (%s): bulk data is copied", rg_status_string(registered));
        (void)rg_conn_advertise(link->conn, RG_NETPERF_TAG, 0, link->bulk,
                                RG_PERF_LINK_MAX); /* where that helps */
    }
    if (status != RG_OK && !why[0])
        rg_explain(why, why_size, "%s", rg_status_string(status));
    if (status != RG_OK)
        rg_perf_link_close(link);
    else if (why_size)
        why[0] = '\0'; /* what was said of attempts on the way does not matter */
    return status;
}

void rg_perf_link_close(struct rg_perf_link *link)
{
    if (link->conn && link->bulk) {
        rg_conn_withdraw(link->conn, RG_NETPERF_TAG, link->bulk);
        rg_conn_unregister(link->conn, link->bulk);
    }
    rg_conn_destroy(link->conn);
    rg_conn_destroy(link->control);
    free(link->message);
    if (link->bulk)
        munmap(link->bulk, RG_PERF_LINK_MAX);
    *link = (struct rg_perf_link){0};
}

/* --- messages --- */

/* Sends one message of `size` bytes of payload that asks for `replies` of `reply` bytes. */
static enum rg_status ask(struct rg_perf_link *link, size_t size, uint32_t replies, size_t reply)
{
    struct rg_netperf_request request = {
        .header = {.kind = RG_MESSAGE_NETPERF, .version = RG_PROTOCOL_MAJOR, .count = 1},
        .replies = replies,
        .reply_size = reply <= RG_PERF_LINK_INLINE && reply > sizeof(struct rg_message_header)
                          ? (uint32_t)reply
                          : (uint32_t)sizeof(struct rg_message_header),
        .reply_bulk = reply > RG_PERF_LINK_INLINE ? (uint32_t)reply : 0,
    };
    const bool bulk = size > RG_PERF_LINK_INLINE;
    memcpy(link->message, &request, sizeof request);
    struct iovec message = {.iov_base = link->message,
                            .iov_len = bulk || size < sizeof request ? sizeof request : size};
    struct iovec data = {.iov_base = link->bulk, .iov_len = size};
    return rg_conn_send(
        link->conn, &(struct rg_send){.msg = &message, .n_msg = 1, .bulk = &data, .n_bulk = bulk ? 1 : 0});
}

static enum rg_status take(struct rg_perf_link *link)
{
    struct rg_message message;
    enum rg_status status = rg_conn_recv(link->conn, REPLY_MS, &message);
    if (status == RG_OK && message.bulk_size > RG_PERF_LINK_MAX)
        return RG_ERR_PROTOCOL;
    if (status == RG_OK && message.bulk_size)
        status = rg_conn_recv_bulk(link->conn, link->bulk, message.bulk_size);
    return status;
}

int rg_perf_link_perftest(struct rg_perf_link *link, const struct rg_netperf_perftest *request,
                          uint32_t *port)
{
    struct rg_netperf_perftest asked = *request;
    struct rg_netperf_started started;
    struct rg_message answer;
    asked.header =
        (struct rg_message_header){.kind = RG_MESSAGE_PERFTEST, .version = RG_PROTOCOL_MAJOR, .count = 1};
    struct iovec message = {.iov_base = &asked, .iov_len = sizeof asked};
    enum rg_status status = rg_conn_send(link->conn, &(struct rg_send){.msg = &message, .n_msg = 1});
    if (status == RG_OK)
        status = rg_conn_recv(link->conn, REPLY_MS, &answer);
    if (status != RG_OK || answer.size != sizeof started || answer.bulk_size)
        return EPROTO;
    memcpy(&started, answer.data, sizeof started);
    *port = started.port;
    if (started.header.kind != RG_MESSAGE_PERFTEST || (started.error == 0 && (*port == 0 || *port > 65535)))
        return EPROTO;
    return (int)(started.error & INT_MAX);
}

/* --- the bare socket --- */

static enum rg_status raw_all(struct rg_perf_link *link, size_t size, bool sending)
{
    const int fd = rg_conn_fd(link->conn);
    unsigned char *data = link->bulk;
    while (size > 0) {
        ssize_t n = sending ? send(fd, data, size, MSG_NOSIGNAL) : recv(fd, data, size, 0);
        if (n > 0) {
            data += n;
            size -= (size_t)n;
        } else if (n == 0) {
            return RG_ERR_LOST;
        } else if (errno == EAGAIN) {
            struct pollfd wait = {.fd = fd, .events = sending ? POLLOUT : POLLIN};
            if (poll(&wait, 1, REPLY_MS) == 0)
                return RG_ERR_TIMEOUT;
        } else if (errno != EINTR) {
            return RG_ERR_LOST;
        }
    }
    return RG_OK;
}

static enum rg_status raw_begin(struct rg_perf_link *link, uint32_t rounds, size_t receive, size_t send_size)
{
    struct rg_netperf_request request = {
        .header = {.kind = RG_MESSAGE_NETPERF, .version = RG_PROTOCOL_MAJOR, .count = 1},
        .raw_rounds = rounds,
        .raw_receive = (uint32_t)receive,
        .raw_send = (uint32_t)send_size,
    };
    struct iovec message = {.iov_base = &request, .iov_len = sizeof request};
    return rg_conn_send(link->conn, &(struct rg_send){.msg = &message, .n_msg = 1});
}

/* --- latency --- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum rg_status round_trip(struct rg_perf_link *link, size_t size)
{
    if (link->kind == RG_PERF_LINK_RAW) {
        enum rg_status status = raw_all(link, size, true);
        return status == RG_OK ? raw_all(link, size, false) : status;
    }
    enum rg_status status = ask(link, size, 1, size);
    return status == RG_OK ? take(link) : status;
}

/* Up to `n` round trips into `samples` (microseconds), until `seconds` are over; *done: how many there
 * were. */
static enum rg_status sample(struct rg_perf_link *link, size_t size, unsigned n, double seconds,
                             double *samples, unsigned *done)
{
    const uint64_t began = rg_now_ns();
    uint64_t last = began;
    for (unsigned i = 0; i < n; i++) {
        RG_TRY(round_trip(link, size));
        uint64_t now = rg_now_ns();
        samples[i] = (double)(now - last) / 1e3;
        last = now;
        *done = i + 1;
        if (i + 1 >= SAMPLES_MIN && (double)(now - began) / 1e9 > seconds)
            break;
    }
    return RG_OK;
}

/* A raw exchange is a number of rounds agreed beforehand: as many as the time allows, by what the first few
 * took. */
static enum rg_status sample_raw(struct rg_perf_link *link, size_t size, double seconds, double *samples,
                                 unsigned *done)
{
    RG_TRY(raw_begin(link, SAMPLES_MIN, size, size));
    RG_TRY(sample(link, size, SAMPLES_MIN, 1e9, samples, done));
    double sum = 0;
    for (unsigned i = 0; i < *done; i++)
        sum += samples[i];
    double rounds = seconds * 1e6 / (sum / *done + 0.001);
    if (rounds <= SAMPLES_MIN)
        return RG_OK;
    unsigned n = rounds > SAMPLES_MAX ? SAMPLES_MAX : (unsigned)rounds;
    enum rg_status status = raw_begin(link, n, size, size);
    return status == RG_OK ? sample(link, size, n, 1e9, samples, done) : status;
}

enum rg_status rg_perf_link_latency(struct rg_perf_link *link, size_t size, double seconds,
                                    struct rg_latency *out)
{
    double *samples = malloc(SAMPLES_MAX * sizeof *samples);
    unsigned n = 0;
    if (!samples)
        return RG_ERR_NO_MEMORY;
    enum rg_status status = RG_OK;
    if (link->kind == RG_PERF_LINK_RAW) {
        status = sample_raw(link, size, seconds, samples, &n);
    } else {
        for (int i = 0; i < WARM && status == RG_OK; i++)
            status = round_trip(link, size);
        if (status == RG_OK)
            status = sample(link, size, SAMPLES_MAX, seconds, samples, &n);
    }
    if (status == RG_OK) {
        qsort(samples, n, sizeof *samples, by_value);
        *out = (struct rg_latency){.samples = n,
                                   .min_us = samples[0],
                                   .p50_us = samples[n / 2],
                                   .p99_us = samples[(size_t)((n - 1) * 0.99)],
                                   .p999_us = samples[(size_t)((n - 1) * 0.999)]};
    }
    free(samples);
    return status;
}

/* --- bandwidth --- */

/* `n` messages in one direction, and the sign that the last has arrived. */
static enum rg_status burst(struct rg_perf_link *link, size_t size, uint32_t n, bool to_server)
{
    const bool raw = link->kind == RG_PERF_LINK_RAW;
    enum rg_status status = RG_OK;
    if (raw)
        status = to_server ? raw_begin(link, n, size, 0) : raw_begin(link, n, 0, size);
    else if (!to_server)
        status = ask(link, RG_PERF_LINK_MIN, n, size);
    for (uint32_t i = 0; i < n && status == RG_OK; i++)
        if (raw)
            status = raw_all(link, size, to_server);
        else
            status = to_server ? ask(link, size, i + 1 == n, RG_PERF_LINK_MIN) : take(link);
    if (status == RG_OK && to_server)
        status = raw ? raw_all(link, 1, false) : take(link);
    return status;
}

/* Bursts that grow until one takes long enough to count. */
static enum rg_status stream(struct rg_perf_link *link, size_t size, double seconds, bool to_server,
                             double *out)
{
    uint32_t n = 4;
    for (;;) {
        uint64_t began = rg_now_ns();
        RG_TRY(burst(link, size, n, to_server));
        double took = (double)(rg_now_ns() - began) / 1e9;
        *out = (double)size * n / (took > 0 ? took : 1e-9);
        if (took > seconds * 0.7 || n >= RG_NETPERF_REPLIES_MAX)
            return RG_OK;
        double next = took > seconds / 50 ? n * seconds / took : (double)n * 8;
        n = next >= RG_NETPERF_REPLIES_MAX ? RG_NETPERF_REPLIES_MAX : (uint32_t)next + 1;
    }
}

enum rg_status rg_perf_link_bandwidth(struct rg_perf_link *link, size_t size, double seconds,
                                      struct rg_bandwidth *out)
{
    enum rg_status status = stream(link, size, seconds, true, &out->to_server);
    return status == RG_OK ? stream(link, size, seconds, false, &out->from_server) : status;
}
