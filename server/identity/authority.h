/*
 * authority.h - certificates of our own authority: X.509 v3 with keys on P-256, signed by ECDSA with SHA-256.
 *
 * The authority is valid for ten years, this server for one, a client for as long as configured. All begin ten minutes before they
 * are made, for clocks that differ a little. A certificate is built from values that are known here (a name that was checked, a
 * point on the curve); nothing that a client has sent is parsed.
 *
 * Failures: RG_ERR_NOT_FOUND (there is no authority yet), RG_ERR_INVALID (damaged files, a clock that cannot be right), RG_ERR_IO,
 * RG_ERR_NO_MEMORY, each with a sentence. One thread at a time.
 */
#ifndef RG_SERVER_IDENTITY_AUTHORITY_H
#define RG_SERVER_IDENTITY_AUTHORITY_H

#include "common/base/status.h"
#include "server/identity/identity.h"
#include "server/identity/state.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rg_authority {
    void *key;         /* EVP_PKEY */
    void *certificate; /* X509 */
    char *pem;         /* the certificate */
    size_t pem_size;
};

/** A certificate and its key, PEM; to be released by rg_key_pair_fini, which wipes. */
struct rg_key_pair {
    char *certificate, *key;
    size_t certificate_size, key_size;
};

/** Loads ca.crt and ca.key. Where ca.crt alone is missing (a first start that was cut short), it is made again; with the lock. */
RG_MUST_CHECK enum rg_status rg_authority_load(struct rg_authority *authority, struct rg_state *state,
                                               int64_t now, char *why, size_t why_size);
/** Makes a new one, on disk; with the lock. */
RG_MUST_CHECK enum rg_status rg_authority_make(struct rg_authority *authority, struct rg_state *state,
                                               int64_t now, char *why, size_t why_size);
void rg_authority_fini(struct rg_authority *authority);

/** SHA-256 of its SubjectPublicKeyInfo: what tokens carry. */
RG_MUST_CHECK enum rg_status rg_authority_hash(const struct rg_authority *authority, uint8_t hash[32]);

/** Whether these 65 bytes are a point of P-256. */
bool rg_authority_is_point(const uint8_t point[RG_IDENTITY_PUBLIC_KEY]);

/** A client's certificate: fills all of the grant. The point was checked. */
RG_MUST_CHECK enum rg_status rg_authority_issue(const struct rg_authority *authority, const char *name,
                                                const uint8_t point[RG_IDENTITY_PUBLIC_KEY], int64_t now,
                                                uint32_t days, struct rg_identity_grant *grant, char *why,
                                                size_t why_size);

/** A new key and certificate for this server, for these names and addresses (the first is the subject's). */
RG_MUST_CHECK enum rg_status rg_authority_issue_server(const struct rg_authority *authority,
                                                       char *const *names, size_t n, int64_t now,
                                                       struct rg_key_pair *pair, char *why, size_t why_size);
/**
 * Whether the pair is this authority's, fits together, has all these names, and less than two thirds of its life are over. If not:
 * why, as the end of "the server's certificate is made anew: …".
 */
bool rg_authority_server_is_good(const struct rg_authority *authority, const struct rg_key_pair *pair,
                                 char *const *names, size_t n, int64_t now, char *why, size_t why_size);
void rg_key_pair_fini(struct rg_key_pair *pair);

#endif
