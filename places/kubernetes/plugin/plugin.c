/* plugin.c - see plugin.h. */
#include "places/kubernetes/plugin/plugin.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "generated/places/kubernetes/proto/deviceplugin.pb-c.h"
#include "places/kubernetes/grpc/message.h"
#include "places/kubernetes/plugin/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool rg_kube_plugin_create(struct rg_kube_plugin *plugin, const struct rg_text_list *servers,
                           uint64_t timeout_ns, const char *file, char *why, size_t why_size)
{
    pthread_mutex_init(&plugin->lock, NULL);
    rg_kube_pool_init(&plugin->pool, servers, timeout_ns);
    plugin->leases.pool = &plugin->pool;
    return rg_kube_kept_load(&plugin->kept, file, why, why_size);
}

void rg_kube_plugin_destroy(struct rg_kube_plugin *plugin)
{
    rg_kube_leases_fini(&plugin->leases);
    rg_kube_pool_fini(&plugin->pool);
    rg_kube_kept_fini(&plugin->kept);
    json_decref(plugin->devices);
    pthread_mutex_destroy(&plugin->lock);
}

/* --- leases ----------------------------------------------------------------------------------------------------------- */

/* Gives back number `i` of those kept. False: it is to be tried again. */
static bool give_back(struct rg_kube_plugin *plugin, size_t i)
{
    char why[512];
    if (!rg_kube_leases_give_back(&plugin->leases, plugin->kept.items[i].id))
        return false;
    if (rg_kube_kept_remove(&plugin->kept, i, why, sizeof why))
        return true;
    rg_warn("%s", why); /* given back once more, the next time */
    return false;
}

/* The same at once, although it was tried a moment ago. */
static bool give_back_now(struct rg_kube_plugin *plugin, size_t i)
{
    struct rg_kube_lease *lease = rg_kube_leases_find(&plugin->leases, plugin->kept.items[i].id);
    plugin->kept.items[i].over = true;
    if (lease)
        lease->next_ns = 0;
    return give_back(plugin, i);
}

/* Has the pool's lease of what is kept. False: `why` of it says why not. */
static bool take(struct rg_kube_plugin *plugin, struct rg_kube_lease *lease,
                 const struct rg_kube_kept_lease *kept)
{
    const char *devices[RG_POOL_GPUS_MAX];
    const size_t n = json_array_size(kept->devices);
    for (size_t i = 0; i < n && i < RG_POOL_GPUS_MAX; i++)
        devices[i] = json_string_value(json_array_get(kept->devices, i));
    return rg_kube_leases_take_devices(&plugin->leases, lease, devices,
                                       (unsigned)(n < RG_POOL_GPUS_MAX ? n : RG_POOL_GPUS_MAX), plugin->user,
                                       NULL);
}

/* The kubelet gives a GPU to another container when the one before has ended. */
static bool free_devices(struct rg_kube_plugin *plugin, char *const *devices, size_t n)
{
    bool good = true;
    for (size_t i = plugin->kept.n; i-- > 0;)
        for (size_t j = 0; j < n; j++)
            if (rg_kube_kept_has(&plugin->kept.items[i], devices[j])) {
                good = give_back_now(plugin, i) && good;
                break;
            }
    return good;
}

const struct rg_kube_grant *rg_kube_plugin_take(struct rg_kube_plugin *plugin, char *const *devices, size_t n,
                                                char *why, size_t why_size)
{
    if (n == 0 || n > RG_POOL_GPUS_MAX) {
        rg_explain(why, why_size, "a container can have 1 to %u GPUs, not %zu", RG_POOL_GPUS_MAX, n);
        return NULL;
    }
    if (!free_devices(plugin, devices, n)) {
        rg_explain(why, why_size, "the lease of a container that had such a GPU is not given back yet");
        return NULL;
    }
    struct rg_kube_kept_lease *kept = rg_kube_kept_add(&plugin->kept, devices, n, why, why_size);
    struct rg_kube_lease *lease = kept ? rg_kube_leases_add(&plugin->leases, kept->id) : NULL;
    if (lease && take(plugin, lease, kept)) {
        rg_info("a container of this node has lease %s of %zu GPU%s", lease->id, n, n == 1 ? "" : "s");
        return &lease->grant;
    }
    if (lease)
        rg_explain(why, why_size, "%s", lease->why);
    else if (kept)
        rg_explain(why, why_size, "out of memory");
    if (kept) /* the pool may have granted it, and its answer was lost */
        (void)give_back_now(plugin, plugin->kept.n - 1);
    return NULL;
}

/* --- a round ---------------------------------------------------------------------------------------------------------- */

/* What has become of a lease's container, by the devices that containers have now. */
static void judge(const struct rg_kube_plugin *plugin, struct rg_kube_kept_lease *lease, const json_t *in_use)
{
    const json_t *one;
    size_t i;
    bool is_used = false;
    json_array_foreach(lease->devices, i, one) is_used |=
        json_object_get(in_use, json_string_value(one)) != NULL;
    if (is_used)
        lease->seen = true;
    else if (lease->seen || rg_now_ns() - lease->since_ns > plugin->settle_ns)
        lease->over = true;
}

static void tend_leases(struct rg_kube_plugin *plugin, const json_t *in_use)
{
    for (size_t i = plugin->kept.n; i-- > 0;) {
        struct rg_kube_kept_lease *kept = &plugin->kept.items[i];
        if (in_use)
            judge(plugin, kept, in_use);
        struct rg_kube_lease *lease = kept->over ? NULL : rg_kube_leases_add(&plugin->leases, kept->id);
        if (kept->over)
            (void)give_back(plugin, i);
        else if (lease && !lease->has && rg_now_ns() >= lease->next_ns && !take(plugin, lease, kept))
            rg_warn("lease %s of a container that runs cannot be had: %s", lease->id, lease->why);
    }
    rg_kube_leases_renew(&plugin->leases);
}

/* Says so once, until it is well again. */
static void complain(bool failed, bool *said, const char *what, const char *why)
{
    if (failed && !*said)
        rg_warn("%s: %s", what, why);
    else if (!failed && *said)
        rg_info("%s no more", what);
    *said = failed;
}

static bool look_at_pool(struct rg_kube_plugin *plugin)
{
    struct rg_pool_failure failure = {.why = ""};
    json_t *picture = rg_kube_pool_look(&plugin->pool, &failure);
    complain(!picture, &plugin->pool_failed, "the pool does not say what it has", failure.why);
    if (!picture)
        return false;
    json_t *ids = rg_kube_kept_ids(&plugin->kept), *devices = rg_kube_plugin_devices(picture, ids);
    const bool changed = devices && !json_equal(devices, plugin->devices);
    json_decref(picture);
    json_decref(ids);
    if (!devices)
        return false;
    json_decref(plugin->devices);
    plugin->devices = devices;
    return changed;
}

bool rg_kube_plugin_round(struct rg_kube_plugin *plugin)
{
    char why[512] = "";
    json_t *in_use = rg_kube_kubelet_devices(&plugin->kubelet, why, sizeof why);
    complain(!in_use, &plugin->list_failed, "leases of containers that end are not given back", why);
    pthread_mutex_lock(&plugin->lock);
    tend_leases(plugin, in_use);
    const bool changed = look_at_pool(plugin);
    pthread_mutex_unlock(&plugin->lock);
    json_decref(in_use);
    return changed;
}

/* --- ListAndWatch ----------------------------------------------------------------------------------------------------- */

static bool add_device(struct rg_grpc_arena *arena, Rg__Plugin__Devices *out, const char *uuid, bool healthy)
{
    Rg__Plugin__Device *device = rg_grpc_hold(arena, malloc(sizeof *device));
    if (!device)
        return false;
    rg__plugin__device__init(device);
    device->id = rg_grpc_hold_text(arena, uuid);
    device->health = rg_grpc_hold_text(arena, healthy ? "Healthy" : "Unhealthy");
    out->devices[out->n_devices++] = device;
    return device->id && device->health;
}

void rg_kube_plugin_publish(struct rg_kube_plugin *plugin, struct rg_grpc_server *server)
{
    Rg__Plugin__Devices out = RG__PLUGIN__DEVICES__INIT;
    struct rg_grpc_arena arena = {0};
    struct rg_grpc_answer answer = {0};
    const char *uuid;
    json_t *device;
    pthread_mutex_lock(&plugin->lock);
    json_t *devices = json_incref(plugin->devices); /* it is replaced, and never changed */
    pthread_mutex_unlock(&plugin->lock);
    if (!devices)
        return;
    bool good =
        (out.devices = rg_grpc_hold(&arena, calloc(json_object_size(devices) + 1, sizeof *out.devices))) !=
        NULL;
    json_object_foreach(devices, uuid, device) good =
        good && add_device(&arena, &out, uuid, json_is_true(json_object_get(device, "healthy")));
    if (!good || rg_grpc_pack(&out.base, &answer) != RG_GRPC_OK ||
        !rg_grpc_publish(server, answer.message, answer.size))
        rg_error("the kubelet was not told which GPUs there are: out of memory");
    free(answer.message);
    rg_grpc_let_go(&arena);
    json_decref(devices);
}
