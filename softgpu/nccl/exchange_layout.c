/*
 * exchange_layout.c - which data of an operation is whose, and where it belongs: how many ranks give something, how much, into which place,
 * and which block each reduces. Arithmetic on what was called alone; any thread.
 */
#include "softgpu/nccl/exchange.h"

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
