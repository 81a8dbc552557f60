/* placement.c - see placement.h. */
#include "server/daemon/grant/placement.h"

#include "server/daemon/grant/refusal.h"

/* Who uses each device. */
struct users {
    uint32_t n[RG_DEVICES_MAX];
    uint64_t alone[RG_DEVICES_MAX];          /* the session that has it alone; 0: none */
    enum rg_sharing sharing[RG_DEVICES_MAX]; /* by which the others share it */
    bool barred[RG_DEVICES_MAX];             /* the session gets others */
};

static const char *const ways[RG_SHARINGS] = {[RG_SHARING_TURNS] = "by turns", [RG_SHARING_MPS] = "by MPS"};

static void count_users(const struct rg_sessions *sessions, struct users *users)
{
    *users = (struct users){0};
    for (uint32_t i = 0; i < sessions->n; i++) {
        const struct rg_session_entry *entry = sessions->entries[i];
        if (rg_preemption_is_away(entry))
            continue; /* until those who have its GPUs meanwhile have given them back */
        for (uint32_t j = 0; j < entry->info.n_devices; j++) {
            const uint32_t device = entry->info.devices[j];
            users->n[device]++;
            users->sharing[device] = rg_share_grant_sharing(&entry->share.grant);
            if (entry->share.grant.exclusive)
                users->alone[device] = entry->info.id;
        }
    }
}

/* Turns order nothing of what goes through MPS, nor the other way round: sessions of both are never on one device. */
static bool is_shared_otherwise(const struct users *users, uint32_t device, enum rg_sharing sharing)
{
    const enum rg_sharing now = users->n[device] ? users->sharing[device] : sharing;
    return ways[sharing] && ways[now] && now != sharing;
}

/* Whether a session may be on a device beside those that are: nobody may where one is alone, and who is to be alone nowhere else. */
static bool is_open(const struct users *users, uint32_t device, enum rg_sharing sharing)
{
    return !users->barred[device] && !users->alone[device] &&
           (sharing != RG_SHARING_EXCLUSIVE || users->n[device] == 0) &&
           !is_shared_otherwise(users, device, sharing);
}

/* Fills in info->n_devices devices: those that the fewest sessions use, in their order. There are as many that are open. */
static void pick_least_used(const struct users *users, const struct rg_driver *driver,
                            enum rg_sharing sharing, struct rg_session_info *info)
{
    bool picked[RG_DEVICES_MAX] = {false};
    for (uint32_t n = 0; n < info->n_devices; n++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < driver->n_devices; i++)
            if (!picked[i] && is_open(users, i, sharing) &&
                (best == UINT32_MAX || users->n[i] < users->n[best]))
                best = i;
        picked[best] = true;
    }
    for (uint32_t i = 0, n = 0; n < info->n_devices; i++)
        if (picked[i])
            info->devices[n++] = i;
}

/*
 * The devices that the client has named. One that there is not ends the list, as CUDA's driver reads CUDA_VISIBLE_DEVICES; where it
 * is the first, nothing is left, and the client is told why.
 */
static enum rg_status grant_named(const struct users *users, const struct rg_driver *driver,
                                  const struct rg_monitor_start *wanted, enum rg_sharing sharing,
                                  struct rg_session_info *info, struct rg_monitor_answer *answer)
{
    uint32_t n = wanted->n_gpu_indices;
    for (uint32_t i = 1; i < n; i++)
        if (wanted->gpu_indices[i] >= driver->n_devices)
            n = i;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t index = wanted->gpu_indices[i];
        if (index >= driver->n_devices)
            return rg_refusal(
                answer, RG_ERR_REFUSED, RG_REFUSAL_NO_SUCH_GPU,
                "GPU %u was asked for, but this server's GPUs are 0 to %u; 'remote-gpu list' shows them",
                index, driver->n_devices - 1);
        for (uint32_t j = 0; j < i; j++)
            if (wanted->gpu_indices[j] == index)
                return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_NO_SUCH_GPU,
                                  "GPU %u was asked for twice; name each once", index);
        if (driver->devices[index].mig && n > 1)
            return rg_refusal(
                answer, RG_ERR_REFUSED, RG_REFUSAL_NO_SUCH_GPU,
                "GPU %u was asked for beside others, but it is an instance that MIG has made of one, "
                "and who has such has nothing else; name it alone",
                index);
        if (users->alone[index] && wanted->beside)
            return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_NO_SUCH_GPU,
                              "session %llu has GPU %u alone (exclusive), and who opens memory of it would "
                              "be another session "
                              "there; run the program that exports it without --exclusive",
                              (unsigned long long)users->alone[index], index);
        if (users->alone[index])
            return rg_refusal(
                answer, RG_ERR_REFUSED, RG_REFUSAL_NO_SUCH_GPU,
                "GPU %u was asked for, but session %llu has it alone (exclusive); ask for another "
                "GPU, or try again later",
                index, (unsigned long long)users->alone[index]);
        if (is_shared_otherwise(users, index, sharing))
            return rg_refusal(
                answer, RG_ERR_REFUSED, RG_REFUSAL_NO_SUCH_GPU,
                "GPU %u was asked for, but sessions share it %s now, and yours would %s; ask for "
                "another GPU, or try again later",
                index, ways[users->sharing[index]], ways[sharing]);
        if (!is_open(users, index, sharing))
            return rg_refusal(
                answer, RG_ERR_REFUSED, RG_REFUSAL_NO_SUCH_GPU,
                "GPU %u was asked for alone (exclusive), but %u session%s there; ask for another "
                "GPU, or try again later",
                index, users->n[index], users->n[index] == 1 ? " is" : "s are");
        info->devices[i] = index;
    }
    info->n_devices = n;
    return RG_OK;
}

/*
 * CUDA shows a process one instance of a GPU that MIG has divided, and nothing beside it: a session gets GPUs that are whole, or one
 * instance. Returns how many there are of what it may get, and bars the others. *instances: only one of them.
 */
static uint32_t bar_others(struct users *users, const struct rg_driver *driver, uint32_t gpus,
                           enum rg_sharing sharing, bool *instances)
{
    uint32_t whole = 0, open = 0;
    for (uint32_t i = 0; i < driver->n_devices; i++) {
        whole += !driver->devices[i].mig;
        open += !driver->devices[i].mig && is_open(users, i, sharing);
    }
    if (gpus == 1 || whole == driver->n_devices)
        return driver->n_devices;
    *instances = gpus == 0 && (whole == 0 || open == 0);
    for (uint32_t i = 0; i < driver->n_devices; i++)
        users->barred[i] = driver->devices[i].mig != *instances;
    return *instances ? driver->n_devices - whole : whole;
}

enum rg_status rg_placement(const struct rg_sessions *sessions, const struct rg_driver *driver,
                            const struct rg_monitor_start *wanted, const struct rg_who *who,
                            struct rg_session_info *info, struct rg_monitor_answer *answer)
{
    const uint32_t limit = who->limits.max_gpus;
    const enum rg_sharing sharing = rg_shares_sharing(&sessions->shares, &wanted->share, who);
    struct users users;
    enum rg_sharing otherwise = RG_SHARING_UNKNOWN; /* of others that share theirs in another way */
    uint32_t open = 0;
    if (limit && (wanted->gpus > limit || wanted->n_gpu_indices > limit))
        return rg_refusal(
            answer, RG_ERR_REFUSED, RG_REFUSAL_NO_SUCH_GPU,
            "%u GPUs were asked for, and you may use %u of this server's at once; ask for fewer",
            wanted->gpus > wanted->n_gpu_indices ? wanted->gpus : wanted->n_gpu_indices, limit);
    count_users(sessions, &users);
    if (wanted->n_gpu_indices > 0)
        return grant_named(&users, driver, wanted, sharing, info, answer);
    if (wanted->gpus > driver->n_devices)
        return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_NO_SUCH_GPU,
                          "%u GPUs were asked for, but this server has %u; ask for fewer, or another server",
                          wanted->gpus, driver->n_devices);
    bool instances = false;
    const uint32_t n = bar_others(&users, driver, wanted->gpus, sharing, &instances);
    if (wanted->gpus > n)
        return rg_refusal(
            answer, RG_ERR_REFUSED, RG_REFUSAL_NO_SUCH_GPU,
            "%u GPUs were asked for, and %u of this server's are whole; of those that MIG has divided a "
            "session gets one instance (-n 1); ask for fewer, or another server",
            wanted->gpus, n);
    for (uint32_t i = 0; i < driver->n_devices; i++) {
        open += is_open(&users, i, sharing);
        otherwise = is_shared_otherwise(&users, i, sharing) ? users.sharing[i] : otherwise;
    }
    if ((open == 0 || wanted->gpus > open) && sharing == RG_SHARING_EXCLUSIVE)
        return rg_refusal(
            answer, RG_ERR_REFUSED, RG_REFUSAL_NO_SUCH_GPU,
            "%u of this server's %u GPUs are used by nobody, and as many as were asked for are needed "
            "to have them alone (exclusive); ask for fewer, another server, or try again later",
            open, n);
    if (open == 0 || wanted->gpus > open)
        return rg_refusal(
            answer, RG_ERR_REFUSED, RG_REFUSAL_NO_SUCH_GPU,
            "%u of this server's %u GPUs are left, as others have theirs alone (exclusive)%s%s; ask for "
            "fewer, another server, or try again later",
            open, n, ways[otherwise] ? ", or share theirs " : "", ways[otherwise] ? ways[otherwise] : "");
    info->n_devices = wanted->gpus ? wanted->gpus : open;
    if (instances)
        info->n_devices = 1;
    if (limit && info->n_devices > limit)
        info->n_devices = limit;
    pick_least_used(&users, driver, sharing, info);
    return RG_OK;
}
