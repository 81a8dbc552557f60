/* users.c - see users.h. */
#include "server/identity/users.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORGOTTEN_AFTER (30 * 86400ll)
#define SERIAL_DIGITS   16 /* from so many hexadecimal digits on, a name could be a serial number */

/* --- names -------------------------------------------------------------------------------------------------------------- */

static bool is_allowed(const char *name)
{
    if (name[0] == 0 || name[0] == '.' || name[0] == '-' || strlen(name) >= RG_USER_NAME)
        return false;
    for (const char *at = name; *at; at++)
        if (!isascii((unsigned char)*at) || (!isalnum((unsigned char)*at) && !strchr("._@+-", *at)))
            return false;
    return true;
}

enum rg_status rg_user_check_name(const char *name, char *why, size_t why_size)
{
    if (!is_allowed(name))
        return RG_FAILED(
            RG_ERR_INVALID, why, why_size,
            "'%.80s' cannot be a user's name: 1 to 64 letters, digits and any of ._@+- (not first: . and -)",
            name);
    if (strlen(name) >= SERIAL_DIGITS && strspn(name, "0123456789abcdefABCDEF") == strlen(name))
        return RG_FAILED(RG_ERR_INVALID, why, why_size,
                         "'%s' cannot be a user's name: it looks like the serial number of a certificate",
                         name);
    return RG_OK;
}

/* --- files -------------------------------------------------------------------------------------------------------------- */

void rg_limits_add(struct rg_text *text, const struct rg_identity_limits *limits)
{
    if (limits->max_sessions)
        rg_text_add(text, "max-sessions %u\n", limits->max_sessions);
    if (limits->max_gpus)
        rg_text_add(text, "max-gpus %u\n", limits->max_gpus);
}

bool rg_limits_take(const struct rg_fields *fields, struct rg_identity_limits *limits)
{
    uint64_t number;
    if (fields->n != 2)
        return false;
    if (!rg_field_number(fields->words[1], UINT32_MAX, &number))
        return false;
    if (rg_fields_is(fields, "max-sessions", 2))
        limits->max_sessions = (uint32_t)number;
    else if (rg_fields_is(fields, "max-gpus", 2))
        limits->max_gpus = (uint32_t)number;
    else
        return false;
    return true;
}

static bool take_certificate(const struct rg_fields *fields, struct rg_user_certificate *to)
{
    char *const *words = fields->words;
    const bool revoked = fields->n == 8;
    return (rg_fields_is(fields, "certificate", 6) || rg_fields_is(fields, "certificate", 8)) &&
           rg_serial_parse(words[1], to->serial, &to->serial_size) && strcmp(words[2], "issued") == 0 &&
           rg_field_time(words[3], &to->issued) && strcmp(words[4], "expires") == 0 &&
           rg_field_time(words[5], &to->expires) &&
           (!revoked ||
            (strcmp(words[6], "revoked") == 0 && rg_field_time(words[7], &to->revoked) && to->revoked));
}

static enum rg_status parse(const char *path, char *text, struct rg_user *user, char *why, size_t why_size)
{
    size_t lines = 2;
    for (const char *at = text; *at; at++)
        lines += *at == '\n';
    user->certificates = calloc(lines, sizeof *user->certificates);
    if (!user->certificates)
        return RG_ERR_NO_MEMORY;
    struct rg_fields fields = {.file = path, .at = text};
    while (rg_fields_next(&fields)) {
        if (rg_limits_take(&fields, &user->limits))
            continue;
        if (!take_certificate(&fields, &user->certificates[user->n]))
            return rg_fields_bad(&fields, why, why_size);
        user->n++;
    }
    return RG_OK;
}

enum rg_status rg_user_load(const struct rg_state *state, const char *name, struct rg_user *user, char *why,
                            size_t why_size)
{
    char path[RG_USER_NAME + 8], *text = NULL;
    size_t size;
    memset(user, 0, sizeof *user);
    if (!is_allowed(name))
        return RG_ERR_NOT_FOUND;
    snprintf(user->name, sizeof user->name, "%s", name);
    snprintf(path, sizeof path, "users/%s", name);
    enum rg_status status = rg_state_read(state, path, RG_STATE_PUBLIC, &text, &size, why, why_size);
    if (status == RG_OK && strlen(text) != size) {
        rg_explain(why, why_size, "%s/%s is no text: restore it from a backup", state->path, path);
        status = RG_ERR_INVALID;
    }
    if (status == RG_OK) {
        status = parse(path, text, user, why, why_size);
    } else if (status == RG_ERR_NOT_FOUND) {
        user->certificates = calloc(1, sizeof *user->certificates);
        status = user->certificates ? RG_ERR_NOT_FOUND : RG_ERR_NO_MEMORY;
    }
    free(text);
    if (status != RG_OK && status != RG_ERR_NOT_FOUND)
        rg_user_fini(user);
    return status;
}

enum rg_status rg_user_save(const struct rg_state *state, const struct rg_user *user, int64_t now, char *why,
                            size_t why_size)
{
    char path[RG_USER_NAME + 8];
    struct rg_text text = {0};
    snprintf(path, sizeof path, "users/%s", user->name);
    rg_text_add(&text, "# a user of remote-gpud; remote-gpud users shows it, remote-gpud revoke %s ends it\n",
                user->name);
    rg_limits_add(&text, &user->limits);
    for (size_t i = 0; i < user->n; i++) {
        const struct rg_user_certificate *one = &user->certificates[i];
        if (one->expires < now &&
            (one->expires < now - FORGOTTEN_AFTER || user->n > RG_IDENTITY_CERTIFICATES_MAX))
            continue;
        char serial[2 * RG_IDENTITY_SERIAL + 1];
        rg_serial_text(one->serial, one->serial_size, serial);
        rg_text_add(&text, "certificate %s issued %lld expires %lld", serial, (long long)one->issued,
                    (long long)one->expires);
        if (one->revoked)
            rg_text_add(&text, " revoked %lld", (long long)one->revoked);
        rg_text_add(&text, "\n");
    }
    const enum rg_status status =
        text.failed ? RG_ERR_NO_MEMORY : rg_state_write(state, path, text.data, text.size, why, why_size);
    rg_text_fini(&text);
    return status;
}

void rg_user_fini(struct rg_user *user)
{
    free(user->certificates);
    memset(user, 0, sizeof *user);
}

struct rg_user_certificate *rg_user_find(struct rg_user *user, const uint8_t *serial, size_t serial_size)
{
    for (size_t i = 0; i < user->n; i++)
        if (rg_serial_equal(user->certificates[i].serial, user->certificates[i].serial_size, serial,
                            serial_size))
            return &user->certificates[i];
    return NULL;
}

size_t rg_user_unexpired(const struct rg_user *user, int64_t now)
{
    size_t n = 0;
    for (size_t i = 0; i < user->n; i++)
        n += user->certificates[i].expires > now;
    return n;
}

size_t rg_user_valid(const struct rg_user *user, int64_t now)
{
    size_t n = 0;
    for (size_t i = 0; i < user->n; i++)
        n += !user->certificates[i].revoked && user->certificates[i].expires > now;
    return n;
}
