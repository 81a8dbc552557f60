/*
 * stays.c - clients that wait or hold a lease while their certificate is revoked, or expires.
 *
 * The monitor says when other certificates are accepted than before (rg_stays_recheck), and is asked about one client after the other, since it
 * alone knows which those are. Who is not accepted any more is told so and loses its place in the queue, or its lease, at once: nobody else
 * gives that back, as its process may go on for as long as it likes.
 *
 * A certificate that expires is replaced by whoever cares for it: the client is to show the new one, which it does by holding its lease by
 * another connection (hold.c). Who does not has a minute, and as long as sessions run. Who waits keeps its place, and shows it then.
 *
 * What a client asks once is answered before either matters. One thread.
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "server/pool/agent.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define SECOND 1000000000ull
#define LOOK_S 10 /* at least so often: the machine's clock may be set */

/* --- revoked ------------------------------------------------------------------------------------------------------------- */

static void ask_about(struct rg_agent_ask *ask)
{
    struct rg_agent *agent = ask->agent;
    struct rg_agent_answer answer = {.kind = RG_AGENT_CLIENT};
    answer.client.number = ask->client = agent->stays.asked = ++agent->judgements;
    answer.client.certificate = ask->certificate;
    snprintf(answer.client.name, sizeof answer.client.name, "%s", ask->name);
    ask->rechecked = agent->stays.rechecks;
    rg_debug("whether %s may stay in the pool is asked about", ask->name);
    rg_agent_tell(agent, &answer);
}

void rg_stays_recheck(struct rg_agent *agent)
{
    agent->stays.rechecks++;
}

static void send_away(struct rg_agent_ask *ask, const char *why)
{
    char text[RG_CONTROL_REASON];
    snprintf(text, sizeof text, "%s", why);
    rg_printable_clean(text); /* a name that was cut within a character would be no JSON */
    json_t *answer = json_pack("{s:s, s:s}", "state", "refused", "why", text);
    rg_info("%s has to leave the pool%s%s: %s", ask->name, *ask->lease ? " with lease " : "", ask->lease,
            text);
    (void)rg_ask_tell(ask, answer);
    json_decref(answer);
    rg_ask_leave(ask);
}

void rg_stays_told(struct rg_agent *agent, const struct rg_agent_word *word)
{
    if (!word->stays.number || word->stays.number != agent->stays.asked)
        return;
    agent->stays.asked = 0;
    for (uint32_t i = 0; i < agent->n_asks && !word->stays.good; i++)
        if (agent->asks[i]->client == word->stays.number) {
            if (agent->asks[i]->socket >= 0) /* else it has gone by itself */
                send_away(agent->asks[i], word->stays.why);
            return;
        }
}

/* --- expired ------------------------------------------------------------------------------------------------------------- */

/* Seconds that its certificate is valid yet; below 0: it is not. */
static int64_t left_s(const struct rg_agent_ask *ask)
{
    return ask->certificate.not_after - (int64_t)time(NULL);
}

static uint64_t look_expired(struct rg_agent *agent)
{
    int64_t next = INT64_MAX;
    for (uint32_t i = 0; i < agent->n_asks;) {
        struct rg_agent_ask *ask = agent->asks[i];
        if (ask->state == RG_ASK_HOLDING && ask->certificate.serial_size) {
            const int64_t left = left_s(ask);
            if (left < 0)
                rg_hold_entrust(ask, "the certificate of its client has expired");
            else
                next = left < next ? left : next;
        }
        i += i < agent->n_asks && agent->asks[i] == ask; /* else another has taken its place in the list */
    }
    if (next == INT64_MAX)
        return UINT64_MAX;
    return rg_now_ns() + (next < LOOK_S ? (uint64_t)next + 1 : LOOK_S) * SECOND;
}

uint64_t rg_stays_look(struct rg_agent *agent)
{
    for (uint32_t i = 0; i < agent->n_asks && !agent->stays.asked; i++) {
        struct rg_agent_ask *ask = agent->asks[i];
        if (ask->socket >= 0 && ask->certificate.serial_size && ask->rechecked != agent->stays.rechecks)
            ask_about(ask);
    }
    return look_expired(agent);
}
