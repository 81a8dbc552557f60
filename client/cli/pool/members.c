/* members.c - the servers that a question is about, where one that was named is in a pool; see pool.h. */
#include "client/cli/pool/pool.h"
#include "client/query/query.h"
#include "common/base/cleanup.h"
#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *rg_cli_pool_name(const struct rg_cli_settings *settings, const char *server, char *out,
                             size_t size)
{
    RG_CLEANUP_FREE struct rg_control *message = calloc(1, sizeof *message);
    char why[1024];
    *out = '\0';
    if (message &&
        rg_query(server, RG_PURPOSE_INVENTORY, settings->timeout_ns, message, why, sizeof why) == RG_OK) {
        snprintf(out, size, "%s", message->inventory.pool);
        rg_control_fini(message);
    }
    return out;
}

/* A server more, unless it is there. False: no memory. */
static bool add(struct rg_text_list *list, const char *server)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i], server) == 0)
            return true;
    char **items = realloc(list->items, (list->n + 1) * sizeof *items);
    char *copy = items ? strdup(server) : NULL;
    if (items)
        list->items = items;
    if (copy)
        list->items[list->n++] = copy;
    return copy;
}

/* The other servers of a server's pool; the one that answers is there by the name that was given. */
static bool add_members(const struct rg_cli_settings *settings, const char *server, struct rg_text_list *out)
{
    char name[RG_CONTROL_TEXT];
    struct rg_pool_failure failure;
    const json_t *member;
    size_t i;
    bool good = true;
    if (!*rg_cli_pool_name(settings, server, name, sizeof name))
        return true;
    json_t *pool = rg_pool_list(server, NULL, settings->timeout_ns, &failure);
    if (!pool)
        rg_warn("the pool %s: %s", name, failure.why);
    const char *self = json_string_value(json_object_get(pool, "self"));
    json_array_foreach(json_object_get(pool, "servers"), i, member)
    {
        const char *id = json_string_value(json_object_get(member, "id")),
                   *address = json_string_value(json_object_get(member, "address"));
        if (address && id && (!self || strcmp(id, self) != 0))
            good = good && add(out, address);
    }
    json_decref(pool);
    return good;
}

bool rg_cli_pool_members(const struct rg_cli_settings *settings, struct rg_text_list *out)
{
    bool good = true;
    *out = (struct rg_text_list){0};
    for (size_t i = 0; i < settings->server.n; i++)
        good = good && add(out, settings->server.items[i]);
    for (size_t i = 0; i < settings->server.n && !settings->server_only; i++)
        good = good && add_members(settings, settings->server.items[i], out);
    if (good)
        return true;
    rg_error("out of memory");
    rg_text_list_clear(out);
    return false;
}
