/* methods.c - what the kubelet asks a device plugin (v1beta1). See plugin.h. */
#include "client/cli/cdi/spec.h"
#include "common/base/log.h"
#include "generated/places/kubernetes/proto/deviceplugin.pb-c.h"
#include "places/kubernetes/grpc/message.h"
#include "places/kubernetes/plugin/devices.h"
#include "places/kubernetes/plugin/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum rg_grpc_status get_options(void *context, const uint8_t *message, size_t size,
                                       struct rg_grpc_answer *answer)
{
    Rg__Plugin__Options options = RG__PLUGIN__OPTIONS__INIT;
    (void)context, (void)message, (void)size;
    options.has_preference = true;
    return rg_grpc_pack(&options.base, answer);
}

/* The options say that it is not asked. */
static enum rg_grpc_status start(void *context, const uint8_t *message, size_t size,
                                 struct rg_grpc_answer *answer)
{
    const Rg__Plugin__Empty empty = RG__PLUGIN__EMPTY__INIT;
    (void)context, (void)message, (void)size;
    return rg_grpc_pack(&empty.base, answer);
}

/* --- which are best ---------------------------------------------------------------------------------------------------- */

static bool choose(const struct rg_kube_plugin *plugin, struct rg_grpc_arena *arena,
                   const Rg__Plugin__Choice *asked, Rg__Plugin__DeviceIds *out)
{
    const size_t wanted = asked->size > 0 ? (size_t)asked->size : 0;
    const struct rg_kube_choice choice = {
        .available = asked->available,
        .n = asked->n_available,
        .must = asked->must_have,
        .n_must = asked->n_must_have,
        .wanted = wanted < asked->n_available ? wanted : asked->n_available,
    };
    const char **chosen = rg_grpc_hold(arena, calloc(choice.wanted + 1, sizeof *chosen));
    if (!chosen)
        return false;
    out->n_ids = rg_kube_plugin_choose(plugin->devices, &choice, chosen);
    out->ids = (char **)(uintptr_t)chosen;
    return true;
}

static enum rg_grpc_status prefer(void *context, const uint8_t *message, size_t size,
                                  struct rg_grpc_answer *answer)
{
    struct rg_kube_plugin *plugin = context;
    struct rg_grpc_arena arena = {0};
    Rg__Plugin__ContainersIds out = RG__PLUGIN__CONTAINERS_IDS__INIT;
    Rg__Plugin__Choices *asked = rg__plugin__choices__unpack(NULL, size, message);
    if (!asked)
        return rg_grpc_malformed(answer);
    bool good = (out.containers =
                     rg_grpc_hold(&arena, calloc(asked->n_containers + 1, sizeof *out.containers))) != NULL;
    pthread_mutex_lock(&plugin->lock);
    for (size_t i = 0; good && i < asked->n_containers; i++) {
        Rg__Plugin__DeviceIds *ids = rg_grpc_hold(&arena, malloc(sizeof *ids));
        if ((good = ids != NULL)) {
            rg__plugin__device_ids__init(ids);
            good = choose(plugin, &arena, asked->containers[i], ids);
            out.containers[out.n_containers++] = ids;
        }
    }
    pthread_mutex_unlock(&plugin->lock);
    const enum rg_grpc_status status = good ? rg_grpc_pack(&out.base, answer) : rg_grpc_no_memory(answer);
    rg__plugin__choices__free_unpacked(asked, NULL);
    rg_grpc_let_go(&arena);
    return status;
}

/* --- a container's part ------------------------------------------------------------------------------------------------- */

static bool add_variable(struct rg_grpc_arena *arena, Rg__Plugin__Edits *out, const char *assignment)
{
    Rg__Plugin__Variable *variable = rg_grpc_hold(arena, malloc(sizeof *variable));
    const char *value = strchr(assignment, '=');
    if (!variable || !value)
        return false;
    rg__plugin__variable__init(variable);
    variable->name = rg_grpc_hold(arena, strndup(assignment, (size_t)(value - assignment)));
    variable->value = rg_grpc_hold_text(arena, value + 1);
    out->variables[out->n_variables++] = variable;
    return variable->name && variable->value;
}

static bool add_mount(struct rg_grpc_arena *arena, Rg__Plugin__Edits *out, const json_t *from)
{
    Rg__Plugin__Mount *mount = rg_grpc_hold(arena, malloc(sizeof *mount));
    if (!mount)
        return false;
    rg__plugin__mount__init(mount);
    mount->container_path = rg_grpc_hold_text(arena, rg_json_get_text(from, "containerPath"));
    mount->host_path = rg_grpc_hold_text(arena, rg_json_get_text(from, "hostPath"));
    mount->read_only = true;
    out->mounts[out->n_mounts++] = mount;
    return mount->container_path && mount->host_path;
}

/* What a specification of CDI says, as the kubelet takes it. */
static bool fill(struct rg_grpc_arena *arena, const struct rg_cdi_spec *spec, Rg__Plugin__Edits *out)
{
    const json_t *one;
    size_t i;
    out->variables = rg_grpc_hold(arena, calloc(json_array_size(spec->env) + 1, sizeof *out->variables));
    out->mounts = rg_grpc_hold(arena, calloc(json_array_size(spec->mounts) + 1, sizeof *out->mounts));
    bool good = out->variables && out->mounts && spec->env && spec->mounts;
    json_array_foreach(spec->env, i, one) good = good && add_variable(arena, out, json_string_value(one));
    json_array_foreach(spec->mounts, i, one) good = good && add_mount(arena, out, one);
    return good;
}

static bool allocate_one(struct rg_kube_plugin *plugin, struct rg_grpc_arena *arena,
                         const Rg__Plugin__DeviceIds *asked, Rg__Plugin__Edits *out, char *why,
                         size_t why_size)
{
    const struct rg_kube_places *places = &plugin->places;
    struct rg_cdi_spec spec;
    bool good = false;
    rg_cdi_init(&spec);
    const struct rg_kube_grant *grant =
        rg_kube_places_add_tree(places, &spec, why, why_size)
            ? rg_kube_plugin_take(plugin, asked->ids, asked->n_ids, why, why_size)
            : NULL;
    if (grant) {
        rg_cdi_add_variable(&spec, "REMOTE_GPU_SERVER", grant->servers);
        rg_cdi_add_variable(&spec, "REMOTE_GPU_LEASE", grant->lease);
        for (size_t i = 0; i < places->environment.n; i++)
            rg_cdi_add_assignment(&spec, places->environment.items[i]);
        good = fill(arena, &spec, out);
        if (!good)
            rg_explain(why, why_size, "out of memory, or a text is no UTF-8");
    }
    rg_cdi_fini(&spec);
    return good;
}

static enum rg_grpc_status refuse(const char *why, struct rg_grpc_answer *answer)
{
    rg_warn("a container gets no GPUs: %s", why);
    snprintf(answer->why, sizeof answer->why, "%.*s", (int)sizeof answer->why - 1, why);
    return RG_GRPC_RESOURCE_EXHAUSTED;
}

/* A pod's containers come one by one; where the kubelet asks for several at once, each has a lease of its own. */
static enum rg_grpc_status allocate(void *context, const uint8_t *message, size_t size,
                                    struct rg_grpc_answer *answer)
{
    struct rg_kube_plugin *plugin = context;
    struct rg_grpc_arena arena = {0};
    char why[1024] = "out of memory";
    Rg__Plugin__AllocateAnswer out = RG__PLUGIN__ALLOCATE_ANSWER__INIT;
    Rg__Plugin__ContainersIds *asked = rg__plugin__containers_ids__unpack(NULL, size, message);
    if (!asked)
        return rg_grpc_malformed(answer);
    bool good = (out.containers =
                     rg_grpc_hold(&arena, calloc(asked->n_containers + 1, sizeof *out.containers))) != NULL;
    pthread_mutex_lock(&plugin->lock);
    for (size_t i = 0; good && i < asked->n_containers; i++) {
        Rg__Plugin__Edits *edits = rg_grpc_hold(&arena, malloc(sizeof *edits));
        if ((good = edits != NULL)) {
            rg__plugin__edits__init(edits);
            good = allocate_one(plugin, &arena, asked->containers[i], edits, why, sizeof why);
            out.containers[out.n_containers++] = edits;
        }
    }
    pthread_mutex_unlock(&plugin->lock);
    const enum rg_grpc_status status = good ? rg_grpc_pack(&out.base, answer) : refuse(why, answer);
    rg__plugin__containers_ids__free_unpacked(asked, NULL);
    rg_grpc_let_go(&arena);
    return status;
}

#define PLUGIN "/v1beta1.DevicePlugin/"

const struct rg_grpc_method rg_kube_plugin_methods[] = {
    {PLUGIN "GetDevicePluginOptions", get_options},
    {PLUGIN "ListAndWatch", NULL},
    {PLUGIN "GetPreferredAllocation", prefer},
    {PLUGIN "Allocate", allocate},
    {PLUGIN "PreStartContainer", start},
};
const size_t rg_kube_plugin_n_methods = sizeof rg_kube_plugin_methods / sizeof rg_kube_plugin_methods[0];
