/*
 * agent.c - what all parts of the agent use: the time, what the monitor is told, and the pool's keys in etcd: comparisons and operations
 * of which transactions are made, and keys that must go.
 *
 * A key that is to be removed is tried again until etcd has done it, one after another. The agent's end gives that up: what is bound to an
 * etcd lease ends with it.
 */
#include "server/pool/agent.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define UNDO_PAUSE_NS 500000000ull

void rg_agent_changed(struct rg_agent *agent)
{
    agent->changes++;
    agent->own_changes++;
}

int64_t rg_agent_time(const struct rg_agent *agent)
{
    const int64_t ahead = rg_etcd_clock_ahead(agent->etcd);
    return (int64_t)time(NULL) + (ahead > 2 || ahead < -2 ? ahead : 0); /* etcd tells whole seconds */
}

bool rg_agent_is_in(const struct rg_agent *agent)
{
    const struct rg_membership *membership = &agent->membership;
    return membership->state == RG_MEMBER_IN && agent->mirror.revision >= membership->joined &&
           rg_now_ns() < membership->valid_until_ns;
}

void rg_agent_tell(struct rg_agent *agent, const struct rg_agent_answer *answer)
{
    /* the monitor reads whenever it can, and never waits for us; a socket that stays full is of a monitor that hangs */
    struct rg_agent_answer out = *answer;
    ssize_t sent;
    out.seen = rg_etcd_get_seen(agent->etcd);
    while ((sent = send(RG_AGENT_FD, &out, sizeof out, MSG_NOSIGNAL)) < 0 && errno == EINTR)
        ;
    if (sent != (ssize_t)sizeof out)
        agent->ended = true;
}

/* --- keys -------------------------------------------------------------------------------------------------------- */

json_t *rg_agent_key(const struct rg_agent *agent, const char *format, ...)
{
    char key[256];
    va_list arguments;
    const int used = snprintf(key, sizeof key, "%s", agent->prefix);
    va_start(arguments, format);
    vsnprintf(key + used, sizeof key - (size_t)used, format, arguments);
    va_end(arguments);
    return rg_etcd_bytes(key);
}

json_t *rg_agent_compare(int64_t changed, json_t *key)
{
    return json_pack("{s:o, s:s, s:s, s:o}", "key", key, "target", "MOD", "result", "EQUAL", "mod_revision",
                     rg_etcd_number(changed));
}

json_t *rg_agent_put(json_t *key, json_t *value, int64_t etcd_lease)
{
    RG_CLEANUP_FREE char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    return json_pack("{s:{s:o, s:o, s:o}}", "request_put", "key", key, "value",
                     text ? rg_etcd_bytes(text) : NULL, "lease", rg_etcd_number(etcd_lease));
}

json_t *rg_agent_remove(json_t *key)
{
    return json_pack("{s:{s:o}}", "request_delete_range", "key", key);
}

json_t *rg_agent_value(const json_t *kvs, int64_t *changed)
{
    const json_t *pair = json_array_get(kvs, 0);
    json_t *plain = pair ? rg_etcd_plain(json_object_get(pair, "value")) : NULL;
    const char *text = json_string_value(plain);
    json_t *value = text ? json_loads(text, 0, NULL) : NULL;
    json_decref(plain);
    if (changed)
        *changed = pair ? rg_etcd_get_number(pair, "mod_revision") : 0;
    if (json_is_object(value))
        return value;
    json_decref(value);
    return NULL;
}

/* --- what has to be removed ------------------------------------------------------------------------------------ */

static void undone(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_agent *agent = data;
    (void)reply;
    (void)why;
    agent->undoing = false;
    if (status != RG_OK) {
        agent->undo_ns = rg_now_ns() + UNDO_PAUSE_NS;
        return;
    }
    json_decref(agent->undo[0]);
    memmove(agent->undo, agent->undo + 1, --agent->n_undo * sizeof *agent->undo);
}

void rg_agent_undo(struct rg_agent *agent, json_t *key)
{
    json_t **grown = key ? realloc(agent->undo, (agent->n_undo + 1) * sizeof *grown) : NULL;
    if (!grown) {
        json_decref(key);
        return;
    }
    agent->undo = grown;
    agent->undo[agent->n_undo++] = key;
}

void rg_agent_get_time(struct rg_agent *agent, uint64_t seconds, rg_etcd_done *done, void *data)
{
    rg_etcd_call(agent->etcd, "/v3/lease/grant", json_pack("{s:o}", "TTL", rg_etcd_number((int64_t)seconds)),
                 done, data);
}

static void revoked(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    (void)data;
    (void)reply;
    if (status != RG_OK)
        rg_debug("an etcd lease that nothing is bound to stays until its time is over: %s", why);
}

void rg_agent_revoke(struct rg_agent *agent, int64_t etcd_lease)
{
    if (etcd_lease)
        rg_etcd_call(agent->etcd, "/v3/lease/revoke", json_pack("{s:o}", "ID", rg_etcd_number(etcd_lease)),
                     revoked, agent);
}

uint64_t rg_agent_undo_look(struct rg_agent *agent)
{
    if (agent->n_undo == 0 || agent->undoing)
        return UINT64_MAX;
    if (rg_now_ns() < agent->undo_ns)
        return agent->undo_ns;
    agent->undoing = true;
    rg_etcd_call(agent->etcd, "/v3/kv/deleterange", json_pack("{s:O}", "key", agent->undo[0]), undone, agent);
    return UINT64_MAX;
}
