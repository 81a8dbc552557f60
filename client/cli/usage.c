/*
 * usage.c - remote-gpu usage: what one has used of servers, by user and project, day, month, session or way of sharing.
 */
#include "client/cli/base/cli.h"
#include "client/cli/base/output.h"
#include "client/cli/pool/pool.h"
#include "client/query/query.h"
#include "common/base/log.h"
#include "proto/accounts/usage_text.h"

#include <stdio.h>
#include <time.h>

struct asked {
    const struct rg_cli_settings *settings;
    const char *server;
};

static enum rg_status fetch(void *data, const struct rg_usage_question *question,
                            struct rg_usage_answer *answer, char *why, size_t why_size)
{
    const struct asked *asked = data;
    unsigned char packed[2 * RG_USAGE_TEXT + 128];
    struct rg_control message;
    const size_t size = rg_usage_pack_question(question, packed);
    RG_TRY(rg_query_accounts(asked->server, RG_PURPOSE_USAGE, packed, size, asked->settings->timeout_ns,
                             &message, why, why_size));
    enum rg_status status = rg_usage_unpack_answer(message.answer.data, message.answer.size, answer);
    if (status != RG_OK)
        rg_explain(why, why_size, "what the server %s answered is malformed", asked->server);
    rg_control_fini(&message);
    return status;
}

static bool read_question(const struct rg_cli_settings *settings, struct rg_usage_question *question)
{
    char why[400] = "";
    const struct rg_usage_words words = {.user = settings->user,
                                         .project = settings->usage_project,
                                         .since = settings->since,
                                         .until = settings->until,
                                         .by = settings->by};
    if (settings->json && settings->csv) {
        rg_error("--json and --csv exclude each other");
        return false;
    }
    if (rg_usage_read_question(&words, (int64_t)time(NULL), question, why, sizeof why) == RG_OK)
        return true;
    rg_error("%s", why);
    return false;
}

/* One server's answer, as it is wanted. False: it could not be had. */
static bool show(const struct rg_cli_settings *settings, const struct rg_usage_question *question,
                 const char *server, json_t **servers)
{
    const struct asked asked = {settings, server};
    struct rg_usage_list list;
    char why[RG_CONTROL_REASON + 512] = "";
    const bool good =
        rg_usage_collect(fetch, (void *)(uintptr_t)&asked, question, &list, why, sizeof why) == RG_OK;
    if (settings->json) {
        json_t *of = good ? rg_usage_json(&list) : json_pack("{s:s}", "error", why);
        if (of)
            json_object_set_new(of, "address", json_string(server));
        rg_cli_json_add(servers, of);
    } else if (!good) {
        rg_error("%s", why);
    } else if (settings->csv) {
        rg_usage_print_csv(&list, server, stdout);
    } else {
        if (settings->server.n > 1)
            printf("%s: ", server);
        rg_usage_print_table(&list, stdout);
    }
    rg_usage_list_fini(&list);
    return good;
}

int rg_cli_usage(const struct rg_cli_settings *settings, int argc, char **argv)
{
    struct rg_usage_question question;
    json_t *servers = settings->json ? json_array() : NULL;
    int status = 0;
    if (!rg_cli_no_words("usage", argc, argv) || !read_question(settings, &question)) {
        json_decref(servers);
        return RG_EXIT_FAILURE;
    }
    struct rg_cli_settings whole = *settings;
    if (!rg_cli_pool_members(settings, &whole.server)) {
        json_decref(servers);
        return RG_EXIT_FAILURE;
    }
    if (settings->csv)
        rg_usage_print_csv_head(stdout);
    for (size_t i = 0; i < whole.server.n; i++)
        if (!show(&whole, &question, whole.server.items[i], &servers))
            status = RG_EXIT_FAILURE;
    rg_text_list_clear(&whole.server);
    if (settings->json && !rg_cli_print_json(json_pack("{s:o}", "servers", servers)))
        status = RG_EXIT_FAILURE;
    return status;
}
