/*
 * keys.h - from the secrets of a handshake to the keys of its records (RFC 8446, 7.1 to 7.3), and on to the next.
 *
 * Threads: as the callers'; nothing is shared.
 */
#ifndef RG_TRANSPORT_TLS_KEYS_H
#define RG_TRANSPORT_TLS_KEYS_H

#include "transport/tls/tls.h"

enum { RG_TLS_KEY_MOST = 32, RG_TLS_IV = 12 };

/** What a cipher suite is made of. */
struct rg_tls_suite {
    uint16_t number;
    uint8_t key_size, secret_size;
    const char *name, *cipher, *digest; /* as OpenSSL knows them */
};

/** NULL: none that we speak. */
const struct rg_tls_suite *rg_tls_suite_find(uint16_t number);
/** What protects records under a secret. RG_ERR_NO_MEMORY. */
RG_MUST_CHECK enum rg_status rg_tls_derive_keys(const struct rg_tls_suite *suite,
                                                const uint8_t secret[RG_TLS_SECRET_SIZE],
                                                uint8_t key[RG_TLS_KEY_MOST], uint8_t iv[RG_TLS_IV]);
/** The secret after this one: KeyUpdate. RG_ERR_NO_MEMORY leaves it as it is. */
RG_MUST_CHECK enum rg_status rg_tls_next_secret(const struct rg_tls_suite *suite,
                                                uint8_t secret[RG_TLS_SECRET_SIZE]);

#endif
