/*
 * endpoint.c - making connections by rdma_cm, and taking them apart.
 *
 * Connecting: resolve address and route, make the queue pair, post all receives, connect, run the self-test. If that
 * finds no one-sided writes, once more with the flag RG_RDMA_TWO_SIDED.
 *
 * A listener has a thread that answers requests, so that a connection is complete, self-test included, before anyone
 * calls accept, as it is with TCP. Complete connections wait in a list. Requests are answered one after another: who
 * says nothing holds up the others for as long as a self-test may take.
 *
 * REMOTE_GPU_RDMA=two-sided, polled or both (two-sided,polled) restricts what is used; for tests and devices that lie.
 */
#include "transport/rdma/rdma.h"

#include "common/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    BACKLOG = 16,
    READY_MAX = 16, /* complete connections that nobody accepted */
    RETRIES = 6,      /* 7 means for ever to Soft-RoCE */
    RNR_RETRIES = 7,  /* 7: for ever; there always is a receive */
    ACK_TIMEOUT = 16, /* 4.096 us * 2^16 = 268 ms a try */
    INLINE_WANTED = 192,
    INLINE_FALLBACK = 0,
    MEASURE_SIZE = 1 << 20, /* of the registration that is timed */
    ESTABLISH_MS = 5000,
    PAGE = 4096,
};

#define NEVER SIZE_MAX

struct rdma_listener {
    struct rg_listener head;
    struct rdma_event_channel *events;
    struct rdma_cm_id *id;
    enum rg_wait_mode wait;
    pthread_t thread;
    bool has_thread;
    int stop;  /* eventfd */
    int ready; /* eventfd, semaphore: one for each in the list; readable for pollers */
    atomic_bool interrupted;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rg_rdma_conn *list[READY_MAX];
    int n;
};

/* --- pieces --- */

/* Whether `word` is one of those of REMOTE_GPU_RDMA; says once what is none. */
static bool is_set(const char *word)
{
    static const char *const words[] = {"two-sided", "polled", "ask"};
    static atomic_flag told = ATOMIC_FLAG_INIT;
    const char *at = secure_getenv("REMOTE_GPU_RDMA");
    bool set = false;
    while (at && *at) {
        const size_t size = strcspn(at, ",");
        bool known = size == 0;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            known |= strlen(words[i]) == size && memcmp(at, words[i], size) == 0;
        if (!known && !atomic_flag_test_and_set(&told))
            rg_warn("REMOTE_GPU_RDMA: '%.*s' is not one of two-sided, polled, ask", (int)size, at);
        set |= strlen(word) == size && memcmp(at, word, size) == 0;
        at += size + (at[size] == ',');
    }
    return set;
}

static void name_of(const struct sockaddr *address, char *out, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(out, size, "%s:%u", host, ntohs(in->sin_port));
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)address;
        inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
        snprintf(out, size, "[%s]:%u", host, ntohs(in->sin6_port));
    } else {
        snprintf(out, size, "?");
    }
}

static void set_nonblocking(int fd)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* The next event within `timeout_ms`, or NULL. It must be acknowledged. */
static struct rdma_cm_event *next_event(struct rdma_event_channel *events, int timeout_ms)
{
    uint64_t deadline = rg_now_ns() + (uint64_t)timeout_ms * 1000000u;
    for (;;) {
        struct rdma_cm_event *event;
        if (rdma_get_cm_event(events, &event) == 0)
            return event;
        if (errno != EAGAIN && errno != EINTR)
            return NULL;
        uint64_t now = rg_now_ns();
        if (now >= deadline)
            return NULL;
        struct pollfd p = {.fd = events->fd, .events = POLLIN};
        poll(&p, 1, (int)((deadline - now + 999999u) / 1000000u));
    }
}

static const char *phrase_of(const struct rdma_cm_event *event)
{
    switch (event->event) {
    case RDMA_CM_EVENT_ADDR_ERROR:
        return "the address is not reached by an RDMA device";
    case RDMA_CM_EVENT_ROUTE_ERROR:
        return "there is no RDMA route";
    case RDMA_CM_EVENT_UNREACHABLE:
        return "no answer over RDMA";
    case RDMA_CM_EVENT_REJECTED:
        return "connection refused";
    default:
        return rdma_event_str(event->event);
    }
}

/* Waits for one kind of event; *private gets its private data if that is ours. */
static enum rg_status expect_event(struct rdma_event_channel *events, enum rdma_cm_event_type type,
                                   int timeout_ms, struct rg_rdma_private *private, char *why,
                                   size_t why_size)
{
    struct rdma_cm_event *event = next_event(events, timeout_ms);
    if (!event) {
        rg_explain(why, why_size, "no answer over RDMA within %d ms", timeout_ms);
        return RG_ERR_UNREACHABLE;
    }
    enum rg_status status = event->event == type ? RG_OK : RG_ERR_UNREACHABLE;
    if (status != RG_OK)
        rg_explain(why, why_size, "%s", phrase_of(event));
    if (status == RG_OK && private) {
        *private = (struct rg_rdma_private){0};
        if (event->param.conn.private_data && event->param.conn.private_data_len >= sizeof *private)
            memcpy(private, event->param.conn.private_data, sizeof *private);
    }
    rdma_ack_cm_event(event);
    return status;
}

static bool is_ours(const struct rg_rdma_private *private)
{
    return le32toh(private->magic) == RG_RDMA_MAGIC && le16toh(private->version) == RG_RDMA_VERSION;
}

static struct rdma_conn_param parameters(const struct rg_rdma_private *private)
{
    return (struct rdma_conn_param){.private_data = private,
                                    .private_data_len = sizeof *private,
                                    .retry_count = RETRIES,
                                    .rnr_retry_count = RNR_RETRIES};
}

static struct rg_rdma_private make_private(const struct rg_rdma_conn *c)
{
    const unsigned flags = (c->two_sided ? RG_RDMA_TWO_SIDED : 0u) | (c->delivers ? RG_RDMA_DELIVERS : 0u);
    return (struct rg_rdma_private){.magic = htole32(RG_RDMA_MAGIC),
                                    .version = htole16(RG_RDMA_VERSION),
                                    .flags = htole16((uint16_t)flags)};
}

/* --- a connection's resources --- */

static struct rg_rdma_conn *conn_create(enum rg_wait_mode wait, bool two_sided)
{
    struct rg_rdma_conn *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->idle_region, NULL);
    for (int side = 0; side < RG_RDMA_SIDES; side++)
        c->kick[side] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->events = rdma_create_event_channel();
    c->wait = wait;
    c->two_sided = two_sided;
    c->polled = is_set("polled");
    c->asks = is_set("ask");
    c->checking = true;
    c->credits = RG_RDMA_SLOTS;
    if (c->events)
        set_nonblocking(c->events->fd);
    if (!c->events || c->kick[0] < 0 || c->kick[1] < 0) {
        rg_rdma_conn_free(c);
        return NULL;
    }
    return c;
}

void rg_rdma_conn_free(struct rg_rdma_conn *c)
{
    if (!c)
        return;
    while (c->regions) {
        c->regions->uses = 0;
        rg_rdma_region_remove(c, c->regions);
    }
    if (c->id && c->id->qp)
        rdma_destroy_qp(c->id);
    if (c->cq) {
        ibv_ack_cq_events(c->cq, c->events_unacked);
        ibv_destroy_cq(c->cq);
    }
    if (c->channel)
        ibv_destroy_comp_channel(c->channel);
    if (c->memory_mr)
        ibv_dereg_mr(c->memory_mr);
    if (c->memory)
        munmap(c->memory, c->memory_size);
    if (c->check_mr)
        ibv_dereg_mr(c->check_mr);
    if (c->check_memory)
        munmap(c->check_memory, PAGE);
    for (int side = 0; side < RG_RDMA_SIDES; side++) {
        if (c->bounce_mr[side])
            ibv_dereg_mr(c->bounce_mr[side]);
        if (c->bounce[side])
            munmap(c->bounce[side], (size_t)RG_RDMA_BOUNCE * RG_RDMA_BOUNCES);
        if (c->kick[side] >= 0)
            close(c->kick[side]);
    }
    if (c->pd)
        ibv_dealloc_pd(c->pd);
    if (c->id)
        rdma_destroy_id(c->id);
    if (c->events)
        rdma_destroy_event_channel(c->events);
    pthread_cond_destroy(&c->idle_region);
    pthread_mutex_destroy(&c->lock);
    free(c->assembly);
    free(c);
}

static enum rg_status no_resource(const char *what, int error, char *why, size_t why_size)
{
    if (error == ENOMEM)
        rg_explain(why, why_size, "%s: no memory can be locked for RDMA (ulimit -l; in a container IPC_LOCK)",
                   what);
    else if (error == EACCES || error == EPERM)
        rg_explain(why, why_size, "%s: %s (are /dev/infiniband/* accessible?)", what, strerror(error));
    else
        rg_explain(why, why_size, "%s: %s", what, strerror(error));
    return RG_ERR_UNREACHABLE;
}

static void *get_pages(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/*
 * What is received is parsed where it lies, so the peer must not be able to change it afterwards: it gets to write into
 * the page of the self-test, and into regions that hold nothing but bulk data.
 */
static enum rg_status make_memory(struct rg_rdma_conn *c, char *why, size_t why_size)
{
    size_t size = (size_t)(RG_RDMA_SLOTS + RG_RDMA_SPARE + RG_RDMA_SLOTS) * RG_RDMA_SLOT +
                  (size_t)RG_RDMA_CONTROLS * RG_RDMA_CONTROL_SIZE;
    c->memory_size = (size + PAGE - 1) & ~(size_t)(PAGE - 1);
    c->memory = get_pages(c->memory_size);
    c->check_memory = get_pages(PAGE);
    if (!c->memory || !c->check_memory)
        return no_resource("buffers", errno, why, why_size);
    c->memory_mr = ibv_reg_mr(c->pd, c->memory, c->memory_size, IBV_ACCESS_LOCAL_WRITE);
    if (c->memory_mr)
        c->check_mr = ibv_reg_mr(c->pd, c->check_memory, PAGE,
                                 IBV_ACCESS_LOCAL_WRITE | (c->two_sided ? 0 : IBV_ACCESS_REMOTE_WRITE));
    return c->check_mr ? RG_OK : no_resource("registering buffers", errno, why, why_size);
}

static enum rg_status make_queue_pair(struct rg_rdma_conn *c, char *why, size_t why_size)
{
    static const uint32_t inline_sizes[] = {INLINE_WANTED, INLINE_FALLBACK};
    for (size_t i = 0; i < sizeof inline_sizes / sizeof *inline_sizes; i++) {
        struct ibv_qp_init_attr attr = {
            .send_cq = c->cq,
            .recv_cq = c->cq,
            .qp_type = IBV_QPT_RC,
            .cap = {.max_send_wr = RG_RDMA_SLOTS + RG_RDMA_CONTROLS + RG_RDMA_WRITES,
                    .max_recv_wr = RG_RDMA_SLOTS + RG_RDMA_SPARE,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = inline_sizes[i]}};
        if (rdma_create_qp(c->id, c->pd, &attr) == 0) {
            c->inline_max = attr.cap.max_inline_data;
            return RG_OK;
        }
    }
    return no_resource("a queue pair", errno, why, why_size);
}

static enum rg_status make_resources(struct rg_rdma_conn *c, char *why, size_t why_size)
{
    c->pd = ibv_alloc_pd(c->id->verbs);
    if (!c->pd)
        return no_resource("a protection domain", errno, why, why_size);
    c->channel = ibv_create_comp_channel(c->id->verbs);
    if (!c->channel)
        return no_resource("a completion channel", errno, why, why_size);
    set_nonblocking(c->channel->fd);
    int entries = 2 * RG_RDMA_SLOTS + RG_RDMA_SPARE + RG_RDMA_CONTROLS + RG_RDMA_WRITES;
    c->cq = ibv_create_cq(c->id->verbs, entries, NULL, c->channel, 0);
    if (!c->cq)
        return no_resource("a completion queue", errno, why, why_size);
    enum rg_status status = make_memory(c, why, why_size);
    if (status == RG_OK)
        status = make_queue_pair(c, why, why_size);
    if (status == RG_OK)
        status = rg_rdma_post_receives(c);
    return status;
}

/* Whether registering memory for one transfer is faster than copying it: timed on a piece of fresh memory. */
static void measure_registration(struct rg_rdma_conn *c)
{
    c->register_min = NEVER;
    if (c->two_sided)
        return;
    unsigned char *from =
        mmap(NULL, 2 * MEASURE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (from == MAP_FAILED)
        return;
    memset(from, 1, 2 * MEASURE_SIZE);
    uint64_t t0 = rg_now_ns();
    struct ibv_mr *mr =
        ibv_reg_mr(c->pd, from, MEASURE_SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    bool registered = mr && ibv_dereg_mr(mr) == 0;
    uint64_t t1 = rg_now_ns();
    memcpy(from + MEASURE_SIZE, from, MEASURE_SIZE);
    __asm__ __volatile__("" : : "r"(from) : "memory");
    uint64_t t2 = rg_now_ns();
    munmap(from, 2 * MEASURE_SIZE);
    if (registered && t1 - t0 < t2 - t1)
        c->register_min = RG_RDMA_COPIED_MAX;
    rg_debug("rdma: registering 1 MiB takes %.0f us, copying it %.0f us", (double)(t1 - t0) / 1e3,
             (double)(t2 - t1) / 1e3);
}

/* Once connected: the self-test, and what the connection is called. */
static enum rg_status complete(struct rg_rdma_conn *c, char *why, size_t why_size)
{
    name_of(rdma_get_peer_addr(c->id), c->head.peer, sizeof c->head.peer);
    strcpy(c->head.transport, "rdma");
    c->head.caps =
        c->two_sided ? 0 : RG_CAP_ZERO_COPY_SEND | RG_CAP_ZERO_COPY_RECV | RG_CAP_ASKS | RG_CAP_LENDS;
    if (c->asks)
        c->head.caps &= ~(unsigned)RG_CAP_LENDS;
    if (c->delivers)
        c->head.caps |= RG_CAP_DELIVERS;
    enum rg_status status = rg_rdma_check(c);
    if (status != RG_OK) {
        rg_explain(why, why_size, "%s",
                   status == RG_ERR_UNSUPPORTED ? "one-sided writes do not work between the two devices"
                                                : "the self-test of the connection failed");
        return status;
    }
    measure_registration(c);
    rg_debug("rdma: %s over %s: %s, %s, inline up to %u", c->head.peer,
             ibv_get_device_name(c->id->verbs->device),
             c->two_sided ? "sends and receives alone" : "one-sided writes",
             c->polled ? "completions polled" : "completion events", c->inline_max);
    return RG_OK;
}

void rg_rdma_look_at_events(struct rg_rdma_conn *c)
{
    struct rdma_cm_event *event;
    while (rdma_get_cm_event(c->events, &event) == 0) {
        enum rdma_cm_event_type type = event->event;
        rdma_ack_cm_event(event);
        if (type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
            rg_rdma_progress(c); /* what arrived before */
            if (type == RDMA_CM_EVENT_DEVICE_REMOVAL)
                rg_warn("rdma: %s: the device was removed", c->head.peer);
            rg_rdma_break(c, RG_ERR_LOST);
        }
    }
}

/* --- connecting --- */

static enum rg_status resolve_name(const struct rg_address *address, bool passive, struct addrinfo **out,
                                   char *why, size_t why_size)
{
    char port[8];
    snprintf(port, sizeof port, "%u", address->port);
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0};
    bool any = strcmp(address->host, "*") == 0;
    int error = getaddrinfo(any ? NULL : address->host, port, &hints, out);
    if (error) {
        rg_explain(why, why_size, "%s: %s", address->host, gai_strerror(error));
        return RG_ERR_UNREACHABLE;
    }
    return RG_OK;
}

static enum rg_status establish(struct rg_rdma_conn *c, struct sockaddr *to, int timeout_ms, char *why,
                                size_t why_size)
{
    if (rdma_create_id(c->events, &c->id, NULL, RDMA_PS_TCP) != 0) {
        rg_explain(why, why_size, "no RDMA here: %s (is the module rdma_ucm loaded?)", strerror(errno));
        return RG_ERR_UNREACHABLE;
    }
    if (rdma_resolve_addr(c->id, NULL, to, timeout_ms) != 0) {
        rg_explain(why, why_size, "the address is not reached by an RDMA device: %s", strerror(errno));
        return RG_ERR_UNREACHABLE;
    }
    enum rg_status status =
        expect_event(c->events, RDMA_CM_EVENT_ADDR_RESOLVED, timeout_ms + 500, NULL, why, why_size);
    if (status != RG_OK)
        return status;
    uint8_t ack_timeout = ACK_TIMEOUT;
    rdma_set_option(c->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout, sizeof ack_timeout);
    if (rdma_resolve_route(c->id, timeout_ms) != 0)
        return no_resource("a route", errno, why, why_size);
    status = expect_event(c->events, RDMA_CM_EVENT_ROUTE_RESOLVED, timeout_ms + 500, NULL, why, why_size);
    if (status == RG_OK)
        status = make_resources(c, why, why_size);
    if (status != RG_OK)
        return status;
    struct rg_rdma_private mine = make_private(c), theirs;
    struct rdma_conn_param param = parameters(&mine);
    if (rdma_connect(c->id, &param) != 0)
        return no_resource("connecting", errno, why, why_size);
    status = expect_event(c->events, RDMA_CM_EVENT_ESTABLISHED, timeout_ms, &theirs, why, why_size);
    if (status == RG_OK && !is_ours(&theirs)) {
        rg_explain(why, why_size,
                   "what listens there does not speak this version of remote-gpu's RDMA protocol");
        status = RG_ERR_UNREACHABLE;
    }
    return status;
}

static enum rg_status connect_once(struct sockaddr *to, const struct rg_transport_options *options,
                                   bool two_sided, char *why, size_t why_size, struct rg_conn **out)
{
    struct rg_rdma_conn *c = conn_create(options->wait, two_sided);
    if (!c) {
        rg_explain(why, why_size, "no RDMA here: %s", strerror(errno));
        return RG_ERR_UNREACHABLE;
    }
    c->delivers = options->bulk;
    enum rg_status status = establish(c, to, options->connect_timeout_ms, why, why_size);
    if (status == RG_OK) {
        status = complete(c, why, why_size);
        if (status != RG_OK)
            rdma_disconnect(c->id);
    }
    if (status != RG_OK)
        rg_rdma_conn_free(c);
    else
        *out = &c->head;
    return status;
}

enum rg_status rg_rdma_connect(const struct rg_address *address, const struct rg_transport_options *options,
                               char *why, size_t why_size, struct rg_conn **out)
{
    struct addrinfo *list;
    enum rg_status status = resolve_name(address, false, &list, why, why_size);
    if (status != RG_OK)
        return status;
    status = RG_ERR_UNREACHABLE;
    for (struct addrinfo *at = list; at && status != RG_OK; at = at->ai_next) {
        bool two_sided = is_set("two-sided");
        status = connect_once(at->ai_addr, options, two_sided, why, why_size, out);
        if (status != RG_OK && status != RG_ERR_UNREACHABLE && !two_sided)
            status = connect_once(at->ai_addr, options, true, why, why_size, out);
    }
    freeaddrinfo(list);
    return status;
}

/* --- listening --- */

/* Answers a request that came with `id`, and completes the connection. Takes the id over. */
static enum rg_status answer_request(struct rdma_listener *l, struct rdma_cm_id *id,
                                     const struct rg_rdma_private *theirs, struct rg_rdma_conn **out)
{
    char why[256] = "";
    if (!is_ours(theirs)) {
        rdma_reject(id, NULL, 0);
        rdma_destroy_id(id);
        return RG_ERR_PROTOCOL;
    }
    bool two_sided = (le16toh(theirs->flags) & RG_RDMA_TWO_SIDED) != 0;
    struct rg_rdma_conn *c = conn_create(l->wait, two_sided);
    if (!c) {
        rdma_reject(id, NULL, 0);
        rdma_destroy_id(id);
        return RG_ERR_NO_MEMORY;
    }
    c->id = id;
    c->delivers = (le16toh(theirs->flags) & RG_RDMA_DELIVERS) != 0;
    enum rg_status status = rdma_migrate_id(id, c->events) == 0 ? RG_OK : RG_ERR_IO;
    uint8_t ack_timeout = ACK_TIMEOUT;
    rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout, sizeof ack_timeout);
    if (status == RG_OK)
        status = make_resources(c, why, sizeof why);
    if (status != RG_OK) {
        rg_warn("rdma: a connection was refused: %s", why);
        rdma_reject(id, NULL, 0);
        rg_rdma_conn_free(c);
        return status;
    }
    struct rg_rdma_private mine = make_private(c);
    struct rdma_conn_param param = parameters(&mine);
    if (rdma_accept(id, &param) != 0)
        status = no_resource("accepting", errno, why, sizeof why);
    else
        status = expect_event(c->events, RDMA_CM_EVENT_ESTABLISHED, ESTABLISH_MS, NULL, why, sizeof why);
    if (status == RG_OK)
        status = complete(c, why, sizeof why);
    if (status != RG_OK) {
        rg_debug("rdma: a connection did not come about: %s", why);
        rdma_disconnect(id);
        rg_rdma_conn_free(c);
        return status;
    }
    *out = c;
    return RG_OK;
}

static void put(struct rdma_listener *l, struct rg_rdma_conn *c)
{
    pthread_mutex_lock(&l->lock);
    bool room = l->n < READY_MAX;
    if (room) {
        l->list[l->n++] = c;
        (void)!write(l->ready, &(uint64_t){1}, sizeof(uint64_t));
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    if (!room) {
        rg_warn("rdma: %d connections wait to be accepted; one more was refused", READY_MAX);
        rdma_disconnect(c->id);
        rg_rdma_conn_free(c);
    }
}

static void *listener_run(void *argument)
{
    struct rdma_listener *l = argument;
    for (;;) {
        struct pollfd fds[] = {{.fd = l->stop, .events = POLLIN}, {.fd = l->events->fd, .events = POLLIN}};
        poll(fds, 2, -1);
        if (fds[0].revents)
            return NULL;
        struct rdma_cm_event *event;
        if (rdma_get_cm_event(l->events, &event) != 0)
            continue;
        struct rdma_cm_id *id = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : NULL;
        struct rg_rdma_private theirs = {0};
        if (id && event->param.conn.private_data_len >= sizeof theirs)
            memcpy(&theirs, event->param.conn.private_data, sizeof theirs);
        rdma_ack_cm_event(event);
        struct rg_rdma_conn *c;
        if (id && answer_request(l, id, &theirs, &c) == RG_OK)
            put(l, c);
    }
}

static void write_address(struct rdma_listener *l, const struct rg_address *address)
{
    bool brackets = strchr(address->host, ':') != NULL;
    snprintf(l->head.address, sizeof l->head.address, "rdma://%s%s%s:%u", brackets ? "[" : "", address->host,
             brackets ? "]" : "", ntohs(rdma_get_src_port(l->id)));
}

enum rg_status rg_rdma_listen(const struct rg_address *address, const struct rg_transport_options *options,
                              char *why, size_t why_size, struct rg_listener **out)
{
    struct addrinfo *list;
    enum rg_status status = resolve_name(address, true, &list, why, why_size);
    if (status != RG_OK)
        return status;
    struct rdma_listener *l = calloc(1, sizeof *l);
    if (!l) {
        freeaddrinfo(list);
        return RG_ERR_NO_MEMORY;
    }
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    l->wait = options->wait;
    l->stop = eventfd(0, EFD_CLOEXEC);
    l->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    l->events = rdma_create_event_channel();
    if (!l->events || rdma_create_id(l->events, &l->id, NULL, RDMA_PS_TCP) != 0) {
        rg_explain(why, why_size, "no RDMA here: %s (is the module rdma_ucm loaded?)", strerror(errno));
        status = RG_ERR_UNREACHABLE;
    } else {
        set_nonblocking(l->events->fd);
        if (rdma_bind_addr(l->id, list->ai_addr) != 0 || rdma_listen(l->id, BACKLOG) != 0) {
            rg_explain(why, why_size, "%s",
                       errno == EADDRINUSE                         ? "address already in use"
                       : errno == ENODEV || errno == EADDRNOTAVAIL ? "no RDMA device has this address"
                                                                   : strerror(errno));
            status = RG_ERR_UNREACHABLE;
        }
    }
    freeaddrinfo(list);
    if (status == RG_OK) {
        write_address(l, address);
        l->has_thread = pthread_create(&l->thread, NULL, listener_run, l) == 0;
        if (!l->has_thread)
            status = RG_ERR_NO_MEMORY;
    }
    if (status != RG_OK)
        rg_rdma_listener_destroy(&l->head);
    else
        *out = &l->head;
    return status;
}

enum rg_status rg_rdma_accept(struct rg_listener *listener, int timeout_ms, struct rg_conn **out)
{
    struct rdma_listener *l = (struct rdma_listener *)listener;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    enum rg_status status = RG_OK;
    pthread_mutex_lock(&l->lock);
    while (l->n == 0 && !atomic_load(&l->interrupted) && status == RG_OK) {
        if (timeout_ms < 0)
            pthread_cond_wait(&l->changed, &l->lock);
        else if (timeout_ms == 0 || pthread_cond_timedwait(&l->changed, &l->lock, &until) == ETIMEDOUT)
            status = RG_ERR_TIMEOUT;
    }
    if (atomic_load(&l->interrupted)) {
        status = RG_ERR_CLOSED;
    } else if (l->n > 0) {
        status = RG_OK;
        *out = &l->list[0]->head;
        memmove(l->list, l->list + 1, (size_t)(--l->n) * sizeof *l->list);
        uint64_t one;
        (void)!read(l->ready, &one, sizeof one);
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

void rg_rdma_listener_interrupt(struct rg_listener *listener)
{
    struct rdma_listener *l = (struct rdma_listener *)listener;
    atomic_store(&l->interrupted, true);
    pthread_mutex_lock(&l->lock);
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

void rg_rdma_listener_destroy(struct rg_listener *listener)
{
    struct rdma_listener *l = (struct rdma_listener *)listener;
    if (l->has_thread) {
        (void)!write(l->stop, &(uint64_t){1}, sizeof(uint64_t));
        pthread_join(l->thread, NULL);
    }
    for (int i = 0; i < l->n; i++) {
        rdma_disconnect(l->list[i]->id);
        rg_rdma_conn_free(l->list[i]);
    }
    if (l->id)
        rdma_destroy_id(l->id);
    if (l->events)
        rdma_destroy_event_channel(l->events);
    close(l->stop);
    close(l->ready);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

int rg_rdma_listener_fd(const struct rg_listener *listener)
{
    return ((const struct rdma_listener *)listener)->ready;
}
