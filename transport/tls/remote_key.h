/*
 * remote_key.h - a private key that OpenSSL uses and this process does not have: signatures are asked for (struct rg_tls_signer).
 * Internal to transport/tls/.
 *
 * Threads: any.
 */
#ifndef RG_TRANSPORT_TLS_REMOTE_KEY_H
#define RG_TRANSPORT_TLS_REMOTE_KEY_H

#include "transport/tls/tls.h"

#include <openssl/types.h>

/**
 * The key of a certificate, whose public half is taken from there. It signs what a server proves itself with in a handshake of TLS 1.3
 * and nothing else. NULL: OpenSSL has no memory, or does not know that kind of key. What `signer` points to lasts as long as the key.
 */
EVP_PKEY *rg_tls_remote_key(X509 *certificate, const struct rg_tls_signer *signer);

#endif
