/*
 * certificates.c - what the monitor does with certificates: it signs handshakes, for which it alone has the key, makes certificates for who
 * has a token or a certificate, lets sessions stay by renewed ones, and ends those whose are revoked; see monitor.h. What fails is said to
 * the client without reasons, and with them in the log. Main thread.
 */
#include "server/daemon/monitor/monitor.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "server/daemon/monitor/reply.h"
#include "server/daemon/monitor/serving.h"
#include "server/daemon/shared/audit.h"

#include <errno.h>
#include <string.h>

void rg_monitor_check_certificate(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                                  struct rg_monitor_answer *answered)
{
    struct rg_who who;
    answered->status = rg_who_is(&monitor->policy, &question->peer, -1, &who, answered);
    rg_reply(&monitor->frontend, answered, NULL, 0);
}

void rg_monitor_prove(const struct rg_monitor *monitor, struct rg_frontend_process *process,
                      const struct rg_monitor_question *question, struct rg_monitor_answer *answered)
{
    _Static_assert((int)RG_MONITOR_SIGNATURE == (int)RG_IDENTITY_SIGNATURE, "an answer holds a signature");
    _Static_assert((int)RG_MONITOR_HANDSHAKE == (int)RG_IDENTITY_HANDSHAKE, "a question holds a hash");
    const struct rg_monitor_sign *what = &question->sign;
    size_t size = 0;
    answered->status = RG_ERR_UNSUPPORTED;
    if (monitor->policy.identity)
        answered->status = rg_identity_sign(monitor->policy.identity, what->generation,
                                            (enum rg_identity_digest)what->digest, what->hash,
                                            what->hash_size, answered->signature, &size);
    answered->signature_size = answered->status == RG_OK ? (uint32_t)size : 0;
    rg_reply(process, answered, NULL, 0);
}

void rg_monitor_stay(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                     struct rg_monitor_answer *answered)
{
    struct rg_who who;
    answered->status = rg_who_is(&monitor->policy, &question->peer, -1, &who, answered);
    if (answered->status == RG_OK)
        answered->status = rg_sessions_stay(&monitor->sessions, question, &who, answered);
    rg_reply(&monitor->frontend, answered, NULL, 0);
}

static void give_certificate(struct rg_monitor *monitor, const struct rg_identity_grant *grant,
                             struct rg_monitor_answer *answered)
{
    const int file = rg_file_in_memory("remote-gpu-grant", grant, sizeof *grant);
    if (file >= 0) {
        rg_reply_with(&monitor->frontend, answered, file);
        return;
    }
    rg_error("no memory for a certificate: %s", strerror(errno));
    rg_reply_refuse(&monitor->frontend, answered, RG_REFUSAL_INTERNAL,
                    "the server is out of memory; try again later");
}

void rg_monitor_make_certificate(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                                 struct rg_monitor_answer *answered)
{
    struct rg_identity_store *store = monitor->policy.identity;
    const struct rg_monitor_peer *peer = &question->peer;
    const bool join = question->kind == RG_ASK_JOIN;
    struct rg_identity_grant grant;
    char why[RG_CONTROL_REASON] = "";
    memset(&grant, 0, sizeof grant);
    if (!store || !rg_identity_is_own(store)) {
        rg_reply_refuse(&monitor->frontend, answered, RG_REFUSAL_UNSUPPORTED,
                        "this server gives no certificates; its operator's authority does");
        return;
    }
    answered->status = join ? rg_identity_join(store, question->join.secret, question->join.public_key,
                                               &grant, why, sizeof why)
                            : rg_identity_renew(store, peer->name, peer->serial, peer->serial_size,
                                                question->join.public_key, &grant, why, sizeof why);
    if (answered->status == RG_OK) {
        rg_audit(&(struct rg_audit){.event = join ? RG_AUDIT_JOIN : RG_AUDIT_RENEW,
                                    .user = grant.user,
                                    .serial = grant.serial,
                                    .serial_size = grant.serial_size,
                                    .from = peer->address,
                                    .encrypted = true});
        give_certificate(monitor, &grant, answered);
    } else if (answered->status == RG_ERR_REFUSED) {
        rg_reply_refuse(&monitor->frontend, answered, RG_REFUSAL_UNAUTHORISED, why);
    } else if (answered->status == RG_ERR_TIMEOUT) {
        rg_error("a certificate for %s could not be made: %s", peer->address, why);
        rg_reply_refuse(&monitor->frontend, answered, RG_REFUSAL_FULL,
                        "the server is about to change who may use it; try again");
    } else {
        rg_error("a certificate for %s could not be made: %s", peer->address, why);
        rg_reply_refuse(&monitor->frontend, answered, RG_REFUSAL_INTERNAL,
                        "the server could not make a certificate; its log says why");
    }
}

/* Ends what is of certificates that are not accepted any more: sessions, and what their users have of the pool by this server. */
static void recheck(struct rg_monitor *monitor)
{
    rg_sessions_recheck(&monitor->sessions, &monitor->policy);
    rg_pool_recheck(&monitor->pool);
}

void rg_monitor_recheck(struct rg_monitor *monitor)
{
    if (monitor->policy.identity && rg_identity_changed(monitor->policy.identity))
        recheck(monitor);
}

void rg_monitor_reload(struct rg_monitor *monitor)
{
    struct rg_identity_store *store = monitor->policy.identity;
    struct rg_identity_material material;
    char why[RG_CONTROL_REASON] = "";
    bool changed = false;
    if (!store)
        return;
    if (rg_identity_reload(store, &changed, why, sizeof why) != RG_OK) {
        rg_error("the certificates stay as they were: %s", why);
        return;
    }
    recheck(monitor);
    if (!changed)
        return;
    rg_identity_material(store, &material);
    if (rg_frontend_set_tls(&monitor->frontend, &material) == RG_OK && rg_http_set_tls(monitor))
        rg_info("new connections get the server's new certificate");
}
