/*
 * rendezvous.c - host memory that the worker asks for when the stream is there.
 *
 * The worker asks part by part; the reader takes note, the sender thread answers (answers.c). With the
 * question for the last part the transfer is out of the registry. A lazy source is started by the first
 * question: parts wait with it until its bytes are there.
 *
 * What can fail: without memory for a part, and for a question that does not fit, or asks for more than is left to ask
 * for, the session ends. Memory that cannot be read is sent as zeros, and latched as CUDA_ERROR_INVALID_VALUE.
 */
#include "client/core/queue.h"
#include "client/core/receiver.h"
#include "client/core/session.h"
#include "client/transfer/answers.h"
#include "client/transfer/registry.h"
#include "client/transfer/transfer.h"

#include <stdlib.h>

struct rendezvous {
    struct rg_transfer transfer;
    struct rg_lazy_source *source; /* or NULL */
    uint64_t asked;                /* bytes in all parts asked for */
};

/* A part of a source whose bytes are not there yet; returns the source if that is to be started. */
static struct rg_lazy_source *wait_for_source(struct rg_lazy_source *source, struct rg_answer_part *part)
{
    struct rg_answer_part **end = &source->waiting;
    while (*end)
        end = &(*end)->next;
    *end = part;
    if (source->started)
        return NULL;
    source->keep(source);
    source->started = true;
    return source;
}

static bool take_question(struct rg_transfer *transfer, const struct rg_notice *notice, size_t bulk_size)
{
    (void)bulk_size;
    struct rg_session *const session = transfer->session;
    struct rendezvous *const rendezvous = (struct rendezvous *)transfer;
    struct rg_lazy_source *const source = rendezvous->source, *start = NULL;
    const uint64_t offset = notice->arg[0], size = notice->arg[1], total = rg_region_size(&transfer->memory);
    /* each part once: the last one, which may be of no bytes, ends it; other parts of none would never do */
    const bool fits = size <= RG_BULK_MAX && offset <= total && size <= total - offset &&
                      size <= total - rendezvous->asked && (size || offset == total);
    struct rg_answer_part *part = fits ? malloc(sizeof *part) : NULL;
    if (!part) {
        pthread_mutex_unlock(&rg_registry_lock);
        return false;
    }
    *part = (struct rg_answer_part){.session = session,
                                    .id = notice->id,
                                    .offset = offset,
                                    .size = size,
                                    .memory = transfer->memory,
                                    .source = source,
                                    .last = offset + size == total,
                                    .revoked = transfer->revoked};
    rendezvous->asked += size;
    const bool last = part->last;
    if (source && source->memory)
        part->memory.address = (uintptr_t)source->memory;
    if (source && !source->memory && size)
        start = wait_for_source(source, part);
    else
        rg_answers_add(part);
    if (last)
        free(rg_registry_take(notice->id));
    pthread_mutex_unlock(&rg_registry_lock);
    if (last)
        rg_receiver_expect_notices(session, -1);
    if (start)
        start->start(start);
    rg_queue_wake_sender(session);
    return true;
}

static void lost(struct rg_transfer *transfer)
{
    struct rg_lazy_source *source = ((struct rendezvous *)transfer)->source;
    if (source)
        source->finish(source);
}

static const struct rg_transfer_kind kind = {
    .notice = RG_NOTICE_RENDEZVOUS, .progress = take_question, .lost = lost, .queued = true, .sends = true};

static uint64_t create(struct rg_session *session, const struct rg_region *memory,
                       struct rg_lazy_source *source)
{
    struct rendezvous *rendezvous = rg_registry_new(session, &kind, sizeof *rendezvous);
    if (!rendezvous)
        return 0;
    rendezvous->transfer.memory = *memory;
    rendezvous->source = source;
    return rg_registry_add(&rendezvous->transfer);
}

uint64_t rg_rendezvous_create(struct rg_session *session, const struct rg_region *memory)
{
    return create(session, memory, NULL);
}

uint64_t rg_rendezvous_create_lazy(struct rg_session *session, size_t size, struct rg_lazy_source *source)
{
    const struct rg_region memory = rg_region_line(RG_REGION_HOST, 0, size);
    return create(session, &memory, source);
}

void rg_lazy_source_ready(struct rg_session *session, struct rg_lazy_source *source, unsigned char *memory)
{
    pthread_mutex_lock(&rg_registry_lock);
    source->memory = memory;
    source->started = true;
    while (source->waiting) {
        struct rg_answer_part *part = source->waiting;
        source->waiting = part->next;
        part->next = NULL;
        part->memory.address = (uintptr_t)memory;
        rg_answers_add(part);
    }
    pthread_mutex_unlock(&rg_registry_lock);
    rg_queue_wake_sender(session);
}
