/* revoke.c - remote-gpud revoke: users and certificates that are refused from now on. */
#include "common/base/log.h"
#include "server/commands/commands.h"
#include "server/identity/revoked.h"
#include "server/identity/tokens.h"
#include "server/identity/users.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What a serial number begins with that could be a name, and each in the file. */
#define SERIAL "serial:"

/* Marks what can be used, all or the one. RG_ERR_NOT_FOUND: none is of that serial. */
static enum rg_status mark(const struct rg_state *state, const char *name, const uint8_t *serial,
                           size_t serial_size, size_t *n, char *why, size_t why_size)
{
    struct rg_user user;
    const int64_t now = (int64_t)time(NULL);
    *n = 0;
    enum rg_status status = rg_user_load(state, name, &user, why, why_size);
    if (status != RG_OK) {
        if (status == RG_ERR_NOT_FOUND)
            rg_user_fini(&user);
        return status;
    }
    struct rg_user_certificate *one = serial ? rg_user_find(&user, serial, serial_size) : NULL;
    if (serial && !one)
        status = RG_ERR_NOT_FOUND;
    for (size_t i = 0; status == RG_OK && i < user.n; i++)
        if (!user.certificates[i].revoked && (!one || one == &user.certificates[i])) {
            user.certificates[i].revoked = now;
            ++*n;
        }
    if (status == RG_OK && *n)
        status = rg_user_save(state, &user, now, why, why_size);
    rg_user_fini(&user);
    return status;
}

/* The user with that name: certificates, and tokens by which it could come back. */
static enum rg_status revoke_user(const struct rg_command_server *server, const struct rg_state *state,
                                  const char *name, char *why, size_t why_size)
{
    size_t certificates = 0, tokens = 0;
    const enum rg_status known = mark(state, name, NULL, 0, &certificates, why, why_size);
    if (known == RG_OK)
        rg_command_note(server, RG_COMMAND_REVOKED, name, NULL, 0);
    if (known != RG_OK && known != RG_ERR_NOT_FOUND)
        return known;
    RG_TRY(rg_tokens_remove(state, name, (int64_t)time(NULL), &tokens, why, why_size));
    if (known == RG_ERR_NOT_FOUND && tokens == 0)
        return RG_ERR_NOT_FOUND;
    if (known == RG_ERR_NOT_FOUND)
        rg_command_note(server, RG_COMMAND_REVOKED, name, NULL, 0);
    printf("%s: %zu certificate%s revoked, %zu token%s withdrawn\n", name, certificates,
           certificates == 1 ? "" : "s", tokens, tokens == 1 ? "" : "s");
    return RG_OK;
}

static enum rg_status revoke_serial(const struct rg_command_server *server, const struct rg_state *state,
                                    const uint8_t *serial, size_t size, char *why, size_t why_size)
{
    char **names;
    size_t n_names, n;
    enum rg_status status = rg_state_list(state, "users", &names, &n_names, why, why_size);
    if (status == RG_OK)
        status = RG_ERR_NOT_FOUND;
    for (size_t i = 0; status == RG_ERR_NOT_FOUND && i < n_names; i++) {
        char ignored[512]; /* of a file that is damaged: the certificate may be in another one */
        const enum rg_status marked = mark(state, names[i], serial, size, &n, ignored, sizeof ignored);
        if (marked == RG_ERR_INVALID)
            rg_warn("%s", ignored);
        else if (marked != RG_ERR_NOT_FOUND) {
            status = marked;
            rg_explain(why, why_size, "%s", ignored);
        }
        if (marked == RG_OK && n)
            rg_command_note(server, RG_COMMAND_REVOKED, names[i], serial, size);
        if (marked == RG_OK)
            printf("%s: %s\n", names[i],
                   n ? "the certificate is revoked" : "the certificate was revoked before");
    }
    rg_state_list_free(names, n_names);
    return status;
}

static enum rg_status revoke_foreign(const struct rg_command_server *server, const struct rg_state *state,
                                     const char *name, bool is_serial, char *why, size_t why_size)
{
    char line[512];
    bool added;
    if (!*name || name[0] == '#' || strpbrk(name, "\r\n") || strlen(name) > 400 || name[0] == ' ')
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "'%.80s' cannot be the name in a certificate", name);
    snprintf(line, sizeof line, "%s%s", is_serial ? SERIAL : "", name);
    const enum rg_status status = rg_revoked_add(state, line, &added, why, why_size);
    if (status == RG_OK && added) {
        uint8_t serial[RG_IDENTITY_SERIAL], size = 0;
        const bool parsed = is_serial && rg_serial_parse(name, serial, &size);
        rg_command_note(server, RG_COMMAND_REVOKED, parsed ? "" : name, serial, size);
    }
    if (status == RG_OK)
        printf("%s: %s in %s/revoked\n", name, added ? "entered" : "was already", state->path);
    uint8_t number[RG_IDENTITY_SERIAL], digits;
    if (status == RG_OK && !is_serial && rg_serial_parse(name, number, &digits))
        rg_warn("'%s' was taken for a user's name; if it is the serial number of a certificate, that is "
                "refused by remote-gpud revoke "
                "serial:%s",
                name, name);
    return status;
}

/* Whether names and serials can only be another authority's. */
static bool is_foreign(const struct rg_command *command, const struct rg_command_server *server,
                       const struct rg_state *state)
{
    return command->foreign || server->is_operators ||
           (faccessat(state->folder, "ca.key", F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT);
}

static int revoke_one(const struct rg_command *command, const struct rg_command_server *server,
                      const struct rg_state *state, const char *word)
{
    const bool says_serial = strncmp(word, SERIAL, strlen(SERIAL)) == 0;
    const char *name = says_serial ? word + strlen(SERIAL) : word;
    uint8_t serial[RG_IDENTITY_SERIAL], size;
    char why[1024] = "";
    const bool can_be_user = !says_serial && rg_user_check_name(name, NULL, 0) == RG_OK;
    const bool is_serial = !can_be_user && rg_serial_parse(name, serial, &size);
    enum rg_status status;
    if (says_serial && !is_serial)
        status = RG_FAILED(RG_ERR_INVALID, why, sizeof why,
                           "a serial number has hexadecimal digits, an even number of them");
    else if (is_foreign(command, server, state))
        status = revoke_foreign(server, state, name, is_serial, why, sizeof why);
    else if (is_serial)
        status = revoke_serial(server, state, serial, size, why, sizeof why);
    else
        status = can_be_user ? revoke_user(server, state, name, why, sizeof why) : RG_ERR_NOT_FOUND;
    if (status == RG_OK)
        return RG_COMMAND_DONE;
    if (status == RG_ERR_NOT_FOUND) {
        rg_error("there is no %s '%s' here, so nothing was revoked; remote-gpud users lists those that are, "
                 "and --foreign is for names of the operator's own authority",
                 is_serial ? "certificate" : "user", name);
        return RG_COMMAND_UNKNOWN;
    }
    rg_error("%s is NOT revoked: %s", name, *why ? why : rg_status_string(status));
    return RG_COMMAND_FAILED;
}

int rg_command_revoke(const struct rg_command *command, const struct rg_command_server *server)
{
    struct rg_state state;
    char why[512] = "";
    int status = RG_COMMAND_DONE;
    if (!rg_command_open(command, server, &state))
        return RG_COMMAND_FAILED;
    if (rg_state_lock(&state, why, sizeof why) != RG_OK) {
        rg_error("nothing was revoked: %s", why);
        rg_state_close(&state);
        return RG_COMMAND_FAILED;
    }
    for (int i = 0; i < command->argc; i++) {
        const int one = revoke_one(command, server, &state, command->argv[i]);
        status = one > status ? one : status;
    }
    rg_state_close(&state);
    return status;
}
