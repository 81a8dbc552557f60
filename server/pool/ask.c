/*
 * ask.c - one client that asks: what it is told, and its end. Who has gone is told nothing; an answer that does not fit into its socket
 * at once is as if it had gone. One thread.
 */
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/printable.h"
#include "server/pool/agent.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool rg_ask_add(struct rg_agent *agent, struct rg_agent_ask *ask)
{
    struct rg_agent_ask **grown = realloc(agent->asks, (agent->n_asks + 1) * sizeof *grown);
    if (!grown)
        return false;
    agent->asks = grown;
    agent->asks[agent->n_asks++] = ask;
    return true;
}

bool rg_ask_tell(struct rg_agent_ask *ask, const json_t *answer)
{
    RG_CLEANUP_FREE char *text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;
    if (ask->socket < 0 || !text || strlen(text) > RG_ANSWER_SIZE_MAX)
        return false;
    return send(ask->socket, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

void rg_ask_end(struct rg_agent_ask *ask)
{
    struct rg_agent *agent = ask->agent;
    for (uint32_t i = 0; i < agent->n_asks; i++)
        if (agent->asks[i] == ask) {
            agent->asks[i] = agent->asks[--agent->n_asks];
            break;
        }
    if (ask->socket >= 0)
        close(ask->socket);
    if (!ask->unsure || !ask->chosen) /* then a lease may be bound to it, which its client comes back to */
        rg_agent_revoke(agent, ask->etcd_lease);
    json_decref(ask->question);
    json_decref(ask->request);
    json_decref(ask->grant);
    free(ask);
}

void rg_ask_answer(struct rg_agent_ask *ask, json_t *answer)
{
    (void)rg_ask_tell(ask, answer);
    json_decref(answer);
    rg_ask_end(ask);
}

void rg_ask_refuse(struct rg_agent_ask *ask, const char *why)
{
    char text[1500];
    snprintf(text, sizeof text, "%s", why);
    rg_printable_clean(text);
    rg_ask_answer(ask, json_pack("{s:s, s:s}", "state", "refused", "why", text));
}

void rg_ask_refuse_as(struct rg_agent_ask *ask, const char *code, const char *format, ...)
{
    char words[1400], text[1500];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    rg_printable_clean(words); /* names that were cut within a character would be no JSON */
    snprintf(text, sizeof text, "%s [%s]", words, code);
    rg_ask_answer(ask, json_pack("{s:s, s:s, s:s}", "state", "refused", "why", text, "code", code));
}

void rg_ask_read(struct rg_agent_ask *ask)
{
    json_decref(ask->request);
    ask->request = NULL;
    ask->handed = false;
    ask->counts = ask->whole = true;
    ask->state = RG_ASK_LOOKING;
    ask->since_ns = rg_now_ns();
}

bool rg_ask_may(const struct rg_agent_ask *ask, const json_t *value)
{
    const bool bearer = json_is_true(json_object_get(value, "bearer")) && !ask->name[0];
    return ask->is_operator || bearer || strcmp(rg_json_get_text(value, "user"), ask->key) == 0;
}
