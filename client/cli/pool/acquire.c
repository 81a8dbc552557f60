/*
 * acquire.c - asking a pool for GPUs and waiting for them, with one line that says where one stands; see pool.h.
 */
#include "client/cli/base/cli.h"
#include "client/cli/base/output.h"
#include "client/cli/pool/pool.h"
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "common/base/parse.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MS 20000 /* the server tries each member of etcd before it gives up */

bool rg_pool_is_asked_for(const struct rg_cli_settings *settings)
{
    return settings->filters.n || settings->wait_for || settings->spread || settings->lease;
}

/* --- the question ------------------------------------------------------------------------------------------------ */

/* Adds how long it is content to wait; false: it was said what is wrong. */
static bool add_wait(const struct rg_cli_settings *settings, json_t *question)
{
    const char *text = settings->wait_for;
    uint64_t ns = 0;
    int64_t seconds;
    char why[160] = "";
    if (!text)
        return true;
    if (!*text)
        return json_object_set_new(question, "wait", json_true()) == 0;
    if (rg_parse_integer(text, 0, 1 << 30, &seconds, NULL, 0) == RG_OK)
        return json_object_set_new(question, "wait", json_integer(seconds)) == 0;
    if (rg_parse_duration(text, &ns, why, sizeof why) != RG_OK) {
        rg_error("--wait-for: %s", why);
        return false;
    }
    return json_object_set_new(question, "wait",
                               json_integer((json_int_t)((ns + 999999999u) / 1000000000u))) == 0;
}

/* NULL: it was said what is wrong. */
static char *question_of(const struct rg_cli_settings *settings, bool kept)
{
    json_t *filters = json_array();
    for (size_t i = 0; i < settings->filters.n; i++)
        rg_cli_json_add(&filters, json_string(settings->filters.items[i]));
    json_t *question = json_pack("{s:s, s:I, s:I, s:I, s:o, s:b, s:b, s:s}", "ask", "request", "gpus",
                                 (json_int_t)(settings->gpus ? settings->gpus : 1), "memory",
                                 (json_int_t)settings->memory, "fraction", (json_int_t)settings->fraction,
                                 "filters", filters, "spread", (int)settings->spread, "kept", (int)kept,
                                 "project", settings->project ? settings->project : "");
    bool good = question && add_wait(settings, question);
    if (good && kept)
        good = json_object_set_new(question, "seconds",
                                   json_integer((json_int_t)(settings->keep_ns / 1000000000u))) == 0;
    char *text = good ? json_dumps(question, JSON_COMPACT) : NULL;
    json_decref(question);
    return text;
}

/* --- the answers ---------------------------------------------------------------------------------------------------- */

static const char *get_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* One line: on a terminal it is written over, elsewhere there is a line for each change. */
static void show_waiting(const json_t *answer)
{
    const long long since = json_integer_value(json_object_get(answer, "since")), now = (long long)time(NULL);
    const int position = (int)json_integer_value(json_object_get(answer, "position"));
    const bool terminal = isatty(STDERR_FILENO);
    char place[64] = "", clock[16] = "";
    struct tm date;
    const time_t begin = (time_t)since;
    if (position)
        snprintf(place, sizeof place, "%d of %d in the queue", position,
                 (int)json_integer_value(json_object_get(answer, "of")));
    if (since)
        strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&begin, &date));
    fprintf(stderr, "%sremote-gpu: waiting since %s (%lld s): %s%s%s%s", terminal ? "\r\033[K" : "", clock,
            now > since ? now - since : 0, place, *place ? ", " : "", get_text(answer, "why"),
            terminal ? "" : "\n");
    fflush(stderr);
}

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

/* The GPUs come by server. */
static bool read_grant(const json_t *answer, struct rg_pool_lease_of *out)
{
    const json_t *gpu;
    const char *last = "";
    size_t i;
    bool good = true;
    snprintf(out->id, sizeof out->id, "%s", get_text(answer, "lease"));
    good = append(&out->variable, "", out->id);
    json_array_foreach(json_object_get(answer, "gpus"), i, gpu)
    {
        const char *server = get_text(gpu, "server");
        char index[24];
        const bool first = strcmp(server, last) != 0;
        snprintf(index, sizeof index, "%lld", (long long)json_integer_value(json_object_get(gpu, "index")));
        if (first)
            good = good && append(&out->servers, out->n_servers++ ? "," : "", get_text(gpu, "address"));
        good = good && append(&out->variable, first ? "/" : ",", index);
        last = server;
        out->n_gpus++;
    }
    if (!good || !out->n_gpus)
        rg_error("%s", good ? "the pool has granted no GPU: it is of another version" : "out of memory");
    return good && out->n_gpus;
}

/* Answers until it is decided. NULL: it was said why not. */
static json_t *hear(struct rg_pool_talk *talk, const char *member)
{
    bool shown = false;
    for (;;) {
        const char *text;
        size_t size;
        char why[RG_CONTROL_REASON + 64] = "";
        const enum rg_status status =
            rg_pool_talk_next(talk, shown ? -1 : ANSWER_MS, &text, &size, why, sizeof why);
        json_t *answer = status == RG_OK ? json_loadb(text, size, 0, NULL) : NULL;
        const char *state = get_text(answer, "state");
        if (strcmp(state, "waiting") == 0) {
            show_waiting(answer);
            shown = true;
            json_decref(answer);
            continue;
        }
        if (shown && isatty(STDERR_FILENO))
            fprintf(stderr, "\r\033[K");
        if (answer && strcmp(state, "refused") != 0)
            return answer;
        if (answer)
            rg_error("%s", get_text(answer, "why"));
        else if (status == RG_ERR_REFUSED)
            rg_error("the server %s refused: %s", member, why);
        else
            rg_error("the server %s has gone or does not answer (%s); ask another server of the pool", member,
                     rg_status_string(status));
        json_decref(answer);
        return NULL;
    }
}

static bool converse(const struct rg_cli_settings *settings, const char *member, const char *question,
                     struct rg_pool_lease_of *out)
{
    char why[1024] = "";
    *out = (struct rg_pool_lease_of){0};
    if (rg_pool_talk_begin(&out->talk, member, question, settings->timeout_ns, why, sizeof why) != RG_OK) {
        rg_error("%s", why);
        rg_pool_talk_end(&out->talk);
        return false;
    }
    json_t *answer = hear(&out->talk, member);
    const bool good = answer && read_grant(answer, out);
    json_decref(answer);
    if (!good)
        rg_pool_lease_fini(out);
    return good;
}

bool rg_pool_acquire(const struct rg_cli_settings *settings, const char *member, bool kept,
                     struct rg_pool_lease_of *out)
{
    RG_CLEANUP_FREE char *question = question_of(settings, kept);
    if (!question || !converse(settings, member, question, out))
        return false;
    if (kept)
        rg_pool_talk_end(&out->talk);
    return true;
}

bool rg_pool_find(const struct rg_cli_settings *settings, const char *member, const char *id,
                  struct rg_pool_lease_of *out)
{
    json_t *question = json_pack("{s:s, s:s}", "ask", "find", "lease", id);
    RG_CLEANUP_FREE char *text = question ? json_dumps(question, JSON_COMPACT) : NULL;
    json_decref(question);
    const bool good = text && converse(settings, member, text, out);
    if (good)
        rg_pool_talk_end(&out->talk);
    return good;
}

bool rg_pool_set_environment(const struct rg_pool_lease_of *lease)
{
    return setenv("REMOTE_GPU_LEASE", lease->variable, 1) == 0;
}

void rg_pool_lease_fini(struct rg_pool_lease_of *lease)
{
    rg_pool_talk_end(&lease->talk);
    free(lease->servers);
    free(lease->variable);
    *lease = (struct rg_pool_lease_of){0};
}

/* --- remote-gpu request, release ------------------------------------------------------------------------------------ */

/* The server that is asked about the pool; NULL: it was said that it must be one. */
static const char *member_of(const struct rg_cli_settings *settings)
{
    if (settings->server.n == 1)
        return settings->server.items[0];
    rg_error("name one server of the pool with -s: any of them speaks for all");
    return NULL;
}

int rg_cli_request(const struct rg_cli_settings *settings, int argc, char **argv)
{
    struct rg_pool_lease_of lease;
    const char *member = member_of(settings);
    if (!rg_cli_no_words("request", argc, argv) || !member || !rg_cli_check_project(settings) ||
        !rg_pool_acquire(settings, member, true, &lease))
        return RG_EXIT_FAILURE;
    int status = 0;
    if (settings->json)
        status = rg_cli_print_json(json_pack("{s:s, s:i, s:s, s:I}", "lease", lease.id, "gpus",
                                             (int)lease.n_gpus, "servers", lease.servers, "seconds",
                                             (json_int_t)(settings->keep_ns / 1000000000u)))
                     ? 0
                     : RG_EXIT_FAILURE;
    else
        printf(
            "lease %s: %u GPU%s on %s, for %llu s\n"
            "next: remote-gpu run -s %s --lease %s -- COMMAND; remote-gpu release -s %s %s gives it back\n",
            lease.id, lease.n_gpus, lease.n_gpus == 1 ? "" : "s", lease.servers,
            (unsigned long long)(settings->keep_ns / 1000000000u), member, lease.id, member, lease.id);
    rg_pool_lease_fini(&lease);
    return status;
}

int rg_cli_release(const struct rg_cli_settings *settings, int argc, char **argv)
{
    const char *member = member_of(settings);
    struct rg_pool_talk talk;
    char why[1024] = "";
    if (!member)
        return RG_EXIT_FAILURE;
    if (argc != 1) {
        rg_error("which lease? remote-gpu list shows those that you have; see remote-gpu release --help");
        return RG_EXIT_FAILURE;
    }
    json_t *question = json_pack("{s:s, s:s}", "ask", "release", "lease", argv[0]);
    RG_CLEANUP_FREE char *text = question ? json_dumps(question, JSON_COMPACT) : NULL;
    json_decref(question);
    if (!text || rg_pool_talk_begin(&talk, member, text, settings->timeout_ns, why, sizeof why) != RG_OK) {
        rg_error("%s", text ? why : "out of memory");
        return RG_EXIT_FAILURE;
    }
    json_t *answer = hear(&talk, member);
    const int status = answer ? 0 : RG_EXIT_FAILURE;
    if (answer)
        printf("lease %s was given back\n", argv[0]);
    json_decref(answer);
    rg_pool_talk_end(&talk);
    return status;
}
