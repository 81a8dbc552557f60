/*
 * transcript.h - the hash of a handshake of TLS 1.3 up to now, of its messages as GnuTLS tells of them one by one.
 *
 * GnuTLS keeps that hash to itself, and who signs for us is to see it (key.h). It is of all messages with their headers; where the server
 * asks for another hello, the first one counts as its own hash (RFC 8446, 4.4.1). Which hash the cipher suite has is known after the
 * client's hello, so both that there are are made.
 *
 * One thread at a time.
 */
#ifndef RG_SERVER_HTTP_TRANSCRIPT_H
#define RG_SERVER_HTTP_TRANSCRIPT_H

#include "common/base/certificate_verify.h"
#include "common/base/status.h"

#include <gnutls/crypto.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RG_TRANSCRIPT_HASHES = 2, RG_TRANSCRIPT_SIZE = RG_CERTIFICATE_VERIFY_HASH };

/** Zeroed: none, which fails. */
struct rg_transcript {
    gnutls_hash_hd_t hashes[RG_TRANSCRIPT_HASHES]; /* of SHA-256 and SHA-384; NULL: something has failed */
};

/** False: no memory. */
RG_MUST_CHECK bool rg_transcript_init(struct rg_transcript *transcript);
/** A message of the handshake, by its type (gnutls_handshake_description_t) and without its header. */
void rg_transcript_add(struct rg_transcript *transcript, unsigned type, const uint8_t *body, size_t size);
/** Until now; returns the hash's size, 0: it cannot be made. */
size_t rg_transcript_hash(const struct rg_transcript *transcript, gnutls_digest_algorithm_t which,
                          uint8_t out[RG_TRANSCRIPT_SIZE]);
void rg_transcript_fini(struct rg_transcript *transcript);

#endif
