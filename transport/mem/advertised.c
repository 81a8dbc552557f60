/*
 * advertised.c - memory that one end of a connection in this process has advertised, and writing into it (advertised.h).
 *
 * The sender finds where its bulk data goes and copies it there, under the receiver's lock; the parcel notes the places, from which the
 * receiver takes the data, or copies it if it belongs elsewhere. What finds no place stays with the parcel.
 */
#include "transport/mem/advertised.h"

#include "common/base/safe_copy.h"
#include "common/sync/scoped_lock.h"

#include <fcntl.h>
#include <string.h>

void rg_mem_adverts_init(struct rg_mem_adverts *adverts)
{
    pthread_mutex_init(&adverts->lock, NULL);
}

void rg_mem_adverts_fini(struct rg_mem_adverts *adverts)
{
    pthread_mutex_destroy(&adverts->lock);
}

/* --- what is advertised --- */

enum rg_status rg_mem_adverts_register(struct rg_mem_adverts *adverts, void *base, size_t size)
{
    enum rg_status status = RG_ERR_NO_MEMORY;
    RG_SCOPED_LOCK(&adverts->lock);
    for (int i = 0; i < RG_MEM_REGIONS && status != RG_OK; i++)
        if (!adverts->regions[i].base) {
            adverts->regions[i].base = base;
            adverts->regions[i].size = size;
            status = RG_OK;
        }
    return status;
}

void rg_mem_adverts_unregister(struct rg_mem_adverts *adverts, void *base)
{
    RG_SCOPED_LOCK(&adverts->lock);
    for (int i = 0; i < RG_MEM_REGIONS; i++) {
        if (adverts->regions[i].base != base)
            continue;
        for (int k = 0; k < RG_MEM_CHUNKS; k++) {
            struct rg_mem_advert *advert = &adverts->adverts[k];
            if (advert->memory >= adverts->regions[i].base &&
                advert->memory < adverts->regions[i].base + adverts->regions[i].size)
                *advert = (struct rg_mem_advert){.state = RG_MEM_FREE};
        }
        adverts->regions[i].base = NULL;
        break;
    }
}

/* The lock is held. */
static bool is_registered(const struct rg_mem_adverts *adverts, const unsigned char *memory, size_t size)
{
    for (int i = 0; i < RG_MEM_REGIONS; i++) {
        const uintptr_t offset = (uintptr_t)memory - (uintptr_t)adverts->regions[i].base;
        if (adverts->regions[i].base && offset < adverts->regions[i].size &&
            size <= adverts->regions[i].size - offset)
            return true;
    }
    return false;
}

enum rg_status rg_mem_adverts_register_device(struct rg_mem_adverts *adverts, void *base, size_t size, int fd)
{
    if (fd >= 0 && fcntl(fd, F_GETFD) < 0)
        return RG_ERR_FAULT;
    return rg_mem_adverts_register(adverts, base, size);
}

bool rg_mem_adverts_write_directly(struct rg_mem_adverts *adverts, const struct rg_parcel *parcel,
                                   const void *memory, size_t size)
{
    RG_SCOPED_LOCK(&adverts->lock);
    return parcel->n_pieces == 0 && is_registered(adverts, memory, size);
}

enum rg_status rg_mem_adverts_add(struct rg_mem_adverts *adverts, uint64_t tag, uint64_t base, void *memory,
                                  size_t size)
{
    const int from = tag ? RG_MEM_CHUNKS : 0, until = tag ? RG_MEM_ADVERTS : RG_MEM_CHUNKS;
    RG_SCOPED_LOCK(&adverts->lock);
    enum rg_status status = adverts->closed                                 ? RG_ERR_LOST
                            : !tag && !is_registered(adverts, memory, size) ? RG_ERR_UNSUPPORTED
                                                                            : RG_ERR_TIMEOUT;
    for (int i = from; i < until && status == RG_ERR_TIMEOUT; i++)
        if (adverts->adverts[i].state == RG_MEM_FREE) {
            adverts->adverts[i] = (struct rg_mem_advert){
                .state = RG_MEM_AWAY, .tag = tag, .base = base, .memory = memory, .size = size};
            status = RG_OK;
        }
    return status;
}

void rg_mem_adverts_withdraw(struct rg_mem_adverts *adverts, uint64_t tag, void *memory)
{
    RG_SCOPED_LOCK(&adverts->lock);
    for (int i = RG_MEM_CHUNKS; i < RG_MEM_ADVERTS; i++)
        if (adverts->adverts[i].state != RG_MEM_FREE && adverts->adverts[i].tag == tag &&
            adverts->adverts[i].memory == memory) {
            adverts->adverts[i].state = RG_MEM_FREE;
            break;
        }
}

bool rg_mem_adverts_suffice(struct rg_mem_adverts *adverts, size_t size)
{
    size_t room = 0;
    RG_SCOPED_LOCK(&adverts->lock);
    for (int i = 0; i < RG_MEM_CHUNKS && !adverts->closed; i++)
        room += adverts->adverts[i].state == RG_MEM_AWAY ? adverts->adverts[i].size : 0;
    return room >= size;
}

void rg_mem_adverts_close(struct rg_mem_adverts *adverts)
{
    RG_SCOPED_LOCK(&adverts->lock);
    adverts->closed = true;
}

/* --- data --- */

/*
 * Finds where the parcel's bulk data goes: parcel->pieces; false: not enough is advertised. The lock is held.
 */
static bool route(struct rg_mem_adverts *adverts, const struct rg_send *message, struct rg_parcel *parcel)
{
    size_t left = parcel->bulk_size;
    for (int i = RG_MEM_CHUNKS; i < RG_MEM_ADVERTS && message->tag; i++) {
        const struct rg_mem_advert *advert = &adverts->adverts[i];
        if (advert->state != RG_MEM_AWAY || advert->tag != message->tag || message->base < advert->base ||
            message->base - advert->base > advert->size ||
            left > advert->size - (message->base - advert->base))
            continue;
        parcel->pieces[parcel->n_pieces++] =
            (struct rg_parcel_piece){advert->memory + (message->base - advert->base), left, i};
        return true;
    }
    for (int i = 0; i < RG_MEM_CHUNKS && left > 0 && !message->tag; i++) {
        const struct rg_mem_advert *advert = &adverts->adverts[i];
        if (advert->state != RG_MEM_AWAY)
            continue;
        const size_t size = advert->size < left ? advert->size : left;
        parcel->pieces[parcel->n_pieces++] = (struct rg_parcel_piece){advert->memory, size, i};
        left -= size;
    }
    return left == 0;
}

void rg_mem_adverts_write(struct rg_mem_adverts *adverts, const struct rg_send *message,
                          struct rg_parcel *parcel)
{
    const unsigned char *from = parcel->bulk;
    if (!parcel->bulk_size)
        return;
    RG_SCOPED_LOCK(&adverts->lock);
    if (adverts->closed || !route(adverts, message, parcel))
        parcel->n_pieces = 0;
    for (unsigned i = 0; i < parcel->n_pieces; i++) {
        const struct rg_parcel_piece *piece = &parcel->pieces[i];
        memcpy(piece->memory, from, piece->size);
        from += piece->size;
        if (!message->tag)
            adverts->adverts[piece->advert].state = RG_MEM_FILLED;
    }
}

/* `size` bytes of the piece at hand are dealt with. The lock is held. */
static void advance(struct rg_mem_adverts *adverts, struct rg_parcel *parcel, size_t size, bool again)
{
    struct rg_parcel_piece *piece = &parcel->pieces[parcel->piece];
    parcel->bulk_taken += size;
    piece->memory += size;
    piece->size -= size;
    if (piece->size > 0)
        return;
    struct rg_mem_advert *advert = &adverts->adverts[piece->advert];
    if (advert->state == RG_MEM_FILLED)
        advert->state = again ? RG_MEM_AWAY : RG_MEM_FREE;
    parcel->piece++;
}

void rg_mem_adverts_take(struct rg_mem_adverts *adverts, struct rg_parcel *parcel, size_t most, void **memory,
                         size_t *size)
{
    *size = 0;
    if (parcel->piece >= parcel->n_pieces)
        return;
    RG_SCOPED_LOCK(&adverts->lock);
    const struct rg_parcel_piece *piece = &parcel->pieces[parcel->piece];
    if (piece->advert < RG_MEM_CHUNKS && piece->size <= most) {
        *memory = piece->memory;
        *size = piece->size;
        adverts->placed += *size;
        advance(adverts, parcel, *size, false);
    }
}

enum rg_status rg_mem_adverts_receive(struct rg_mem_adverts *adverts, struct rg_parcel *parcel,
                                      unsigned char *to, size_t size)
{
    bool fault = false;
    pthread_mutex_lock(&adverts->lock);
    while (size > 0 && parcel->piece < parcel->n_pieces) {
        const struct rg_parcel_piece *piece = &parcel->pieces[parcel->piece];
        const size_t n = piece->size < size ? piece->size : size;
        if (to && to != piece->memory) {
            fault |= !rg_safe_copy_to(to, piece->memory, n);
            adverts->copied += n;
        } else if (to) {
            adverts->placed += n;
        }
        to = to ? to + n : NULL;
        size -= n;
        advance(adverts, parcel, n, true);
    }
    adverts->copied += to ? size : 0;
    pthread_mutex_unlock(&adverts->lock);
    if (size > 0)
        fault |= rg_parcel_take_bulk(parcel, to, size) != RG_OK;
    return fault ? RG_ERR_FAULT : RG_OK;
}
