/* lent.c - see lent.h. */
#include "transport/mem/lent.h"

#include "common/base/safe_copy.h"

#include <fcntl.h>
#include <string.h>

void rg_mem_loans_init(struct rg_mem_loans *loans)
{
    pthread_mutex_init(&loans->lock, NULL);
}

void rg_mem_loans_fini(struct rg_mem_loans *loans)
{
    pthread_mutex_destroy(&loans->lock);
}

/* --- what is lent --- */

enum rg_status rg_mem_loans_register(struct rg_mem_loans *loans, void *base, size_t size)
{
    enum rg_status status = RG_ERR_NO_MEMORY;
    pthread_mutex_lock(&loans->lock);
    for (int i = 0; i < RG_MEM_REGIONS && status != RG_OK; i++)
        if (!loans->regions[i].base) {
            loans->regions[i].base = base;
            loans->regions[i].size = size;
            status = RG_OK;
        }
    pthread_mutex_unlock(&loans->lock);
    return status;
}

void rg_mem_loans_unregister(struct rg_mem_loans *loans, void *base)
{
    pthread_mutex_lock(&loans->lock);
    for (int i = 0; i < RG_MEM_REGIONS; i++) {
        if (loans->regions[i].base != base)
            continue;
        for (int k = 0; k < RG_MEM_CHUNKS; k++) {
            struct rg_mem_loan *loan = &loans->loans[k];
            if (loan->memory >= loans->regions[i].base &&
                loan->memory < loans->regions[i].base + loans->regions[i].size)
                *loan = (struct rg_mem_loan){.state = RG_MEM_FREE};
        }
        loans->regions[i].base = NULL;
        break;
    }
    pthread_mutex_unlock(&loans->lock);
}

/* The lock is held. */
static bool is_registered(const struct rg_mem_loans *loans, const unsigned char *memory, size_t size)
{
    for (int i = 0; i < RG_MEM_REGIONS; i++) {
        const uintptr_t offset = (uintptr_t)memory - (uintptr_t)loans->regions[i].base;
        if (loans->regions[i].base && offset < loans->regions[i].size &&
            size <= loans->regions[i].size - offset)
            return true;
    }
    return false;
}

enum rg_status rg_mem_loans_register_device(struct rg_mem_loans *loans, void *base, size_t size, int fd)
{
    if (fd >= 0 && fcntl(fd, F_GETFD) < 0)
        return RG_ERR_FAULT;
    return rg_mem_loans_register(loans, base, size);
}

bool rg_mem_loans_places(struct rg_mem_loans *loans, const struct rg_parcel *parcel, const void *memory,
                         size_t size)
{
    pthread_mutex_lock(&loans->lock);
    const bool good = parcel->n_pieces == 0 && is_registered(loans, memory, size);
    pthread_mutex_unlock(&loans->lock);
    return good;
}

enum rg_status rg_mem_loans_lend(struct rg_mem_loans *loans, uint64_t tag, uint64_t base, void *memory,
                                 size_t size)
{
    const int from = tag ? RG_MEM_CHUNKS : 0, until = tag ? RG_MEM_LOANS : RG_MEM_CHUNKS;
    pthread_mutex_lock(&loans->lock);
    enum rg_status status = loans->closed                                 ? RG_ERR_LOST
                            : !tag && !is_registered(loans, memory, size) ? RG_ERR_UNSUPPORTED
                                                                          : RG_ERR_TIMEOUT;
    for (int i = from; i < until && status == RG_ERR_TIMEOUT; i++)
        if (loans->loans[i].state == RG_MEM_FREE) {
            loans->loans[i] = (struct rg_mem_loan){
                .state = RG_MEM_AWAY, .tag = tag, .base = base, .memory = memory, .size = size};
            status = RG_OK;
        }
    pthread_mutex_unlock(&loans->lock);
    return status;
}

void rg_mem_loans_unlend(struct rg_mem_loans *loans, uint64_t tag, void *memory)
{
    pthread_mutex_lock(&loans->lock);
    for (int i = RG_MEM_CHUNKS; i < RG_MEM_LOANS; i++)
        if (loans->loans[i].state != RG_MEM_FREE && loans->loans[i].tag == tag &&
            loans->loans[i].memory == memory) {
            loans->loans[i].state = RG_MEM_FREE;
            break;
        }
    pthread_mutex_unlock(&loans->lock);
}

bool rg_mem_loans_have_room(struct rg_mem_loans *loans, size_t size)
{
    size_t room = 0;
    pthread_mutex_lock(&loans->lock);
    for (int i = 0; i < RG_MEM_CHUNKS && !loans->closed; i++)
        room += loans->loans[i].state == RG_MEM_AWAY ? loans->loans[i].size : 0;
    pthread_mutex_unlock(&loans->lock);
    return room >= size;
}

void rg_mem_loans_close(struct rg_mem_loans *loans)
{
    pthread_mutex_lock(&loans->lock);
    loans->closed = true;
    pthread_mutex_unlock(&loans->lock);
}

/* --- data --- */

/* Finds where the parcel's bulk data goes: parcel->pieces; false: not enough is lent. The lock is held. */
static bool route(struct rg_mem_loans *loans, const struct rg_outgoing *message, struct rg_parcel *parcel)
{
    size_t left = parcel->bulk_size;
    for (int i = RG_MEM_CHUNKS; i < RG_MEM_LOANS && message->tag; i++) {
        const struct rg_mem_loan *loan = &loans->loans[i];
        if (loan->state != RG_MEM_AWAY || loan->tag != message->tag || message->base < loan->base ||
            message->base - loan->base > loan->size || left > loan->size - (message->base - loan->base))
            continue;
        parcel->pieces[parcel->n_pieces++] =
            (struct rg_parcel_piece){loan->memory + (message->base - loan->base), left, i};
        return true;
    }
    for (int i = 0; i < RG_MEM_CHUNKS && left > 0 && !message->tag; i++) {
        const struct rg_mem_loan *loan = &loans->loans[i];
        if (loan->state != RG_MEM_AWAY)
            continue;
        const size_t size = loan->size < left ? loan->size : left;
        parcel->pieces[parcel->n_pieces++] = (struct rg_parcel_piece){loan->memory, size, i};
        left -= size;
    }
    return left == 0;
}

void rg_mem_loans_place(struct rg_mem_loans *loans, const struct rg_outgoing *message,
                        struct rg_parcel *parcel)
{
    const unsigned char *from = parcel->bulk;
    if (!parcel->bulk_size)
        return;
    pthread_mutex_lock(&loans->lock);
    if (loans->closed || !route(loans, message, parcel))
        parcel->n_pieces = 0;
    for (unsigned i = 0; i < parcel->n_pieces; i++) {
        const struct rg_parcel_piece *piece = &parcel->pieces[i];
        memcpy(piece->memory, from, piece->size);
        from += piece->size;
        if (!message->tag)
            loans->loans[piece->loan].state = RG_MEM_FILLED;
    }
    pthread_mutex_unlock(&loans->lock);
}

/* `size` bytes of the piece at hand are dealt with. The lock is held. */
static void advance(struct rg_mem_loans *loans, struct rg_parcel *parcel, size_t size, bool again)
{
    struct rg_parcel_piece *piece = &parcel->pieces[parcel->piece];
    parcel->bulk_taken += size;
    piece->memory += size;
    piece->size -= size;
    if (piece->size > 0)
        return;
    struct rg_mem_loan *loan = &loans->loans[piece->loan];
    if (loan->state == RG_MEM_FILLED)
        loan->state = again ? RG_MEM_AWAY : RG_MEM_FREE;
    parcel->piece++;
}

void rg_mem_loans_take(struct rg_mem_loans *loans, struct rg_parcel *parcel, size_t most, void **memory,
                       size_t *size)
{
    *size = 0;
    if (parcel->piece >= parcel->n_pieces)
        return;
    pthread_mutex_lock(&loans->lock);
    const struct rg_parcel_piece *piece = &parcel->pieces[parcel->piece];
    if (piece->loan < RG_MEM_CHUNKS && piece->size <= most) {
        *memory = piece->memory;
        *size = piece->size;
        loans->placed += *size;
        advance(loans, parcel, *size, false);
    }
    pthread_mutex_unlock(&loans->lock);
}

enum rg_status rg_mem_loans_receive(struct rg_mem_loans *loans, struct rg_parcel *parcel, unsigned char *to,
                                    size_t size)
{
    bool fault = false;
    pthread_mutex_lock(&loans->lock);
    while (size > 0 && parcel->piece < parcel->n_pieces) {
        const struct rg_parcel_piece *piece = &parcel->pieces[parcel->piece];
        const size_t n = piece->size < size ? piece->size : size;
        if (to && to != piece->memory) {
            fault |= !rg_safe_copy_to(to, piece->memory, n);
            loans->copied += n;
        } else if (to) {
            loans->placed += n;
        }
        to = to ? to + n : NULL;
        size -= n;
        advance(loans, parcel, n, true);
    }
    loans->copied += to ? size : 0;
    pthread_mutex_unlock(&loans->lock);
    if (size > 0)
        fault |= rg_parcel_take_bulk(parcel, to, size) != RG_OK;
    return fault ? RG_ERR_FAULT : RG_OK;
}
