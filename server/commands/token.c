/* token.c - remote-gpud token: one line that lets a user join. */
#include "common/base/log.h"
#include "server/commands/commands.h"
#include "server/identity/authority.h"
#include "server/identity/identity.h"
#include "server/identity/names.h"
#include "server/identity/revoked.h"
#include "server/identity/tokens.h"
#include "server/identity/x509.h"
#include "transport/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum { HASH = 32, PAYLOAD = HASH + RG_IDENTITY_SECRET };
_Static_assert(PAYLOAD % 3 == 0, "the payload is written without padding");

/* --- where the server is ------------------------------------------------------------------------------------------------ */

/* The machine's full name where the resolver knows one, else its short one. */
static void own_host(char *host, size_t size)
{
    char full[256];
    if (gethostname(host, size - 1) != 0 || !host[0])
        snprintf(host, size, "localhost");
    host[size - 1] = 0;
    const size_t length = strlen(host);
    rg_names_canonical(full, sizeof full);
    if (strncasecmp(full, host, length) == 0 && full[length] == '.')
        snprintf(host, size, "%s", full);
}

static unsigned own_port(const struct rg_state *state)
{
    char *text;
    size_t size;
    unsigned port = RG_DEFAULT_PORT;
    if (rg_state_read(state, "port", RG_STATE_PUBLIC, &text, &size, NULL, 0) == RG_OK) {
        const long noted = strtol(text, NULL, 10);
        if (noted > 0 && noted < 65536)
            port = (unsigned)noted;
        free(text);
    }
    return port;
}

/* HOST:PORT as clients are to use it, and the host alone. */
static bool find_server(const struct rg_command *command, const struct rg_state *state, char *where,
                        size_t where_size, char *host, size_t host_size)
{
    char why[256] = "";
    struct rg_address address = {.port = 0};
    own_host(host, host_size);
    unsigned port = own_port(state);
    if (command->server) {
        const char *scheme = strstr(command->server, "://"), *text = scheme ? scheme + 3 : command->server;
        const char *behind =
            *text == '[' ? strchr(text, ']') : text; /* an address of IPv6 has colons itself */
        const bool has_port = behind && strchr(behind, ':');
        if (rg_address_parse(command->server, &address, why, sizeof why) != RG_OK ||
            strcmp(address.scheme, "tcp") != 0 || !address.host[0] || strcmp(address.host, "*") == 0) {
            rg_error("--server %s: %s", command->server,
                     *why ? why : "not the name or address by which a client reaches this server");
            return false;
        }
        snprintf(host, host_size, "%s", address.host);
        if (has_port)
            port = address.port;
    }
    if (port == 0) {
        rg_error("--server %s: a client cannot connect to port 0", command->server);
        return false;
    }
    snprintf(where, where_size, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
    return true;
}

/* A client believes no certificate that is not for the name by which it reaches the server. */
static void warn_of_name(const struct rg_state *state, const char *reached_by)
{
    char *text, host[sizeof((struct rg_address *)0)->host];
    size_t size;
    snprintf(host, sizeof host, "%s", reached_by);
    rg_address_cut_zone(host);
    if (rg_state_read(state, "tls.crt", RG_STATE_PUBLIC, &text, &size, NULL, 0) != RG_OK)
        return;
    X509 *certificate = rg_x509_read(text, size);
    if (certificate && !rg_x509_has_name(certificate, host))
        rg_warn("the server's certificate is not for %s, so clients will refuse it: start remote-gpud with "
                "--tls-name %s (tls-name in its configuration)",
                host, host);
    X509_free(certificate);
    free(text);
}

/* --- the token ---------------------------------------------------------------------------------------------------------- */

static void encode(const uint8_t *data, char *text)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for (int i = 0; i < PAYLOAD; i += 3) {
        const unsigned bits = (unsigned)data[i] << 16 | (unsigned)data[i + 1] << 8 | data[i + 2];
        for (int shift = 18; shift >= 0; shift -= 6)
            *text++ = letters[bits >> shift & 63];
    }
    *text = 0;
}

static bool check(const struct rg_command *command, const struct rg_command_server *server)
{
    char why[256];
    if (!command->user) {
        rg_error("who is to join? --user NAME; see remote-gpud token --help");
        return false;
    }
    if (rg_user_check_name(command->user, why, sizeof why) != RG_OK) {
        rg_error("--user: %s", why);
        return false;
    }
    if (server->is_operators) {
        rg_error("this server uses an authority of its operator's (tls-ca), and only that can give users "
                 "certificates: a token would be of no use");
        return false;
    }
    if (command->expires_ns == 0) {
        rg_error("--expires 0: the token could never be used");
        return false;
    }
    return true;
}

/* Makes and saves it. With the lock. */
static enum rg_status make(const struct rg_command *command, struct rg_state *state, struct rg_token *token,
                           uint8_t payload[PAYLOAD], char *why, size_t why_size)
{
    struct rg_authority authority;
    const int64_t now = (int64_t)time(NULL);
    size_t n;
    enum rg_status status = rg_authority_load(&authority, state, now, why, why_size);
    if (status == RG_ERR_NOT_FOUND)
        rg_explain(why, why_size,
                   "there is no authority in %s: remote-gpud makes it when it starts for the first time",
                   state->path);
    if (status != RG_OK)
        return status;
    *token = (struct rg_token){
        .uses = (uint32_t)command->uses,
        .uses_left = (uint32_t)command->uses,
        .created = now,
        .expires = now + (int64_t)((command->expires_ns + 999999999) / 1000000000),
        .limits = {.max_sessions = (uint32_t)command->max_sessions, .max_gpus = (uint32_t)command->max_gpus},
    };
    snprintf(token->user, sizeof token->user, "%s", command->user);
    status = rg_authority_hash(&authority, payload);
    if (status == RG_OK)
        status = rg_tokens_remove(state, NULL, now, &n, why, why_size);
    if (status == RG_OK)
        status = rg_token_make(token, payload + HASH, why, why_size);
    if (status == RG_OK)
        status = rg_token_save(state, token, why, why_size);
    rg_authority_fini(&authority);
    return status;
}

static void warn_of_revoked(const struct rg_state *state, const char *user)
{
    char why[256];
    if (rg_revoked_check(state, user, NULL, 0, why, sizeof why) == RG_ERR_REFUSED)
        rg_warn("%s/revoked names %s: remove that line, or every certificate of that name is refused",
                state->path, user);
}

int rg_command_token(const struct rg_command *command, const struct rg_command_server *server)
{
    struct rg_state state;
    struct rg_token token;
    uint8_t payload[PAYLOAD];
    char where[320], host[256], text[PAYLOAD / 3 * 4 + 1], why[1024] = "", until[32];
    if (!check(command, server) || !rg_command_open(command, server, &state))
        return RG_COMMAND_FAILED;
    if (!find_server(command, &state, where, sizeof where, host, sizeof host)) {
        rg_state_close(&state);
        return RG_COMMAND_FAILED;
    }
    enum rg_status status = rg_state_lock(&state, why, sizeof why);
    if (status == RG_OK)
        status = make(command, &state, &token, payload, why, sizeof why);
    rg_state_unlock(&state);
    if (status != RG_OK) {
        rg_error("no token was made: %s", *why ? why : rg_status_string(status));
        rg_state_close(&state);
        return RG_COMMAND_FAILED;
    }
    rg_command_note(server, RG_COMMAND_MADE_TOKEN, token.user, NULL, 0);
    warn_of_name(&state, host);
    warn_of_revoked(&state, token.user);
    rg_state_close(&state);
    encode(payload, text);
    printf("rgpu1:%s@%s\n", text, where);
    explicit_bzero(payload, sizeof payload);
    explicit_bzero(text, sizeof text);
    if (fflush(stdout) != 0) {
        rg_error("the token could not be printed");
        return RG_COMMAND_FAILED;
    }
    rg_x509_date_text(token.expires, until);
    fprintf(stderr, "For %s, %u use%s, until %s. On the client's machine: remote-gpu join TOKEN\n",
            token.user, token.uses, token.uses == 1 ? "" : "s", until);
    return RG_COMMAND_DONE;
}
