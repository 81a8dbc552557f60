/* users.c - remote-gpud users: who has joined, with which certificates, and tokens that can still be used. */
#include "server/identity/users.h"
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "server/commands/commands.h"
#include "server/identity/revoked.h"
#include "server/identity/tokens.h"
#include "server/identity/x509.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A damaged file is shown as such, and the others all the same. */
struct list {
    const struct rg_state *state;
    int64_t now;
    bool failed;
    size_t n;
};

/* --- for people --------------------------------------------------------------------------------------------------------- */

static void print_limits(const struct rg_identity_limits *limits)
{
    if (limits->max_sessions)
        printf(", at most %u session%s", limits->max_sessions, limits->max_sessions == 1 ? "" : "s");
    if (limits->max_gpus)
        printf(", %u GPU%s a session", limits->max_gpus, limits->max_gpus == 1 ? "" : "s");
}

/* How long the user can still come, and when one who cannot was revoked last. */
static void print_user(const struct rg_user *user, int64_t now)
{
    int64_t until = 0, revoked = 0;
    char date[32];
    for (size_t i = 0; i < user->n; i++) {
        const struct rg_user_certificate *one = &user->certificates[i];
        if (one->revoked > revoked)
            revoked = one->revoked;
        if (!one->revoked && one->expires > until)
            until = one->expires;
    }
    const size_t valid = rg_user_valid(user, now);
    rg_x509_date_text(valid ? until : revoked ? revoked : until, date);
    if (valid)
        printf("%s: %zu certificate%s, valid until %s", user->name, valid, valid == 1 ? "" : "s", date);
    else if (until || revoked)
        printf("%s: %s %s", user->name, revoked ? "revoked on" : "expired on", date);
    else
        printf("%s: no certificate", user->name);
    print_limits(&user->limits);
    printf("\n");
}

static void print_certificates(const struct rg_user *user, int64_t now)
{
    for (size_t i = 0; i < user->n; i++) {
        const struct rg_user_certificate *one = &user->certificates[i];
        char serial[2 * RG_IDENTITY_SERIAL + 1], issued[32], other[32];
        rg_serial_text(one->serial, one->serial_size, serial);
        rg_x509_date_text(one->issued, issued);
        rg_x509_date_text(one->revoked ? one->revoked : one->expires, other);
        printf("  %s  given %s, %s %s\n", serial, issued,
               one->revoked          ? "revoked"
               : one->expires <= now ? "expired"
                                     : "valid until",
               other);
    }
}

static void print_token(const struct rg_token *token)
{
    char until[32];
    rg_x509_date_text(token->expires, until);
    printf("%s: a token for %u use%s, until %s\n", token->user, token->uses_left,
           token->uses_left == 1 ? "" : "s", until);
}

/* --- JSON --------------------------------------------------------------------------------------------------------------- */

/* Names were checked when they were read, but lines of `revoked` are anybody's. */
static void print_string(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < ' ')
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void print_user_json(const struct rg_user *user, int64_t now)
{
    printf("    {\"name\": ");
    print_string(user->name);
    printf(", \"max_sessions\": %u, \"max_gpus\": %u, \"certificates\": [", user->limits.max_sessions,
           user->limits.max_gpus);
    for (size_t i = 0; i < user->n; i++) {
        const struct rg_user_certificate *one = &user->certificates[i];
        char serial[2 * RG_IDENTITY_SERIAL + 1];
        rg_serial_text(one->serial, one->serial_size, serial);
        printf("%s\n      {\"serial\": \"%s\", \"issued_unix\": %lld, \"expires_unix\": %lld, "
               "\"revoked_unix\": ",
               i ? "," : "", serial, (long long)one->issued, (long long)one->expires);
        printf(one->revoked ? "%lld" : "null", (long long)one->revoked);
        printf(", \"valid\": %s}", !one->revoked && one->expires > now ? "true" : "false");
    }
    printf("]}");
}

static void print_token_json(const struct rg_token *token)
{
    printf("    {\"user\": ");
    print_string(token->user);
    printf(", \"uses_left\": %u, \"expires_unix\": %lld}", token->uses_left, (long long)token->expires);
}

/* --- lists -------------------------------------------------------------------------------------------------------------- */

static void show_users(struct list *list, const char *only, bool json)
{
    char **names, why[512] = "";
    size_t n;
    if (rg_state_list(list->state, "users", &names, &n, why, sizeof why) != RG_OK) {
        rg_error("%s", why);
        list->failed = true;
    }
    for (size_t i = 0; i < n; i++) {
        struct rg_user user;
        if (only && strcmp(names[i], only) != 0)
            continue;
        const enum rg_status status = rg_user_load(list->state, names[i], &user, why, sizeof why);
        if (status != RG_OK) {
            rg_error("%s", status == RG_ERR_NOT_FOUND ? names[i] : why);
            list->failed = true;
            continue;
        }
        if (json)
            printf(list->n ? ",\n" : "\n");
        list->n++;
        if (json)
            print_user_json(&user, list->now);
        else
            print_user(&user, list->now);
        if (!json && only)
            print_certificates(&user, list->now);
        rg_user_fini(&user);
    }
    rg_state_list_free(names, n);
}

static void show_tokens(struct list *list, const char *only, bool json)
{
    char **names, why[512] = "";
    size_t n, shown = 0;
    if (rg_state_list(list->state, "tokens", &names, &n, why, sizeof why) != RG_OK) {
        rg_error("%s", why);
        list->failed = true;
    }
    for (size_t i = 0; i < n; i++) {
        struct rg_token token;
        const enum rg_status status = rg_token_load(list->state, names[i], &token, why, sizeof why);
        if (status != RG_OK && status != RG_ERR_NOT_FOUND) {
            rg_error("%s", why);
            list->failed = true;
        }
        if (status != RG_OK || !token.uses_left || token.expires <= list->now ||
            (only && strcmp(token.user, only) != 0))
            continue;
        if (json)
            printf(shown ? ",\n" : "\n");
        shown++;
        list->n++;
        if (json)
            print_token_json(&token);
        else
            print_token(&token);
    }
    rg_state_list_free(names, n);
}

/* What the file of the operator's authority says. */
static void show_revoked(struct list *list, const char *only, bool json)
{
    RG_CLEANUP_FREE char *text = NULL;
    char why[512] = "";
    size_t shown = 0;
    if (rg_revoked_read(list->state, &text, why, sizeof why) != RG_OK) {
        rg_error("%s", why);
        list->failed = true;
        return;
    }
    char *at = text;
    for (const char *line = rg_revoked_next(&at); line; line = rg_revoked_next(&at)) {
        if (only && strcmp(line, only) != 0)
            continue;
        list->n++;
        if (json) {
            printf(shown++ ? ", " : "");
            print_string(line);
        } else {
            printf("%s: refused by %s/revoked\n", line, list->state->path);
        }
    }
}

int rg_command_users(const struct rg_command *command, const struct rg_command_server *server)
{
    struct rg_state state;
    const char *only = command->argc ? command->argv[0] : NULL;
    if (!rg_command_open(command, server, &state))
        return RG_COMMAND_FAILED;
    struct list list = {.state = &state, .now = (int64_t)time(NULL)};
    printf(command->json ? "{\n  \"users\": [" : "");
    show_users(&list, only, command->json);
    const size_t found = list.n;
    printf(command->json ? "],\n  \"tokens\": [" : "");
    show_tokens(&list, only, command->json);
    printf(command->json ? "],\n  \"revoked\": [" : "");
    show_revoked(&list, only, command->json);
    printf(command->json ? "]\n}\n" : "");
    if (!command->json && !only && found == 0 && !list.failed && !server->is_operators)
        fprintf(stderr, "Nobody has joined yet: remote-gpud token --user NAME lets somebody.\n");
    rg_state_close(&state);
    if (list.failed)
        return RG_COMMAND_FAILED;
    if (only && list.n == 0) {
        rg_error("there is no user '%s'; remote-gpud users lists them", only);
        return RG_COMMAND_UNKNOWN;
    }
    return RG_COMMAND_DONE;
}
