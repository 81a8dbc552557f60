/*
 * key.h - TLS by GnuTLS with a key that this process does not have: the monitor signs.
 *
 * GnuTLS hands out a digest of what is to be signed, of which nobody could tell what it is of. Who signs here makes the text itself and is
 * given the hash of the handshake at its end (struct rg_tls_signer); so that hash is made of the handshake's messages (transcript.h). If
 * the digest is not of that text, nothing is signed and the handshake fails.
 *
 * Happy path: rg_http_key_create for a certificate, rg_http_key_choose as libmicrohttpd's callback; rg_http_handshake_begin for each
 * session before its first message, rg_http_handshake_end when its connection is over. Any thread; a handshake one at a time.
 */
#ifndef RG_SERVER_HTTP_KEY_H
#define RG_SERVER_HTTP_KEY_H

#include "transport/tls/tls.h"

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>

struct rg_http_key;
struct rg_http_handshake;

/** Of `pem` the certificate and the signer are used; the memory is the caller's again. NULL: `why` says why. */
struct rg_http_key *rg_http_key_create(const struct rg_tls_pem *pem, char *why, size_t why_size);
/** After the last of its handshakes. NULL is fine. */
void rg_http_key_destroy(struct rg_http_key *key);

/** Has the session use the key; its database pointer is used for that. NULL: no memory, and the session's handshake fails. */
struct rg_http_handshake *rg_http_handshake_begin(const struct rg_http_key *key, gnutls_session_t session);
void rg_http_handshake_end(struct rg_http_handshake *handshake); /* NULL is fine */

/** Gives a session its certificate and key: a gnutls_certificate_retrieve_function2. */
int rg_http_key_choose(gnutls_session_t session, const gnutls_datum_t *names, int n_names,
                       const gnutls_pk_algorithm_t *kinds, int n_kinds, gnutls_pcert_st **chain,
                       unsigned *n_chain, gnutls_privkey_t *key);

#endif
