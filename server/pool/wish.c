/*
 * wish.c - what a question asks for: read, checked as far as that needs nobody else, and made what lies under requests/.
 *
 * Operators may ask for others (`user`), and for a lease of an id of their choice (`id`). By that id they can ask again without
 * getting GPUs twice: what is asked for is kept with the lease as a number (`wish`), which must be the same.
 */
#include "common/base/cleanup.h"
#include "common/base/hash_table.h"
#include "common/base/parse.h"
#include "common/base/printable.h"
#include "common/base/uuid_text.h"
#include "server/daemon/shared/monitor_protocol.h"
#include "server/pool/agent.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define KEPT_DEFAULT (8 * 3600)
#define LOCAL        "uid:"

static uint64_t at_most(uint64_t number, uint64_t most)
{
    return number < most ? number : most;
}

/* --- whose it is to be ---------------------------------------------------------------------------------------------- */

/* What a user of that name would be known by (server/daemon/grant/who.h): the number of this machine's users, or a certificate's name. */
static bool take_owner(struct rg_agent_ask *ask, const char *user)
{
    char clean[RG_CONTROL_TEXT];
    int64_t uid;
    snprintf(clean, sizeof clean, "%s", user);
    rg_printable_clean(clean);
    if (!*user || strcmp(clean, user) != 0)
        return false;
    if (strncmp(user, LOCAL, strlen(LOCAL)) == 0) {
        if (rg_parse_integer(user + strlen(LOCAL), 0, UINT32_MAX - 1, &uid, NULL, 0) != RG_OK)
            return false;
        snprintf(ask->owner, sizeof ask->owner, "%d %" PRId64, (int)RG_PROOF_USER, uid);
    } else {
        snprintf(ask->owner, sizeof ask->owner, "%d %s", (int)RG_PROOF_CERTIFICATE, user);
    }
    snprintf(ask->owner_name, sizeof ask->owner_name, "%s", user);
    ask->bearer = ask->unproved;
    return true;
}

/* False: it was refused. */
static bool read_owner(struct rg_agent_ask *ask, const json_t *question)
{
    const char *user = json_string_value(json_object_get(question, "user"));
    memcpy(ask->owner, ask->key, sizeof ask->owner);
    memcpy(ask->owner_name, ask->name, sizeof ask->owner_name);
    if (!user && !json_object_get(question, "id"))
        return true;
    if (!ask->is_operator) {
        rg_ask_refuse_as(
            ask, "lease-not-operator",
            "only operators of the pool take leases for others or with an id of their choice, and "
            "you are %s here; the servers' --pool-operators names them",
            ask->name[0] ? ask->name : "somebody unauthenticated");
        return false;
    }
    if (user && !take_owner(ask, user)) {
        rg_ask_refuse_as(ask, "lease-user",
                         "the user is no name as remote-gpud users shows it, and none like uid:1000");
        return false;
    }
    return true;
}

/* It is kept with the lease, told to whoever sees that, and counted by; a session's is cut to this. False: it was refused. */
static bool check_project(struct rg_agent_ask *ask, const json_t *question)
{
    const char *project = rg_json_get_text(question, "project");
    char clean[RG_CONTROL_TEXT];
    snprintf(clean, sizeof clean, "%s", project);
    rg_printable_clean(clean);
    if (strcmp(clean, project) == 0)
        return true;
    rg_ask_refuse_as(ask, "lease-project",
                     "the project's name has more than %zu bytes, or characters that cannot be shown",
                     sizeof clean - 1);
    return false;
}

/* False: it was refused. */
static bool read_priority(struct rg_agent_ask *ask, const json_t *question)
{
    const char *text = json_string_value(json_object_get(question, "priority"));
    if (!text || rg_share_priority_parse(text, &ask->priority))
        return true;
    rg_ask_refuse_as(ask, "lease-question", "the priority is none of low, normal, high");
    return false;
}

/* --- the ids -------------------------------------------------------------------------------------------------------- */

/* Of request and lease. False: it was refused. */
static bool read_id(struct rg_agent_ask *ask, const json_t *question)
{
    const char *id = rg_json_get_text(question, "id");
    if (!json_object_get(question, "id")) {
        if (rg_pool_make_id(ask->id))
            return true;
        rg_ask_refuse(ask, "the server has no randomness; try again");
        return false;
    }
    if (!rg_pool_is_id(id) || strcmp(id, "0000000000000000") == 0) {
        rg_ask_refuse_as(ask, "lease-id",
                         "an id of a lease has 16 hexadecimal digits in lower case, not all 0");
        return false;
    }
    if (!json_is_true(json_object_get(question, "kept"))) {
        rg_ask_refuse_as(ask, "lease-id", "only a lease that is kept can have an id of your choice");
        return false;
    }
    ask->chosen = true;
    memcpy(ask->id, id, sizeof ask->id - 3);
    memcpy(ask->lease, ask->id, sizeof ask->lease);
    return true;
}

/* --- which GPUs ------------------------------------------------------------------------------------------------------ */

static bool is_in_pool(const struct rg_agent *agent, const char *uuid)
{
    const char *bare = rg_uuid_bare(uuid);
    for (uint32_t i = 0; i < agent->mirror.n_members; i++)
        for (uint32_t j = 0; j < agent->mirror.members[i]->n_gpus; j++) {
            const char *there = agent->mirror.members[i]->gpus[j]->uuid;
            if (strcasecmp(rg_uuid_bare(there), bare) == 0)
                return true;
        }
    return false;
}

/* "NAME=VALUE" or "NAME", which is any value, as an object. */
static json_t *tolerations_of(const json_t *list)
{
    json_t *out = json_object();
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one)
    {
        char name[RG_POOL_TEXT];
        snprintf(name, sizeof name, "%s", json_string_value(one));
        char *value = strchr(name, '=');
        if (value)
            *value++ = '\0';
        (void)json_object_set_new(out, name, value ? json_string(value) : json_null());
    }
    return out;
}

/* False: it was refused. */
static bool check_texts(struct rg_agent_ask *ask, const json_t *list, const char *what, size_t most)
{
    const json_t *one;
    size_t i;
    if (list && !json_is_array(list)) {
        rg_ask_refuse_as(ask, "lease-question", "the %s are no list: the client is of another version", what);
        return false;
    }
    if (json_array_size(list) > most) {
        rg_ask_refuse_as(ask, "lease-question", "%zu %s are named, and there may be %zu at most",
                         json_array_size(list), what, most);
        return false;
    }
    json_array_foreach(list, i, one) if (!json_is_string(one))
    {
        rg_ask_refuse_as(ask, "lease-question", "the %s are no texts: the client is of another version",
                         what);
        return false;
    }
    return true;
}

static bool check_devices(struct rg_agent_ask *ask, const json_t *devices, uint64_t gpus)
{
    const json_t *one, *other;
    size_t i, j;
    if (json_array_size(devices) && gpus != json_array_size(devices)) {
        rg_ask_refuse_as(ask, "lease-devices",
                         "%" PRIu64 " GPUs are asked for, and %zu are named: leave one out", gpus,
                         json_array_size(devices));
        return false;
    }
    json_array_foreach(devices, i, one)
    {
        if (!is_in_pool(ask->agent, json_string_value(one))) {
            rg_ask_refuse_as(
                ask, "lease-device-unknown",
                "no server of the pool has a GPU %.60s now; remote-gpu list --json shows those that "
                "there are",
                json_string_value(one));
            return false;
        }
        json_array_foreach(
            devices, j, other) if (j < i && strcasecmp(json_string_value(one), json_string_value(other)) == 0)
        {
            rg_ask_refuse_as(ask, "lease-devices", "the GPU %.60s is named twice", json_string_value(one));
            return false;
        }
    }
    return true;
}

/* --- how much, how long ----------------------------------------------------------------------------------------------- */

static bool check_figures(struct rg_agent_ask *ask, uint64_t gpus, uint64_t seconds, bool kept,
                          uint32_t max_gpus)
{
    const uint32_t most = max_gpus && max_gpus < RG_POOL_GPUS_MAX ? max_gpus : RG_POOL_GPUS_MAX;
    if (gpus == 0 || gpus > most) {
        rg_ask_refuse_as(ask, "lease-gpus",
                         "%" PRIu64 " GPUs were asked for, and you may have 1 to %u at once", gpus, most);
        return false;
    }
    if (kept && (seconds == 0 || seconds > RG_POOL_KEPT_MAX_S)) {
        rg_ask_refuse_as(ask, "lease-time",
                         "a lease is kept for 1 s to %u days, and %" PRIu64 " s were asked for",
                         RG_POOL_KEPT_MAX_S / 86400, seconds);
        return false;
    }
    return true;
}

/* What must be the same to be the same wish: everything but the time, which a renewal changes. */
static json_t *wish_of(const json_t *request)
{
    static const char *const members[] = {"user",    "project", "gpus",   "memory",   "fraction",
                                          "filters", "devices", "spread", "tolerate", "priority"};
    json_t *wish = json_object();
    for (size_t i = 0; i < sizeof members / sizeof members[0] && wish; i++) {
        json_t *value = json_object_get(request, members[i]);
        if (value)
            (void)json_object_set(wish, members[i], value);
    }
    RG_CLEANUP_FREE char *text = wish ? json_dumps(wish, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(wish);
    return text ? json_sprintf("%016" PRIx64, rg_hash_bytes(RG_HASH_EMPTY, text, strlen(text))) : NULL;
}

bool rg_wish_is_same(const json_t *one, const json_t *other)
{
    const char *wish = rg_json_get_text(one, "wish");
    return *wish && strcmp(wish, rg_json_get_text(other, "wish")) == 0;
}

static json_t *list_of(const json_t *question, const char *name)
{
    json_t *list = json_object_get(question, name);
    return list ? json_incref(list) : json_array();
}

/* What it is for, or the machine that asks, in one line that is worth showing; else nothing is said. */
static void add_line(json_t *out, const json_t *question, const char *name)
{
    char line[RG_AGENT_JOB];
    snprintf(line, sizeof line, "%s", rg_json_get_text(question, name));
    rg_printable_clean(line);
    if (out && *line)
        (void)json_object_set_new(out, name, json_string(line));
}

static json_t *request_json(const struct rg_agent_ask *ask, const json_t *question, uint64_t gpus,
                            uint64_t seconds)
{
    json_t *devices = list_of(question, "devices");
    /* who names GPUs has chosen their servers as well */
    const bool spread = json_is_true(json_object_get(question, "spread")) || json_array_size(devices) > 0;
    json_t *out = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:b, s:b, s:I, s:I}", "user", ask->owner, "name",
        ask->owner_name, "project", rg_json_get_text(question, "project"), "agent", ask->agent->run, "gpus",
        (json_int_t)gpus, "memory", (json_int_t)at_most(rg_json_get_number(question, "memory", 0), INT64_MAX),
        "fraction", (json_int_t)at_most(rg_json_get_number(question, "fraction", 0), 1000000), "filters",
        list_of(question, "filters"), "devices", devices, "spread", (int)spread, "kept",
        json_is_true(json_object_get(question, "kept")), "seconds", (json_int_t)seconds, "since",
        (json_int_t)rg_agent_time(ask->agent));
    if (out && json_array_size(json_object_get(question, "tolerate")))
        (void)json_object_set_new(out, "tolerate", tolerations_of(json_object_get(question, "tolerate")));
    if (out && strcmp(ask->owner, ask->key) != 0)
        (void)json_object_set_new(out, "by", json_string(ask->name));
    if (out && ask->bearer)
        (void)json_object_set_new(out, "bearer", json_true());
    if (out && ask->priority)
        (void)json_object_set_new(out, "priority", json_string(rg_share_priority_name(ask->priority)));
    add_line(out, question, "job");
    add_line(out, question, "machine");
    if (out && ask->chosen)
        (void)json_object_set_new(out, "wish", wish_of(out));
    return out;
}

bool rg_wish_read(struct rg_agent_ask *ask, const json_t *question, uint32_t max_gpus)
{
    const json_t *devices = json_object_get(question, "devices");
    const bool kept = json_is_true(json_object_get(question, "kept"));
    const uint64_t gpus =
        rg_json_get_number(question, "gpus", json_array_size(devices) ? json_array_size(devices) : 1);
    const uint64_t seconds = rg_json_get_number(question, "seconds", kept ? KEPT_DEFAULT : 0);
    const uint32_t most = json_object_get(question, "user") ? 0 : max_gpus; /* that is of who asks */
    if (!read_owner(ask, question) || !check_project(ask, question) || !read_priority(ask, question) ||
        !read_id(ask, question) ||
        !check_texts(ask, json_object_get(question, "filters"), "filters", RG_POOL_FILTERS_MAX) ||
        !check_texts(ask, json_object_get(question, "tolerate"), "tolerations", RG_POOL_FILTERS_MAX) ||
        !check_texts(ask, devices, "GPUs", RG_POOL_GPUS_MAX) || !check_devices(ask, devices, gpus) ||
        !check_figures(ask, gpus, seconds, kept, most))
        return false;
    ask->request = request_json(ask, question, gpus, seconds);
    if (!ask->request)
        rg_ask_refuse(ask, "the server is out of memory");
    return ask->request;
}
