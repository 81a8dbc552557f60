/*
 * claims.c - the leases that claims ask for: each claim is noted as ours, gets its lease and is told of it, and gives it back when
 * it wants it no more. What is next for a claim follows from what is written on it (decide.h).
 *
 * A claim that somebody else has changed meanwhile is looked at again when the watch brings it; what the pool refuses is told to the
 * claim and tried again (leases.h). The controller's thread.
 */
#include "places/kubernetes/controller/state.h"

#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "places/kubernetes/controller/decide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- writing to a claim ---------------------------------------------------------------------------------------------- */

/* Merges `meta` into the claim's metadata, if nobody has changed that since it was read. False: it did not, and is tried again. */
static bool patch(struct rg_kube_controller *controller, const struct rg_kube_claim *claim, json_t *meta)
{
    char path[700];
    struct rg_kube_failure failure;
    json_t *answer = NULL;
    json_t *body = json_pack("{s:o}", "metadata", meta);
    json_object_set_new(json_object_get(body, "metadata"), "resourceVersion", json_string(claim->version));
    snprintf(path, sizeof path, RG_KUBE_API "/namespaces/%s/resourceclaims/%s", claim->space, claim->name);
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

void rg_kube_claims_round(struct rg_kube_controller *controller)
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

json_t *rg_kube_claims_leases(struct rg_kube_controller *controller)
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
