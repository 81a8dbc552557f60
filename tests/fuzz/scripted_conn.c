/* scripted_conn.c - see scripted_conn.h. One lock guards the list; the message received last is the receiver's own. */
#include "tests/fuzz/scripted_conn.h"
#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct scripted {
    struct scripted *next;
    int pause_us;                    /* not a message */
    void (*call)(unsigned argument); /* nor is this */
    unsigned argument;
    size_t size, bulk_size;
    unsigned char *message, *bulk; /* no bulk: zeros */
};

struct scripted_conn {
    struct rg_conn head;
    fuzz_sent *sent;
    void *user;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct scripted *first, **last;
    struct scripted *current; /* the receiver's */
    size_t bulk_taken;        /* the receiver's */
    bool finished;
    bool interrupted;
};

static atomic_uint unread; /* messages, of all connections */
static struct {
    uintptr_t begin, end;
} nobody_reads; /* fuzz_conn_nobody_reads */

void fuzz_conn_nobody_reads(const void *memory, size_t size)
{
    nobody_reads.begin = (uintptr_t)memory;
    nobody_reads.end = nobody_reads.begin + size;
}

unsigned fuzz_conn_unread(void)
{
    return atomic_load(&unread);
}

static bool is_message(const struct scripted *scripted)
{
    return !scripted->pause_us && !scripted->call;
}

static void scripted_free(struct scripted *message)
{
    if (!message)
        return;
    free(message->message);
    free(message->bulk);
    free(message);
}

static size_t size_of(const struct iovec *parts, int n)
{
    size_t size = 0;
    for (int i = 0; i < n; i++)
        size += parts[i].iov_len;
    return size;
}

static enum rg_status scripted_send(struct rg_conn *conn, struct rg_send *send)
{
    struct scripted_conn *c = (struct scripted_conn *)conn;
    const size_t size = size_of(send->msg, send->n_msg);
    unsigned char *message = malloc(size + 1), *at = message;
    CHECK(message);
    for (int i = 0; i < send->n_msg; i++) {
        if (send->msg[i].iov_len)
            memcpy(at, send->msg[i].iov_base, send->msg[i].iov_len);
        at += send->msg[i].iov_len;
    }
    for (int i = 0; i < send->n_bulk; i++) /* what would leave is there */
        fuzz_read(send->bulk[i].iov_base, send->bulk[i].iov_len);
    pthread_mutex_lock(&c->lock);
    const bool over = c->interrupted;
    pthread_mutex_unlock(&c->lock);
    if (!over && c->sent)
        c->sent(c->user, conn, message, size, size_of(send->bulk, send->n_bulk));
    free(message);
    return over ? RG_ERR_CLOSED : RG_OK;
}

static enum rg_status scripted_send_detached(struct rg_conn *conn, struct rg_send *send)
{
    (void)conn, (void)send;
    return RG_OK;
}

static void take_first(struct scripted_conn *c)
{
    struct scripted *first = c->first;
    c->first = first->next;
    if (!c->first)
        c->last = &c->first;
    scripted_free(first);
}

/* The next message; a pause in front is waited for. The lock is held. */
static enum rg_status next(struct scripted_conn *c, int timeout_ms, struct scripted **out)
{
    for (;;) {
        if (c->interrupted)
            return RG_ERR_CLOSED;
        struct scripted *first = c->first;
        if (first && first->call) {
            first->call(first->argument);
            take_first(c);
            continue;
        }
        const bool pause = first && first->pause_us;
        if (pause && first->next && !first->next->pause_us) { /* it has come to an end */
            take_first(c);
            continue;
        }
        if (first && !pause) {
            c->first = first->next;
            if (!c->first)
                c->last = &c->first;
            *out = first;
            atomic_fetch_sub(&unread, 1);
            return RG_OK;
        }
        if (timeout_ms == 0)
            return RG_ERR_TIMEOUT;
        if (!pause && c->finished)
            return RG_ERR_CLOSED;
        struct timespec until =
            rg_timespec(rg_now_ns() + (pause ? (uint64_t)first->pause_us * 1000u : 1000000000u));
        const int waited = pthread_cond_timedwait(&c->changed, &c->lock, &until);
        if (pause && waited != 0 && c->first == first)
            take_first(c);
    }
}

static enum rg_status scripted_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    struct scripted_conn *c = (struct scripted_conn *)conn;
    struct scripted *message;
    pthread_mutex_lock(&c->lock);
    const enum rg_status status = next(c, timeout_ms, &message);
    pthread_mutex_unlock(&c->lock);
    if (status != RG_OK)
        return status;
    scripted_free(c->current);
    c->current = message;
    c->bulk_taken = 0;
    *out =
        (struct rg_message){.data = message->message, .size = message->size, .bulk_size = message->bulk_size};
    return RG_OK;
}

static enum rg_status scripted_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    struct scripted_conn *c = (struct scripted_conn *)conn;
    CHECK(size <= c->current->bulk_size - c->bulk_taken);
    if (buffer && c->current->bulk)
        memcpy(buffer, c->current->bulk + c->bulk_taken, size);
    else if (buffer && (uintptr_t)buffer >= nobody_reads.begin && (uintptr_t)buffer < nobody_reads.end)
        fuzz_fill(buffer, 0, size);
    else if (buffer)
        memset(buffer, 0, size);
    c->bulk_taken += size;
    return RG_OK;
}

static void scripted_interrupt(struct rg_conn *conn)
{
    struct scripted_conn *c = (struct scripted_conn *)conn;
    RG_SCOPED_LOCK(&c->lock);
    c->interrupted = true;
    pthread_cond_broadcast(&c->changed);
}

static void scripted_destroy(struct rg_conn *conn)
{
    struct scripted_conn *c = (struct scripted_conn *)conn;
    while (c->first) {
        struct scripted *first = c->first;
        c->first = first->next;
        atomic_fetch_sub(&unread, is_message(first));
        scripted_free(first);
    }
    scripted_free(c->current);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    free(c);
}

/* Nobody connects to it, or listens: there is only the connection. */
static struct rg_transport_ops scripted_ops = {
    .name = "scripted",
    .send = scripted_send,
    .send_detached = scripted_send_detached,
    .recv = scripted_recv,
    .recv_bulk = scripted_recv_bulk,
    .interrupt = scripted_interrupt,
    .destroy = scripted_destroy,
};

struct rg_conn *fuzz_conn_create(fuzz_sent *sent, void *user)
{
    static bool completed;
    if (!completed)
        rg_transport_complete(&scripted_ops, true);
    completed = true;
    struct scripted_conn *c = calloc(1, sizeof *c);
    CHECK(c);
    c->head.ops = &scripted_ops;
    strcpy(c->head.transport, "scripted");
    strcpy(c->head.peer, "script");
    c->sent = sent;
    c->user = user;
    c->last = &c->first;
    pthread_mutex_init(&c->lock, NULL);
    rg_cond_init(&c->changed);
    return &c->head;
}

static void push(struct rg_conn *conn, struct scripted *message)
{
    struct scripted_conn *c = (struct scripted_conn *)conn;
    atomic_fetch_add(&unread, is_message(message));
    RG_SCOPED_LOCK(&c->lock);
    *c->last = message;
    c->last = &message->next;
    pthread_cond_broadcast(&c->changed);
}

static unsigned char *copy_of(const void *data, size_t size)
{
    unsigned char *copy = malloc(size ? size : 1);
    CHECK(copy);
    if (size)
        memcpy(copy, data, size);
    return copy;
}

void fuzz_conn_push(struct rg_conn *conn, const void *message, size_t size, const void *bulk,
                    size_t bulk_size)
{
    struct scripted *made = calloc(1, sizeof *made);
    CHECK(made && size <= RG_MESSAGE_MAX && bulk_size <= RG_BULK_MAX);
    made->message = copy_of(message, size);
    made->size = size;
    made->bulk = bulk ? copy_of(bulk, bulk_size) : NULL;
    made->bulk_size = bulk_size;
    push(conn, made);
}

void fuzz_conn_push_pause(struct rg_conn *conn, int us)
{
    struct scripted *made = calloc(1, sizeof *made);
    CHECK(made);
    made->pause_us = us;
    push(conn, made);
}

void fuzz_conn_finish(struct rg_conn *conn)
{
    struct scripted_conn *c = (struct scripted_conn *)conn;
    RG_SCOPED_LOCK(&c->lock);
    c->finished = true;
    pthread_cond_broadcast(&c->changed);
}

void fuzz_conn_push_call(struct rg_conn *conn, void (*call)(unsigned argument), unsigned argument)
{
    struct scripted *made = calloc(1, sizeof *made);
    CHECK(made);
    made->call = call;
    made->argument = argument;
    push(conn, made);
}
