/* answers.c - see answers.h. A part stays in the queue until its last piece has been sent. */
#include "client/transfer/answers.h"

#include "client/core/queue.h"
#include "client/core/session.h"
#include "client/transfer/chunk.h"
#include "client/transfer/registry.h"
#include "client/transfer/transfer.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/uncancelled.h"

#include <stdlib.h>

enum { ROWS = 512 }; /* of a piece, at most */

static struct rg_answer_part *first, **end = &first;

void rg_answers_add(struct rg_answer_part *part)
{
    *end = part;
    end = &part->next;
}

static bool meets(const struct rg_answer_part *part, uint64_t start, uint64_t size)
{
    return !part->revoked && rg_region_meets(&part->memory, start, size);
}

bool rg_answers_meet(uint64_t start, uint64_t size)
{
    const struct rg_answer_part *part = first;
    while (part && !meets(part, start, size))
        part = part->next;
    return part != NULL;
}

void rg_answers_wait_transfer(uint64_t id)
{
    RG_UNCANCELLED;
    for (const struct rg_answer_part *part = first; part;) {
        const bool of_it = part->id == id && !part->release;
        if (of_it)
            pthread_cond_wait(&rg_registry_idle, &rg_registry_lock);
        part = of_it ? first : part->next;
    }
}

void rg_answers_wait_memory(uint64_t start, uint64_t size)
{
    RG_UNCANCELLED;
    while (rg_answers_meet(start, size))
        pthread_cond_wait(&rg_registry_idle, &rg_registry_lock);
}

/* Rows of the next `size` bytes, as far as `most` go; *covered: the bytes. */
static int rows_of(const struct rg_answer_part *part, size_t size, struct iovec *rows, int most,
                   size_t *covered)
{
    static const unsigned char zeros[65536];
    if (!part->revoked)
        return rg_region_iovec(&part->memory, part->offset, size, rows, most, covered);
    int n = 0;
    for (*covered = 0; *covered < size && n < most; n++) {
        const size_t left = size - *covered;
        rows[n] = (struct iovec){(void *)zeros, left < sizeof zeros ? left : sizeof zeros};
        *covered += rows[n].iov_len;
    }
    return n;
}

static void send_piece(struct rg_session *session, struct rg_answer_part *part)
{
    struct iovec few[8]; /* the stack may be little */
    RG_CLEANUP_FREE struct iovec *many = malloc(ROWS * sizeof *many);
    struct iovec *rows = many ? many : few;
    size_t covered, piece = rg_chunk(session);
    piece = part->size < piece ? part->size : piece;
    const int n = rows_of(part, piece, rows, many ? ROWS : (int)(sizeof few / sizeof *few), &covered);
    struct rg_answer answer = {.type = RG_ANSWER_DATA, .id = part->id, .arg = {part->offset, covered}};
    const uint64_t began = rg_now_ns();
    if (rg_queue_answer(session, &answer, rows, n, part->source ? NULL : &rg_lease_until_reply) ==
        RG_ERR_FAULT)
        rg_session_async_error(session, CUDA_ERROR_INVALID_VALUE, RG_OP_rgCopyInDeferred);
    rg_chunk_size_sent(&session->chunk, covered, rg_now_ns() - began);
    part->offset += covered;
    part->size -= covered;
}

/* Its session has one sender, which this thread is. */
static void remove_part(struct rg_answer_part *part)
{
    pthread_mutex_lock(&rg_registry_lock);
    struct rg_answer_part **at = &first;
    while (*at != part)
        at = &(*at)->next;
    *at = part->next;
    if (!part->next)
        end = at;
    pthread_cond_broadcast(&rg_registry_idle);
    pthread_mutex_unlock(&rg_registry_lock);
    free(part);
}

bool rg_answers_send_next(struct rg_session *session)
{
    pthread_mutex_lock(&rg_registry_lock);
    struct rg_answer_part *part = first;
    while (part && part->session != session)
        part = part->next;
    pthread_mutex_unlock(&rg_registry_lock);
    if (!part)
        return false;
    if (part->release) {
        struct rg_answer done = {.type = RG_ANSWER_HOST_DONE, .id = part->id};
        rg_queue_answer(session, &done, NULL, 0, NULL);
    }
    if (part->size)
        send_piece(session, part);
    if (part->size)
        return true;
    if (part->last && part->source)
        part->source->finish(part->source);
    remove_part(part);
    return true;
}
