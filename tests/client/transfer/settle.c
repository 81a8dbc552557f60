/* Whether what ends a transfer waits for what is being sent of it. The registry, which has forgotten it, and the wire are replaced. */
#include "client/core/optimisations.h"
#include "client/core/queue.h"
#include "client/core/session.h"
#include "client/transfer/answers.h"
#include "client/transfer/registry.h"
#include "client/transfer/transfer.h"
#include "common/base/poll.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>

#define WHILE_NS 50000000u /* that sending takes */

pthread_mutex_t rg_registry_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t rg_registry_idle = PTHREAD_COND_INITIALIZER;
bool rg_optimise[RG_OPT_COUNT];

static struct rg_session session;
static atomic_bool sending, sent;

enum rg_status rg_queue_answer(struct rg_session *to, const struct rg_answer *answer,
                               const struct iovec *bulk, int n_bulk, struct rg_lease *lease)
{
    (void)to, (void)lease;
    cr_expect(answer->type == RG_ANSWER_DATA && answer->id == 7 && n_bulk == 1 && bulk->iov_len == 100);
    atomic_store(&sending, true);
    rg_pause(WHILE_NS);
    atomic_store(&sent, true);
    return RG_OK;
}

void rg_session_async_error(struct rg_session *of, CUresult error, unsigned op)
{
    (void)of, (void)error, (void)op;
}

struct rg_transfer *rg_registry_find(const struct rg_session *of, uint64_t id)
{
    (void)of, (void)id;
    return NULL;
}

struct rg_transfer *rg_registry_take(uint64_t id)
{
    (void)id;
    return NULL;
}

struct rg_transfer *rg_registry_search(bool (*match)(const struct rg_transfer *transfer, const void *user),
                                       const void *user)
{
    (void)match, (void)user;
    return NULL;
}

void rg_registry_done(const struct rg_session *of, const struct rg_transfer_kind *kind)
{
    (void)of, (void)kind;
}

void rg_registry_end(struct rg_transfer *transfer)
{
    (void)transfer;
}

void rg_registry_free(struct rg_transfer *transfer)
{
    (void)transfer;
}

void rg_registry_wait_received(const struct rg_session *of, uint64_t id)
{
    (void)of, (void)id;
}

static void *send_all(void *unused)
{
    (void)unused;
    while (rg_answers_send_next(&session))
        ;
    return NULL;
}

/* The worker has all of it before this side's thread is back from sending it; the call that waited for the worker must not be faster. */
Test(settle, memory_is_left_when_its_last_part_has_been_sent)
{
    static unsigned char memory[100];
    pthread_t sender;
    struct rg_answer_part *part = malloc(sizeof *part);
    *part =
        (struct rg_answer_part){.session = &session,
                                .id = 7,
                                .size = sizeof memory,
                                .memory = rg_region_line(RG_REGION_HOST, (uintptr_t)memory, sizeof memory),
                                .last = true};
    rg_answers_add(part);
    cr_assert_eq(pthread_create(&sender, NULL, send_all, NULL), 0);
    while (!atomic_load(&sending))
        rg_pause(1000000);
    rg_transfer_revoke(8);
    cr_expect_not(atomic_load(&sent), "of another transfer");
    rg_transfer_revoke(7);
    cr_expect(atomic_load(&sent));
    pthread_join(sender, NULL);
}
