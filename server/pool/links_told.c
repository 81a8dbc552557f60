/*
 * links_told.c - what was measured between machines and servers (links.c), as a client may know it: what one has measured oneself, as an
 * operator what all have.
 *
 * An answer has a limited size: machines come in the order of their ids, as many as fit, and those behind them are asked for by the last
 * that was told. Of a machine with more servers than fit into an answer alone, some are left out, and it is said how many. Servers that
 * are not in the pool any more are not told.
 */
#include "common/base/cleanup.h"
#include "common/base/printable.h"
#include "server/pool/agent.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_SIZE (RG_ANSWER_SIZE_MAX - 4096u) /* of machines */
#define NUMBERS   48u /* bytes of two numbers, and what stands around them and the address */

static json_t *clean_text(const char *text)
{
    char clean[RG_CONTROL_TEXT];
    snprintf(clean, sizeof clean, "%s", text);
    rg_printable_clean(clean);
    return json_string(clean);
}

/* The figures of servers that are in the pool, as many as there is room for; *left_out: of how many there are others. */
static json_t *servers_json(const struct rg_agent *agent, const json_t *known, size_t room,
                            json_int_t *left_out)
{
    json_t *out = json_object();
    size_t used = 0;
    *left_out = 0;
    for (uint32_t i = 0; i < agent->mirror.n_members && out; i++) {
        const char *address = agent->mirror.members[i]->address;
        json_t *figures = address ? json_object_get(known, address) : NULL, *name;
        if (!figures || !(name = json_string(address)))
            continue;
        const json_int_t latency = json_integer_value(json_array_get(figures, 0)),
                         bandwidth = json_integer_value(json_array_get(figures, 1));
        const size_t size = json_dumpb(name, NULL, 0, JSON_ENCODE_ANY) + NUMBERS;
        json_decref(name);
        if (used + size > room) {
            ++*left_out;
            continue;
        }
        used += size;
        (void)json_object_set_new(out, address, json_pack("[I, I]", latency, bandwidth));
    }
    return out;
}

/* NULL: no memory. */
static json_t *machine_json(const struct rg_agent *agent, const struct rg_pool_entry *entry)
{
    char name[RG_AGENT_WHO];
    json_int_t left_out;
    rg_agent_user_name(rg_json_get_text(entry->value, "user"), name, sizeof name);
    json_t *servers =
        servers_json(agent, json_object_get(entry->value, "servers"), PAGE_SIZE - 2048u, &left_out);
    json_t *out =
        json_pack("{s:o, s:o, s:I, s:o}", "machine", clean_text(rg_json_get_text(entry->value, "machine")),
                  "name", clean_text(name), "measured",
                  (json_int_t)rg_json_get_number(entry->value, "as_of", 0), "servers", servers);
    if (out && left_out)
        (void)json_object_set_new(out, "left_out", json_integer(left_out));
    return out;
}

static int compare_ids(const void *a, const void *b)
{
    const struct rg_pool_entry *const *one = a, *const *other = b;
    return strcmp((*one)->id, (*other)->id);
}

json_t *rg_links_told(const struct rg_agent *agent, const char *key, bool is_operator, const char *after)
{
    const struct rg_pool_mirror *mirror = &agent->mirror;
    RG_CLEANUP_FREE const struct rg_pool_entry **found = calloc(mirror->n_links + 1u, sizeof *found);
    json_t *links = found ? json_array() : NULL;
    uint32_t n = 0, told = 0;
    for (uint32_t i = 0; i < mirror->n_links && links; i++) {
        const bool own = strcmp(rg_json_get_text(mirror->links[i]->value, "user"), key) == 0;
        if ((own || is_operator) && strcmp(mirror->links[i]->id, after) > 0)
            found[n++] = mirror->links[i];
    }
    if (n)
        qsort(found, n, sizeof *found, compare_ids);
    for (size_t used = 0; told < n; told++) {
        json_t *one = machine_json(agent, found[told]);
        const size_t size = one ? json_dumpb(one, NULL, 0, JSON_COMPACT) + 1 : 0;
        if (used && used + size > PAGE_SIZE) {
            json_decref(one);
            break;
        }
        used += size;
        (void)json_array_append_new(links, one);
    }
    return json_pack("{s:s, s:o, s:s*}", "state", "links", "links", links, "more_links",
                     told < n && told ? found[told - 1]->id : NULL);
}
