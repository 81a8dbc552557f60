/*
 * mem.c - transport mem: two ends within one process, for tests.
 *
 * A listener is a name in a table; connecting makes a pair of queues shared by both ends and puts the far end
 * into the listener's list of those waiting to be accepted. Messages are copied in and copied out. What one
 * end sent before it went away can still be read by the other, as with a socket; then the other gets
 * RG_ERR_CLOSED. There is no breaking off in the middle of a message, and no descriptor to poll. What one end
 * advertises the other writes to when it sends (advertised.c).
 *
 * Locks: mem_lock (the table and the listeners' lists) and the queues' own, never one within another.
 */
#include "common/sync/scoped_lock.h"
#include "transport/mem/advertised.h"
#include "transport/operations.h"
#include "transport/queue.h"

#include "common/base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUEUE_BYTES = 8 << 20, BACKLOG = 128 };

struct mem_pair {
    struct rg_parcel_queue queues[2];
    struct rg_mem_adverts adverts[2]; /* of the end that reads the queue */
    atomic_int ends;                  /* that live */
};

struct mem_conn {
    struct rg_conn head;
    struct mem_pair *pair;
    struct rg_parcel_queue *in, *out;
    struct rg_mem_adverts *own, *theirs;
    struct rg_parcel *current; /* the receiver's */
    struct mem_conn *next_waiting;
};

struct mem_listener {
    struct rg_listener head;
    struct mem_listener *next;
    struct mem_conn *waiting;
    int n_waiting;
    bool interrupted;
    pthread_cond_t changed;
    char name[sizeof((struct rg_address *)0)->name];
};

static pthread_mutex_t mem_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mem_listener *listeners; /* mem_lock */

/* --- a connection --- */

static enum rg_status mem_send(struct rg_conn *conn, struct rg_send *message)
{
    struct mem_conn *c = (struct mem_conn *)conn;
    bool fault;
    struct rg_parcel *parcel = rg_parcel_pack(message, &fault);
    if (!parcel)
        return RG_ERR_NO_MEMORY;
    if (!fault)
        rg_mem_adverts_write(c->theirs, message, parcel);
    enum rg_status status = rg_queue_push(c->out, parcel);
    return status == RG_OK && fault ? RG_ERR_FAULT : status;
}

static enum rg_status mem_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    struct mem_conn *c = (struct mem_conn *)conn;
    struct rg_parcel *parcel;
    RG_TRY(rg_queue_pop(c->in, timeout_ms, &parcel));
    free(c->current);
    c->current = parcel;
    *out =
        (struct rg_message){.data = parcel->data, .size = parcel->msg_size, .bulk_size = parcel->bulk_size};
    return RG_OK;
}

static enum rg_status mem_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    struct mem_conn *c = (struct mem_conn *)conn;
    return rg_mem_adverts_receive(c->own, c->current, buffer, size);
}

static enum rg_status mem_register(struct rg_conn *conn, void *base, size_t size)
{
    return rg_mem_adverts_register(((struct mem_conn *)conn)->own, base, size);
}

static void mem_unregister(struct rg_conn *conn, void *base)
{
    rg_mem_adverts_unregister(((struct mem_conn *)conn)->own, base);
}

static unsigned mem_device_paths(struct rg_conn *conn)
{
    (void)conn;
    return RG_DEVICE_DMABUF | RG_DEVICE_PEER;
}

static enum rg_status mem_register_device(struct rg_conn *conn, void *base, size_t size, int fd,
                                          uint64_t offset)
{
    (void)offset;
    return rg_mem_adverts_register_device(((struct mem_conn *)conn)->own, base, size, fd);
}

static bool mem_writes_directly(struct rg_conn *conn, const void *memory, size_t size)
{
    struct mem_conn *c = (struct mem_conn *)conn;
    return rg_mem_adverts_write_directly(c->own, c->current, memory, size);
}

static enum rg_status mem_advertise(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory,
                                    size_t size)
{
    return rg_mem_adverts_add(((struct mem_conn *)conn)->own, tag, base, memory, size);
}

static void mem_withdraw(struct rg_conn *conn, uint64_t tag, void *memory)
{
    rg_mem_adverts_withdraw(((struct mem_conn *)conn)->own, tag, memory);
}

static enum rg_status mem_take_advertised(struct rg_conn *conn, size_t most, void **memory, size_t *size)
{
    struct mem_conn *c = (struct mem_conn *)conn;
    rg_mem_adverts_take(c->own, c->current, most, memory, size);
    return RG_OK;
}

static bool mem_has_advertised(struct rg_conn *conn, size_t size)
{
    return rg_mem_adverts_suffice(((struct mem_conn *)conn)->theirs, size);
}

static void mem_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out)
{
    struct rg_mem_adverts *own = ((const struct mem_conn *)conn)->own;
    RG_SCOPED_LOCK(&own->lock);
    out->bulk_copied_received = own->copied;
    out->bulk_direct_received = own->placed;
}

static void mem_reset(struct rg_conn *conn)
{
    struct mem_conn *c = (struct mem_conn *)conn;
    rg_mem_adverts_close(c->own);
    rg_queue_end(c->in, RG_ERR_LOST);
    rg_queue_end(c->out, RG_ERR_LOST);
}

static void mem_interrupt(struct rg_conn *conn)
{
    struct mem_conn *c = (struct mem_conn *)conn;
    rg_queue_end(c->out, RG_ERR_CLOSED); /* first: who wakes below may reset the connection */
    rg_queue_interrupt_pop(c->in);
    rg_queue_interrupt_push(c->out);
    rg_queue_stop(c->in, RG_ERR_LOST);
}

static void mem_destroy(struct rg_conn *conn)
{
    struct mem_conn *c = (struct mem_conn *)conn;
    mem_interrupt(conn);
    rg_mem_adverts_close(c->own); /* the memory may be gone */
    if (atomic_fetch_sub(&c->pair->ends, 1) == 1) {
        for (int i = 0; i < 2; i++) {
            rg_queue_fini(&c->pair->queues[i]);
            rg_mem_adverts_fini(&c->pair->adverts[i]);
        }
        free(c->pair);
    }
    free(c->current);
    free(c);
}

static struct mem_conn *create_end(struct mem_pair *pair, int end, const char *name)
{
    struct mem_conn *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->head.ops = &rg_transport_mem_ops;
    c->pair = pair;
    c->out = &pair->queues[end];
    c->in = &pair->queues[!end];
    c->theirs = &pair->adverts[end];
    c->own = &pair->adverts[!end];
    c->head.caps = RG_CAP_ADVERTISES;
    snprintf(c->head.transport, sizeof c->head.transport, "mem");
    snprintf(c->head.peer, sizeof c->head.peer, "mem:%.128s", name);
    return c;
}

/* --- connecting and accepting --- */

static enum rg_status create_pair(const char *name, struct mem_conn *ends[2])
{
    struct mem_pair *pair = calloc(1, sizeof *pair);
    ends[0] = pair ? create_end(pair, 0, name) : NULL;
    ends[1] = pair ? create_end(pair, 1, name) : NULL;
    if (!ends[0] || !ends[1]) {
        free(ends[0]);
        free(ends[1]);
        free(pair);
        return RG_ERR_NO_MEMORY;
    }
    for (int i = 0; i < 2; i++) {
        rg_queue_init(&pair->queues[i], QUEUE_BYTES);
        rg_mem_adverts_init(&pair->adverts[i]);
    }
    atomic_init(&pair->ends, 2);
    return RG_OK;
}

static struct mem_listener *find_listener(const char *name)
{
    struct mem_listener *l = listeners;
    while (l && strcmp(l->name, name) != 0)
        l = l->next;
    return l;
}

static enum rg_status mem_connect(const struct rg_address *address,
                                  const struct rg_transport_options *options, char *why, size_t why_size,
                                  struct rg_conn **out)
{
    (void)options;
    struct mem_conn *ends[2];
    if (create_pair(address->name, ends) != RG_OK)
        return RG_FAILED(RG_ERR_NO_MEMORY, why, why_size, "out of memory");
    pthread_mutex_lock(&mem_lock);
    struct mem_listener *l = find_listener(address->name);
    bool refused = !l || l->interrupted || l->n_waiting == BACKLOG;
    if (!refused) {
        struct mem_conn **last = &l->waiting;
        while (*last)
            last = &(*last)->next_waiting;
        *last = ends[1];
        l->n_waiting++;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&mem_lock);
    if (refused) {
        mem_destroy(&ends[1]->head);
        mem_destroy(&ends[0]->head);
        return RG_FAILED(RG_ERR_UNREACHABLE, why, why_size, "connection refused");
    }
    *out = &ends[0]->head;
    return RG_OK;
}

static enum rg_status mem_listen(const struct rg_address *address, const struct rg_transport_options *options,
                                 char *why, size_t why_size, struct rg_listener **out)
{
    (void)options;
    struct mem_listener *l = calloc(1, sizeof *l);
    if (!l)
        return RG_FAILED(RG_ERR_NO_MEMORY, why, why_size, "out of memory");
    rg_cond_init(&l->changed);
    snprintf(l->name, sizeof l->name, "%s", address->name);
    snprintf(l->head.address, sizeof l->head.address, "mem:%s", address->name);

    pthread_mutex_lock(&mem_lock);
    bool taken = find_listener(l->name) != NULL;
    if (!taken) {
        l->next = listeners;
        listeners = l;
    }
    pthread_mutex_unlock(&mem_lock);
    if (taken) {
        pthread_cond_destroy(&l->changed);
        free(l);
        return RG_FAILED(RG_ERR_UNREACHABLE, why, why_size, "address already in use");
    }
    *out = &l->head;
    return RG_OK;
}

static enum rg_status mem_accept(struct rg_listener *listener, int timeout_ms, struct rg_conn **out)
{
    struct mem_listener *l = (struct mem_listener *)listener;
    uint64_t deadline = rg_now_ns() + (uint64_t)(timeout_ms < 0 ? 0 : timeout_ms) * 1000000u;
    const struct timespec until = rg_timespec(deadline);
    enum rg_status status = RG_OK;
    bool expired = timeout_ms == 0;
    RG_SCOPED_LOCK(&mem_lock);
    while (!l->waiting && !l->interrupted && !expired) {
        if (timeout_ms < 0)
            pthread_cond_wait(&l->changed, &mem_lock);
        else
            expired = pthread_cond_timedwait(&l->changed, &mem_lock, &until) != 0;
    }
    if (l->interrupted) {
        status = RG_ERR_CLOSED;
    } else if (!l->waiting) {
        status = RG_ERR_TIMEOUT;
    } else {
        struct mem_conn *c = l->waiting;
        l->waiting = c->next_waiting;
        l->n_waiting--;
        *out = &c->head;
    }
    return status;
}

static void mem_listener_interrupt(struct rg_listener *listener)
{
    struct mem_listener *l = (struct mem_listener *)listener;
    RG_SCOPED_LOCK(&mem_lock);
    l->interrupted = true;
    pthread_cond_broadcast(&l->changed);
}

static void mem_listener_destroy(struct rg_listener *listener)
{
    struct mem_listener *l = (struct mem_listener *)listener;
    pthread_mutex_lock(&mem_lock);
    struct mem_listener **link = &listeners;
    while (*link != l)
        link = &(*link)->next;
    *link = l->next;
    pthread_mutex_unlock(&mem_lock);
    while (l->waiting) {
        struct mem_conn *c = l->waiting;
        l->waiting = c->next_waiting;
        mem_destroy(&c->head);
    }
    pthread_cond_destroy(&l->changed);
    free(l);
}

struct rg_transport_ops rg_transport_mem_ops = {
    .name = "mem",
    .connect = mem_connect,
    .listen = mem_listen,
    .accept = mem_accept,
    .listener_interrupt = mem_listener_interrupt,
    .listener_destroy = mem_listener_destroy,
    .send = mem_send,
    .recv = mem_recv,
    .recv_bulk = mem_recv_bulk,
    .interrupt = mem_interrupt,
    .reset = mem_reset,
    .destroy = mem_destroy,
    .register_memory = mem_register,
    .unregister_memory = mem_unregister,
    .device_paths = mem_device_paths,
    .register_device = mem_register_device,
    .writes_directly = mem_writes_directly,
    .advertise = mem_advertise,
    .withdraw = mem_withdraw,
    .take_advertised = mem_take_advertised,
    .has_advertised = mem_has_advertised,
    .statistics = mem_statistics,
};
