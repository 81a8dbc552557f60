/*
 * quota.c - remote-gpu quota: what one may use of servers, what is used, and when it is renewed.
 */
#include "client/cli/base/cli.h"
#include "client/cli/base/output.h"
#include "client/cli/pool/pool.h"
#include "client/query/query.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "proto/accounts/usage_text.h"

#include <inttypes.h>
#include <stdio.h>

#define HOUR_NS 3600e9

enum { EXIT_USED_UP = 1 };

static enum rg_status ask(const struct rg_cli_settings *settings, const char *server,
                          struct rg_quota_answer *answer, char *why, size_t why_size)
{
    struct rg_usage_question question = {.by = RG_USAGE_BY_USER};
    unsigned char packed[2 * RG_USAGE_TEXT + 128];
    struct rg_control message;
    if (settings->project)
        snprintf(question.project, sizeof question.project, "%s", settings->project);
    const size_t size = rg_usage_pack_question(&question, packed);
    RG_TRY(rg_query_accounts(server, RG_PURPOSE_QUOTA, packed, size, settings->timeout_ns, &message, why,
                             why_size));
    enum rg_status status = rg_quota_unpack_answer(message.answer.data, message.answer.size, answer);
    if (status != RG_OK)
        rg_explain(why, why_size, "what the server %s answered is malformed", server);
    rg_control_fini(&message);
    return status;
}

static bool is_hours(int what)
{
    return what == RG_QUOTA_HOURS_DAY || what == RG_QUOTA_HOURS_MONTH;
}

/* A session more cannot begin. Memory and GPUs: none is left of them. */
static bool is_used_up(const struct rg_quota_row *row, int what)
{
    return row->allowed[what] != RG_QUOTA_UNLIMITED && row->used[what] >= row->allowed[what];
}

static bool any_used_up(const struct rg_quota_answer *answer)
{
    for (uint32_t i = 0; i < answer->n; i++)
        for (int what = 0; what < RG_QUOTAS; what++)
            if (is_used_up(&answer->rows[i], what))
                return true;
    return false;
}

/* --- for people ----------------------------------------------------------------------------------------- */

static void amount_text(int what, uint64_t amount, char *out, size_t size)
{
    if (is_hours(what))
        snprintf(out, size, "%.2f", (double)amount / HOUR_NS);
    else if (what == RG_QUOTA_MEMORY)
        rg_cli_bytes_text(amount, out, size);
    else
        snprintf(out, size, "%" PRIu64, amount);
}

static void print_row(const struct rg_quota_answer *answer, const struct rg_quota_row *row, int what)
{
    static const char *const names[RG_QUOTAS] = {"sessions", "GPUs", "GPU memory", "GPU hours a day",
                                                 "GPU hours a month"};
    char used[40], allowed[40], time[32];
    amount_text(what, row->used[what], used, sizeof used);
    amount_text(what, row->allowed[what], allowed, sizeof allowed);
    printf("  %-18s %12s of %s", names[what], is_hours(what) && !answer->used_known ? "unknown" : used,
           allowed);
    if (is_hours(what))
        printf(", renewed %s",
               rg_usage_time_text(what == RG_QUOTA_HOURS_DAY ? answer->day_ends : answer->month_ends, time));
    puts(is_used_up(row, what) ? "  (used up)" : "");
}

static void print_quotas(const char *server, const struct rg_quota_answer *answer)
{
    printf("%s, %s:\n", server, answer->user);
    for (uint32_t i = 0; i < answer->n; i++) {
        const struct rg_quota_row *row = &answer->rows[i];
        printf("%s %s\n", rg_quota_scope_name(row->scope), row->name);
        for (int what = 0; what < RG_QUOTAS; what++)
            if (row->allowed[what] != RG_QUOTA_UNLIMITED)
                print_row(answer, row, what);
    }
    if (answer->n == 0)
        puts("no quota");
}

/* --- JSON ----------------------------------------------------------------------------------------------- */

static json_t *amount_json(int what, uint64_t amount)
{
    return is_hours(what) ? json_real((double)amount / HOUR_NS) : json_integer((json_int_t)amount);
}

static json_t *quotas_json(const char *server, const struct rg_quota_answer *answer, json_t *pool)
{
    json_t *quotas = json_array();
    for (uint32_t i = 0; i < answer->n; i++) {
        const struct rg_quota_row *row = &answer->rows[i];
        for (int what = 0; what < RG_QUOTAS; what++) {
            if (row->allowed[what] == RG_QUOTA_UNLIMITED)
                continue;
            json_t *one = json_pack(
                "{s:s, s:s, s:s, s:o, s:o, s:b}", "scope", rg_quota_scope_name(row->scope), "name", row->name,
                "what", rg_quota_what_name((enum rg_quota_what)what), "allowed",
                amount_json(what, row->allowed[what]), "used",
                is_hours(what) && !answer->used_known ? json_null() : amount_json(what, row->used[what]),
                "used_up", (int)is_used_up(row, what));
            if (one && is_hours(what))
                json_object_set_new(
                    one, "renewed",
                    json_integer(what == RG_QUOTA_HOURS_DAY ? answer->day_ends : answer->month_ends));
            rg_cli_json_add(&quotas, one);
        }
    }
    return json_pack("{s:s, s:s, s:I, s:o, s:O*}", "address", server, "user", answer->user, "now",
                     (json_int_t)answer->now, "quotas", quotas, "pool", pool);
}

/* --- the pool -------------------------------------------------------------------------------------------- */

/* What the server's pool remembers of use. NULL: it is in none, or that is not known. */
static json_t *ask_pool(const struct rg_cli_settings *settings, const char *server)
{
    char name[RG_CONTROL_TEXT];
    struct rg_pool_failure failure;
    if (settings->server_only || !*rg_cli_pool_name(settings, server, name, sizeof name))
        return NULL;
    json_t *usage =
        rg_pool_usage(server, settings->project ? settings->project : "", settings->timeout_ns, &failure);
    if (!usage)
        rg_warn("the pool %s: %s", name, failure.why);
    json_object_del(usage, "state");
    return usage;
}

static void print_pool(const json_t *usage)
{
    static const char *const kinds[] = {"users", "projects"};
    const json_t *held = json_object_get(usage, "held");
    const json_int_t gpus = json_integer_value(json_object_get(held, "gpus"));
    char pool[RG_CONTROL_TEXT], memory[24];
    snprintf(pool, sizeof pool, "%s", json_string_value(json_object_get(usage, "pool")));
    rg_printable_clean(pool);
    rg_cli_bytes_text((uint64_t)json_integer_value(json_object_get(held, "memory")), memory, sizeof memory);
    printf("pool %s\n  held now           %12lld GPU%s, %s of their memory, by %lld lease%s\n", pool,
           (long long)gpus, gpus == 1 ? "" : "s", memory,
           (long long)json_integer_value(json_object_get(held, "leases")),
           json_integer_value(json_object_get(held, "leases")) == 1 ? "" : "s");
    for (int i = 0; i < 2; i++) {
        const char *name;
        json_t *used;
        json_object_foreach(json_object_get(usage, kinds[i]), name, used)
        {
            char shown[2 * RG_CONTROL_TEXT];
            snprintf(shown, sizeof shown, "%s", name);
            rg_printable_clean(shown);
            printf("  for fair shares    %12.2f GPU hours, %s %s\n",
                   (double)json_integer_value(used) / 3600e3, i ? "project" : "user", shown);
        }
    }
}

int rg_cli_quota(const struct rg_cli_settings *settings, int argc, char **argv)
{
    json_t *servers = settings->json ? json_array() : NULL;
    int status = 0;
    if (!rg_cli_no_words("quota", argc, argv) || !rg_cli_check_project(settings)) {
        json_decref(servers);
        return RG_EXIT_FAILURE;
    }
    for (size_t i = 0; i < settings->server.n; i++) {
        const char *server = settings->server.items[i];
        struct rg_quota_answer answer;
        char why[RG_CONTROL_REASON + 512] = "";
        const bool good = ask(settings, server, &answer, why, sizeof why) == RG_OK;
        if (!good)
            status = RG_EXIT_FAILURE;
        else if (any_used_up(&answer) && status == 0)
            status = EXIT_USED_UP;
        json_t *pool = good ? ask_pool(settings, server) : NULL;
        if (settings->json)
            rg_cli_json_add(&servers, good ? quotas_json(server, &answer, pool)
                                           : json_pack("{s:s, s:s}", "address", server, "error", why));
        else if (good)
            print_quotas(server, &answer);
        else
            rg_error("%s", why);
        if (pool && !settings->json)
            print_pool(pool);
        json_decref(pool);
    }
    if (settings->json && !rg_cli_print_json(json_pack("{s:o}", "servers", servers)))
        status = RG_EXIT_FAILURE;
    return status;
}
