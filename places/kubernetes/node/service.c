/* service.c - see service.h. */
#include "places/kubernetes/node/service.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "generated/places/kubernetes/proto/dra.pb-c.h"
#include "generated/places/kubernetes/proto/registration.pb-c.h"
#include "places/kubernetes/grpc/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAUSE_LEAST 100000000u /* nanoseconds between looks at a claim that has no lease yet */
#define PAUSE_MOST  2000000000u

/* --- registration ------------------------------------------------------------------------------------------------------ */

static enum rg_grpc_status get_info(void *context, const uint8_t *message, size_t size,
                                    struct rg_grpc_answer *answer)
{
    const struct rg_kube_node *node = context;
    char type[] = "DRAPlugin", name[] = RG_KUBE_DRIVER, version[] = "v1.DRAPlugin";
    char *versions[] = {version};
    Rg__Registration__Info info = RG__REGISTRATION__INFO__INIT;
    (void)message, (void)size;
    info.type = type;
    info.name = name;
    info.endpoint = (char *)(uintptr_t)node->endpoint;
    info.n_supported_versions = 1;
    info.supported_versions = versions;
    return rg_grpc_pack(&info.base, answer);
}

static enum rg_grpc_status notify(void *context, const uint8_t *message, size_t size,
                                  struct rg_grpc_answer *answer)
{
    const Rg__Registration__OutcomeAnswer empty = RG__REGISTRATION__OUTCOME_ANSWER__INIT;
    Rg__Registration__Outcome *outcome = rg__registration__outcome__unpack(NULL, size, message);
    (void)context;
    if (!outcome)
        return rg_grpc_malformed(answer);
    rg_printable_clean(outcome->error);
    if (outcome->registered)
        rg_info("the kubelet has registered the driver " RG_KUBE_DRIVER);
    else
        rg_error("the kubelet refuses the driver " RG_KUBE_DRIVER ": %s", outcome->error);
    rg__registration__outcome__free_unpacked(outcome, NULL);
    return rg_grpc_pack(&empty.base, answer);
}

/* --- one claim --------------------------------------------------------------------------------------------------------- */

/* The claim as it stands. RG_OK: it has its lease, *prepared says what. RG_ERR_TIMEOUT: not yet. */
static enum rg_status look(struct rg_kube *kube, const Rg__Dra__Claim *wanted, json_t **prepared, char *why,
                           size_t why_size)
{
    RG_CLEANUP_FREE struct rg_kube_claim *claim = calloc(1, sizeof *claim);
    RG_CLEANUP_FREE char *devices = NULL;
    struct rg_kube_failure failure;
    json_t *object = NULL;
    char path[700], id[RG_KUBE_LEASE_ID];
    snprintf(path, sizeof path, "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s", wanted->space,
             wanted->name);
    enum rg_status status = rg_kube_call(kube, "GET", path, NULL, &object, &failure);
    if (status != RG_OK) {
        rg_explain(why, why_size, "%s", failure.why);
        return status;
    }
    const bool read = claim && rg_kube_claim_read(object, claim) && (devices = rg_kube_claim_devices(claim));
    status = RG_ERR_INVALID;
    if (!read)
        rg_explain(why, why_size, "the claim cannot be understood");
    else if (strcmp(claim->uid, wanted->uid) != 0)
        rg_explain(why, why_size, "the claim was deleted, and there is another one of its name");
    else if (!*devices)
        rg_explain(why, why_size, "no device of " RG_KUBE_DRIVER " is allocated to the claim");
    else if (claim->for_admin)
        rg_explain(why, why_size, "the claim asks for admin access, which " RG_KUBE_DRIVER " does not give");
    else
        status = RG_ERR_TIMEOUT;
    if (status == RG_ERR_TIMEOUT) {
        rg_kube_lease_id(claim->uid, devices, id);
        const bool has = strcmp(claim->noted_devices, devices) == 0 && *claim->noted_servers &&
                         strncmp(claim->noted_lease, id, strlen(id)) == 0 &&
                         claim->noted_lease[strlen(id)] == '/';
        rg_explain(why, why_size, "the claim has no lease of its GPUs yet: %s",
                   *claim->noted_waiting ? claim->noted_waiting
                                         : "remote-gpu-kube-controller has not looked at it; does that run?");
        *prepared = has ? rg_kube_prepared_make(claim) : NULL;
        status = !has ? RG_ERR_TIMEOUT : *prepared ? RG_OK : RG_ERR_NO_MEMORY;
    }
    json_decref(object);
    return status;
}

static void sleep_for(uint64_t ns)
{
    const struct timespec time = rg_timespec(ns);
    nanosleep(&time, NULL);
}

/* Waits until the claim has its lease. NULL: `why`. */
static json_t *find_out(struct rg_kube_node *node, const Rg__Dra__Claim *wanted, char *why, size_t why_size)
{
    struct rg_kube *kube = rg_kube_open(node->cluster);
    const uint64_t until = rg_now_ns() + node->wait_ns;
    json_t *prepared = NULL;
    enum rg_status status = kube ? RG_ERR_TIMEOUT : RG_ERR_NO_MEMORY;
    for (uint64_t pause = PAUSE_LEAST; status == RG_ERR_TIMEOUT && !atomic_load(&node->stopping);
         pause = pause * 2 < PAUSE_MOST ? pause * 2 : PAUSE_MOST) {
        status = look(kube, wanted, &prepared, why, why_size);
        if (status == RG_ERR_UNREACHABLE && (prepared = rg_kube_prepared_load(&node->places, wanted->uid)))
            status = RG_OK;
        if (status == RG_ERR_UNREACHABLE)
            status = RG_ERR_TIMEOUT; /* it may be back in a moment */
        if (status != RG_ERR_TIMEOUT || rg_now_ns() + pause >= until)
            break;
        sleep_for(pause);
    }
    rg_kube_close(kube);
    return status == RG_OK ? prepared : NULL;
}

/* Only what may stand in the address of a request: Kubernetes' names have nothing else. */
static bool is_name(const char *text)
{
    const size_t size = strlen(text);
    return size > 0 && size < 254 && text[0] != '.' &&
           strspn(text, "0123456789abcdefghijklmnopqrstuvwxyz.-") == size;
}

static json_t *prepare(struct rg_kube_node *node, const Rg__Dra__Claim *wanted, char *why, size_t why_size)
{
    if (!is_name(wanted->space) || !is_name(wanted->name) || !rg_kube_uid_is_good(wanted->uid)) {
        rg_explain(why, why_size, "the claim's namespace, name or UID are none as Kubernetes has them");
        return NULL;
    }
    json_t *prepared = find_out(node, wanted, why, why_size);
    if (!prepared)
        return NULL;
    pthread_mutex_lock(&node->files);
    const bool good = rg_kube_prepared_save(&node->places, prepared, why, why_size);
    pthread_mutex_unlock(&node->files);
    if (good)
        return prepared;
    json_decref(prepared);
    return NULL;
}

/* --- preparing --------------------------------------------------------------------------------------------------------- */

static bool fill_device(struct rg_grpc_arena *arena, Rg__Dra__Device *out, const json_t *device, char *cdi_id)
{
    rg__dra__device__init(out);
    out->request_names = rg_grpc_hold(arena, malloc(sizeof *out->request_names));
    out->cdi_device_ids = rg_grpc_hold(arena, malloc(sizeof *out->cdi_device_ids));
    out->pool_name = rg_grpc_hold_text(arena, rg_json_get_text(device, "pool"));
    out->device_name = rg_grpc_hold_text(arena, rg_json_get_text(device, "device"));
    char *request = rg_grpc_hold_text(arena, rg_json_get_text(device, "request"));
    if (!out->request_names || !out->cdi_device_ids || !out->pool_name || !out->device_name || !request)
        return false;
    out->request_names[0] = request;
    out->cdi_device_ids[0] = cdi_id;
    out->n_request_names = out->n_cdi_device_ids = 1;
    return true;
}

static bool fill_devices(struct rg_grpc_arena *arena, Rg__Dra__Prepared *out, const json_t *prepared)
{
    const json_t *devices = json_object_get(prepared, "devices");
    const size_t n = json_array_size(devices);
    char id[sizeof RG_KUBE_CDI_KIND + 70];
    snprintf(id, sizeof id, RG_KUBE_CDI_KIND "=%s", rg_json_get_text(prepared, "uid"));
    char *cdi_id = rg_grpc_hold_text(arena, id);
    out->devices = rg_grpc_hold(arena, calloc(n + 1, sizeof *out->devices));
    for (size_t i = 0; cdi_id && out->devices && i < n; i++) {
        Rg__Dra__Device *device = rg_grpc_hold(arena, malloc(sizeof *device));
        if (!device || !fill_device(arena, device, json_array_get(devices, i), cdi_id))
            return false;
        out->devices[out->n_devices++] = device;
    }
    return cdi_id && out->devices;
}

/* Prepares one claim of those asked for, and says what came of it. */
static bool prepare_one(struct rg_kube_node *node, struct rg_grpc_arena *arena, const Rg__Dra__Claim *claim,
                        Rg__Dra__PreparedEntry *entry)
{
    char why[1024] = "";
    Rg__Dra__Prepared *value = rg_grpc_hold(arena, malloc(sizeof *value));
    if (!value)
        return false;
    rg__dra__prepared__init(value);
    entry->uid = claim->uid;
    entry->value = value;
    json_t *prepared = prepare(node, claim, why, sizeof why);
    if (prepared) {
        const bool good = fill_devices(arena, value, prepared);
        rg_info("claim %s/%s is prepared: lease %s", claim->space, claim->name,
                rg_json_get_text(prepared, "lease"));
        json_decref(prepared);
        return good;
    }
    rg_printable_clean(why);
    rg_warn("claim %s/%s is not prepared: %s", claim->space, claim->name, why);
    value->error = rg_grpc_hold_text(arena, *why ? why : "this program is about to stop; try again");
    return value->error != NULL;
}

static enum rg_grpc_status node_prepare(void *context, const uint8_t *message, size_t size,
                                        struct rg_grpc_answer *answer)
{
    struct rg_kube_node *node = context;
    struct rg_grpc_arena arena = {0};
    Rg__Dra__PrepareAnswer out = RG__DRA__PREPARE_ANSWER__INIT;
    Rg__Dra__Claims *claims = rg__dra__claims__unpack(NULL, size, message);
    if (!claims)
        return rg_grpc_malformed(answer);
    bool good = (out.claims = rg_grpc_hold(&arena, calloc(claims->n_claims + 1, sizeof *out.claims))) != NULL;
    for (size_t i = 0; good && i < claims->n_claims; i++) {
        Rg__Dra__PreparedEntry *entry = rg_grpc_hold(&arena, malloc(sizeof *entry));
        if ((good = entry != NULL)) {
            rg__dra__prepared_entry__init(entry);
            good = prepare_one(node, &arena, claims->claims[i], entry);
            out.claims[out.n_claims++] = entry;
        }
    }
    const enum rg_grpc_status status = good ? rg_grpc_pack(&out.base, answer) : rg_grpc_no_memory(answer);
    rg__dra__claims__free_unpacked(claims, NULL);
    rg_grpc_let_go(&arena);
    return status;
}

/* --- done with ---------------------------------------------------------------------------------------------------------- */

static bool unprepare_one(struct rg_kube_node *node, struct rg_grpc_arena *arena, const Rg__Dra__Claim *claim,
                          Rg__Dra__UnpreparedEntry *entry)
{
    char why[1024] = "";
    Rg__Dra__Unprepared *value = rg_grpc_hold(arena, malloc(sizeof *value));
    if (!value)
        return false;
    rg__dra__unprepared__init(value);
    entry->uid = claim->uid;
    entry->value = value;
    pthread_mutex_lock(&node->files);
    const bool good = rg_kube_prepared_remove(&node->places, claim->uid, why, sizeof why);
    pthread_mutex_unlock(&node->files);
    if (!good)
        rg_warn("a claim is not done with: %s", why);
    return good || (value->error = rg_grpc_hold_text(arena, why));
}

static enum rg_grpc_status node_unprepare(void *context, const uint8_t *message, size_t size,
                                          struct rg_grpc_answer *answer)
{
    struct rg_kube_node *node = context;
    struct rg_grpc_arena arena = {0};
    Rg__Dra__UnprepareAnswer out = RG__DRA__UNPREPARE_ANSWER__INIT;
    Rg__Dra__Claims *claims = rg__dra__claims__unpack(NULL, size, message);
    if (!claims)
        return rg_grpc_malformed(answer);
    bool good = (out.claims = rg_grpc_hold(&arena, calloc(claims->n_claims + 1, sizeof *out.claims))) != NULL;
    for (size_t i = 0; good && i < claims->n_claims; i++) {
        Rg__Dra__UnpreparedEntry *entry = rg_grpc_hold(&arena, malloc(sizeof *entry));
        if ((good = entry != NULL)) {
            rg__dra__unprepared_entry__init(entry);
            good = unprepare_one(node, &arena, claims->claims[i], entry);
            out.claims[out.n_claims++] = entry;
        }
    }
    const enum rg_grpc_status status = good ? rg_grpc_pack(&out.base, answer) : rg_grpc_no_memory(answer);
    rg__dra__claims__free_unpacked(claims, NULL);
    rg_grpc_let_go(&arena);
    return status;
}

/* --- the methods ----------------------------------------------------------------------------------------------------------- */

#define DRA "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"

const struct rg_grpc_method rg_kube_node_methods[] = {
    {"/pluginregistration.Registration/GetInfo", get_info},
    {"/pluginregistration.Registration/NotifyRegistrationStatus", notify},
    {DRA "NodePrepareResources", node_prepare},
    {DRA "NodeUnprepareResources", node_unprepare},
};
const size_t rg_kube_node_n_methods = sizeof rg_kube_node_methods / sizeof rg_kube_node_methods[0];
