/*
 * admissions.c - sessions that the frontend asks for: refused while the server closes, begun, or kept until there is room; see monitor.h.
 *
 * Who waits is looked at in the order of coming, by rg_monitor_admit, and no longer than ADMISSION_NS; who may not stay meanwhile is
 * refused. In a pool a session is what its lease says. Main thread.
 */
#include "server/daemon/monitor/monitor.h"

#include "common/base/clock.h"
#include "server/daemon/monitor/inquiries.h"
#include "server/daemon/monitor/reply.h"
#include "server/daemon/monitor/serving.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A session waits for room no longer than the workers that make it try to come to rest. */
#define ADMISSION_NS 15000000000ull
#define LOOK_NS      100000000ull

/* In a pool, as its lease says. */
static enum rg_status begin_session(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                                    const struct rg_who *who, const struct rg_session_files *files,
                                    struct rg_monitor_answer *answered)
{
    char key[RG_AGENT_WHO];
    struct rg_monitor_question leased = *question;
    if (!monitor->pool.wanted || question->start.purpose != RG_PURPOSE_SESSION) {
        leased.start.pool_lease = 0;
    } else {
        rg_who_key(who, question->peer.address, key, sizeof key);
        const uint64_t beside = rg_sessions_lease(&monitor->sessions, question->start.beside, who);
        RG_TRY(rg_pool_admit(&monitor->pool, who, key, beside, &leased.start, answered));
    }
    return rg_sessions_start(&monitor->sessions, &monitor->driver, &leased, who, files, answered);
}

static void drop_admission(struct rg_monitor *monitor, unsigned at)
{
    struct rg_admission *admission = monitor->admissions[at];
    const int fds[] = {admission->files.connection, admission->files.hello, admission->files.tls};
    for (unsigned i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(admission);
    /* in their order: who came first is looked at first */
    memmove(&monitor->admissions[at], &monitor->admissions[at + 1],
            (--monitor->n_admissions - at) * sizeof monitor->admissions[0]);
}

bool rg_monitor_may_wait(const struct rg_monitor *monitor, const struct rg_who *who, const char *address)
{
    char key[RG_AGENT_WHO], other[RG_AGENT_WHO];
    uint32_t n = 0;
    rg_who_key(who, address, key, sizeof key);
    for (unsigned i = 0; i < monitor->n_admissions; i++) {
        const struct rg_admission *at = monitor->admissions[i];
        rg_who_key(&at->who, at->question.peer.address, other, sizeof other);
        n += strcmp(key, other) == 0;
    }
    return monitor->n_admissions < RG_ADMISSIONS_MAX && n < RG_ADMISSIONS_OF_ONE_MAX;
}

/* The session has to wait for room. False: it cannot. */
static bool keep_admission(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                           const struct rg_who *who, const struct rg_session_files *files)
{
    struct rg_admission *new =
        rg_monitor_may_wait(monitor, who, question->peer.address) ? calloc(1, sizeof *new) : NULL;
    if (!new)
        return false;
    new->question = *question;
    new->who = *who;
    new->deadline_ns = rg_now_ns() + ADMISSION_NS;
    new->files.connection = fcntl(files->connection, F_DUPFD_CLOEXEC, 3);
    new->files.hello = fcntl(files->hello, F_DUPFD_CLOEXEC, 3);
    new->files.tls = files->tls >= 0 ? fcntl(files->tls, F_DUPFD_CLOEXEC, 3) : -1;
    monitor->admissions[monitor->n_admissions++] = new;
    if (new->files.connection >= 0 && new->files.hello >= 0 && (files->tls < 0 || new->files.tls >= 0))
        return true;
    drop_admission(monitor, monitor->n_admissions - 1);
    return false;
}

/* Why nothing of that kind begins; NULL: it may. */
const char *rg_monitor_why_closed(const struct rg_monitor *monitor, enum rg_purpose purpose)
{
    if (monitor->draining)
        return "the server is shutting down; use another, or try later";
    /* in a pool, what was granted before is still to be used: nothing more is granted */
    if (monitor->drained && !monitor->pool.wanted && purpose == RG_PURPOSE_SESSION)
        return "the server takes no new sessions, as its operator wants it (remote-gpud drain); use another, "
               "or try later";
    return NULL;
}

/* One that waits. False: it still does. */
static bool try_admission(struct rg_monitor *monitor, struct rg_admission *admission)
{
    struct rg_monitor_answer answered = {.number = admission->question.number};
    char why[RG_CONTROL_REASON] = "";
    const char *closed = rg_monitor_why_closed(monitor, admission->question.start.purpose);
    if (closed) {
        rg_reply_refuse(&monitor->frontend, &answered, RG_REFUSAL_SHUTTING_DOWN, closed);
        return true;
    }
    if (!rg_who_may_stay(&monitor->policy, &admission->who, why, sizeof why)) {
        rg_reply_refuse(&monitor->frontend, &answered, RG_REFUSAL_UNAUTHORISED, why);
        return true;
    }
    answered.status =
        begin_session(monitor, &admission->question, &admission->who, &admission->files, &answered);
    if (answered.status == RG_ERR_TIMEOUT && rg_now_ns() < admission->deadline_ns)
        return false;
    if (answered.status == RG_ERR_TIMEOUT)
        answered.status = RG_ERR_REFUSED;
    rg_sessions_show_usage(&monitor->sessions); /* first: who asked may look who was suspended for it */
    rg_reply(&monitor->frontend, &answered, NULL, 0);
    return true;
}

uint64_t rg_monitor_admit(struct rg_monitor *monitor)
{
    for (unsigned i = 0; i < monitor->n_admissions;)
        if (try_admission(monitor, monitor->admissions[i]))
            drop_admission(monitor, i);
        else
            i++;
    const uint64_t next = rg_preemption_continue(&monitor->sessions, monitor->n_admissions > 0);
    const uint64_t look = monitor->n_admissions > 0 ? rg_now_ns() + LOOK_NS : UINT64_MAX;
    return next < look ? next : look;
}

void rg_monitor_start_session(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                              const struct rg_session_files *files, struct rg_monitor_answer *answered)
{
    struct rg_who who;
    const char *closed = rg_monitor_why_closed(monitor, question->start.purpose);
    if (closed) {
        rg_reply_refuse(&monitor->frontend, answered, RG_REFUSAL_SHUTTING_DOWN, closed);
        return;
    }
    answered->status = rg_who_is(&monitor->policy, &question->peer, files->connection, &who, answered);
    rg_inquiry_see_time(monitor);
    if (answered->status == RG_OK)
        answered->status = begin_session(monitor, question, &who, files, answered);
    if (answered->status == RG_ERR_TIMEOUT) {
        if (keep_admission(monitor, question, &who, files))
            return;
        answered->status = RG_ERR_REFUSED;
    }
    rg_reply(&monitor->frontend, answered, NULL, 0);
}

void rg_monitor_forget_admissions(struct rg_monitor *monitor)
{
    while (monitor->n_admissions > 0)
        drop_admission(monitor, monitor->n_admissions - 1);
}
