/* shares.c - see shares.h. */
#include "server/daemon/grant/shares.h"

#include "common/base/log.h"
#include "common/cuda/mps.h"
#include "server/daemon/grant/refusal.h"
#include "server/shares/decide.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * With guarantees, no more may be given away than was free at the start: a driver takes some for itself. Without any, there is
 * nothing to keep free, and the driver says when it has no more, but for the software device, which has as much for each process.
 */
static void set_capacity(const struct rg_shares_device *device)
{
    atomic_store(&device->device.page->capacity, device->promised ? device->to_promise : device->unpromised);
}

enum rg_status rg_shares_open(struct rg_shares *shares, const struct rg_driver *driver, uint32_t max_sessions,
                              const char *rules_path, bool overcommit, const char *mps)
{
    char why[1024] = "";
    *shares =
        (struct rg_shares){.rules_path = rules_path, .overcommit = overcommit, .mps = mps, .uid = geteuid()};
    rg_share_rules_allow_mps(mps != NULL);
    if (mps && !rg_mps_answers(mps, why, sizeof why)) {
        rg_error(
            "--mps: %s; start it there, as by 'CUDA_MPS_PIPE_DIRECTORY=%s nvidia-cuda-mps-control -d', or "
            "leave --mps out",
            why, mps);
        return RG_ERR_NOT_FOUND;
    }
    if (rules_path) {
        const enum rg_status status = rg_share_rules_read(rules_path, &shares->rules, why, sizeof why);
        if (status != RG_OK) {
            rg_error("%s", why);
            return status;
        }
    }
    for (uint32_t i = 0; i < driver->n_devices; i++) {
        const struct rg_device_info *info = &driver->devices[i];
        struct rg_shares_device *device = &shares->devices[i];
        const bool soft = strcmp(driver->info.kind, "soft") == 0;
        device->total = device->to_promise = info->memory_total;
        device->unpromised = soft ? device->total : UINT64_MAX;
        /* the software device's is what this machine has left now, and each process has its own */
        if (info->memory_free_known && info->memory_free < info->memory_total && !soft)
            device->to_promise = info->memory_free;
        if (rg_share_device_create(max_sessions, device->unpromised, &device->device, &device->fd) != RG_OK) {
            rg_error("no memory to share a GPU: %s", strerror(errno));
            return RG_ERR_NO_MEMORY;
        }
        atomic_store(&device->device.page->idle, device->total - device->to_promise);
        shares->n_devices++;
    }
    return RG_OK;
}

void rg_shares_close(struct rg_shares *shares)
{
    for (uint32_t i = 0; i < shares->n_devices; i++) {
        rg_share_device_close(&shares->devices[i].device);
        close(shares->devices[i].fd);
    }
    rg_share_rules_free(shares->rules);
    *shares = (struct rg_shares){0};
}

void rg_shares_reload(struct rg_shares *shares)
{
    struct rg_share_rules *rules = NULL;
    char why[1024] = "";
    if (!shares->rules_path)
        return;
    if (rg_share_rules_read(shares->rules_path, &rules, why, sizeof why) != RG_OK) {
        rg_error("%s; the rules stay as they were", why);
        return;
    }
    rg_share_rules_free(shares->rules);
    shares->rules = rules;
    rg_info("the rules of %s hold for new sessions", shares->rules_path);
}

/* --- sessions --------------------------------------------------------------------------------------------- */

static struct rg_share_user user_of(const struct rg_shares *shares, const struct rg_who *who)
{
    struct rg_share_user user = {.kind = RG_SHARE_NOBODY, .name = who->name, .uid = who->uid};
    if (who->proof == RG_PROOF_CERTIFICATE)
        user.kind = RG_SHARE_NAME;
    if (who->proof == RG_PROOF_USER) {
        user.kind = RG_SHARE_UID;
        user.owner = rg_who_owns(who, shares->uid);
    }
    return user;
}

/* What holds for a session of somebody's. */
static enum rg_status limits_of(const struct rg_shares *shares, const struct rg_share_user *user,
                                const char *project, struct rg_share_limits *out, char *why, size_t why_size)
{
    const enum rg_status status = rg_share_rules_limits(shares->rules, user, project, out, why, why_size);
    if (status == RG_OK)
        out->mps = shares->mps != NULL;
    return status;
}

enum rg_sharing rg_shares_sharing(const struct rg_shares *shares, const struct rg_share_wish *wish,
                                  const struct rg_who *who)
{
    const struct rg_share_user user = user_of(shares, who);
    struct rg_share_limits limits;
    return limits_of(shares, &user, wish->project, &limits, NULL, 0) == RG_OK
               ? rg_share_sharing(&limits, wish)
               : RG_SHARING_UNKNOWN;
}

enum rg_status rg_shares_check_project(const struct rg_shares *shares, const struct rg_who *who,
                                       const char *project, struct rg_monitor_answer *answer)
{
    const struct rg_share_user user = user_of(shares, who);
    struct rg_share_limits limits;
    char why[RG_CONTROL_REASON] = "";
    if (rg_share_rules_limits(shares->rules, &user, project, &limits, why, sizeof why) == RG_OK)
        return RG_OK;
    return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_LIMIT, "%s", why);
}

enum rg_status rg_shares_priority(const struct rg_shares *shares, const struct rg_who *who,
                                  const char *project, enum rg_share_priority wished,
                                  enum rg_share_priority *out, bool *preempts, char *why, size_t why_size)
{
    const struct rg_share_user user = user_of(shares, who);
    struct rg_share_limits limits;
    RG_TRY(rg_share_rules_limits(shares->rules, &user, project, &limits, why, why_size));
    *preempts = limits.preempt;
    return rg_share_decide_priority(&limits, &user, wished, out, why, why_size);
}

/* Gives back places and guarantees. */
static void give_back(struct rg_shares *shares, const struct rg_share_grant *grant, uint32_t n, uint64_t id)
{
    for (uint32_t i = 0; i < n; i++) {
        struct rg_shares_device *device = &shares->devices[grant->devices[i].ordinal];
        if (!grant->overcommitted)
            device->promised -= grant->devices[i].memory_limit;
        rg_share_device_drop(&device->device, grant->devices[i].place, id);
        set_capacity(device);
    }
}

/* A place on a device's page, with the guarantee. */
static enum rg_status take_place(struct rg_shares_device *device, struct rg_share_grant_device *wanted,
                                 bool overcommitted, uint64_t id, struct rg_monitor_answer *answer)
{
    char why[RG_CONTROL_REASON], asked[32], left[32];
    wanted->place = rg_share_device_take(&device->device, id);
    if (wanted->place == UINT32_MAX)
        return rg_refusal(answer, RG_ERR_NO_MEMORY, RG_REFUSAL_INTERNAL,
                          "the server has no place for another session");
    if (overcommitted || !wanted->memory_limit)
        return RG_OK;
    device->promised += wanted->memory_limit;
    set_capacity(device);
    if (rg_share_guarantee(&device->device, wanted->place, wanted->memory_limit))
        return RG_OK;
    device->promised -= wanted->memory_limit;
    const uint64_t owed = rg_share_owed(&device->device);
    rg_share_bytes_text(wanted->memory_limit, asked, sizeof asked);
    rg_share_bytes_text(device->to_promise > owed ? device->to_promise - owed : 0, left, sizeof left);
    snprintf(why, sizeof why,
             "%s of GPU %u's memory were asked for, and %s are not yet guaranteed to, or used by, other "
             "sessions; ask for less, for another GPU, or try again later",
             asked, wanted->ordinal, left);
    rg_share_device_drop(&device->device, wanted->place, id);
    set_capacity(device);
    return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_FULL, "%s", why);
}

enum rg_status rg_shares_grant(struct rg_shares *shares, const struct rg_share_wish *wish,
                               const struct rg_who *who, uint64_t id, const struct rg_session_info *info,
                               struct rg_shares_session *out, struct rg_monitor_answer *answer)
{
    const struct rg_share_user user = user_of(shares, who);
    struct rg_share_limits limits;
    struct rg_share_card cards[RG_DEVICES_MAX];
    char why[RG_CONTROL_REASON] = "";
    *out = (struct rg_shares_session){.slot_fd = -1};
    for (uint32_t i = 0; i < info->n_devices; i++)
        cards[i] = (struct rg_share_card){.ordinal = info->devices[i],
                                          .memory_total = shares->devices[info->devices[i]].total};
    if (limits_of(shares, &user, wish->project, &limits, why, sizeof why) != RG_OK ||
        rg_share_decide(&limits, &user, wish, cards, info->n_devices, &out->grant, why, sizeof why) != RG_OK)
        return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_LIMIT, "%s", why);
    struct rg_share_grant *grant = &out->grant;
    grant->overcommitted = shares->overcommit;
    for (uint32_t i = 0; i < grant->n_devices; i++) {
        const enum rg_status status = take_place(&shares->devices[grant->devices[i].ordinal],
                                                 &grant->devices[i], grant->overcommitted, id, answer);
        if (status != RG_OK) {
            give_back(shares, grant, i, id);
            return status;
        }
    }
    out->slot = rg_share_slot_create(grant, &out->slot_fd);
    if (out->slot)
        return RG_OK;
    give_back(shares, grant, grant->n_devices, id);
    return rg_refusal(answer, RG_ERR_NO_MEMORY, RG_REFUSAL_INTERNAL,
                      "the server is out of memory; try again later");
}

uint64_t rg_shares_owed_to(const struct rg_shares *shares, const struct rg_share_grant_device *device)
{
    const struct rg_share_place *place = &shares->devices[device->ordinal].device.page->places[device->place];
    const uint64_t guaranteed = atomic_load(&place->guaranteed), held = atomic_load(&place->held);
    const uint64_t owed = held > guaranteed ? held : guaranteed,
                   total = shares->devices[device->ordinal].total;
    return owed < total ? owed : total; /* whatever stands on the page */
}

uint64_t rg_shares_lacks(const struct rg_shares *shares, const struct rg_share_grant_device *device)
{
    const struct rg_shares_device *of = &shares->devices[device->ordinal];
    const uint64_t owed = rg_share_owed(&of->device),
                   left = of->to_promise > owed ? of->to_promise - owed : 0;
    return device->memory_limit > left ? device->memory_limit - left : 0;
}

bool rg_shares_have_room(const struct rg_shares *shares, const struct rg_share_grant_device *device,
                         uint64_t bytes)
{
    const struct rg_share_device *of = &shares->devices[device->ordinal].device;
    const uint64_t owed = rg_share_owed(of), capacity = atomic_load(&of->page->capacity);
    return owed == 0 || (owed <= capacity && bytes <= capacity - owed);
}

void rg_shares_release(struct rg_shares *shares, struct rg_shares_session *session, uint64_t id)
{
    if (!session->slot)
        return;
    give_back(shares, &session->grant, session->grant.n_devices, id);
    rg_share_slot_close(session->slot);
    if (session->slot_fd >= 0)
        close(session->slot_fd);
    *session = (struct rg_shares_session){.slot_fd = -1};
}
