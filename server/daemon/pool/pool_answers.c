/*
 * pool_answers.c - what the pool's agent tells: its place in the pool, leases, and what it wants decided; see pool_process.h. An agent that
 * says what there is not is ended. Main thread.
 */
#include "server/daemon/pool/pool_process.h"

#include "common/base/log.h"
#include "common/base/packet.h"
#include "server/daemon/pool/pool_internal.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void take_checked(struct rg_pool_process *pool, uint64_t number, bool there, const char *why)
{
    for (uint32_t i = 0; i < RG_POOL_CHECKS; i++) {
        const uint64_t question = pool->checks[i].question;
        if (!question || pool->checks[i].number != number)
            continue;
        pool->checks[i].question = 0;
        pool->checked(pool->data, question, there, why);
    }
}

static void take_judge(struct rg_pool_process *pool, struct rg_agent_judge *judge)
{
    struct rg_agent_word word = {.kind = RG_AGENT_JUDGED};
    judge->key[sizeof judge->key - 1] = 0;
    judge->project[sizeof judge->project - 1] = 0;
    judge->name[sizeof judge->name - 1] = 0;
    judge->by[sizeof judge->by - 1] = 0;
    word.judged.number = judge->number;
    pool->judge(pool->data, judge, &word.judged);
    if (!rg_pool_say(pool, &word))
        rg_debug("the pool's agent takes no words"); /* its clients end with it */
}

void rg_pool_recheck(struct rg_pool_process *pool)
{
    const struct rg_agent_word word = {.kind = RG_AGENT_RECHECK};
    if (pool->wanted && !rg_pool_say(pool, &word))
        rg_debug("the pool's agent takes no words"); /* its clients end with it */
}

static void take_client(struct rg_pool_process *pool, struct rg_agent_client *client)
{
    struct rg_agent_word word = {.kind = RG_AGENT_STAYS};
    client->name[sizeof client->name - 1] = 0;
    word.stays.number = client->number;
    word.stays.good = pool->stays(pool->data, client, word.stays.why, sizeof word.stays.why);
    if (!rg_pool_say(pool, &word))
        rg_debug("the pool's agent takes no words");
}

/* Where this server is in the pool, its runs that have died are not. */
static void take_standing(struct rg_pool_process *pool, const struct rg_agent_answer *answer)
{
    pool->valid_until_ns = answer->standing.valid_until_ns;
    memcpy(pool->why, answer->standing.why, sizeof pool->why);
    pool->why[sizeof pool->why - 1] = 0;
    pool->queue = answer->standing.queue;
    if (pool->valid_until_ns) {
        rg_runs_forget(&pool->runs, pool->settings.dead, pool->settings.n_dead);
        pool->settings.n_dead = 0;
    }
}

static void take(struct rg_pool_process *pool, struct rg_agent_answer *answer)
{
    struct rg_pool_known *known;
    pool->settings.seen = answer->seen;
    switch (answer->kind) {
    case RG_AGENT_STANDING:
        take_standing(pool, answer);
        break;
    case RG_AGENT_LEASE:
        rg_pool_take_lease(pool, &answer->lease);
        break;
    case RG_AGENT_GONE:
        known = rg_pool_find(pool, answer->gone.lease);
        if (known)
            known->gone = true;
        pool->gone(pool->data, answer->gone.lease);
        break;
    case RG_AGENT_CHECKED:
        answer->checked.why[sizeof answer->checked.why - 1] = 0;
        take_checked(pool, answer->checked.number, answer->checked.there != 0, answer->checked.why);
        break;
    case RG_AGENT_JUDGE:
        take_judge(pool, &answer->judge);
        break;
    case RG_AGENT_CLIENT:
        take_client(pool, &answer->client);
        break;
    case RG_AGENT_DRAINED:
        pool->drained = answer->drained.on != 0;
        break;
    }
}

void rg_pool_receive(struct rg_pool_process *pool)
{
    for (int i = 0; i < 64 && pool->socket >= 0; i++) {
        struct rg_agent_answer answer;
        unsigned n_fds = 0;
        const enum rg_status status =
            rg_packet_receive(pool->socket, MSG_DONTWAIT, &answer, sizeof answer, NULL, 0, &n_fds);
        if (status == RG_ERR_TIMEOUT)
            return;
        if (status != RG_OK) { /* it has ended, or is about to */
            if (status == RG_ERR_PROTOCOL)
                rg_error("the pool's agent says what there is not; it is ended");
            kill(pool->pid, SIGKILL);
            close(pool->socket);
            pool->socket = -1;
            return;
        }
        take(pool, &answer);
    }
}
