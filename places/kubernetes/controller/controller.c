/* controller.c - see controller.h. */
#include "places/kubernetes/controller/controller.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "places/kubernetes/controller/slices.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define API    "/apis/resource.k8s.io/v1"
#define SLICES API "/resourceslices"

struct rg_kube_controller {
    const struct rg_kube_controller_settings *settings;
    struct rg_kube_figures *figures;
    struct rg_kube *kube;
    struct rg_kube_store *claims, *slices;
    struct rg_kube_pool pool;
    struct rg_kube_leases leases;
    json_t *picture;    /* of the pool; NULL: not known yet */
    json_t *given_back; /* leases that the picture still shows, or showed when they were */
    uint64_t look_ns;   /* when the pool is looked at next */
    bool has_told_why;  /* that the pool cannot be looked at */
    bool again;         /* something is to be done at once */
    int wake;
    atomic_bool stopping;
};

/* --- writing to a claim ---------------------------------------------------------------------------------------------- */

/* Merges `meta` into the claim's metadata, if nobody has changed that since it was read. False: it did not, and is tried again. */
static bool patch(struct rg_kube_controller *controller, const struct rg_kube_claim *claim, json_t *meta)
{
    char path[700];
    struct rg_kube_failure failure;
    json_t *answer = NULL;
    json_t *body = json_pack("{s:o}", "metadata", meta);
    json_object_set_new(json_object_get(body, "metadata"), "resourceVersion", json_string(claim->version));
    snprintf(path, sizeof path, API "/namespaces/%s/resourceclaims/%s", claim->space, claim->name);
    const enum rg_status status = rg_kube_call(controller->kube, "PATCH", path, body, &answer, &failure);
    json_decref(body);
    if (status == RG_OK) {
        rg_kube_store_put(controller->claims, answer);
        controller->again = true;
    } else if (!failure.conflict && status != RG_ERR_NOT_FOUND) { /* else the watch brings what has changed */
        rg_warn("claim %s/%s cannot be written to: %s", claim->space, claim->name, failure.why);
        atomic_fetch_add(&controller->figures->failures, 1);
    }
    json_decref(answer);
    return status == RG_OK;
}

/* The claim's finalizers with ours or without. */
static json_t *finalizers(const json_t *object, bool with)
{
    json_t *out = json_array(), *one;
    size_t i;
    json_array_foreach(json_object_get(json_object_get(object, "metadata"), "finalizers"), i,
                       one) if (json_is_string(one) && strcmp(json_string_value(one), RG_KUBE_FINALIZER) != 0)
        json_array_append(out, one);
    if (with)
        json_array_append_new(out, json_string(RG_KUBE_FINALIZER));
    return out;
}

static void note(struct rg_kube_controller *controller, const struct rg_kube_claim *claim,
                 const json_t *object, const char *devices)
{
    (void)patch(controller, claim,
                json_pack("{s:o, s:{s:s}}", "finalizers", finalizers(object, true), "annotations",
                          RG_KUBE_NOTE_DEVICES, devices));
}

static void tell(struct rg_kube_controller *controller, const struct rg_kube_claim *claim,
                 const struct rg_kube_grant *grant)
{
    (void)patch(controller, claim,
                json_pack("{s:{s:s, s:s, s:n}}", "annotations", RG_KUBE_NOTE_LEASE, grant->lease,
                          RG_KUBE_NOTE_SERVERS, grant->servers, RG_KUBE_NOTE_WAITING));
}

static void tell_waiting(struct rg_kube_controller *controller, const struct rg_kube_claim *claim,
                         const char *why)
{
    if (strcmp(claim->noted_waiting, why) != 0)
        (void)patch(controller, claim, json_pack("{s:{s:s}}", "annotations", RG_KUBE_NOTE_WAITING, why));
}

static void clear(struct rg_kube_controller *controller, const struct rg_kube_claim *claim,
                  const json_t *object)
{
    (void)patch(controller, claim,
                json_pack("{s:o, s:{s:n, s:n, s:n, s:n}}", "finalizers", finalizers(object, false),
                          "annotations", RG_KUBE_NOTE_DEVICES, RG_KUBE_NOTE_LEASE, RG_KUBE_NOTE_SERVERS,
                          RG_KUBE_NOTE_WAITING));
}

/* --- one claim ------------------------------------------------------------------------------------------------------- */

/* The template with the namespace in it. NULL: no memory. */
static char *user_of(const char *template, const char *space)
{
    static const char place[] = "{namespace}";
    const char *at = strstr(template, place);
    char *user = NULL;
    if (!at)
        return strdup(template);
    if (asprintf(&user, "%.*s%s%s", (int)(at - template), template, space, at + sizeof place - 1) < 0)
        return NULL;
    return user;
}

static void take(struct rg_kube_controller *controller, const struct rg_kube_claim *claim,
                 struct rg_kube_lease *lease)
{
    RG_CLEANUP_FREE char *user = user_of(controller->settings->user, claim->space);
    const uint64_t before = lease->next_ns;
    if (user && rg_kube_leases_take(&controller->leases, lease, claim, user)) {
        atomic_fetch_add(&controller->figures->taken, 1);
        tell(controller, claim, &lease->grant);
    } else if (user && lease->next_ns != before) { /* it was tried */
        atomic_fetch_add(&controller->figures->refused, 1);
        tell_waiting(controller, claim, lease->why);
    }
}

static void give_back(struct rg_kube_controller *controller, const char *id)
{
    if (!rg_kube_leases_give_back(&controller->leases, id))
        return;
    atomic_fetch_add(&controller->figures->given_back, 1);
    json_object_set_new(controller->given_back, id, json_true());
    controller->look_ns = 0;
    controller->again = true;
}

static void look_at(struct rg_kube_controller *controller, const json_t *object)
{
    static struct rg_kube_claim claim; /* large */
    char wanted_id[RG_KUBE_LEASE_ID], noted_id[RG_KUBE_LEASE_ID];
    if (!rg_kube_claim_read(object, &claim))
        return;
    RG_CLEANUP_FREE char *wanted = rg_kube_claim_devices(&claim);
    if (!wanted || (!*wanted && !*claim.noted_devices && !claim.has_finalizer))
        return;
    rg_kube_lease_id(claim.uid, wanted, wanted_id);
    rg_kube_lease_id(claim.uid, claim.noted_devices, noted_id);
    struct rg_kube_lease *lease = rg_kube_leases_find(&controller->leases, wanted_id);
    const enum rg_kube_step step = rg_kube_decide(&claim, wanted, lease && lease->has ? &lease->grant : NULL);
    switch (step) {
    case RG_KUBE_NOTHING:
        break;
    case RG_KUBE_NOTE:
        note(controller, &claim, object, wanted);
        break;
    case RG_KUBE_TAKE:
        lease = rg_kube_leases_add(&controller->leases, wanted_id);
        if (lease)
            take(controller, &claim, lease);
        break;
    case RG_KUBE_TELL:
        tell(controller, &claim, &lease->grant);
        break;
    case RG_KUBE_GIVE_BACK:
        lease = NULL;
        give_back(controller, noted_id);
        if (!rg_kube_leases_find(&controller->leases, noted_id))
            clear(controller, &claim, object);
        break;
    case RG_KUBE_CLEAR:
        clear(controller, &claim, object);
        break;
    }
    if (step != RG_KUBE_GIVE_BACK && lease)
        lease->seen = true;
    lease = rg_kube_leases_find(&controller->leases, noted_id);
    if (lease && *claim.noted_devices) /* its giving back is this claim's to try again */
        lease->seen = true;
}

/* --- all claims -------------------------------------------------------------------------------------------------------- */

/* Leases whose claims have gone without waiting for us: somebody took the finalizer off by hand. */
static void give_back_unseen(struct rg_kube_controller *controller)
{
    for (size_t i = controller->leases.n; i-- > 0;)
        if (!controller->leases.items[i]->seen) {
            char id[RG_KUBE_LEASE_ID];
            memcpy(id, controller->leases.items[i]->id, sizeof id);
            give_back(controller, id);
        }
}

static void look_at_claims(struct rg_kube_controller *controller)
{
    json_t *claims = rg_kube_store_read(controller->claims), *object;
    const char *key;
    const bool is_true = rg_kube_store_is_true(controller->claims);
    atomic_store(&controller->figures->api_server, is_true);
    for (size_t i = 0; i < controller->leases.n; i++)
        controller->leases.items[i]->seen = false;
    if (claims && is_true) {
        json_object_foreach(claims, key, object) look_at(controller, object);
        give_back_unseen(controller);
    }
    json_decref(claims);
    rg_kube_leases_renew(&controller->leases);
}

/* The leases that are claims': an object whose keys they are. NULL: the claims are not known yet. */
static json_t *claimed(struct rg_kube_controller *controller)
{
    static struct rg_kube_claim claim;
    json_t *claims = rg_kube_store_read(controller->claims),
           *out = claims ? json_copy(controller->given_back) : NULL, *object;
    const char *key;
    unsigned n = 0;
    json_object_foreach(claims, key, object)
    {
        char id[RG_KUBE_LEASE_ID];
        if (!rg_kube_claim_read(object, &claim))
            continue;
        RG_CLEANUP_FREE char *wanted = rg_kube_claim_devices(&claim);
        n += claim.n_devices > 0;
        rg_kube_lease_id(claim.uid, wanted ? wanted : "", id);
        json_object_set_new(out, id, json_true());
        rg_kube_lease_id(claim.uid, claim.noted_devices, id);
        json_object_set_new(out, id, json_true());
    }
    json_decref(claims);
    atomic_store(&controller->figures->claims, n);
    return out;
}

/* --- slices -------------------------------------------------------------------------------------------------------------- */

/* The member that was asked may have heard of it later than we. */
static void forget_what_is_not_shown(struct rg_kube_controller *controller)
{
    json_t *shown = json_object();
    const json_t *server, *gpu, *share;
    size_t i, j, k;
    json_array_foreach(json_object_get(controller->picture, "servers"), i, server)
        json_array_foreach(json_object_get(server, "gpus"), j, gpu)
            json_array_foreach(json_object_get(gpu, "granted"), k, share)
    {
        const char *id = rg_kube_text(share, "lease");
        if (json_object_get(controller->given_back, id))
            json_object_set_new(shown, id, json_true());
    }
    json_decref(controller->given_back);
    controller->given_back = shown;
}

static void look_at_pool(struct rg_kube_controller *controller)
{
    struct rg_pool_failure failure;
    if (rg_now_ns() < controller->look_ns)
        return;
    json_t *picture = rg_kube_pool_look(&controller->pool, &failure);
    controller->look_ns = rg_now_ns() + controller->settings->interval_ns;
    atomic_store(&controller->figures->pool, picture != NULL);
    if (!picture) { /* what was published stays: a pool that cannot be asked grants nothing, and says why */
        if (!controller->has_told_why)
            rg_warn("the pool cannot be asked: %s; trying again", failure.why);
        controller->has_told_why = true;
        return;
    }
    if (controller->has_told_why)
        rg_info("the pool answers again");
    controller->has_told_why = false;
    json_decref(controller->picture);
    controller->picture = picture;
    forget_what_is_not_shown(controller);
}

static bool apply(struct rg_kube_controller *controller, const struct rg_kube_slice_change *change)
{
    char path[400];
    struct rg_kube_failure failure;
    json_t *answer = NULL;
    const bool is_new = strcmp(change->method, "POST") == 0;
    snprintf(path, sizeof path, is_new ? "%s" : "%s/%s", SLICES, change->name);
    const enum rg_status status =
        rg_kube_call(controller->kube, change->method, path, change->body, &answer, &failure);
    if (status == RG_OK && change->body)
        rg_kube_store_put(controller->slices, answer);
    json_decref(answer);
    if (status == RG_OK || status == RG_ERR_NOT_FOUND || failure.conflict)
        return status == RG_OK; /* else the watch brings what has changed */
    rg_warn("the ResourceSlice %s cannot be written: %s", change->name, failure.why);
    atomic_fetch_add(&controller->figures->failures, 1);
    return false;
}

static unsigned count_devices(const json_t *specs)
{
    const json_t *spec;
    size_t i, n = 0;
    json_array_foreach(specs, i, spec) n += json_array_size(json_object_get(spec, "devices"));
    return (unsigned)n;
}

static json_t *values_of(json_t *objects)
{
    json_t *out = json_array(), *object;
    const char *key;
    json_object_foreach(objects, key, object) json_array_append(out, object);
    return out;
}

static void publish(struct rg_kube_controller *controller)
{
    json_t *objects = rg_kube_store_read(controller->slices), *ours = claimed(controller);
    if (!objects || !ours || !controller->picture || !rg_kube_store_is_true(controller->slices)) {
        json_decref(objects);
        json_decref(ours);
        return;
    }
    char name[RG_KUBE_DEVICE_NAME];
    struct rg_kube_slice_change *changes;
    rg_kube_slices_pool_name(rg_kube_text(controller->picture, "pool"), name, sizeof name);
    json_t *existing = values_of(objects);
    json_t *specs = rg_kube_slices_make(controller->picture, name, ours, controller->settings->nodes);
    const size_t n = rg_kube_slices_compare(existing, specs, name, &changes);
    size_t done = 0;
    while (done < n && apply(controller, &changes[done]))
        done++;
    if (n && done == n)
        rg_info("%u GPUs of pool %s are published", count_devices(specs), name);
    atomic_store(&controller->figures->devices, count_devices(specs));
    rg_kube_slices_free(changes, n);
    json_decref(specs);
    json_decref(existing);
    json_decref(ours);
    json_decref(objects);
}

/* --- the loop -------------------------------------------------------------------------------------------------------------- */

static void wake(void *context)
{
    const struct rg_kube_controller *controller = context;
    const uint64_t one = 1;
    if (write(controller->wake, &one, sizeof one) < 0) {
        /* it is full: the loop wakes up anyway */
    }
}

static void count(const struct rg_kube_controller *controller)
{
    unsigned had = 0;
    for (size_t i = 0; i < controller->leases.n; i++)
        had += controller->leases.items[i]->has;
    atomic_store(&controller->figures->leases, had);
    atomic_store(&controller->figures->waiting, (unsigned)controller->leases.n - had);
    atomic_store(&controller->figures->passed_ns, rg_now_ns());
}

void rg_kube_controller_run(struct rg_kube_controller *controller)
{
    while (!atomic_load(&controller->stopping)) {
        struct pollfd polled = {.fd = controller->wake, .events = POLLIN};
        uint64_t times;
        controller->again = false;
        look_at_pool(controller);
        look_at_claims(controller);
        publish(controller);
        count(controller);
        if (poll(&polled, 1, controller->again ? 0 : 500) > 0 &&
            read(controller->wake, &times, sizeof times) < 0 && errno != EAGAIN)
            rg_error("cannot wait: %s", strerror(errno));
    }
}

void rg_kube_controller_stop(struct rg_kube_controller *controller)
{
    atomic_store(&controller->stopping, true);
    wake(controller);
}

struct rg_kube_controller *rg_kube_controller_create(const struct rg_kube_controller_settings *settings,
                                                     struct rg_kube_figures *figures)
{
    struct rg_kube_controller *controller = calloc(1, sizeof *controller);
    if (!controller)
        return NULL;
    controller->settings = settings;
    controller->figures = figures;
    rg_kube_pool_init(&controller->pool, &settings->servers, settings->timeout_ns);
    controller->leases =
        (struct rg_kube_leases){.pool = &controller->pool, .seconds = settings->lease_ns / 1000000000u};
    controller->given_back = json_object();
    controller->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    controller->kube = rg_kube_open(&settings->cluster);
    if (controller->wake >= 0 && controller->kube) {
        controller->claims = rg_kube_store_start(&settings->cluster, API "/resourceclaims", wake, controller);
        controller->slices = rg_kube_store_start(
            &settings->cluster, SLICES "?fieldSelector=spec.driver%3D" RG_KUBE_DRIVER, wake, controller);
    }
    if (controller->claims && controller->slices)
        return controller;
    rg_kube_controller_destroy(controller);
    return NULL;
}

void rg_kube_controller_destroy(struct rg_kube_controller *controller)
{
    if (!controller)
        return;
    rg_kube_store_stop(controller->claims);
    rg_kube_store_stop(controller->slices);
    rg_kube_close(controller->kube);
    rg_kube_leases_fini(&controller->leases);
    rg_kube_pool_fini(&controller->pool);
    json_decref(controller->picture);
    json_decref(controller->given_back);
    if (controller->wake >= 0)
        close(controller->wake);
    free(controller);
}
