/*
 * connections.c - what comes to a session that runs: further connections, which its worker decides on, and renewed certificates. See
 * sessions.h. The client is told of a session that has ended or is another's, and of a worker whose queue of connections is full. Main
 * thread.
 */
#include "server/daemon/sessions/sessions.h"

#include "common/base/log.h"
#include "common/base/packet.h"
#include "server/daemon/grant/refusal.h"
#include "server/daemon/sessions/list.h"
#include "server/handshake/handed.h"

#include <errno.h>

/* Whoever shows a certificate that is valid for longer keeps the session by it, and is revoked by it from then on. */
static void prolong(struct rg_session_entry *entry, const struct rg_who *who)
{
    if (who->proof != RG_PROOF_CERTIFICATE || who->not_after <= entry->who.not_after)
        return;
    entry->who = *who;
    rg_info("session %llu: %s has shown a renewed certificate", (unsigned long long)entry->info.id,
            rg_who_text(who));
}

static enum rg_status refuse_other(struct rg_monitor_answer *answer, unsigned long long id,
                                   const struct rg_who *who)
{
    return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_UNAUTHORISED,
                      "session %llu was begun by another than %s, who cannot go on with it", id,
                      rg_who_text(who));
}

static enum rg_status refuse_ended(const struct rg_sessions *sessions, uint64_t id, const struct rg_who *who,
                                   struct rg_monitor_answer *answer)
{
    char why[400];
    rg_ended_explain(sessions, id, who, why, sizeof why);
    return rg_refusal(answer, RG_ERR_NOT_FOUND, RG_REFUSAL_NO_SUCH_SESSION, "%s", why);
}

enum rg_status rg_sessions_stay(struct rg_sessions *sessions, const struct rg_monitor_question *question,
                                const struct rg_who *who, struct rg_monitor_answer *answer)
{
    struct rg_session_entry *entry = rg_sessions_find(sessions, question->stay.session);
    if (!entry || entry->kill_ns)
        return refuse_ended(sessions, question->stay.session, who, answer);
    if (!rg_who_is_same(&entry->who, who))
        return refuse_other(answer, entry->info.id, who);
    prolong(entry, who);
    return RG_OK;
}

enum rg_status rg_sessions_hand_over(struct rg_sessions *sessions, const struct rg_monitor_question *question,
                                     const struct rg_who *who, const struct rg_session_files *files,
                                     struct rg_monitor_answer *answer)
{
    const unsigned long long id = question->hand_over.session;
    struct rg_session_entry *entry = rg_sessions_find(sessions, id);
    const int fds[] = {files->connection, files->hello, files->tls};
    const struct rg_handed handed = {.version = RG_HANDED_VERSION, .n_fds = files->tls >= 0 ? 3 : 2};
    errno = 0;
    if (entry && who && !rg_who_is_same(&entry->who, who))
        return refuse_other(answer, id, who);
    if (entry && who)
        prolong(entry, who);
    if (entry && entry->hand >= 0 && rg_packet_send(entry->hand, &handed, sizeof handed, fds, handed.n_fds))
        return RG_OK;
    /* the worker is behind with taking them: others, without a token, may send it as many as they like */
    if (errno == EAGAIN || errno == ETOOMANYREFS || errno == ENOBUFS)
        return rg_refusal(answer, RG_ERR_TIMEOUT, RG_REFUSAL_FULL,
                          "session %llu has too much to do just now; try again", id);
    if (question->hand_over.purpose == RG_PURPOSE_RESUME)
        return refuse_ended(sessions, id, who, answer);
    return rg_refusal(answer, RG_ERR_NOT_FOUND, RG_REFUSAL_UNSUPPORTED,
                      "there is no session %llu that accepts another connection", id);
}
