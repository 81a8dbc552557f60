/* certificates.c - certificates for clients that have a token's secret or the certificate before, and sessions that go on by a new one. */
#include "server/frontend/handshake_internal.h"

#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "server/identity/identity.h"
#include "transport/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether the client may ask for a certificate, and has the key that it wants one for. */
static bool may_have_certificate(const struct rg_handshake *handshake, struct rg_control *refusal)
{
    const struct rg_client_hello *hello = &handshake->hello.client_hello;
    const struct rg_secured *secured = &handshake->secured;
    if (!handshake->owner->frontend->settings.gives)
        rg_refusal_init(refusal, RG_REFUSAL_UNSUPPORTED,
                        "this server gives no certificates; ask its operator how to get one");
    else if (!secured->peer.encrypted)
        rg_refusal_init(refusal, RG_REFUSAL_UNAUTHORISED, "certificates are given over TLS alone");
    else if (hello->purpose == RG_PURPOSE_RENEW && secured->peer.proof != RG_PROOF_CERTIFICATE)
        rg_refusal_init(refusal, RG_REFUSAL_UNAUTHORISED,
                        "only who has a certificate can renew it; join again");
    else if (!rg_tls_verify_proof(hello->join_public_key, secured->exporter, hello->join_proof,
                                  hello->join_proof_size))
        rg_refusal_init(refusal, RG_REFUSAL_UNAUTHORISED,
                        "the client did not prove that it has the key that it wants a certificate for");
    else
        return true;
    return false;
}

/* Sends what the monitor has made, in a file. */
static bool send_grant(struct rg_handshake *handshake, int file)
{
    RG_CLEANUP_FREE struct rg_identity_grant *grant = calloc(1, sizeof *grant);
    RG_CLEANUP_FREE struct rg_control *message = calloc(1, sizeof *message);
    if (!grant || !message || file < 0 || pread(file, grant, sizeof *grant, 0) != (ssize_t)sizeof *grant)
        return false;
    message->kind = RG_CONTROL_JOINED;
    snprintf(message->joined.certificate, sizeof message->joined.certificate, "%s", grant->certificate);
    snprintf(message->joined.authority, sizeof message->joined.authority, "%s", grant->authority);
    snprintf(message->joined.user, sizeof message->joined.user, "%s", grant->user);
    if (rg_control_send(handshake->conn, message) != RG_OK)
        rg_info("%s left before it had its certificate; it can join again with a token that is not used up",
                rg_conn_peer(handshake->conn));
    return true;
}

void rg_handshake_give_certificate(struct rg_handshake *handshake)
{
    const struct rg_client_hello *hello = &handshake->hello.client_hello;
    struct rg_monitor_question question;
    struct rg_monitor_answer answer;
    struct rg_control refusal;
    RG_CLEANUP_FD int file = -1;
    if (!may_have_certificate(handshake, &refusal)) {
        rg_handshake_refuse(handshake, &refusal);
        return;
    }
    memset(&question, 0, sizeof question);
    rg_handshake_describe(handshake, &question);
    question.kind = hello->purpose == RG_PURPOSE_JOIN ? RG_ASK_JOIN : RG_ASK_RENEW;
    memset(&question.join, 0, sizeof question.join);
    memcpy(question.join.secret, hello->join_secret, sizeof question.join.secret);
    memcpy(question.join.public_key, hello->join_public_key, sizeof question.join.public_key);
    const enum rg_status asked =
        rg_monitor_ask(&handshake->owner->frontend->link, &question, NULL, 0, -1, &answer, &file);
    rg_tls_wipe(&question.join, sizeof question.join);
    if (asked == RG_OK && answer.status == RG_OK && send_grant(handshake, file))
        return;
    rg_refusal_init(
        &refusal, asked == RG_OK && answer.status != RG_OK ? answer.code : RG_REFUSAL_INTERNAL, "%s",
        asked == RG_OK && answer.status != RG_OK ? answer.why
                                                 : "the server is out of memory; try again later");
    rg_handshake_refuse(handshake, &refusal);
}

void rg_handshake_let_stay(struct rg_handshake *handshake)
{
    struct rg_monitor_question question;
    struct rg_monitor_answer answer;
    struct rg_control refusal, message = {.kind = RG_CONTROL_ANSWER};
    if (handshake->secured.peer.proof != RG_PROOF_CERTIFICATE) {
        rg_refusal_init(&refusal, RG_REFUSAL_UNAUTHORISED, "no certificate was shown");
        rg_handshake_refuse(handshake, &refusal);
        return;
    }
    memset(&question, 0, sizeof question);
    rg_handshake_describe(handshake, &question);
    question.kind = RG_ASK_STAY;
    memset(&question.start, 0, sizeof question.start);
    question.stay.session = handshake->hello.client_hello.resume_session;
    if (rg_monitor_ask(&handshake->owner->frontend->link, &question, NULL, 0, -1, &answer, NULL) != RG_OK)
        rg_refusal_init(&refusal, RG_REFUSAL_INTERNAL, "the server is out of memory; try again later");
    else if (answer.status != RG_OK)
        rg_refusal_init(&refusal, answer.code, "%s", answer.why);
    else {
        if (rg_control_send(handshake->conn, &message) != RG_OK)
            rg_debug("%s: left before it was answered", rg_conn_peer(handshake->conn));
        return;
    }
    rg_handshake_refuse(handshake, &refusal);
}
