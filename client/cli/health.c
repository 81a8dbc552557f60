/*
 * health.c - remote-gpu health: whether servers are well, each by itself, and of a pool all of its servers.
 *
 * A problem keeps somebody from using the server's GPUs, and is an exit status of 1; a note is worth knowing.
 */
#include "client/cli/base/cli.h"
#include "client/cli/base/output.h"
#include "client/cli/pool/pool.h"
#include "client/query/query.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/printable.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CLOCK_MOST_S 60 /* certificates and leases mind no less */

enum { EXIT_UNWELL = 1 };

static void add(json_t *list, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(json_t *list, const char *format, ...)
{
    char text[1200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    rg_printable_clean(text);
    (void)json_array_append_new(list, json_string(text));
}

static void check_clock(const struct rg_inventory *inventory, json_t *problems)
{
    const long long theirs = (long long)(inventory->machine.clock_ns / 1000000000u);
    const long long off = theirs - (long long)time(NULL);
    if (theirs && (off > CLOCK_MOST_S || off < -CLOCK_MOST_S))
        add(problems, "its clock is %lld s %s this machine's: set one of them (NTP)", off < 0 ? -off : off,
            off < 0 ? "behind" : "ahead of");
}

/* What the server's own place in its pool says. */
static void check_pool(const struct rg_cli_settings *settings, const char *server, json_t *problems,
                       json_t *notes)
{
    struct rg_pool_failure failure;
    const json_t *member;
    size_t i;
    bool found = false;
    json_t *pool = rg_pool_list(server, NULL, settings->timeout_ns, &failure);
    if (!pool) {
        add(problems, "it does not tell of its pool: %s", failure.why);
        return;
    }
    const char *cut_off = json_string_value(json_object_get(pool, "etcd")),
               *self = json_string_value(json_object_get(pool, "self"));
    if (cut_off && *cut_off)
        add(problems, "it is cut off from its pool: %s", cut_off);
    json_array_foreach(json_object_get(pool, "servers"), i, member)
    {
        const char *id = json_string_value(json_object_get(member, "id"));
        if (!id || !self || strcmp(id, self) != 0)
            continue;
        found = true;
        if (json_is_true(json_object_get(member, "draining")))
            add(notes, "it is draining: nothing new is granted there");
    }
    if (!found && cut_off && !*cut_off)
        add(problems, "the pool does not know it (yet)");
    json_decref(pool);
}

static json_t *check(const struct rg_cli_settings *settings, const char *server)
{
    RG_CLEANUP_FREE struct rg_control *message = calloc(1, sizeof *message);
    json_t *problems = json_array(), *notes = json_array();
    char why[1024] = "";
    const uint64_t begin = rg_now_ns();
    const enum rg_status status =
        message ? rg_query(server, RG_PURPOSE_STATUS, settings->timeout_ns, message, why, sizeof why)
                : RG_ERR_NO_MEMORY;
    const double ms = (double)(rg_now_ns() - begin) / 1e6;
    if (status != RG_OK) {
        add(problems, "%s", *why ? why : rg_status_string(status));
    } else {
        const struct rg_inventory *inventory = &message->inventory;
        if (inventory->n_devices == 0)
            add(problems, "its driver has no GPU; its log says why");
        if (inventory->sessions_running >= inventory->limits.sessions)
            add(notes, "it is full: %u sessions run, as many as there may be", inventory->sessions_running);
        check_clock(inventory, problems);
        if (inventory->pool[0])
            check_pool(settings, server, problems, notes);
        rg_control_fini(message);
    }
    return json_pack("{s:s, s:b, s:f, s:o, s:o}", "address", server, "well", json_array_size(problems) == 0,
                     "milliseconds", ms, "problems", problems, "notes", notes);
}

static void print(const json_t *server)
{
    const json_t *text;
    size_t i;
    printf("%s: %s (%.1f ms)\n", json_string_value(json_object_get(server, "address")),
           json_is_true(json_object_get(server, "well")) ? "well" : "not well",
           json_real_value(json_object_get(server, "milliseconds")));
    json_array_foreach(json_object_get(server, "problems"), i, text)
        printf("  problem: %s\n", json_string_value(text));
    json_array_foreach(json_object_get(server, "notes"), i, text)
        printf("  note: %s\n", json_string_value(text));
}

int rg_cli_health(const struct rg_cli_settings *settings, int argc, char **argv)
{
    struct rg_text_list servers;
    bool well = true;
    if (!rg_cli_no_words("health", argc, argv) || !rg_cli_pool_members(settings, &servers))
        return RG_EXIT_FAILURE;
    json_t *list = json_array();
    for (size_t i = 0; i < servers.n; i++) {
        json_t *one = check(settings, servers.items[i]);
        well = well && json_is_true(json_object_get(one, "well"));
        if (!settings->json && one)
            print(one);
        rg_cli_json_add(&list, one);
    }
    rg_text_list_clear(&servers);
    if (!settings->json)
        json_decref(list);
    else if (!rg_cli_print_json(json_pack("{s:b, s:o}", "well", (int)well, "servers", list)))
        return RG_EXIT_FAILURE;
    return well ? 0 : EXIT_UNWELL;
}
