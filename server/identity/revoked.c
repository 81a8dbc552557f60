/* revoked.c - see revoked.h. */
#include "server/identity/revoked.h"

#include "common/base/cleanup.h"
#include "server/identity/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERIAL "serial:"

enum rg_status rg_revoked_read(const struct rg_state *state, char **text, char *why, size_t why_size)
{
    size_t size = 0;
    const enum rg_status status =
        rg_state_read(state, "revoked", RG_STATE_PUBLIC, text, &size, why, why_size);
    if (status == RG_ERR_NOT_FOUND) {
        *text = calloc(1, 1);
        return *text ? RG_OK : RG_ERR_NO_MEMORY;
    }
    if (status == RG_OK && strlen(*text) != size) {
        rg_explain(why, why_size, "%s/revoked is no text", state->path);
        free(*text);
        *text = NULL;
        return RG_ERR_INVALID;
    }
    return status;
}

char *rg_revoked_next(char **at)
{
    while (**at) {
        char *line = *at, *end = strchr(line, '\n');
        *at = end ? end + 1 : line + strlen(line);
        if (!end)
            end = *at;
        while (end > line && strchr(" \t\r\n", end[-1]))
            end--;
        *end = 0;
        line += strspn(line, " \t");
        if (*line && *line != '#')
            return line;
    }
    return NULL;
}

enum rg_status rg_revoked_check(const struct rg_state *state, const char *name, const uint8_t *serial,
                                size_t serial_size, char *why, size_t why_size)
{
    RG_CLEANUP_FREE char *text = NULL;
    RG_TRY(rg_revoked_read(state, &text, why, why_size));
    char *at = text;
    for (const char *line = rg_revoked_next(&at); line; line = rg_revoked_next(&at)) {
        uint8_t listed[RG_IDENTITY_SERIAL], size;
        const bool is_serial = strncmp(line, SERIAL, strlen(SERIAL)) == 0 &&
                               rg_serial_parse(line + strlen(SERIAL), listed, &size);
        if (is_serial && rg_serial_equal(listed, size, serial, serial_size))
            return RG_FAILED(RG_ERR_REFUSED, why, why_size,
                             "this certificate of '%s' has been revoked; ask the server's operator", name);
        if (!is_serial && strcmp(line, name) == 0)
            return RG_FAILED(RG_ERR_REFUSED, why, why_size,
                             "'%s' has been revoked; ask the server's operator", name);
    }
    return RG_OK;
}

enum rg_status rg_revoked_add(const struct rg_state *state, const char *line, bool *added, char *why,
                              size_t why_size)
{
    RG_CLEANUP_FREE char *text = NULL;
    enum rg_status status = rg_revoked_read(state, &text, why, why_size);
    RG_CLEANUP_FREE char *copy = status == RG_OK ? strdup(text) : NULL;
    if (status != RG_OK || !copy)
        return status != RG_OK ? status : RG_ERR_NO_MEMORY;
    *added = true;
    char *at = copy;
    for (const char *other = rg_revoked_next(&at); other; other = rg_revoked_next(&at))
        if (strcmp(other, line) == 0) {
            *added = false;
            return RG_OK;
        }
    const size_t size = strlen(text), more = strlen(line) + 2;
    char *whole = realloc(text, size + more + 1);
    if (!whole)
        return RG_ERR_NO_MEMORY;
    text = whole;
    const int wrote =
        snprintf(text + size, more + 1, "%s%s\n", size && text[size - 1] != '\n' ? "\n" : "", line);
    return rg_state_write(state, "revoked", text, size + (size_t)wrote, why, why_size);
}
