/*
 * exchange_layout.c - which data of an operation is whose, and where it belongs: how many ranks give something, how much, into which place,
 * and which block each reduces. Arithmetic on what was called alone; any thread.
 */
#include "softgpu/nccl/exchange.h"

#include "softgpu/nccl/driver.h"

#include <string.h>

const char *sg_nccl_kind_name(enum sg_nccl_kind kind)
{
    static const char *const names[] = {
        [SG_NCCL_ALL_REDUCE] = "ncclAllReduce",
        [SG_NCCL_REDUCE] = "ncclReduce",
        [SG_NCCL_BROADCAST] = "ncclBroadcast",
        [SG_NCCL_ALL_GATHER] = "ncclAllGather",
        [SG_NCCL_REDUCE_SCATTER] = "ncclReduceScatter",
        [SG_NCCL_SEND] = "ncclSend",
        [SG_NCCL_RECEIVE] = "ncclRecv",
    };
    return names[kind];
}

bool sg_exchange_reduces(enum sg_nccl_kind kind)
{
    return kind == SG_NCCL_ALL_REDUCE || kind == SG_NCCL_REDUCE || kind == SG_NCCL_REDUCE_SCATTER;
}

static bool is_of_all(enum sg_nccl_kind kind)
{
    return kind == SG_NCCL_ALL_REDUCE || kind == SG_NCCL_ALL_GATHER || kind == SG_NCCL_REDUCE_SCATTER;
}

/* Bytes that a rank gives, if it gives. */
size_t sg_exchange_given_bytes(const struct sg_exchange *exchange)
{
    const size_t bytes = exchange->count * rg_nccl_type_size(exchange->type);
    return exchange->kind == SG_NCCL_REDUCE_SCATTER ? bytes * (size_t)exchange->clique->n : bytes;
}

/* Only where each rank needs something of all others, so that nobody can be ahead by more than a group. */
bool sg_exchange_is_small(const struct sg_exchange *exchange)
{
    return is_of_all(exchange->kind) && sg_exchange_given_bytes(exchange) <= SG_NCCL_SMALL;
}

bool sg_exchange_gives(const struct sg_exchange *exchange, int rank)
{
    return exchange->source >= 0                 ? rank == exchange->source
           : exchange->kind == SG_NCCL_BROADCAST ? rank == exchange->peer
                                                 : true;
}

int sg_exchange_givers(const struct sg_exchange *exchange)
{
    return exchange->source >= 0 || exchange->kind == SG_NCCL_BROADCAST ? 1 : exchange->clique->n;
}

/* Of a small operation each process makes all reductions that it needs. */
int sg_exchange_awaited(const struct sg_exchange *exchange, enum sg_exchange_word which)
{
    const struct sg_clique *clique = exchange->clique;
    switch (which) {
    case SG_WORD_GIVEN:
        return sg_exchange_givers(exchange);
    case SG_WORD_REDUCED:
        return sg_exchange_is_small(exchange) ? clique->here : clique->n;
    default:
        return 1;
    }
}

unsigned char *sg_exchange_place(const struct sg_exchange *exchange, int rank)
{
    return exchange->places +
           (sg_exchange_givers(exchange) == 1 ? 0 : (size_t)rank * sg_exchange_given_bytes(exchange));
}

/* --- buffers that are used themselves -------------------------------------------------------------------- */

/* Bytes of one rank's block. */
static size_t block_bytes(const struct sg_exchange *exchange)
{
    return exchange->count * rg_nccl_type_size(exchange->type);
}

/* What the member reduces, in bytes; of each rank's part of it there is memory. */
static void own_block(const struct sg_exchange *exchange, size_t *offset, size_t *size)
{
    const size_t width = rg_nccl_type_size(exchange->type);
    sg_exchange_block(exchange, exchange->first, offset, size);
    *offset *= width;
    *size *= width;
}

size_t sg_exchange_direct_bytes(const struct sg_exchange *exchange)
{
    size_t offset, size;
    own_block(exchange, &offset, &size);
    return sg_exchange_reduces(exchange->kind) ? size * (size_t)exchange->clique->n : 0;
}

bool sg_exchange_takes(const struct sg_exchange *exchange, size_t offset, size_t size)
{
    size_t first = 0, most = sg_exchange_given_bytes(exchange);
    if (exchange->direct && sg_exchange_reduces(exchange->kind))
        own_block(exchange, &first, &most);
    return offset >= first && offset - first <= most && size <= most - (offset - first);
}

unsigned char *sg_exchange_given(const struct sg_exchange *exchange, int rank, size_t offset)
{
    const size_t block = block_bytes(exchange);
    size_t first, size;
    if (exchange->direct && exchange->clique->at[rank] < 0)
        return exchange->kind == SG_NCCL_REDUCE_SCATTER
                   ? exchange->from + offset / block * exchange->from_step + offset % block
                   : exchange->from + offset;
    if (exchange->direct && exchange->kind == SG_NCCL_ALL_GATHER)
        return exchange->to + (size_t)rank * exchange->to_step + offset;
    if (!exchange->direct)
        return sg_exchange_place(exchange, rank) + offset;
    own_block(exchange, &first, &size);
    return exchange->places + (size_t)rank * size + (offset - first);
}

/* Of a scattered sum the rank has its own block alone. */
unsigned char *sg_exchange_result(const struct sg_exchange *exchange, size_t offset)
{
    if (!exchange->direct)
        return exchange->reduced + offset;
    return exchange->to + (exchange->kind == SG_NCCL_REDUCE_SCATTER
                               ? offset - (size_t)exchange->first * block_bytes(exchange)
                               : offset);
}

/* Whether all blocks of a buffer, or its only one, can be accessed. */
static bool is_in_place(const struct sg_exchange *exchange, const unsigned char *at, size_t step, bool write)
{
    bool (*const in_place)(uint64_t, uint64_t, bool) = sg_nccl_driver()->captured->in_place;
    const int n = step ? exchange->clique->n : 1;
    bool good = in_place != NULL;
    for (int i = 0; i < n && good; i++)
        good = in_place((uint64_t)(uintptr_t)at + (uint64_t)i * step, block_bytes(exchange), write);
    return good;
}

bool sg_exchange_buffers_last(const struct sg_exchange *exchange)
{
    const bool used = exchange->direct || exchange->by_steps;
    return !used || (is_in_place(exchange, exchange->from, exchange->from_step, false) &&
                     is_in_place(exchange, exchange->to, exchange->to_step, true));
}

void sg_exchange_choose_buffers(struct sg_exchange *exchange, const struct sg_nccl_call *call)
{
    const struct sg_clique *clique = exchange->clique;
    const size_t step = exchange->whole * rg_nccl_type_size(exchange->type);
    bool *const way = sg_exchange_is_small(exchange) ? &exchange->by_steps : &exchange->direct;
    if (clique->here != 1 || !clique->n_far || !is_of_all(exchange->kind))
        return;
    exchange->from = (unsigned char *)(uintptr_t)call->send;
    exchange->to = (unsigned char *)(uintptr_t)call->receive;
    exchange->from_step = exchange->kind == SG_NCCL_REDUCE_SCATTER ? step : 0;
    exchange->to_step = exchange->kind == SG_NCCL_ALL_GATHER ? step : 0;
    *way = true;
    *way = sg_exchange_buffers_last(exchange);
}

/* Copies blocks, which are `from_step` and `to_step` bytes apart; 0: there is one alone. */
static void copy_blocks(const struct sg_exchange *exchange, unsigned char *to, size_t to_step,
                        const unsigned char *from, size_t from_step)
{
    const size_t n = from_step || to_step ? (size_t)exchange->clique->n : 1, size = block_bytes(exchange);
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * to_step, from + i * from_step, size);
}

void sg_exchange_copy_given(const struct sg_exchange *exchange)
{
    copy_blocks(exchange, sg_exchange_place(exchange, exchange->first),
                exchange->from_step ? block_bytes(exchange) : 0, exchange->from, exchange->from_step);
}

void sg_exchange_copy_taken(const struct sg_exchange *exchange)
{
    const size_t block = block_bytes(exchange);
    const unsigned char *from = exchange->kind == SG_NCCL_ALL_GATHER ? exchange->places
                                : exchange->kind == SG_NCCL_REDUCE_SCATTER
                                    ? exchange->reduced + (size_t)exchange->first * block
                                    : exchange->reduced;
    copy_blocks(exchange, exchange->to, exchange->to_step, from, exchange->to_step ? block : 0);
}

/* The block of elements that a rank reduces. */
void sg_exchange_block(const struct sg_exchange *exchange, int rank, size_t *first, size_t *count)
{
    const size_t n = (size_t)exchange->clique->n, r = (size_t)rank;
    switch ((int)exchange->kind) {
    case SG_NCCL_REDUCE:
        *first = 0;
        *count = rank == exchange->peer ? exchange->count : 0;
        return;
    case SG_NCCL_REDUCE_SCATTER:
        *first = r * exchange->count;
        *count = exchange->count;
        return;
    default: /* the first `count % n` blocks have an element more */
        *count = exchange->count / n + (r < exchange->count % n);
        *first = exchange->count / n * r + (r < exchange->count % n ? r : exchange->count % n);
    }
}
