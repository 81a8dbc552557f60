/*
 * endpoint.c - the resources of a connection, and what its two ends tell each other. See endpoint.h.
 *
 * REMOTE_GPU_RDMA (two-sided, polled, ask, or several of them) restricts what is used; for tests and devices
 * that lie.
 */
#include "transport/rdma/endpoint.h"

#include "common/base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    RETRIES = 6,      /* 7 means for ever to Soft-RoCE */
    RNR_RETRIES = 7,  /* 7: for ever; there always is a receive */
    ACK_TIMEOUT = 17, /* 4.096 us * 2^17 = 537 ms a try, 3.8 s in all: longer than a busy peer is away */
    INLINE_WANTED = 192,
    BLIND_LOOKS = 7, /* each is a load of the processor's own memory */
    LOOK_NS =
        50000, /* several round trips; to sleep takes arming the queue, three system calls and an interrupt */
    INLINE_FALLBACK = 0,
    MEASURE_SIZE = 1 << 20, /* of the registration that is timed */
    PAGE = 4096,
};

#define NEVER SIZE_MAX

/* --- pieces --- */

bool rg_rdma_restricted(const char *word)
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

void rg_rdma_name(const struct sockaddr *address, char *out, size_t size)
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

void rg_rdma_set_nonblocking(int fd)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* The next event within `timeout_ms`, or NULL. It must be acknowledged. */
static struct rdma_cm_event *next_event(struct rg_rdma_conn *c, int timeout_ms)
{
    uint64_t deadline = rg_now_ns() + (uint64_t)timeout_ms * 1000000u;
    while (!atomic_load(&c->interrupted)) {
        struct rdma_cm_event *event;
        if (rdma_get_cm_event(c->events, &event) == 0)
            return event;
        if (errno != EAGAIN && errno != EINTR)
            return NULL;
        uint64_t now = rg_now_ns();
        if (now >= deadline)
            return NULL;
        struct pollfd p[] = {{.fd = c->events->fd, .events = POLLIN},
                             {.fd = c->kick[RG_RDMA_SENDER], .events = POLLIN}};
        poll(p, 2, (int)((deadline - now + 999999u) / 1000000u));
    }
    return NULL;
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

struct rg_rdma_private rg_rdma_private_of(const struct rdma_cm_event *event)
{
    struct rg_rdma_private private = {0};
    if (event->param.conn.private_data && event->param.conn.private_data_len >= sizeof private)
        memcpy(&private, event->param.conn.private_data, sizeof private);
    return private;
}

enum rg_status rg_rdma_expect_event(struct rg_rdma_conn *c, enum rdma_cm_event_type type, int timeout_ms,
                                    struct rg_rdma_private *private, char *why, size_t why_size)
{
    struct rdma_cm_event *event = next_event(c, timeout_ms);
    if (!event) {
        rg_explain(why, why_size, "no answer over RDMA within %d ms", timeout_ms);
        return atomic_load(&c->interrupted) ? RG_ERR_CLOSED : RG_ERR_UNREACHABLE;
    }
    enum rg_status status = event->event == type ? RG_OK : RG_ERR_UNREACHABLE;
    if (status != RG_OK)
        rg_explain(why, why_size, "%s", phrase_of(event));
    if (status == RG_OK && private)
        *private = rg_rdma_private_of(event);
    rdma_ack_cm_event(event);
    return status;
}

bool rg_rdma_is_ours(const struct rg_rdma_private *private)
{
    return le32toh(private->magic) == RG_RDMA_MAGIC && le16toh(private->version) == RG_RDMA_VERSION;
}

struct rdma_conn_param rg_rdma_parameters(const struct rg_rdma_private *private)
{
    return (struct rdma_conn_param){.private_data = private,
                                    .private_data_len = sizeof *private,
                                    .retry_count = RETRIES,
                                    .rnr_retry_count = RNR_RETRIES};
}

struct rg_rdma_private rg_rdma_make_private(const struct rg_rdma_conn *c, const uint8_t *token)
{
    const unsigned flags = (c->two_sided ? RG_RDMA_TWO_SIDED : 0u) | (c->delivers ? RG_RDMA_DELIVERS : 0u);
    struct rg_rdma_private private = {.magic = htole32(RG_RDMA_MAGIC),
                                      .version = htole16(RG_RDMA_VERSION),
                                      .flags = htole16((uint16_t)flags)};
    if (token)
        memcpy(private.token, token, sizeof private.token);
    return private;
}

void rg_rdma_set_patience(struct rdma_cm_id *id)
{
    uint8_t ack_timeout = ACK_TIMEOUT;
    rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout, sizeof ack_timeout);
}

/* --- a connection's resources --- */

struct rg_rdma_conn *rg_rdma_conn_create(enum rg_wait_mode wait, bool two_sided)
{
    struct rg_rdma_conn *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    pthread_mutexattr_t spins; /* it is held for a moment at a time */
    pthread_mutexattr_init(&spins);
    pthread_mutexattr_settype(&spins, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&c->lock, &spins);
    pthread_mutexattr_destroy(&spins);
    pthread_cond_init(&c->idle_region, NULL);
    for (int side = 0; side < RG_RDMA_SIDES; side++)
        c->kick[side] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->events = rdma_create_event_channel();
    for (int side = 0; side < RG_RDMA_SIDES; side++) {
        rg_adaptive_wait_init(&c->waits[side], wait);
        c->waits[side].pauses = 1;
        c->waits[side].blind = BLIND_LOOKS;
        c->waits[side].look_ns = LOOK_NS;
    }
    c->two_sided = two_sided;
    c->polled = rg_rdma_restricted("polled");
    c->asks = rg_rdma_restricted("ask");
    c->checking = true;
    c->credits = RG_RDMA_SLOTS;
    if (c->events)
        rg_rdma_set_nonblocking(c->events->fd);
    if (!c->events || c->kick[0] < 0 || c->kick[1] < 0) {
        const int error = errno;
        rg_rdma_conn_free(c);
        errno = error;
        return NULL;
    }
    return c;
}

void rg_rdma_conn_call_off(struct rg_rdma_conn *c)
{
    atomic_store(&c->interrupted, true);
    for (int side = 0; side < RG_RDMA_SIDES; side++)
        (void)!write(c->kick[side], &(uint64_t){1}, sizeof(uint64_t));
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

enum rg_status rg_rdma_no_resource(const char *what, int error, char *why, size_t why_size)
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
 * What is received is parsed where it lies, so the peer must not be able to change it afterwards: it gets to
 * write into the page of the self-test, and into regions that hold nothing but bulk data.
 */
static enum rg_status make_memory(struct rg_rdma_conn *c, char *why, size_t why_size)
{
    size_t size = (size_t)(RG_RDMA_SLOTS + RG_RDMA_SPARE + RG_RDMA_SLOTS) * RG_RDMA_SLOT +
                  (size_t)RG_RDMA_CONTROLS * RG_RDMA_CONTROL_SIZE;
    c->memory_size = (size + PAGE - 1) & ~(size_t)(PAGE - 1);
    c->memory = get_pages(c->memory_size);
    c->check_memory = get_pages(PAGE);
    if (!c->memory || !c->check_memory)
        return rg_rdma_no_resource("buffers", errno, why, why_size);
    c->memory_mr = ibv_reg_mr(c->pd, c->memory, c->memory_size, IBV_ACCESS_LOCAL_WRITE);
    if (c->memory_mr)
        c->check_mr = ibv_reg_mr(c->pd, c->check_memory, PAGE,
                                 IBV_ACCESS_LOCAL_WRITE | (c->two_sided ? 0 : IBV_ACCESS_REMOTE_WRITE));
    return c->check_mr ? RG_OK : rg_rdma_no_resource("registering buffers", errno, why, why_size);
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
    return rg_rdma_no_resource("a queue pair", errno, why, why_size);
}

enum rg_status rg_rdma_make_resources(struct rg_rdma_conn *c, char *why, size_t why_size)
{
    c->pd = ibv_alloc_pd(c->id->verbs);
    if (!c->pd)
        return rg_rdma_no_resource("a protection domain", errno, why, why_size);
    c->channel = ibv_create_comp_channel(c->id->verbs);
    if (!c->channel)
        return rg_rdma_no_resource("a completion channel", errno, why, why_size);
    rg_rdma_set_nonblocking(c->channel->fd);
    int entries = 2 * RG_RDMA_SLOTS + RG_RDMA_SPARE + RG_RDMA_CONTROLS + RG_RDMA_WRITES;
    c->cq = ibv_create_cq(c->id->verbs, entries, NULL, c->channel, 0);
    if (!c->cq)
        return rg_rdma_no_resource("a completion queue", errno, why, why_size);
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

enum rg_status rg_rdma_complete(struct rg_rdma_conn *c, char *why, size_t why_size)
{
    rg_rdma_name(rdma_get_peer_addr(c->id), c->head.peer, sizeof c->head.peer);
    strcpy(c->head.transport, "rdma");
    c->head.caps =
        c->two_sided ? 0 : RG_CAP_ZERO_COPY_SEND | RG_CAP_ZERO_COPY_RECV | RG_CAP_ASKS | RG_CAP_ADVERTISES;
    if (c->asks)
        c->head.caps &= ~(unsigned)RG_CAP_ADVERTISES;
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
