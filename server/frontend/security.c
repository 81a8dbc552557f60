/* security.c - see security.h. */
#include "server/frontend/security.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool rg_frontend_take_tls(struct rg_frontend *frontend, int file, const struct rg_monitor_tls *tls)
{
    const struct rg_tls_signer signer = {
        .sign = rg_monitor_sign, .data = &frontend->link, .generation = tls->generation};
    char why[512] = "";
    struct rg_tls_server *server = NULL;
    struct rg_tls_pem parts;
    RG_CLEANUP_FREE char *pem = rg_monitor_link_read_pem(file, tls, &parts);
    if (!pem)
        return false;
    parts.signer = &signer;
    const enum rg_status status = rg_tls_server_create(&parts, &server, why, sizeof why);
    if (status != RG_OK) {
        rg_error("the server's certificate cannot be used: %s", why);
        return false;
    }
    RG_SCOPED_LOCK(&frontend->tls_lock);
    rg_tls_server_release(frontend->tls);
    frontend->tls = server;
    return true;
}

static enum rg_status refuse(struct rg_secured *out, const char *why)
{
    snprintf(out->why, sizeof out->why, "%s", why);
    return RG_ERR_REFUSED;
}

/* Whether the monitor accepts a certificate that TLS has verified. */
static enum rg_status check_certificate(struct rg_frontend *frontend, struct rg_secured *out)
{
    struct rg_monitor_question question;
    struct rg_monitor_answer answer;
    memset(&question, 0, sizeof question);
    question.kind = RG_ASK_CHECK;
    question.peer = out->peer;
    if (rg_monitor_ask(&frontend->link, &question, NULL, 0, -1, &answer, NULL) != RG_OK)
        return refuse(out, "the server is out of memory; try again later");
    return answer.status == RG_OK ? RG_OK : refuse(out, answer.why);
}

static enum rg_status secure_by_tls(struct rg_frontend *frontend, int fd, enum rg_listener_reach reach,
                                    int timeout_ms, struct rg_secured *out)
{
    struct rg_tls_peer peer;
    pthread_mutex_lock(&frontend->tls_lock);
    struct rg_tls_server *server = frontend->tls ? rg_tls_server_acquire(frontend->tls) : NULL;
    pthread_mutex_unlock(&frontend->tls_lock);
    if (!server)
        return refuse(out, "this server does not speak TLS");
    const enum rg_status status =
        rg_tls_accept(fd, server, timeout_ms, &peer, &out->keys, out->why, sizeof out->why);
    rg_tls_server_release(server);
    RG_TRY(status);
    out->peer.encrypted = 1;
    memcpy(out->exporter, peer.exporter, sizeof out->exporter);
    if (peer.shown && !peer.verified)
        return refuse(out, peer.why);
    if (!peer.shown) {
        out->may_only_join = reach == RG_REACH_NETWORK && !frontend->settings.allow_unauthenticated;
        return RG_OK;
    }
    out->peer.proof = RG_PROOF_CERTIFICATE;
    snprintf(out->peer.name, sizeof out->peer.name, "%s", peer.certificate.name);
    memcpy(out->peer.serial, peer.certificate.serial, sizeof out->peer.serial);
    out->peer.serial_size = peer.certificate.serial_size;
    out->peer.not_after = peer.certificate.not_after;
    return check_certificate(frontend, out);
}

/* A unix socket without permissions (an abstract one) is reachable for every local user. */
static enum rg_status secure_by_kernel(const struct rg_frontend *frontend, uid_t uid, struct rg_secured *out)
{
    const struct rg_monitor_settings *settings = &frontend->settings;
    const bool known = !settings->unmapped || uid != settings->unmapped;
    out->peer.proof = known ? RG_PROOF_USER : RG_PROOF_NONE;
    if (settings->allow_unauthenticated || (known && (uid == 0 || uid == settings->uid)))
        return RG_OK;
    if (!known)
        return refuse(
            out, "in this server's user namespace, as of a rootless container, your user has no number of "
                 "its own, so who you are cannot be known; have the user mapped into it, or the server "
                 "started with --allow-unauthenticated");
    return refuse(out, "this server's socket is for the user who started it; run your own, or have it "
                       "started with --allow-unauthenticated");
}

enum rg_status rg_frontend_secure(struct rg_frontend *frontend, int fd, enum rg_listener_reach reach,
                                  uid_t uid, int timeout_ms, struct rg_secured *out)
{
    const uint64_t began = rg_now_ns();
    bool is_tls = false;
    memset(out, 0, sizeof *out);
    out->peer.proof = RG_PROOF_NONE;
    if (reach == RG_REACH_UNIX)
        return secure_by_kernel(frontend, uid, out);
    const enum rg_status status = rg_tls_is_hello(fd, timeout_ms, &is_tls);
    if (status != RG_OK) {
        rg_explain(out->why, sizeof out->why, "%s", rg_status_string(status));
        return status;
    }
    if (is_tls) {
        const int used = (int)((rg_now_ns() - began) / 1000000u);
        return secure_by_tls(frontend, fd, reach, used < timeout_ms ? timeout_ms - used : 1, out);
    }
    if (reach == RG_REACH_LOOPBACK || frontend->settings.allow_unauthenticated)
        return RG_OK;
    return refuse(out,
                  "where other machines reach it, this server takes nobody without TLS and a certificate: "
                  "get a token from its operator (remote-gpud token) and run 'remote-gpu join TOKEN' once");
}
