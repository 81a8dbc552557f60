/* leases.c - questions about leases, and what is made of their answers, of which nothing is trusted but that it is the pool's; see pool.h. */
#include "client/pool/internal.h"
#include "common/base/cleanup.h"
#include "common/base/json_value.h"
#include "common/base/printable.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID        16    /* digits of a lease, and of what holds it */
#define ANSWER_MS 20000 /* the server tries each member of etcd before it gives up */

/* --- failures ---------------------------------------------------------------------------------------------------- */

/* Says what has failed. `code`: "" for none. */
__attribute__((format(printf, 4, 5))) static void fail(struct rg_pool_failure *failure, enum rg_status status,
                                                       const char *code, const char *format, ...)
{
    va_list arguments;
    failure->status = status;
    snprintf(failure->code, sizeof failure->code, "%s", code);
    va_start(arguments, format);
    vsnprintf(failure->why, sizeof failure->why, format, arguments);
    va_end(arguments);
    rg_printable_clean(failure->code);
    rg_printable_clean(failure->why);
}

/* The code in brackets that a sentence ends with. */
static void find_code(const char *why, char *out, size_t size)
{
    const char *begin = strrchr(why, '['), *end = begin ? strchr(begin, ']') : NULL;
    *out = '\0';
    if (end && !end[1])
        snprintf(out, size, "%.*s", (int)(end - begin - 1), begin + 1);
    rg_printable_clean(out); /* it may have been cut within a character */
}

/* --- a conversation ------------------------------------------------------------------------------------------------ */

static void tell_waiting(const struct rg_pool_wish *wish, const json_t *answer)
{
    char why[sizeof((struct rg_pool_failure *)0)->why];
    snprintf(why, sizeof why, "%s", rg_json_get_text(answer, "why"));
    rg_printable_clean(why);
    if (wish && wish->waiting)
        wish->waiting(wish->data, (int)json_integer_value(json_object_get(answer, "position")),
                      (int)json_integer_value(json_object_get(answer, "of")),
                      json_integer_value(json_object_get(answer, "since")), why);
}

/* Answers until it is decided; who waits is told by `wish`. NULL: `failure`. */
static json_t *hear(struct rg_pool_talk *talk, const char *server, const struct rg_pool_wish *wish,
                    struct rg_pool_failure *failure)
{
    for (bool waits = false;;) {
        const char *text;
        size_t size;
        char why[RG_CONTROL_REASON + 64] = "";
        const enum rg_status status =
            rg_pool_talk_next(talk, waits ? -1 : ANSWER_MS, &text, &size, why, sizeof why);
        json_t *answer = status == RG_OK ? json_loadb(text, size, 0, NULL) : NULL;
        const char *state = rg_json_get_text(answer, "state");
        if (strcmp(state, "waiting") == 0) {
            tell_waiting(wish, answer);
            waits = true;
            json_decref(answer);
            continue;
        }
        if (answer && strcmp(state, "refused") != 0)
            return answer;
        if (answer)
            fail(failure, RG_ERR_REFUSED, rg_json_get_text(answer, "code"), "%s",
                 rg_json_get_text(answer, "why"));
        else if (status == RG_ERR_REFUSED)
            fail(failure, status, "", "the server %s refused: %s", server, why);
        else
            fail(failure, status == RG_OK ? RG_ERR_PROTOCOL : status, "pool-unreachable",
                 "the server %s has gone or does not answer (%s); ask another server of the pool "
                 "[pool-unreachable]",
                 server, rg_status_string(status));
        if (!*failure->code)
            find_code(failure->why, failure->code, sizeof failure->code);
        json_decref(answer);
        return NULL;
    }
}

json_t *rg_pool_converse(struct rg_pool_talk *talk, const char *server, json_t *question, uint64_t timeout_ns,
                         const struct rg_pool_wish *wish, struct rg_pool_failure *failure)
{
    RG_CLEANUP_FREE char *text = question ? json_dumps(question, JSON_COMPACT) : NULL;
    json_t *answer = NULL;
    char why[1024] = "";
    json_decref(question);
    memset(talk, 0, sizeof *talk);
    *failure = (struct rg_pool_failure){.status = RG_OK};
    const enum rg_status status =
        text ? rg_pool_talk_begin(talk, server, text, timeout_ns, why, sizeof why) : RG_ERR_NO_MEMORY;
    if (status == RG_OK)
        answer = hear(talk, server, wish, failure);
    else
        fail(failure, status, status == RG_ERR_LIMIT ? "lease-question" : "pool-unreachable", "%s",
             *why ? why : rg_status_string(status));
    if (!answer)
        rg_pool_talk_end(talk);
    return answer;
}

json_t *rg_pool_ask(const char *server, json_t *question, uint64_t timeout_ns,
                    struct rg_pool_failure *failure)
{
    struct rg_pool_talk talk;
    json_t *answer = rg_pool_converse(&talk, server, question, timeout_ns, NULL, failure);
    rg_pool_talk_end(&talk);
    return answer;
}

/* --- what was granted ------------------------------------------------------------------------------------------------- */

static bool append(char **text, const char *separator, const char *more)
{
    const size_t size = (*text ? strlen(*text) : 0) + strlen(separator) + strlen(more) + 1;
    char *grown = realloc(*text, size);
    if (!grown)
        return false;
    if (!*text)
        *grown = '\0';
    *text = grown;
    strcat(grown, separator);
    strcat(grown, more);
    return true;
}

static bool is_id(const char *text)
{
    return strlen(text) == ID && strspn(text, "0123456789abcdef") == ID;
}

/* False: it is none that a pool would give. */
static bool check_grant(const char *server, const json_t *answer)
{
    const char *hold = rg_json_get_text(answer, "hold");
    const json_t *gpus = json_object_get(answer, "gpus"), *gpu;
    size_t i;
    json_array_foreach(gpus, i,
                       gpu) if (!*rg_json_get_text(gpu, "server") ||
                                !rg_pool_may_lead(server, rg_json_get_text(gpu, "address"))) return false;
    return is_id(rg_json_get_text(answer, "lease")) && (!*hold || is_id(hold)) && json_array_size(gpus) > 0 &&
           json_array_size(gpus) <= RG_POOL_GPUS_MAX;
}

/* The GPUs come by server. */
static bool read_grant(const char *asked, const json_t *answer, struct rg_pool_lease_of *out,
                       struct rg_pool_failure *failure)
{
    const json_t *gpu;
    const char *last = "";
    size_t i;
    if (!check_grant(asked, answer)) {
        fail(failure, RG_ERR_PROTOCOL, "",
             "the server %s has granted what cannot be used from here (no GPU, or one of no server or at an "
             "address "
             "of this machine's own): it is of another version, or see to --advertise there",
             asked);
        return false;
    }
    snprintf(out->id, sizeof out->id, "%s", rg_json_get_text(answer, "lease"));
    snprintf(out->hold, sizeof out->hold, "%s", rg_json_get_text(answer, "hold"));
    snprintf(out->user, sizeof out->user, "%s", rg_json_get_text(answer, "user"));
    rg_printable_clean(out->user);
    out->expires = json_integer_value(json_object_get(answer, "expires"));
    out->gpus = json_incref(json_object_get(answer, "gpus"));
    bool good = append(&out->variable, "", out->id);
    json_array_foreach(out->gpus, i, gpu)
    {
        const char *server = rg_json_get_text(gpu, "server");
        char index[24];
        const bool first = strcmp(server, last) != 0;
        snprintf(index, sizeof index, "%lld", (long long)json_integer_value(json_object_get(gpu, "index")));
        if (first)
            good =
                good && append(&out->servers, out->n_servers++ ? "," : "", rg_json_get_text(gpu, "address"));
        good = good && append(&out->variable, first ? "/" : ",", index);
        last = server;
        out->n_gpus++;
    }
    if (!good)
        fail(failure, RG_ERR_NO_MEMORY, "", "out of memory");
    return good;
}

void rg_pool_lease_fini(struct rg_pool_lease_of *lease)
{
    rg_pool_talk_end(&lease->talk);
    json_decref(lease->gpus);
    free(lease->servers);
    free(lease->variable);
    *lease = (struct rg_pool_lease_of){0};
}

/* A question whose answer is a lease. */
static bool ask_for_lease(const char *server, json_t *question, uint64_t timeout_ns,
                          const struct rg_pool_wish *wish, struct rg_pool_lease_of *out,
                          struct rg_pool_failure *failure)
{
    *out = (struct rg_pool_lease_of){0};
    json_t *answer = rg_pool_converse(&out->talk, server, question, timeout_ns, wish, failure);
    const bool good = answer && read_grant(server, answer, out, failure);
    json_decref(answer);
    if (!good)
        rg_pool_lease_fini(out);
    else if (!wish || wish->kept)
        rg_pool_talk_end(&out->talk);
    return good;
}

/* --- questions ----------------------------------------------------------------------------------------------------------- */

static json_t *texts(const char *const *items, size_t n)
{
    json_t *out = json_array();
    for (size_t i = 0; i < n && out; i++)
        if (json_array_append_new(out, json_string(items[i])) != 0) {
            json_decref(out);
            out = NULL;
        }
    return out;
}

/* Adds a member; false: no memory, or a text that is none. */
static bool add(json_t *question, bool wanted, const char *name, json_t *value)
{
    if (wanted)
        return json_object_set_new(question, name, value) == 0;
    json_decref(value);
    return true;
}

static json_t *question_of(const struct rg_pool_wish *wish)
{
    const unsigned gpus = wish->gpus ? wish->gpus : wish->n_devices ? (unsigned)wish->n_devices : 1;
    json_t *question =
        json_pack("{s:s, s:I, s:I, s:I, s:o, s:b, s:b, s:s}", "ask", "request", "gpus", (json_int_t)gpus,
                  "memory", (json_int_t)wish->memory, "fraction", (json_int_t)wish->fraction, "filters",
                  texts(wish->filters, wish->n_filters), "spread", (int)wish->spread, "kept", (int)wish->kept,
                  "project", wish->project ? wish->project : "");
    const bool good =
        question && add(question, wish->n_devices, "devices", texts(wish->devices, wish->n_devices)) &&
        add(question, wish->n_tolerations, "tolerate", texts(wish->tolerations, wish->n_tolerations)) &&
        add(question, wish->user, "user", json_string(wish->user ? wish->user : "")) &&
        add(question, wish->machine, "machine", json_string(wish->machine ? wish->machine : "")) &&
        add(question, wish->priority, "priority", json_string(wish->priority ? wish->priority : "")) &&
        add(question, wish->job, "job", json_string(wish->job ? wish->job : "")) &&
        add(question, wish->id, "id", json_string(wish->id ? wish->id : "")) &&
        add(question, wish->kept, "seconds", json_integer((json_int_t)wish->seconds)) &&
        add(question, wish->waits, "wait",
            wish->wait_seconds == RG_POOL_FOR_EVER ? json_true()
                                                   : json_integer((json_int_t)wish->wait_seconds));
    if (good)
        return question;
    json_decref(question);
    return NULL;
}

bool rg_pool_request(const char *server, const struct rg_pool_wish *wish, struct rg_pool_lease_of *out,
                     struct rg_pool_failure *failure)
{
    return ask_for_lease(server, question_of(wish), wish->timeout_ns, wish, out, failure);
}

bool rg_pool_find(const char *server, const char *id, uint64_t timeout_ns, struct rg_pool_lease_of *out,
                  struct rg_pool_failure *failure)
{
    return ask_for_lease(server, json_pack("{s:s, s:s}", "ask", "find", "lease", id), timeout_ns, NULL, out,
                         failure);
}

bool rg_pool_hold(const char *server, const struct rg_pool_lease_of *before, uint64_t timeout_ns,
                  struct rg_pool_lease_of *out, struct rg_pool_failure *failure)
{
    const struct rg_pool_wish held = {.kept = false};
    json_t *question = json_pack("{s:s, s:s, s:s}", "ask", "hold", "lease", before->id, "hold", before->hold);
    return ask_for_lease(server, question, timeout_ns, &held, out, failure);
}

bool rg_pool_renew(const char *server, const char *id, uint64_t seconds, uint64_t timeout_ns,
                   int64_t *expires, struct rg_pool_failure *failure)
{
    json_t *answer = rg_pool_ask(
        server, json_pack("{s:s, s:s, s:I}", "ask", "renew", "lease", id, "seconds", (json_int_t)seconds),
        timeout_ns, failure);
    if (!answer)
        return false;
    *expires = json_integer_value(json_object_get(answer, "expires"));
    json_decref(answer);
    return true;
}

bool rg_pool_release(const char *server, const char *id, uint64_t timeout_ns, struct rg_pool_failure *failure)
{
    json_t *answer =
        rg_pool_ask(server, json_pack("{s:s, s:s}", "ask", "release", "lease", id), timeout_ns, failure);
    const bool released = answer != NULL;
    json_decref(answer);
    return released;
}
