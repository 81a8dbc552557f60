/* What a worker may ask of a transfer, and how often. The rest of the client is replaced by what is below. */
#include "client/core/queue.h"
#include "client/core/receiver.h"
#include "client/transfer/answers.h"
#include "client/transfer/registry.h"
#include "client/transfer/transfer.h"

#include <criterion/criterion.h>
#include <stdlib.h>

pthread_mutex_t rg_registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_transfer *registered;
static unsigned parts;

void *rg_registry_new(struct rg_session *session, const struct rg_transfer_kind *kind, size_t size)
{
    struct rg_transfer *transfer = calloc(1, size);
    if (transfer) {
        transfer->session = session;
        transfer->kind = kind;
    }
    return transfer;
}

uint64_t rg_registry_add(struct rg_transfer *transfer)
{
    registered = transfer;
    return transfer->id = 7;
}

struct rg_transfer *rg_registry_take(uint64_t id)
{
    struct rg_transfer *taken = registered;
    cr_assert(id == 7 && taken);
    registered = NULL;
    return taken;
}

void rg_answers_add(struct rg_answer_part *part)
{
    parts++;
    free(part);
}

void rg_receiver_expect_notices(struct rg_session *session, int change)
{
    (void)session, (void)change;
}

void rg_queue_wake_sender(struct rg_session *session)
{
    (void)session;
}

static bool ask(uint64_t offset, uint64_t size)
{
    const struct rg_notice notice = {.type = RG_NOTICE_RENDEZVOUS, .id = 7, .arg = {offset, size, 0}};
    pthread_mutex_lock(&rg_registry_lock);
    return registered->kind->progress(registered, &notice, 0);
}

static void begin(void)
{
    static unsigned char memory[100];
    const struct rg_region region = rg_region_line(RG_REGION_HOST, (uintptr_t)memory, sizeof memory);
    cr_assert_eq(rg_rendezvous_create(NULL, &region), 7);
}

TestSuite(rendezvous, .init = begin);

Test(rendezvous, ends_with_the_last_part)
{
    cr_expect(ask(0, 40));
    cr_expect(ask(40, 40));
    cr_assert(registered);
    cr_expect(ask(80, 20));
    cr_expect(!registered && parts == 3);
}

Test(rendezvous, may_end_early)
{
    cr_expect(ask(0, 40));
    cr_expect(ask(100, 0));
    cr_expect_null(registered);
}

Test(rendezvous, has_what_lies_in_it)
{
    cr_expect(!ask(0, 101) && !ask(101, 0) && !ask(60, 41) && !ask(UINT64_MAX, 2));
    cr_expect_eq(parts, 0);
    free(registered);
}

Test(rendezvous, gives_no_more_than_it_has)
{
    cr_expect(ask(0, 60));
    cr_expect(!ask(0, 60), "asked for again");
    cr_expect(ask(0, 40));
    cr_expect(!ask(0, 1));
    cr_expect_eq(parts, 2);
    free(registered);
}

Test(rendezvous, gives_no_parts_of_nothing_but_the_last)
{
    cr_expect(!ask(0, 0));
    cr_expect_eq(parts, 0);
    free(registered);
}
