/* lasting_kept.c - messages that may have to be sent again, and the memory for them. See lasting_inside.h. */
#include "transport/lasting_inside.h"

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
static_assert(sizeof classes / sizeof *classes == RG_LASTING_CLASSES, "a list of blocks for each");

/* --- the store --- */

static unsigned class_of(size_t size)
{
    unsigned class = 0;
    while (class + 1 < RG_LASTING_CLASSES && classes[class].size < size)
        class ++;
    return class;
}

/* Memory of at least `size` bytes, which is never more than the largest class has. Under the lock. */
static struct rg_lasting_block *take(struct rg_lasting *c, size_t size)
{
    const unsigned class = class_of(size);
    struct rg_lasting_block *block = c->store[class];
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

static void give(struct rg_lasting *c, struct rg_lasting_block *block)
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

static struct rg_lasting_block *block_of(struct rg_lasting_kept *kept)
{
    return (struct rg_lasting_block *)((unsigned char *)kept - offsetof(struct rg_lasting_block, data));
}

/* --- keeping --- */

struct rg_lasting_kept *rg_lasting_keep(struct rg_lasting *c, const struct rg_outgoing *message)
{
    pthread_mutex_lock(&c->lock);
    struct rg_lasting_block *block =
        take(c, sizeof(struct rg_lasting_kept) + RG_LASTING_HEADER + message->msg_size);
    pthread_mutex_unlock(&c->lock);
    if (!block)
        return NULL;
    struct rg_lasting_kept *kept = (struct rg_lasting_kept *)(void *)block->data;
    *kept = (struct rg_lasting_kept){
        .msg_size = RG_LASTING_HEADER + message->msg_size,
        .bulk_size = message->bulk_size,
        .bulk = message->bulk,
        .n_bulk = message->n_bulk,
        .hold = message->hold,
        .room = classes[block->class].size,
        .busy = true,
    };
    unsigned char *at = kept->data + RG_LASTING_HEADER;
    for (int i = 0; i < message->n_msg; i++) {
        if (message->msg[i].iov_len)
            memcpy(at, message->msg[i].iov_base, message->msg[i].iov_len);
        at += message->msg[i].iov_len;
    }
    return kept;
}

struct rg_lasting_block *rg_lasting_take(struct rg_lasting *c, struct rg_lasting_kept *kept, size_t size)
{
    struct rg_lasting_block *block = take(c, size);
    if (!block)
        return NULL;
    kept->room += classes[block->class].size;
    if (!kept->acked)
        c->kept_bytes += classes[block->class].size;
    return block;
}

void rg_lasting_append(struct rg_lasting *c, struct rg_lasting_kept *kept)
{
    kept->seq = ++c->sent;
    kept->next = NULL;
    *c->kept_last = kept;
    c->kept_last = &kept->next;
    c->kept_bytes += kept->room;
}

void rg_lasting_release(struct rg_lasting *c, struct rg_lasting_kept *kept)
{
    if (!kept->acked || kept->busy || kept->replaying)
        return;
    give(c, kept->copy);
    give(c, kept->parts);
    give(c, block_of(kept));
}

/* Takes the first out of the list. */
static void drop_first(struct rg_lasting *c)
{
    struct rg_lasting_kept *kept = c->kept;
    c->kept = kept->next;
    if (!c->kept)
        c->kept_last = &c->kept;
    c->kept_bytes -= kept->room;
    if (kept->hold && !kept->busy)
        c->held_bytes -= kept->bulk_size;
    kept->acked = true;
    rg_lasting_release(c, kept);
}

bool rg_lasting_acknowledge(struct rg_lasting *c, uint64_t received)
{
    if (received > c->on_wire)
        return false;
    while (c->kept && c->kept->seq <= received)
        drop_first(c);
    if (c->forgotten && received >= c->forgotten)
        c->forgotten = 0;
    return true;
}

void rg_lasting_forget(struct rg_lasting *c)
{
    while (c->kept) {
        c->forgotten = c->kept->seq;
        drop_first(c);
    }
}

static void gather(unsigned char *to, const struct rg_lasting_kept *kept)
{
    if (kept->fault) {
        memset(to, 0, kept->bulk_size); /* as was sent */
        return;
    }
    for (int i = 0; i < kept->n_bulk; i++) {
        if (kept->bulk[i].iov_len)
            memcpy(to, kept->bulk[i].iov_base, kept->bulk[i].iov_len);
        to += kept->bulk[i].iov_len;
    }
}

bool rg_lasting_copy(struct rg_lasting *c, struct rg_lasting_kept *kept, struct rg_lasting_block **out)
{
    *out = rg_lasting_take(c, kept, kept->bulk_size);
    if (!*out) {
        rg_lasting_forget(c); /* it could not be sent again */
        return false;
    }
    c->bulk_kept += kept->bulk_size;
    pthread_mutex_unlock(&c->lock);
    gather((*out)->data, kept);
    pthread_mutex_lock(&c->lock);
    return true;
}

void rg_lasting_place(struct rg_lasting *c, struct rg_lasting_kept *kept, struct rg_lasting_block *copy)
{
    kept->hold = NULL;
    kept->copy = copy;
    kept->own = (struct iovec){copy ? copy->data : NULL, kept->bulk_size};
    kept->bulk = &kept->own;
    kept->n_bulk = kept->bulk_size ? 1 : 0;
    kept->busy = false;
    rg_lasting_release(c, kept);
}

void rg_lasting_settle(struct rg_lasting *c, struct rg_lasting_kept *kept)
{
    struct rg_lasting_block *copy = NULL;
    const bool needed = !kept->acked && kept->bulk_size, held = needed && kept->hold && !kept->fault;
    if (needed && !held)
        (void)rg_lasting_copy(c, kept, &copy);
    while (
        kept->replaying) /* also if it is acknowledged: the mender may still look at what it was told to send */
        rg_lasting_sleep(c, UINT64_MAX);
    if (held && !kept->acked && rg_lasting_hold(c, kept))
        return;
    if (held && !kept->acked)
        (void)rg_lasting_copy(c, kept, &copy);
    rg_lasting_place(c, kept, copy);
}

void rg_lasting_kept_fini(struct rg_lasting *c)
{
    while (c->kept)
        drop_first(c);
    for (unsigned class = 0; class < RG_LASTING_CLASSES; class ++)
        while (c->store[class]) {
            struct rg_lasting_block *block = c->store[class];
            c->store[class] = block->next;
            free(block);
        }
}
