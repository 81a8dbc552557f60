/* retransmit_queue.c - messages that may have to be sent again, and the memory for them. See internal.h. */
#include "transport/resumable/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 256 /* for a header of ours beside content of a round size */

/* Each twice the one before: what is kept takes less than twice its size, whoever chooses the sizes. */
static const struct {
    size_t size;
    unsigned most; /* kept for the next message */
} classes[] = {
    {512, 64},
    {1024, 32},
    {2048, 32},
    {(4u << 10) + ROOM, 32},
    {8u << 10, 16},
    {16u << 10, 16},
    {(32u << 10) + ROOM, 16},
    {64u << 10, 8},
    {128u << 10, 8},
    {RG_MESSAGE_MAX + ROOM, 8},
    {512u << 10, 4},
    {(1u << 20) + ROOM, 4},
    {2u << 20, 2},
    {RG_BULK_MAX + ROOM, 4},
};
static_assert(sizeof classes / sizeof *classes == RG_RESUMABLE_CLASSES, "a list of blocks for each");

/* --- the store --- */

static unsigned class_of(size_t size)
{
    unsigned class = 0;
    while (class + 1 < RG_RESUMABLE_CLASSES && classes[class].size < size)
        class ++;
    return class;
}

/* Memory of at least `size` bytes, which is never more than the largest class has. Under the lock. */
static struct rg_retransmit_block *take(struct rg_resumable *c, size_t size)
{
    const unsigned class = class_of(size);
    struct rg_retransmit_block *block = c->store[class];
    if (block) {
        c->store[class] = block->next;
        c->n_store[class]--;
        return block;
    }
    block = classes[class].size < size ? NULL : malloc(sizeof *block + classes[class].size);
    if (block)
        block->class = class;
    return block;
}

static void give(struct rg_resumable *c, struct rg_retransmit_block *block)
{
    if (!block)
        return;
    if (c->n_store[block->class] >= classes[block->class].most) {
        free(block);
        return;
    }
    block->next = c->store[block->class];
    c->store[block->class] = block;
    c->n_store[block->class]++;
}

static struct rg_retransmit_block *block_of(struct rg_retransmit_entry *entry)
{
    return (struct rg_retransmit_block *)((unsigned char *)entry -
                                          offsetof(struct rg_retransmit_block, data));
}

/* --- keeping --- */

/*
 * Field by field, as this is done for each message: compilers clear a whole structure of this size by an instruction that takes
 * longer to begin than all of this does.
 */
static void begin(struct rg_retransmit_entry *entry, const struct rg_send *send, size_t memory)
{
    entry->next = NULL;
    entry->seq = 0;
    entry->msg_size = RG_RESUMABLE_HEADER + send->msg_size;
    entry->send = *send;
    entry->own = (struct iovec){0};
    entry->copy = entry->parts = NULL;
    entry->memory = memory;
    entry->busy = true;
    entry->acked = entry->replaying = entry->fault = false;
    entry->epoch = 0;
}

struct rg_retransmit_entry *rg_retransmit_create(struct rg_resumable *c, const struct rg_send *send)
{
    struct rg_retransmit_block *block =
        take(c, sizeof(struct rg_retransmit_entry) + RG_RESUMABLE_HEADER + send->msg_size);
    if (!block)
        return NULL;
    struct rg_retransmit_entry *entry = (struct rg_retransmit_entry *)(void *)block->data;
    begin(entry, send, classes[block->class].size);
    unsigned char *at = entry->data + RG_RESUMABLE_HEADER;
    const bool much = send->msg_size > RG_RESUMABLE_COPIED_MAX;
    if (much)
        pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < send->n_msg; i++) {
        if (send->msg[i].iov_len)
            memcpy(at, send->msg[i].iov_base, send->msg[i].iov_len);
        at += send->msg[i].iov_len;
    }
    if (much)
        pthread_mutex_lock(&c->lock);
    return entry;
}

struct rg_retransmit_block *rg_retransmit_take(struct rg_resumable *c, struct rg_retransmit_entry *entry,
                                               size_t size)
{
    struct rg_retransmit_block *block = take(c, size);
    if (!block)
        return NULL;
    entry->memory += classes[block->class].size;
    if (!entry->acked)
        c->queued_bytes += classes[block->class].size;
    return block;
}

void rg_retransmit_append(struct rg_resumable *c, struct rg_retransmit_entry *entry)
{
    entry->seq = ++c->sent;
    entry->next = NULL;
    *c->queue_last = entry;
    c->queue_last = &entry->next;
    c->queued_bytes += entry->memory;
}

void rg_retransmit_release(struct rg_resumable *c, struct rg_retransmit_entry *entry)
{
    if (!entry->acked || entry->busy || entry->replaying)
        return;
    give(c, entry->copy);
    give(c, entry->parts);
    give(c, block_of(entry));
}

/* Takes the first out of the list. */
static void drop_first(struct rg_resumable *c)
{
    struct rg_retransmit_entry *entry = c->queue;
    c->queue = entry->next;
    if (!c->queue)
        c->queue_last = &c->queue;
    c->queued_bytes -= entry->memory;
    if (entry->send.lease && !entry->busy)
        c->leased_bytes -= entry->send.bulk_size;
    entry->acked = true;
    rg_retransmit_release(c, entry);
}

bool rg_retransmit_acknowledge(struct rg_resumable *c, uint64_t received)
{
    if (received > c->on_wire)
        return false;
    while (c->queue && c->queue->seq <= received)
        drop_first(c);
    if (c->forgotten && received >= c->forgotten)
        c->forgotten = 0;
    return true;
}

void rg_retransmit_forget(struct rg_resumable *c)
{
    while (c->queue) {
        c->forgotten = c->queue->seq;
        drop_first(c);
    }
}

static void gather(unsigned char *to, const struct rg_retransmit_entry *entry)
{
    if (entry->fault) {
        memset(to, 0, entry->send.bulk_size); /* as was sent */
        return;
    }
    for (int i = 0; i < entry->send.n_bulk; i++) {
        if (entry->send.bulk[i].iov_len)
            memcpy(to, entry->send.bulk[i].iov_base, entry->send.bulk[i].iov_len);
        to += entry->send.bulk[i].iov_len;
    }
}

bool rg_retransmit_copy(struct rg_resumable *c, struct rg_retransmit_entry *entry,
                        struct rg_retransmit_block **out)
{
    *out = rg_retransmit_take(c, entry, entry->send.bulk_size);
    if (!*out) {
        rg_retransmit_forget(c); /* it could not be sent again */
        return false;
    }
    c->bulk_kept += entry->send.bulk_size;
    pthread_mutex_unlock(&c->lock);
    gather((*out)->data, entry);
    pthread_mutex_lock(&c->lock);
    return true;
}

void rg_retransmit_place(struct rg_resumable *c, struct rg_retransmit_entry *entry,
                         struct rg_retransmit_block *copy)
{
    entry->send.lease = NULL;
    entry->copy = copy;
    entry->own = (struct iovec){copy ? copy->data : NULL, entry->send.bulk_size};
    entry->send.bulk = &entry->own;
    entry->send.n_bulk = entry->send.bulk_size ? 1 : 0;
    entry->busy = false;
    rg_retransmit_release(c, entry);
}

void rg_retransmit_settle(struct rg_resumable *c, struct rg_retransmit_entry *entry)
{
    struct rg_retransmit_block *copy = NULL;
    const bool needed = !entry->acked && entry->send.bulk_size,
               held = needed && entry->send.lease && !entry->fault;
    if (needed && !held)
        (void)rg_retransmit_copy(c, entry, &copy);
    while (
        entry
            ->replaying) /* also if it is acknowledged: the reconnector may still look at what it was told to send */
        rg_resumable_sleep(c, UINT64_MAX);
    if (held && !entry->acked && rg_resumable_lease(c, entry))
        return;
    if (held && !entry->acked)
        (void)rg_retransmit_copy(c, entry, &copy);
    rg_retransmit_place(c, entry, copy);
}

void rg_retransmit_fini(struct rg_resumable *c)
{
    while (c->queue)
        drop_first(c);
    for (unsigned class = 0; class < RG_RESUMABLE_CLASSES; class ++)
        while (c->store[class]) {
            struct rg_retransmit_block *block = c->store[class];
            c->store[class] = block->next;
            free(block);
        }
}
