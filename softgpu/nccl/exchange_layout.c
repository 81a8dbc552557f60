/*
 * exchange_layout.c - which data of an operation is whose, and where it belongs: how many ranks give something, how much, into which place,
 * and which block each reduces. Arithmetic on what was called alone; any thread.
 */
#include "softgpu/nccl/exchange.h"

#include "softgpu/nccl/driver.h"

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
    return !exchange->direct || (is_in_place(exchange, exchange->from, exchange->from_step, false) &&
                                 is_in_place(exchange, exchange->to, exchange->to_step, true));
}

bool sg_exchange_is_direct(struct sg_exchange *exchange, const struct sg_nccl_call *call)
{
    const struct sg_clique *clique = exchange->clique;
    const size_t step = exchange->whole * rg_nccl_type_size(exchange->type);
    if (clique->here != 1 || !clique->n_far || !is_of_all(exchange->kind) || sg_exchange_is_small(exchange))
        return false;
    exchange->from = (unsigned char *)(uintptr_t)call->send;
    exchange->to = (unsigned char *)(uintptr_t)call->receive;
    exchange->from_step = exchange->kind == SG_NCCL_REDUCE_SCATTER ? step : 0;
    exchange->to_step = exchange->kind == SG_NCCL_ALL_GATHER ? step : 0;
    exchange->direct = true;
    exchange->direct = sg_exchange_buffers_last(exchange);
    return exchange->direct;
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
