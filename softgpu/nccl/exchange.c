/*
 * exchange.c - operations of all ranks: the memory of one, the words by which streams wait for it, and which one a call belongs to (whose
 * data is where: exchange_layout.c). What an operation goes through is said in exchange.h.
 *
 * Without memory the call fails; a rank that calls something else than the others fails the clique. Threads: callers', streams' and
 * those of links, under the clique's lock.
 */
#include "softgpu/nccl/exchange.h"

#include "common/base/align.h"
#include "common/base/clock.h"
#include "softgpu/nccl/driver.h"
#include "softgpu/nccl/far.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RELEASED 0x7fffffffu /* of a word: more than any number of ranks */
#define ALIGNED  64u
#define WORDS    (SG_EXCHANGE_WORDS * ALIGNED) /* bytes in front: one word to a cache line */

uint32_t *sg_exchange_word(const struct sg_exchange *exchange, enum sg_exchange_word which)
{
    return (uint32_t *)(void *)(exchange->control + (size_t)which * ALIGNED);
}

/* A stream of the software device that waits for the word looks at it at once, instead of a while later. */
static void wake(uint32_t *changed)
{
    (void)syscall(SYS_futex, changed, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static __thread const struct sg_exchange
    *own_exchange; /* whose only stream runs the function that this thread is in */

static bool is_message(enum sg_nccl_kind kind)
{
    return kind == SG_NCCL_SEND || kind == SG_NCCL_RECEIVE;
}

/* --- memory --------------------------------------------------------------------------------------------- */

/* An operation of which nothing is known yet, with its words; NULL: there is no memory. */
static struct sg_exchange *make_blank(struct sg_clique *clique)
{
    struct sg_exchange *exchange = clique->spare;
    void *control = exchange ? exchange->control : NULL;
    if (exchange) {
        clique->spare = exchange->next;
    } else if ((exchange = malloc(sizeof *exchange)) == NULL ||
               sg_nccl_driver()->p_cuMemHostAlloc(&control,
                                                  WORDS + rg_align_up((size_t)clique->n * 8, ALIGNED),
                                                  CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) {
        free(exchange);
        return NULL;
    }
    memset(control, 0, WORDS);
    *exchange = (struct sg_exchange){
        .clique = clique, .control = control, .scalars = (unsigned char *)control + WORDS};
    return exchange;
}

/*
 * The operation whose memory this one takes over when the rank's stream has got to it; NULL: it has its own. The other one's steps are
 * all before it in the same stream. What others give to a small one may come before that.
 */
static struct sg_exchange *predecessor(const struct sg_exchange *exchange, size_t size)
{
    const struct sg_clique *clique = exchange->clique;
    if (exchange->source >= 0 || clique->here != 1 || exchange->number < SG_NCCL_WINDOW ||
        size < SG_NCCL_SHARED || sg_exchange_is_small(exchange))
        return NULL;
    struct sg_exchange *before = sg_exchange_find(clique, -1, 0, exchange->number - SG_NCCL_WINDOW);
    return before && before->stream == exchange->stream && before->enqueued && !before->has_successor &&
                   before->data && before->data->size >= size
               ? before
               : NULL;
}

/* Gets memory for the data, as far as that does not stay in the call's buffers; false: there is none. */
static bool get_memory(struct sg_exchange *exchange, const struct sg_nccl_call *call)
{
    struct sg_clique *clique = exchange->clique;
    const size_t own = sg_exchange_given_bytes(exchange);
    size_t given = rg_align_up(own * (size_t)sg_exchange_givers(exchange), ALIGNED),
           reduced = sg_exchange_reduces(exchange->kind) ? rg_align_up(own, ALIGNED) : 0;
    sg_exchange_choose_buffers(exchange, call);
    if (exchange->direct) {
        given = rg_align_up(sg_exchange_direct_bytes(exchange), ALIGNED);
        reduced = 0;
        if (!given)
            return true;
    }
    struct sg_exchange *before = predecessor(exchange, given + reduced);
    if (before) {
        before->has_successor = true;
        before->data->users++;
        exchange->data = before->data;
        exchange->before = before;
        sg_exchange_finish(before);
    } else {
        exchange->data = sg_buffer_get(&clique->buffers, given + reduced);
    }
    if (!exchange->data)
        return false;
    exchange->places = exchange->data->memory;
    exchange->reduced = exchange->places + given;
    return true;
}

void sg_exchange_took_over(struct sg_exchange *exchange)
{
    struct sg_exchange *before = exchange->before;
    exchange->before = NULL;
    if (!before)
        return;
    before->has_successor = false;
    sg_exchange_finish(before);
}

/* Its data is neither to be sent any more, nor still to come. */
static bool is_exchanged(const struct sg_exchange *exchange)
{
    return exchange->n_arrived == exchange->participants && !exchange->incoming &&
           !sg_far_is_waited_for(exchange);
}

void sg_exchange_finish(struct sg_exchange *exchange)
{
    struct sg_clique *clique = exchange->clique;
    /* a successor goes on when nobody but the stream needs the memory, the stream when nobody needs its buffers */
    if ((exchange->has_successor || exchange->direct) && !exchange->is_free && is_exchanged(exchange)) {
        exchange->is_free = true;
        sg_exchange_count(exchange, SG_WORD_FREE);
    }
    if (exchange->has_successor)
        return;
    if (exchange->n_departed < exchange->members || exchange->n_arrived < exchange->participants ||
        exchange->outgoing || exchange->incoming)
        return;
    struct sg_exchange **at = &clique->exchanges;
    while (*at != exchange)
        at = &(*at)->next;
    *at = exchange->next;
    if (!*at)
        clique->exchanges_end = at;
    sg_buffer_put(&clique->buffers, exchange->data);
    exchange->next = clique->spare;
    clique->spare = exchange;
}

void sg_exchange_fini(struct sg_clique *clique)
{
    for (struct sg_exchange *exchange = clique->exchanges; exchange; exchange = exchange->next)
        sg_buffer_put(&clique->buffers, exchange->data);
    struct sg_exchange **lists[] = {&clique->exchanges, &clique->spare};
    for (int i = 0; i < 2; i++)
        while (*lists[i]) {
            struct sg_exchange *exchange = *lists[i];
            *lists[i] = exchange->next;
            (void)sg_nccl_driver()->p_cuMemFreeHost(exchange->control);
            free(exchange);
        }
    sg_buffers_fini(&clique->buffers);
}

/* --- what has come ---------------------------------------------------------------------------------------- */

void sg_exchange_arrives(struct sg_exchange *exchange, int rank)
{
    if (exchange->arrived[rank])
        return;
    exchange->arrived[rank] = true;
    exchange->n_arrived++;
    if (!exchange->waited_since_ns)
        exchange->waited_since_ns = rg_now_ns();
    if (exchange->n_arrived == exchange->participants)
        exchange->all_since_ns = rg_now_ns();
}

void sg_exchange_count(struct sg_exchange *exchange, enum sg_exchange_word which)
{
    uint32_t *word = sg_exchange_word(exchange, which);
    if (exchange->clique->error != ncclSuccess)
        return;
    if (__atomic_add_fetch(word, 1, __ATOMIC_RELEASE) >= (uint32_t)sg_exchange_awaited(exchange, which) &&
        own_exchange != exchange)
        wake(word);
}

void sg_exchange_enter_stream(const struct sg_exchange *exchange)
{
    own_exchange = exchange && exchange->clique->here == 1 ? exchange : NULL;
}

static bool is_in_use(const struct sg_exchange *exchange)
{
    return exchange->direct && (exchange->incoming || exchange->sending);
}

static void release(const struct sg_exchange *exchange)
{
    for (int which = 0; which < SG_EXCHANGE_WORDS; which++) {
        uint32_t *word = sg_exchange_word(exchange, (enum sg_exchange_word)which);
        __atomic_store_n(word, RELEASED, __ATOMIC_RELEASE);
        wake(word);
    }
}

void sg_exchange_release(struct sg_clique *clique)
{
    for (const struct sg_exchange *exchange = clique->exchanges; exchange; exchange = exchange->next)
        if (!is_in_use(exchange))
            release(exchange);
}

void sg_exchange_unused(struct sg_exchange *exchange)
{
    if (exchange->clique->error != ncclSuccess && exchange->direct && !is_in_use(exchange))
        release(exchange);
}

bool sg_exchange_is_stuck(const struct sg_clique *clique)
{
    bool stuck = false;
    for (const struct sg_exchange *at = clique->exchanges; at; at = at->next)
        stuck = stuck || is_in_use(at);
    return stuck && clique->error != ncclSuccess;
}

/* --- finding the operation that a call belongs to ------------------------------------------------------- */

static int describe(const struct sg_exchange *exchange, char *text, size_t size)
{
    return exchange->source >= 0
               ? snprintf(text, size, "message %llu from rank %d to rank %d (%zu elements of type %d)",
                          (unsigned long long)exchange->number, exchange->source, exchange->peer,
                          exchange->whole, exchange->type)
               : snprintf(text, size, "%s, collective %llu (%zu elements of type %d)",
                          sg_nccl_kind_name(exchange->kind), (unsigned long long)exchange->number,
                          exchange->whole, exchange->type);
}

bool sg_exchange_overdue(const struct sg_clique *clique, uint64_t since_ns, char *text, size_t size)
{
    for (const struct sg_exchange *exchange = clique->exchanges; exchange; exchange = exchange->next) {
        if (!exchange->waited_since_ns || exchange->waited_since_ns >= since_ns)
            continue;
        int length = 0;
        char who[160] = "";
        for (int rank = 0; rank < clique->n && (size_t)length < sizeof who; rank++) {
            const bool takes_part =
                exchange->source < 0 || rank == exchange->source || rank == exchange->peer;
            if (takes_part && !exchange->arrived[rank])
                length +=
                    snprintf(who + length, sizeof who - (size_t)length, "%s%d", length ? ", " : "", rank);
        }
        const bool stuck = !length && exchange->all_since_ns < since_ns && sg_far_is_waited_for(exchange);
        if (!length && !stuck)
            continue; /* all came; the device is slow to take it */
        length = describe(exchange, text, size);
        if ((size_t)length < size)
            snprintf(text + length, size - (size_t)length,
                     stuck ? ": all ranks came, but not their data" : ": rank %s did not come", who);
        return true;
    }
    return false;
}

void sg_exchange_buffers_gone(const struct sg_exchange *exchange)
{
    char text[200];
    describe(exchange, text, sizeof text);
    sg_clique_fail_locked(exchange->clique, ncclInvalidUsage,
                          "a buffer of rank %d was freed while %s used it", exchange->first, text);
}

static void identify(const struct sg_nccl_call *call, int *source, int *peer, uint64_t *number)
{
    const ncclComm_t comm = call->comm;
    *source = call->kind == SG_NCCL_SEND ? comm->rank : call->kind == SG_NCCL_RECEIVE ? call->peer : -1;
    *peer = call->kind == SG_NCCL_RECEIVE ? comm->rank : call->peer;
    *number = call->kind == SG_NCCL_SEND      ? comm->sent[call->peer]
              : call->kind == SG_NCCL_RECEIVE ? comm->received[call->peer]
                                              : comm->collectives;
}

static int class_of(int op)
{
    return op >= ncclNumOps ? SG_NCCL_PRE_MUL_SUM : op;
}

struct sg_exchange *sg_exchange_find(const struct sg_clique *clique, int source, int peer, uint64_t number)
{
    for (struct sg_exchange *at = clique->exchanges; at; at = at->next)
        if (at->source == source && at->number == number && (source < 0 || at->peer == peer))
            return at;
    return NULL;
}

/* The operation of a call, made if it is new; NULL: no memory. */
static struct sg_exchange *find(struct sg_clique *clique, const struct sg_nccl_call *call)
{
    int source, peer;
    uint64_t number;
    identify(call, &source, &peer, &number);
    struct sg_exchange *exchange = clique->here == 1 && source < 0
                                       ? NULL /* nobody else makes one here */
                                       : sg_exchange_find(clique, source, peer, number);
    if (exchange)
        return exchange;
    exchange = make_blank(clique);
    if (!exchange)
        return NULL;
    exchange->kind = call->kind;
    exchange->count = call->count;
    exchange->whole = call->whole;
    exchange->type = call->type;
    exchange->op = class_of(call->op);
    exchange->peer = peer;
    exchange->source = source;
    exchange->number = number;
    exchange->first = call->comm->rank;
    exchange->stream = call->stream;
    exchange->participants = source < 0 ? clique->n : source == peer ? 1 : 2;
    if (!get_memory(exchange, call)) {
        exchange->next = clique->spare;
        clique->spare = exchange;
        return NULL;
    }
    *clique->exchanges_end = exchange;
    clique->exchanges_end = &exchange->next;
    sg_far_begin(exchange);
    return exchange;
}

static bool agrees(const struct sg_exchange *exchange, const struct sg_nccl_call *call)
{
    if (exchange->whole != call->whole || exchange->count != call->count || exchange->type != call->type)
        return false;
    return is_message(call->kind) || (exchange->kind == call->kind && exchange->op == class_of(call->op) &&
                                      exchange->peer == call->peer);
}

void sg_exchange_disagree(const struct sg_exchange *exchange, int rank, int kind, size_t whole, int type,
                          int op, int peer)
{
    char text[200];
    describe(exchange, text, sizeof text);
    sg_clique_fail_locked(
        exchange->clique, ncclRemoteError,
        "rank %d called %s (%zu elements of type %d, operator %d, root or peer %d) where rank %d had "
        "called %s (operator %d, root or peer %d): all ranks must call the same",
        rank, sg_nccl_kind_name((enum sg_nccl_kind)kind), whole, type, op, peer, exchange->first, text,
        exchange->op, exchange->peer);
}

static void counted(const struct sg_nccl_call *call)
{
    if (call->kind == SG_NCCL_SEND)
        call->comm->sent[call->peer]++;
    else if (call->kind == SG_NCCL_RECEIVE)
        call->comm->received[call->peer]++;
    else
        call->comm->collectives++;
}

ncclResult_t sg_exchange_take_part(struct sg_enqueued *enqueued)
{
    const struct sg_nccl_call *call = &enqueued->call;
    struct sg_clique *clique = call->comm->clique;
    struct sg_exchange *exchange = find(clique, call);
    if (!exchange)
        return sg_nccl_fail(ncclSystemError, "%s: there is no memory for %zu elements of each of %d ranks",
                            sg_nccl_kind_name(call->kind), call->whole, clique->n);
    if (!agrees(exchange, call))
        sg_exchange_disagree(exchange, call->comm->rank, call->kind, call->whole, call->type, call->op,
                             call->peer);
    if (clique->error != ncclSuccess) /* by that, or by a far rank that called something else */
        return ncclInvalidUsage;
    counted(call);
    enqueued->exchange = exchange;
    return ncclSuccess;
}
