/*
 * checks.c - sessions that are to begin by a lease which the monitor has not been told of yet.
 *
 * etcd says at which revision the lease was written; once the mirror is as new, the lease has been told (own.c), or there is none. A mirror
 * of what concerns this server alone (scope.c) may never be as new: then a lease that names GPUs of this server comes, sooner than
 * in WAIT_NS, and one that does not is none. Without an answer of etcd's the session is refused.
 */
#include "common/base/clock.h"
#include "server/pool/agent.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_NS 5000000000ull

static void answer_check(struct rg_agent *agent, const struct rg_agent_check *check, bool there,
                         const char *why)
{
    struct rg_agent_answer answer = {.kind = RG_AGENT_CHECKED};
    answer.checked.number = check->number;
    answer.checked.there = there;
    snprintf(answer.checked.why, sizeof answer.checked.why, "%s", why);
    rg_agent_tell(agent, &answer);
}

/* Whether it has to be waited for that the lease is told. */
static bool may_come(const struct rg_agent *agent, const struct rg_agent_check *check)
{
    if (!rg_scope_is_settled(agent) || agent->scope.narrow)
        return check->names_us && rg_now_ns() < check->until_ns;
    return agent->mirror.revision < check->revision;
}

void rg_checks_look(struct rg_agent *agent)
{
    for (struct rg_agent_check **link = &agent->checks; *link;) {
        struct rg_agent_check *check = *link;
        const struct rg_own_lease *lease = rg_own_find(&agent->own, check->lease);
        const bool there = lease && lease->told && !lease->gone_told;
        if (check->revision == 0 || (!there && may_come(agent, check))) {
            link = &check->next;
            continue;
        }
        answer_check(agent, check, there,
                     "the lease has no GPU of this server (any more, if it was started anew), has been given "
                     "back, or its time is over; ask for "
                     "GPUs anew");
        *link = check->next;
        free(check);
    }
}

static void check_answered(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent_check *check = data;
    struct rg_agent *agent = check->agent;
    char text[RG_ETCD_WHY + 64];
    if (status == RG_OK) {
        const json_t *found = json_array_get(json_object_get(reply, "kvs"), 0);
        json_t *value = rg_agent_value(json_object_get(reply, "kvs"), NULL);
        const json_t *one;
        size_t i;
        json_array_foreach(json_object_get(value, "gpus"), i, one) check->names_us |=
            strcmp(rg_json_get_text(one, "server"), agent->id) == 0;
        json_decref(value);
        check->revision = found ? rg_etcd_get_number(found, "mod_revision") : 1;
        check->until_ns = rg_now_ns() + WAIT_NS;
        return;
    }
    snprintf(text, sizeof text, "whether there is the lease cannot be found out: %s", why);
    for (struct rg_agent_check **link = &agent->checks; *link; link = &(*link)->next)
        if (*link == check) {
            *link = check->next;
            break;
        }
    answer_check(agent, check, false, text);
    free(check);
}

void rg_checks_take(struct rg_agent *agent, const struct rg_agent_word *word)
{
    struct rg_agent_check *check = calloc(1, sizeof *check);
    if (!check)
        return;
    *check = (struct rg_agent_check){.next = agent->checks, .agent = agent, .number = word->check.number};
    snprintf(check->lease, sizeof check->lease, "%016" PRIx64, word->check.lease);
    agent->checks = check;
    rg_etcd_call(agent->etcd, "/v3/kv/range",
                 json_pack("{s:o}", "key", rg_agent_key(agent, "leases/%s", check->lease)), check_answered,
                 check);
}
