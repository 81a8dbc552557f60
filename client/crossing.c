/*
 * crossing.c - copies between servers (across.h).
 *
 * A copy is taken apart. The destination's worker pulls the parts in the stream's order; the first question for one has
 * it, and a few behind it, fetched from the source by a stream of its own there. What has landed goes on to the
 * destination from the memory it landed in.
 *
 * Threads: callers; readers, which call `start` and `landed` and must not be held up, so that asking the source is left
 * to one thread, the courier. `lock` guards its queue; it is a leaf.
 */
#include "client/across.h"

#include "client/call.h"
#include "client/transfer.h"
#include "generated/client/operations.h"

#include <stdlib.h>

#define PART   ((size_t)RG_BULK_MAX) /* bytes that are fetched at once */
#define WINDOW 4                     /* parts that are fetched ahead of the one asked for */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct crossing;

/* A part of a copy. It is known to the pull and to the fetch. */
struct part {
    struct rg_supply supply; /* first */
    struct crossing *crossing;
    struct part *next; /* in the courier's queue */
    size_t row, rows, column, width;
    unsigned char *memory;
    atomic_uint known;
    atomic_bool asked;
};

struct crossing {
    struct rg_session *to;
    struct rg_across_side from;
    CUDA_MEMCPY3D box;
    bool is_box;
    uint64_t from_context;
    struct rg_helper *helper; /* of the source; given back with the crossing */
    atomic_size_t references; /* parts that are known to somebody, and the maker */
    size_t n;
    struct part parts[];
};

static struct part *courier_first, **courier_last = &courier_first;
static pthread_cond_t courier_due = PTHREAD_COND_INITIALIZER;
static bool courier_started;

static void crossing_release(struct crossing *crossing)
{
    if (atomic_fetch_sub(&crossing->references, 1) != 1)
        return;
    rg_helper_give(crossing->helper);
    free(crossing);
}

static void part_release(struct part *part)
{
    if (atomic_fetch_sub(&part->known, 1) != 1)
        return;
    free(part->memory);
    part->memory = NULL;
    crossing_release(part->crossing);
}

/* The fetch is over: with the data, or with zeros and an error, so that the stream goes on. */
static void fetched(struct part *part, bool complete)
{
    struct rg_session *to = part->crossing->to;
    if (!complete)
        rg_session_async_error(to, CUDA_ERROR_DEVICE_UNAVAILABLE, RG_OP_rgCopyInLate);
    rg_supply_ready(to, &part->supply, part->memory);
    part_release(part);
}

static void landed(void *user, bool complete)
{
    fetched(user, complete);
}

/* Asks the source for a part; the courier's thread. */
static void fetch(struct part *part)
{
    struct crossing *crossing = part->crossing;
    const size_t size = part->width * part->rows;
    part->memory = calloc(1, size);
    if (!part->memory) {
        rg_session_end(crossing->to, CUDA_ERROR_OUT_OF_MEMORY, "no memory for a copy to %s",
                       crossing->to->server);
        part_release(part);
        return;
    }
    const struct rg_host_area area = {part->memory, part->width, part->width, part->rows, 0, 0};
    const uint64_t id = rg_landing_create_for(rg_owner_session(crossing->from_context), &area, landed, part);
    CUresult status = id ? rg_across_enter(crossing->from_context) : CUDA_ERROR_OUT_OF_MEMORY;
    if (status == CUDA_SUCCESS) {
        if (crossing->is_box)
            status = rg_op_rgBoxOutLate(&crossing->box, crossing->from.array, crossing->helper->stream, id);
        else
            status = rg_op_rgCopyOutLate(
                crossing->from.address + part->row * crossing->from.pitch + part->column,
                crossing->from.pitch, part->width, part->rows, crossing->helper->stream, id);
        rg_across_leave();
    }
    if (status == CUDA_SUCCESS)
        return;
    if (id && !rg_transfer_cancel(id))
        return; /* the session ended meanwhile: `landed` has been called */
    fetched(part, false);
}

static void *courier_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!courier_first)
            pthread_cond_wait(&courier_due, &lock);
        struct part *part = courier_first;
        courier_first = part->next;
        if (!courier_first)
            courier_last = &courier_first;
        pthread_mutex_unlock(&lock);
        fetch(part);
        pthread_mutex_lock(&lock);
    }
    return NULL;
}

static bool start_courier(void)
{
    pthread_mutex_lock(&lock);
    if (!courier_started)
        courier_started = rg_thread_start("rg-courier", courier_main, NULL) == RG_OK;
    const bool started = courier_started;
    pthread_mutex_unlock(&lock);
    return started;
}

/* The destination asks for a part: that and the next ones are fetched. */
static void start(struct rg_supply *supply)
{
    struct part *first = (struct part *)supply;
    struct crossing *crossing = first->crossing;
    pthread_mutex_lock(&lock);
    for (struct part *part = first; part < crossing->parts + crossing->n && part <= first + WINDOW; part++) {
        if (atomic_exchange(&part->asked, true))
            continue;
        part->next = NULL;
        *courier_last = part;
        courier_last = &part->next;
    }
    pthread_cond_signal(&courier_due);
    pthread_mutex_unlock(&lock);
}

static void finish(struct rg_supply *supply)
{
    struct part *part = (struct part *)supply;
    if (!supply->started && !atomic_exchange(&part->asked, true))
        part_release(part); /* it will not be fetched */
    part_release(part);
}

/* Takes the copy apart: rows that fit into a part together, or parts of one row. */
static struct crossing *crossing_create(const struct rg_across_copy *copy)
{
    const size_t rows = copy->box || copy->width >= PART ? 1 : PART / copy->width;
    const size_t per_row = copy->box ? 1 : (copy->width + PART - 1) / PART;
    const size_t n = copy->box ? 1 : (copy->height + rows - 1) / rows * per_row;
    struct crossing *crossing = calloc(1, sizeof *crossing + n * sizeof(struct part));
    if (!crossing)
        return NULL;
    crossing->n = n;
    for (size_t i = 0; i < n; i++) {
        struct part *part = &crossing->parts[i];
        *part = (struct part){.supply = {.start = start, .finish = finish}, .crossing = crossing, .known = 2};
        part->row = i / per_row * rows;
        part->rows = copy->height - part->row < rows ? copy->height - part->row : rows;
        part->column = i % per_row * PART;
        part->width = copy->width - part->column < PART ? copy->width - part->column : PART;
        if (copy->box) {
            part->width = copy->box->WidthInBytes;
            part->rows = copy->box->Height * copy->box->Depth;
        }
    }
    atomic_init(&crossing->references, n + 1);
    return crossing;
}

/* Puts the pull of a part into the stream; the destination's context is current. */
static CUresult put_part(struct part *part, const struct rg_across_copy *copy, CUstream stream)
{
    const uint64_t id = rg_pull_create_supplied(part->crossing->to, part->width * part->rows, &part->supply);
    if (!id)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status = copy->box
                          ? rg_op_rgBoxInLate(copy->box, copy->to.array, stream, id)
                          : rg_op_rgCopyInLate(copy->to.address + part->row * copy->to.pitch + part->column,
                                               copy->to.pitch, part->width, part->rows, stream, id);
    if (status != CUDA_SUCCESS && !rg_transfer_cancel(id))
        return CUDA_SUCCESS; /* it is finished: the session ended */
    return status;
}

static CUresult put_parts(struct crossing *crossing, const struct rg_across_copy *copy, CUstream stream)
{
    CUresult status = CUDA_SUCCESS;
    for (size_t i = 0; i < crossing->n; i++) {
        struct part *part = &crossing->parts[i];
        if (status == CUDA_SUCCESS)
            status = put_part(part, copy, stream);
        if (status != CUDA_SUCCESS)
            finish(&part->supply);
    }
    return status;
}

static CUresult put_copy(const struct rg_across_copy *copy, CUstream stream)
{
    const uint64_t from_context = rg_across_context(copy->from.owner);
    struct rg_helper *helper;
    if (!start_courier())
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status = from_context ? rg_helper_take(from_context, &helper) : CUDA_ERROR_INVALID_CONTEXT;
    if (status != CUDA_SUCCESS)
        return status;
    struct crossing *crossing = crossing_create(copy);
    if (!crossing) {
        rg_helper_give(helper);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    crossing->to = rg_owner_session(copy->to.owner);
    crossing->from = copy->from;
    crossing->from_context = from_context;
    crossing->helper = helper;
    crossing->is_box = copy->box != NULL;
    if (copy->box)
        crossing->box = *copy->box;
    struct rg_detour detour;
    status = rg_detour_begin(&detour, copy->to.owner, stream, false);
    if (status == CUDA_SUCCESS) {
        status = put_parts(crossing, copy, detour.stream);
        status = rg_detour_end(&detour, status);
    } else {
        for (size_t i = 0; i < crossing->n; i++)
            finish(&crossing->parts[i].supply);
    }
    crossing_release(crossing);
    return status;
}

CUresult rg_across_copy(const struct rg_across_copy *copy, CUstream stream, bool synchronous)
{
    CUresult status = CUDA_SUCCESS;
    if (synchronous) { /* it comes behind what both devices were given by their default streams */
        status = rg_across_synchronize(rg_across_context(copy->from.owner), CU_STREAM_LEGACY);
        if (status == CUDA_SUCCESS)
            status = rg_across_synchronize(rg_across_context(copy->to.owner), CU_STREAM_LEGACY);
    }
    if (status == CUDA_SUCCESS)
        status = put_copy(copy, stream);
    if (status == CUDA_SUCCESS && synchronous)
        status = rg_op_cuStreamSynchronize(stream);
    return status;
}
