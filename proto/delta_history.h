/* delta_history.h - between delta.c, delta_encode.c and delta_decode.c: the records that both ends keep. */
#ifndef RG_PROTO_DELTA_HISTORY_H
#define RG_PROTO_DELTA_HISTORY_H

#include "proto/delta.h"
#include "proto/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define RG_DELTA_INDEX_MASK  0xfffu
#define RG_DELTA_WORD        8u
#define RG_DELTA_COUNT_SHORT 63u        /* of a token; more are behind it */
#define RG_DELTA_NOWHERE     UINT64_MAX /* no record has this number */

/*
 * Records have numbers, from 0. `bytes` is filled from its beginning, batch by batch; one that does not fit behind the others
 * begins anew at 0. All but the indices is the same at both ends.
 */
struct rg_delta {
    uint64_t next;   /* the number of the record to come */
    uint64_t oldest; /* the first whose bytes are still there */
    uint64_t follow; /* the record behind the one that was named last */
    size_t used;     /* where the next batch begins */
    uint32_t at[RG_DELTA_RECORDS];
    /* the encoder's: the hash of each record; and numbers, plus one, by hash of a whole record and of its kind */
    uint32_t hash[RG_DELTA_RECORDS];
    uint64_t same[RG_DELTA_INDEX_MASK + 1], similar[RG_DELTA_INDEX_MASK + 1];
    _Alignas(16) unsigned char bytes[RG_DELTA_HISTORY];
};

/** Makes room for a batch of so many bytes, at most RG_MESSAGE_MAX; forgets the records that are there. */
unsigned char *rg_delta_make_room(struct rg_delta *delta, size_t size);

static inline size_t rg_delta_slot(uint64_t number)
{
    return number & (RG_DELTA_RECORDS - 1);
}

static inline bool rg_delta_has(const struct rg_delta *delta, uint64_t number)
{
    return number >= delta->oldest && number < delta->next && delta->next - number < RG_DELTA_RECORDS;
}

static inline const unsigned char *rg_delta_record(const struct rg_delta *delta, uint64_t number)
{
    return delta->bytes + delta->at[rg_delta_slot(number)];
}

static inline uint32_t rg_delta_size_at(const unsigned char *record)
{
    uint32_t size;
    memcpy(&size, record + offsetof(struct rg_record, size), sizeof size);
    return size;
}

/* The next record, whose bytes are at `record`, is complete. */
static inline void rg_delta_append(struct rg_delta *delta, const unsigned char *record)
{
    delta->at[rg_delta_slot(delta->next++)] = (uint32_t)(record - delta->bytes);
}

static inline uint64_t rg_delta_word_at(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

#endif
