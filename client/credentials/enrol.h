/*
 * enrol.h - getting a certificate from a server: the first by a token, later ones by the one before.
 *
 * Happy path of joining: a key is made here and written, with room for what follows, into a draft (draft.h); the
 * connection is by TLS to a server that shows the authority whose hash the token has, before anything secret is sent;
 * the secret, the key's public half and the proof that we have the private one go out; certificate and authority come
 * back, are looked at as if they were a stranger's, and the draft takes its place. The private key never leaves.
 *
 * What fails is a sentence in `why`, and leaves nothing behind. One thread.
 */
#ifndef RG_CLIENT_CREDENTIALS_ENROL_H
#define RG_CLIENT_CREDENTIALS_ENROL_H

#include "client/credentials/credentials.h"
#include "client/credentials/token.h"

#include <stdint.h>

struct rg_enrolled {
    char user[RG_CONTROL_TEXT]; /* the name in the certificate */
    char folder[PATH_MAX];
    int64_t not_after; /* seconds since 1970 */
};

/** Joins the server of `token`; `force` replaces credentials that are there. */
RG_MUST_CHECK enum rg_status rg_enrol_join(const struct rg_join_token *token, bool force, int timeout_ms,
                                           struct rg_enrolled *out, char *why, size_t why_size);

/**
 * Reads what the certificate says into `credentials` (name, not_after), and lets `server` renew it if two thirds of its
 * life are over and join has made it. A failure is no matter as long as the certificate is good: it is tried again an
 * hour later, by whichever process connects then, and only in the last tenth of the certificate's life is it said.
 */
void rg_enrol_renew(const char *server, struct rg_credentials *credentials, int timeout_ms);

#endif
