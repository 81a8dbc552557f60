/*
 * shares.h - the monitor's part of shares of GPUs: a page for each device, a slot for each session, and the operator's rules.
 *
 * Happy path: rg_shares_open once the devices are known; rg_shares_grant for each session, whose worker gets the descriptors of
 * the slot and of its devices' pages; rg_shares_release when the worker has been reaped, which frees all that the session held.
 * Main thread.
 */
#ifndef RG_SERVER_DAEMON_GRANT_SHARES_H
#define RG_SERVER_DAEMON_GRANT_SHARES_H

#include "server/daemon/driver/driver.h"
#include "server/daemon/grant/who.h"
#include "server/daemon/shared/monitor_protocol.h"
#include "server/shares/ledger.h"
#include "server/shares/rules.h"
#include "server/shares/slot.h"

/** A device's page, and what may be promised of the device. */
struct rg_shares_device {
    struct rg_share_device device;
    int fd;
    uint64_t total;      /* bytes of memory, as the driver says */
    uint64_t to_promise; /* of these, what was free when no session ran */
    uint64_t unpromised; /* what sessions may hold while nothing is promised; UINT64_MAX: the driver says */
    uint64_t promised;   /* the sum of the guarantees */
};

struct rg_shares {
    const char *rules_path; /* NULL: none */
    struct rg_share_rules *rules;
    bool overcommit; /* limits of memory are no guarantees, and may be more than there is together */
    const char *mps; /* the folder of MPS's control daemon, by which GPUs are shared; NULL: they are not */
    uid_t uid;       /* of the server's user */
    uint32_t n_devices;
    struct rg_shares_device devices[RG_DEVICES_MAX];
};

/** What a session has; zeroed: nothing. */
struct rg_shares_session {
    struct rg_share_grant grant; /* the monitor's own: what is in the slot the worker can write to */
    struct rg_share_slot *slot;  /* NULL: a session without devices */
    int slot_fd;                 /* for the worker; -1 once it has it */
};

/** RG_ERR_INVALID, RG_ERR_NO_MEMORY, …: it was said why. */
RG_MUST_CHECK enum rg_status rg_shares_open(struct rg_shares *shares, const struct rg_driver *driver,
                                            uint32_t max_sessions, const char *rules_path, bool overcommit,
                                            const char *mps);
void rg_shares_close(struct rg_shares *shares);
/** Reads the rules again: for sessions that begin from then on. Wrong ones are said, and the old ones stay. */
void rg_shares_reload(struct rg_shares *shares);

/**
 * Decides what session `id` gets of the devices in `info`, and takes it. RG_OK: `out` is to be released. Else `answer` has what
 * to tell the client.
 */
RG_MUST_CHECK enum rg_status rg_shares_grant(struct rg_shares *shares, const struct rg_share_wish *wish,
                                             const struct rg_who *who, uint64_t id,
                                             const struct rg_session_info *info,
                                             struct rg_shares_session *out, struct rg_monitor_answer *answer);
/** How a session is to share its devices, by its wish and the rules; RG_SHARING_UNKNOWN where it will be refused. */
enum rg_sharing rg_shares_sharing(const struct rg_shares *shares, const struct rg_share_wish *wish,
                                  const struct rg_who *who);
/** Whether somebody may begin sessions for a project ("": for none). On anything but RG_OK `answer` has what to tell the client. */
RG_MUST_CHECK enum rg_status rg_shares_check_project(const struct rg_shares *shares, const struct rg_who *who,
                                                     const char *project, struct rg_monitor_answer *answer);
/**
 * The priority of somebody's lease of the pool, and whether others are suspended for it, by what is wished and the rules. On anything but
 * RG_OK `why` is for the client.
 */
RG_MUST_CHECK enum rg_status rg_shares_priority(const struct rg_shares *shares, const struct rg_who *who,
                                                const char *project, enum rg_share_priority wished,
                                                enum rg_share_priority *out, bool *preempts, char *why,
                                                size_t why_size);
/** After the worker has been reaped. */
void rg_shares_release(struct rg_shares *shares, struct rg_shares_session *session, uint64_t id);

/** What a device owes a session: what is guaranteed to it, or what it holds, whichever is more. */
uint64_t rg_shares_owed_to(const struct rg_shares *shares, const struct rg_share_grant_device *device);
/** How much a device has too little for a guarantee. */
uint64_t rg_shares_lacks(const struct rg_shares *shares, const struct rg_share_grant_device *device);
/** Whether a device has so much that it owes nobody. */
bool rg_shares_have_room(const struct rg_shares *shares, const struct rg_share_grant_device *device,
                         uint64_t bytes);

/** What is guaranteed of a device's memory. */
static inline uint64_t rg_shares_promised(const struct rg_shares *shares, uint32_t device)
{
    return device < shares->n_devices ? shares->devices[device].promised : 0;
}

#endif
