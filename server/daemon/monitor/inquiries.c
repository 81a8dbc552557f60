/* inquiries.c - see inquiries.h. */
#include "server/daemon/monitor/inquiries.h"

#include "common/base/file.h"
#include "server/daemon/grant/accounting.h"
#include "server/daemon/grant/quotas.h"
#include "server/daemon/monitor/readers.h"
#include "server/daemon/monitor/reply.h"
#include "server/daemon/shared/audit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rg_inquiry_see_time(const struct rg_monitor *monitor)
{
    if (monitor->accountant.accounts)
        rg_accounts_tick(monitor->accountant.accounts, rg_accountant_wall_ns());
}

/* --- who they are ----------------------------------------------------------------------------------------- */

void rg_inquiry_owns(struct rg_monitor *monitor, const struct rg_monitor_question *question, int connection,
                     struct rg_monitor_answer *answered)
{
    struct rg_who who;
    answered->status = rg_who_is(&monitor->policy, &question->peer, connection, &who, answered);
    if (answered->status == RG_OK && !rg_who_owns(&who, monitor->policy.uid))
        answered->status = RG_ERR_REFUSED;
    rg_reply(&monitor->frontend, answered, NULL, 0);
}

/* --- accounts --------------------------------------------------------------------------------------------- */

/* The accountant answers by a socket, however long that takes it. */
void rg_inquiry_usage(struct rg_monitor *monitor, const struct rg_monitor_question *question, int connection,
                      struct rg_monitor_answer *answered)
{
    struct rg_accounts *accounts = monitor->accountant.accounts;
    struct rg_accountant_query query = {.question = question->usage};
    struct rg_who who;
    int ends[2];
    answered->status = rg_who_is(&monitor->policy, &question->peer, connection, &who, answered);
    if (answered->status != RG_OK) {
        rg_reply(&monitor->frontend, answered, NULL, 0);
        return;
    }
    if (!accounts) {
        rg_reply_refuse(
            &monitor->frontend, answered, RG_REFUSAL_UNSUPPORTED,
            "this server keeps no accounts; its operator can change that (--accounts) [usage-off]");
        return;
    }
    query.everybody = rg_who_owns(&who, monitor->policy.uid);
    rg_accounting_owner(&who, question->peer.address, "", &query.owner);
    if (rg_reply_open(&monitor->frontend, answered, ends))
        rg_reply_by(&monitor->frontend, answered, ends, rg_accounts_ask(accounts, &query, ends[1]),
                    "the server's accounts cannot be read now; try again later [usage-unavailable]");
}

void rg_inquiry_quotas(struct rg_monitor *monitor, const struct rg_monitor_question *question, int connection,
                       struct rg_monitor_answer *answered)
{
    struct rg_who who;
    struct rg_account_owner owner;
    struct rg_quota_answer quotas;
    const char *project = question->usage.project;
    answered->status = rg_who_is(&monitor->policy, &question->peer, connection, &who, answered);
    if (answered->status == RG_OK)
        answered->status = rg_shares_check_project(&monitor->sessions.shares, &who, project, answered);
    if (answered->status != RG_OK) {
        rg_reply(&monitor->frontend, answered, NULL, 0);
        return;
    }
    rg_accounting_owner(&who, question->peer.address, project, &owner);
    rg_inquiry_see_time(monitor);
    rg_quotas_tell(&monitor->sessions, &owner, &quotas);
    const int file = rg_file_in_memory("remote-gpu-quotas", &quotas, sizeof quotas);
    if (file < 0) {
        rg_reply_refuse(&monitor->frontend, answered, RG_REFUSAL_INTERNAL,
                        "the server is out of memory; try again later");
        return;
    }
    rg_reply_with(&monitor->frontend, answered, file);
}

/* --- the pool --------------------------------------------------------------------------------------------- */

void rg_inquiry_pool(struct rg_monitor *monitor, const struct rg_monitor_question *question, const int *fds,
                     struct rg_monitor_answer *answered)
{
    struct rg_agent_word word = {.kind = RG_AGENT_ASK};
    struct rg_who who;
    int ends[2];
    answered->status = rg_who_is(&monitor->policy, &question->peer, fds[0], &who, answered);
    if (answered->status != RG_OK) {
        rg_reply(&monitor->frontend, answered, NULL, 0);
        return;
    }
    rg_who_key(&who, question->peer.address, word.ask.key, sizeof word.ask.key);
    snprintf(word.ask.name, sizeof word.ask.name, "%s", who.name);
    word.ask.is_operator = rg_reader_is_operator(monitor, &who);
    word.ask.unproved = monitor->policy.allow_unauthenticated;
    word.ask.max_gpus = who.limits.max_gpus;
    word.ask.size = question->pool.size;
    if (who.proof == RG_PROOF_CERTIFICATE) {
        memcpy(word.ask.certificate.serial, who.serial, sizeof who.serial);
        word.ask.certificate.serial_size = who.serial_size;
        word.ask.certificate.not_after = who.not_after;
    }
    if (rg_reply_open(&monitor->frontend, answered, ends))
        rg_reply_by(&monitor->frontend, answered, ends, rg_pool_ask(&monitor->pool, &word, ends[1], fds[1]),
                    "the server cannot ask its pool now; try again, or ask another of its servers");
}

/* Whose account it is: the inverse of rg_who_key and rg_accounting_owner. */
static void owner_of(const struct rg_agent_judge *judge, struct rg_account_owner *out)
{
    const char *space = strchr(judge->key, ' ');
    const char *rest = space ? space + 1 : "";
    const long proof = strtol(judge->key, NULL, 10);
    *out = (struct rg_account_owner){.kind = RG_USAGE_NOBODY};
    snprintf(out->project, sizeof out->project, "%s", judge->project);
    if (proof == RG_PROOF_CERTIFICATE) {
        out->kind = RG_USAGE_CERTIFICATE;
        snprintf(out->user, sizeof out->user, "%s", rest);
    } else if (proof == RG_PROOF_USER) {
        out->kind = RG_USAGE_LOCAL;
        snprintf(out->user, sizeof out->user, "uid:%.32s", rest);
    } else {
        snprintf(out->user, sizeof out->user, "%s", RG_USAGE_UNAUTHENTICATED);
        snprintf(out->address, sizeof out->address, "%.*s", (int)sizeof out->address - 1, rest);
    }
}

/* Whose it is to be: as far as rules ask. */
static void who_of(const struct rg_agent_judge *judge, struct rg_who *out)
{
    const char *space = strchr(judge->key, ' ');
    *out = (struct rg_who){.proof = (enum rg_proof)strtol(judge->key, NULL, 10)};
    if (out->proof == RG_PROOF_USER && space)
        out->uid = (uid_t)strtoul(space + 1, NULL, 10);
    if (out->proof == RG_PROOF_CERTIFICATE && space)
        snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, space + 1);
}

/* Whether a lease may count to its project, as with sessions: else whoever likes could use up what belongs to its members. */
static bool is_of_project(const struct rg_monitor *monitor, const struct rg_agent_judge *judge,
                          const struct rg_who *who, char *why, size_t why_size)
{
    struct rg_monitor_answer answer;
    if (!judge->project[0] ||
        rg_shares_check_project(&monitor->sessions.shares, who, judge->project, &answer) == RG_OK)
        return true;
    rg_explain(
        why, why_size,
        "%s is no member of a project '%.100s' on the server that was asked; leave out --project, or ask the "
        "server's operator [lease-project]",
        judge->name[0] ? judge->name : "somebody unauthenticated", judge->project);
    return false;
}

/* The priority that it gets. */
static bool judge_priority(const struct rg_monitor *monitor, const struct rg_agent_judge *judge,
                           const struct rg_who *who, struct rg_agent_judged *out)
{
    char why[RG_CONTROL_REASON] = "";
    bool preempts = false;
    if (rg_shares_priority(&monitor->sessions.shares, who, judge->project, judge->priority, &out->priority,
                           &preempts, why, sizeof why) != RG_OK) {
        rg_explain(out->why, sizeof out->why, "%.300s [lease-priority]", why);
        return false;
    }
    out->preempts = preempts;
    return true;
}

/* As for longer, or for what is counted so far: out->counts says whether that is not enough. */
static bool judge_quotas(struct rg_monitor *monitor, const struct rg_agent_judge *judge,
                         struct rg_agent_judged *out)
{
    struct rg_account_owner owner;
    bool counts = false;
    owner_of(judge, &owner);
    if (judge->renews)
        return !rg_quotas_are_exhausted(&monitor->sessions, &owner, out->why, sizeof out->why);
    const enum rg_status status =
        rg_quotas_admit_lease(&monitor->sessions, &owner, judge, &counts, out->why, sizeof out->why);
    out->counts = counts;
    return status == RG_OK;
}

void rg_inquiry_judge(void *data, const struct rg_agent_judge *judge, struct rg_agent_judged *out)
{
    struct rg_monitor *monitor = data;
    struct rg_who who;
    who_of(judge, &who);
    rg_inquiry_see_time(monitor);
    out->good = judge->renews || (is_of_project(monitor, judge, &who, out->why, sizeof out->why) &&
                                  judge_priority(monitor, judge, &who, out));
    if (out->good && judge->project_alone)
        return;
    out->good = out->good && judge_quotas(monitor, judge, out);
    if (out->counts) /* it is asked for again */
        return;
    if (strcmp(judge->by, judge->name) != 0) {
        char lease[96];
        snprintf(lease, sizeof lease, "lease %016" PRIx64 " of %u GPUs is %s by an operator", judge->lease,
                 judge->gpus,
                 !out->good      ? "refused"
                 : judge->renews ? "renewed"
                                 : "asked for");
        rg_audit(&(struct rg_audit){
            .event = RG_AUDIT_LEASE, .user = judge->name, .from = judge->by, .why = lease});
    }
}

bool rg_inquiry_stays(void *data, const struct rg_agent_client *client, char *why, size_t why_size)
{
    const struct rg_monitor *monitor = data;
    struct rg_who who = {.proof = RG_PROOF_CERTIFICATE, .serial_size = client->certificate.serial_size};
    snprintf(who.name, sizeof who.name, "%s", client->name);
    memcpy(who.serial, client->certificate.serial, sizeof who.serial);
    return who.serial_size <= sizeof who.serial && rg_who_may_stay(&monitor->policy, &who, why, why_size);
}

void rg_inquiry_lease(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                      struct rg_monitor_answer *answered)
{
    char why[RG_CONTROL_REASON] = "";
    enum rg_status status = RG_OK; /* in no pool there is nothing to check */
    if (monitor->pool.wanted)
        status = rg_pool_check(&monitor->pool, question->pool.lease, question->number, why, sizeof why);
    if (status == RG_OK)
        rg_reply(&monitor->frontend, answered, NULL, 0);
    else if (status != RG_ERR_TIMEOUT)
        rg_reply_refuse(&monitor->frontend, answered, RG_REFUSAL_UNAUTHORISED, why);
}

void rg_inquiry_checked(void *data, uint64_t question, bool there, const char *why)
{
    struct rg_monitor *monitor = data;
    struct rg_monitor_answer answered = {.number = question};
    if (there)
        rg_reply(&monitor->frontend, &answered, NULL, 0);
    else
        rg_reply_refuse(&monitor->frontend, &answered, RG_REFUSAL_UNAUTHORISED, why);
}
