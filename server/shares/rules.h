/*
 * rules.h - what the server's operator has decided of shares: a JSON file (remote-gpud --rules), docs/shares.md.
 *
 *     {
 *       "default":  {"memory": "8G", "max-memory": "50%", "require-memory": true, "max-priority": "normal"},
 *       "users":    {"alice": {"max-memory": "100%", "weight": 200}, "uid:1000": {"compute": "25%"}},
 *       "projects": {"vision": {"members": ["alice"], "max-weight": 500}},
 *       "groups":   {"students": {"members": ["bob", "carol"], "quota": {"gpus": 4}}}
 *     }
 *
 * What is said of a user comes before what is said of the project, and that before the default; each key by itself. A user is
 * the name in a certificate, or "uid:N" for a user of this machine, whom the kernel names; a name that begins so is never a
 * certificate's. Whoever proves nothing has the default. A key that is not known, a value of the wrong kind or a name twice
 * makes the whole file wrong: nothing is left out in silence.
 *
 * Rules do not change: a new file is new rules. The monitor's, one thread.
 */
#ifndef RG_SERVER_SHARES_RULES_H
#define RG_SERVER_SHARES_RULES_H

#include "proto/control/control.h"

#include <jansson.h>

/** Memory of a device: bytes, or a part of it. Both 0: nothing was said. */
struct rg_share_amount {
    uint64_t bytes;
    uint32_t millionths;
};

enum rg_share_mode {
    RG_SHARE_MODE_ANY,    /* as the session wants it */
    RG_SHARE_MODE_SHARED, /* as the server does it */
    RG_SHARE_MODE_TURNS,
    RG_SHARE_MODE_MPS,
    RG_SHARE_MODE_EXCLUSIVE,
};

/** What holds for one session; zeros: nothing was said. */
struct rg_share_limits {
    struct rg_share_amount memory, max_memory; /* what it gets if it does not ask; what it may ask for */
    bool require_memory;                       /* it is refused where neither it nor a rule says how much */
    uint32_t compute, max_compute;             /* millionths of each device's time */
    uint32_t weight, max_weight;
    enum rg_share_priority priority, max_priority;
    uint64_t idle_timeout_ns, max_idle_timeout_ns;
    enum rg_share_mode mode; /* of using a device: beside others, or alone */
    bool mps;                /* the server shares by MPS where no mode says otherwise; not of the rules */
    bool preempt;            /* sessions of lower priority are suspended for memory that it asks for */
};

/** Who asks, as the monitor has found out. */
struct rg_share_user {
    enum { RG_SHARE_NOBODY, RG_SHARE_UID, RG_SHARE_NAME } kind;
    uint32_t uid;
    const char *name; /* in the certificate */
    bool owner;       /* the server's own user, or root */
};

struct rg_share_rules;

/** Reads the file. RG_ERR_NOT_FOUND, RG_ERR_INVALID, RG_ERR_NO_MEMORY: `why` is a sentence with the place. */
RG_MUST_CHECK enum rg_status rg_share_rules_read(const char *path, struct rg_share_rules **out, char *why,
                                                 size_t why_size);
/** The same of a text in memory, for tests. */
RG_MUST_CHECK enum rg_status rg_share_rules_parse(const char *text, size_t size, struct rg_share_rules **out,
                                                  char *why, size_t why_size);
void rg_share_rules_free(struct rg_share_rules *rules); /* NULL is fine */

/**
 * What holds for a user's session of a project ("": none). `rules` may be NULL: there is no file. RG_ERR_REFUSED: the user may
 * not use the project; `why` says so.
 */
RG_MUST_CHECK enum rg_status rg_share_rules_limits(const struct rg_share_rules *rules,
                                                   const struct rg_share_user *user, const char *project,
                                                   struct rg_share_limits *out, char *why, size_t why_size);

/**
 * What the file says under "quota": of a user, of a project, or by default (both NULL). NULL: nothing. Its content is checked
 * by `check` when the file is read (rg_share_rules_check_quota), and belongs to the rules.
 */
const json_t *rg_share_rules_quota(const struct rg_share_rules *rules, const struct rg_share_user *user,
                                   const char *project);

/** Called for each "quota" of a file that is read; false with `why`: the file is wrong. Set once, before the first file. */
typedef bool rg_share_quota_check(const json_t *quota, char *why, size_t why_size);
void rg_share_rules_check_quota(rg_share_quota_check *check);

/** Whether this server has MPS, without which a file that names it is wrong. Set once, before the first file. */
void rg_share_rules_allow_mps(bool allowed);

/** The file's "groups", each with "members" and a "quota" for all of them together; NULL: there are none. The rules'. */
const json_t *rg_share_rules_groups(const struct rg_share_rules *rules);
/** Whether a project or group of the rules has a member of that name. */
bool rg_share_rules_has_member(const json_t *entry, const char *name);
/** What the file says under "when-used-up": what becomes of sessions whose GPU hours are. NULL: nothing. The rules'. */
const json_t *rg_share_rules_used_up(const struct rg_share_rules *rules);
/** As rg_share_rules_check_quota, for "when-used-up". */
void rg_share_rules_check_used_up(rg_share_quota_check *check);

#endif
