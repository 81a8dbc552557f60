/*
 * listen.c - answering those who connect by rdma_cm.
 *
 * A listener has a thread that takes requests. Who does not show the listener's token (or speaks another
 * protocol) is refused there and then: that costs the machine two system calls, no memory and no waiting,
 * however many come. Each other request gets a thread, up to HANDSHAKES at a time, which makes the queue
 * pair, accepts and runs the self-test: a peer whose link breaks in the middle of that holds up nobody else.
 * So a connection is complete before anyone calls accept, as it is with TCP. Complete connections wait in a
 * list.
 *
 * Whoever takes a listener apart calls those threads off.
 */
#include "transport/rdma/endpoint.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log_limit.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "transport/rdma/verbs.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    BACKLOG = 128, /* requests that wait in the kernel */
    HANDSHAKES = 8,
    ESTABLISH_MS = 5000,
};

struct rdma_listener;

/* A request that is being answered. */
struct handshake {
    enum { FREE, RUNS, DONE } state; /* under the listener's lock, as `conn` */
    struct rdma_listener *listener;
    struct rdma_cm_id *id;
    struct rg_rdma_private theirs;
    struct rg_rdma_conn *conn; /* can be called off; NULL: not yet, or no more */
    pthread_t thread;
};

struct rdma_listener {
    struct rg_listener head;
    struct rdma_event_channel *events;
    struct rdma_cm_id *id;
    enum rg_wait_mode wait;
    bool has_token;
    uint8_t token[RG_TRANSPORT_TOKEN];
    pthread_t thread;
    bool has_thread;
    int stop;  /* eventfd */
    int ready; /* eventfd, semaphore: one for each in the list; readable for pollers */
    atomic_bool interrupted;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopping;
    struct handshake handshakes[HANDSHAKES];
    struct rg_rdma_conn *list[RG_RDMA_READY_MAX];
    int n;
};

/* --- a handshake; its thread --- */

/* Lets the connection be called off from now on, or (NULL) no more. False: it is to end at once. */
static bool show(struct handshake *h, struct rg_rdma_conn *c)
{
    struct rdma_listener *l = h->listener;
    RG_SCOPED_LOCK(&l->lock);
    h->conn = c;
    return !l->stopping;
}

/*
 * Completes a connection with its id: queue pair, acceptance, self-test. *accepted: the peer has been
 * answered.
 */
static enum rg_status shake_hands(struct rg_rdma_conn *c, bool *accepted, char *why, size_t why_size)
{
    if (rdma_migrate_id(c->id, c->events) != 0)
        return rg_rdma_no_resource("answering", errno, why, why_size);
    rg_rdma_set_patience(c->id);
    RG_TRY(rg_rdma_make_resources(c, why, why_size));
    struct rg_rdma_private mine = rg_rdma_make_private(c, NULL);
    struct rdma_conn_param param = rg_rdma_parameters(&mine);
    *accepted = true;
    if (rdma_accept(c->id, &param) != 0)
        return rg_rdma_no_resource("accepting", errno, why, why_size);
    enum rg_status status =
        rg_rdma_expect_event(c, RDMA_CM_EVENT_ESTABLISHED, ESTABLISH_MS, NULL, why, why_size);
    return status == RG_OK ? rg_rdma_complete(c, why, why_size) : status;
}

static void refuse(struct rdma_cm_id *id)
{
    rdma_reject(id, NULL, 0);
    rdma_destroy_id(id);
}

/* Answers a request; NULL: nothing came of it. */
static struct rg_rdma_conn *answer_request(struct handshake *h)
{
    const unsigned flags = le16toh(h->theirs.flags);
    char why[256] = "";
    struct rg_rdma_conn *c = rg_rdma_conn_create(h->listener->wait, (flags & RG_RDMA_TWO_SIDED) != 0);
    if (!c) {
        refuse(h->id);
        return NULL;
    }
    c->id = h->id;
    c->delivers = (flags & RG_RDMA_DELIVERS) != 0;
    bool accepted = false;
    enum rg_status status = show(h, c) ? shake_hands(c, &accepted, why, sizeof why) : RG_ERR_CLOSED;
    if (!show(h, NULL))
        status = RG_ERR_CLOSED;
    if (status == RG_OK)
        return c;
    if (accepted) {
        rg_debug("rdma: a connection did not come about: %s", why);
        rdma_disconnect(c->id);
    } else {
        if (status != RG_ERR_CLOSED)
            rg_warn("rdma: a connection was refused: %s", why);
        rdma_reject(c->id, NULL, 0);
    }
    rg_rdma_conn_free(c);
    return NULL;
}

static void put(struct rdma_listener *l, struct rg_rdma_conn *c)
{
    pthread_mutex_lock(&l->lock);
    bool room = l->n < RG_RDMA_READY_MAX;
    if (room) {
        l->list[l->n++] = c;
        (void)!write(l->ready, &(uint64_t){1}, sizeof(uint64_t));
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    if (!room) {
        rg_warn("rdma: %d connections wait to be accepted; one more was refused", RG_RDMA_READY_MAX);
        rdma_disconnect(c->id);
        rg_rdma_conn_free(c);
    }
}

static void *handshake_run(void *argument)
{
    struct handshake *h = argument;
    struct rdma_listener *l = h->listener;
    struct rg_rdma_conn *c = answer_request(h);
    if (c)
        put(l, c);
    RG_SCOPED_LOCK(&l->lock);
    h->state = DONE;
    return NULL;
}

/* --- the listener's thread --- */

/* A handshake that does not run; NULL: all do. */
static struct handshake *find_handshake(struct rdma_listener *l)
{
    for (int i = 0; i < HANDSHAKES; i++) {
        struct handshake *h = &l->handshakes[i];
        pthread_mutex_lock(&l->lock);
        const int state = (int)h->state;
        pthread_mutex_unlock(&l->lock);
        if (state == DONE) {
            pthread_join(h->thread, NULL);
            h->state = FREE;
        }
        if (state != RUNS)
            return h;
    }
    return NULL;
}

/* Starts the answer to a request; takes the id over. */
static void begin_answer(struct rdma_listener *l, struct rdma_cm_id *id, const struct rg_rdma_private *theirs)
{
    static struct rg_log_limit limit = RG_LOG_LIMIT_INIT;
    char peer[160];
    rg_rdma_name(rdma_get_peer_addr(id), peer, sizeof peer);
    unsigned different = 0; /* in a time that does not tell where they differ */
    for (int i = 0; l->has_token && i < RG_TRANSPORT_TOKEN; i++)
        different |= (unsigned)(l->token[i] ^ theirs->token[i]);
    if (!rg_rdma_is_ours(theirs) || different) {
        rg_log_limited(&limit, rg_now_ns(), RG_LOG_WARN, "rdma: %s %s", peer,
                       different && rg_rdma_is_ours(theirs)
                           ? "connected for a session without its token"
                           : "does not speak this version of remote-gpu's RDMA protocol");
        refuse(id);
        return;
    }
    struct handshake *h = find_handshake(l);
    if (!h) {
        rg_log_limited(&limit, rg_now_ns(), RG_LOG_WARN,
                       "rdma: %s was refused: %d connections are being made already", peer, HANDSHAKES);
        refuse(id);
        return;
    }
    *h = (struct handshake){.state = RUNS, .listener = l, .id = id, .theirs = *theirs};
    if (rg_thread_create(&h->thread, "rg-rdma-answer", handshake_run, h) != RG_OK) {
        h->state = FREE;
        refuse(id);
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
        const struct rg_rdma_private theirs = rg_rdma_private_of(event);
        rdma_ack_cm_event(event);
        if (id)
            begin_answer(l, id, &theirs);
    }
}

/* --- the listener --- */

static void write_address(struct rdma_listener *l, const struct rg_address *address)
{
    bool brackets = strchr(address->host, ':') != NULL;
    snprintf(l->head.address, sizeof l->head.address, "rdma://%s%s%s:%u", brackets ? "[" : "", address->host,
             brackets ? "]" : "", ntohs(rdma_get_src_port(l->id)));
}

static enum rg_status open_listener(struct rdma_listener *l, struct sockaddr *address, char *why,
                                    size_t why_size)
{
    l->stop = eventfd(0, EFD_CLOEXEC);
    l->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    l->events = rdma_create_event_channel();
    if (!l->events || l->stop < 0 || l->ready < 0) {
        rg_explain(why, why_size, "no RDMA here: %s", strerror(errno));
        return RG_ERR_UNREACHABLE;
    }
    RG_TRY(rg_rdma_make_id(l->events, &l->id, why, why_size));
    rg_rdma_set_nonblocking(l->events->fd);
    if (rdma_bind_addr(l->id, address) != 0 || rdma_listen(l->id, BACKLOG) != 0) {
        rg_explain(why, why_size, "%s",
                   errno == EADDRINUSE                         ? "address already in use"
                   : errno == ENODEV || errno == EADDRNOTAVAIL ? "no RDMA device has this address"
                                                               : strerror(errno));
        return RG_ERR_UNREACHABLE;
    }
    return RG_OK;
}

enum rg_status rg_rdma_listen(const struct rg_address *address, const struct rg_transport_options *options,
                              char *why, size_t why_size, struct rg_listener **out)
{
    struct addrinfo *list;
    RG_TRY(rg_rdma_verbs_open(why, why_size));
    RG_TRY(rg_rdma_resolve_name(address, true, &list, why, why_size));
    struct rdma_listener *l = calloc(1, sizeof *l);
    if (!l) {
        freeaddrinfo(list);
        return RG_ERR_NO_MEMORY;
    }
    pthread_mutex_init(&l->lock, NULL);
    rg_cond_init(&l->changed);
    l->wait = options->wait;
    l->has_token = options->token != NULL;
    if (l->has_token)
        memcpy(l->token, options->token, sizeof l->token);
    enum rg_status status = open_listener(l, list->ai_addr, why, why_size);
    freeaddrinfo(list);
    if (status == RG_OK) {
        write_address(l, address);
        status = rg_thread_create(&l->thread, "rg-rdma-listen", listener_run, l);
        l->has_thread = status == RG_OK;
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
    const struct timespec until =
        rg_timespec(rg_now_ns() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000u);
    enum rg_status status = RG_OK;
    RG_SCOPED_LOCK(&l->lock);
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
    return status;
}

void rg_rdma_listener_interrupt(struct rg_listener *listener)
{
    struct rdma_listener *l = (struct rdma_listener *)listener;
    atomic_store(&l->interrupted, true);
    RG_SCOPED_LOCK(&l->lock);
    pthread_cond_broadcast(&l->changed);
}

void rg_rdma_listener_destroy(struct rg_listener *listener)
{
    struct rdma_listener *l = (struct rdma_listener *)listener;
    if (l->has_thread) {
        (void)!write(l->stop, &(uint64_t){1}, sizeof(uint64_t));
        pthread_join(l->thread, NULL);
    }
    pthread_mutex_lock(&l->lock);
    l->stopping = true;
    for (int i = 0; i < HANDSHAKES; i++)
        if (l->handshakes[i].conn)
            rg_rdma_conn_call_off(l->handshakes[i].conn);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < HANDSHAKES; i++)
        if (l->handshakes[i].state != FREE) /* none is begun any more */
            pthread_join(l->handshakes[i].thread, NULL);
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
