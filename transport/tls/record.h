/*
 * record.h - TLS 1.3's records (RFC 8446, 5): a header of five bytes, and up to 16 KiB encrypted with their content
 * type and a tag.
 *
 * A struct rg_tls_direction protects what one side sends: sealing by who sends, opening by who receives. Both ends
 * count the records; a record that is missing, repeated, in another place or changed does not open.
 *
 * Threads: one at a time for each direction; the two of a connection know nothing of each other.
 */
#ifndef RG_TRANSPORT_TLS_RECORD_H
#define RG_TRANSPORT_TLS_RECORD_H

#include "transport/tls/keys.h"

#include <openssl/types.h>
#include <sys/uio.h>

enum {
    RG_TLS_HEADER = 5,
    RG_TLS_TAG = 16,
    RG_TLS_PLAIN = 16384,                             /* the most that one record carries */
    RG_TLS_OVERHEAD = RG_TLS_HEADER + 1 + RG_TLS_TAG, /* what a record has besides */
    RG_TLS_RECORD = RG_TLS_PLAIN + RG_TLS_OVERHEAD,
};

enum rg_tls_content { RG_TLS_ALERT = 21, RG_TLS_HANDSHAKE = 22, RG_TLS_DATA = 23 };

struct rg_tls_direction {
    const struct rg_tls_suite *suite;
    EVP_CIPHER_CTX *context;
    bool seals;
    uint8_t secret[RG_TLS_SECRET_SIZE], iv[RG_TLS_IV];
    uint64_t number; /* of the next record under this secret */
};

/** RG_ERR_INVALID: a suite that we do not speak; RG_ERR_NO_MEMORY. */
RG_MUST_CHECK enum rg_status rg_tls_direction_init(struct rg_tls_direction *d, uint16_t cipher, bool seals,
                                                   const uint8_t secret[RG_TLS_SECRET_SIZE], uint64_t number);
/** Wipes it; fine if all zero. */
void rg_tls_direction_fini(struct rg_tls_direction *d);
/** Goes on with the next secret. */
RG_MUST_CHECK enum rg_status rg_tls_direction_update(struct rg_tls_direction *d);

/**
 * Makes one record of the parts, up to RG_TLS_PLAIN bytes together, in `out` (RG_TLS_OVERHEAD more). Cannot fail but
 * for want of memory: RG_ERR_NO_MEMORY.
 */
RG_MUST_CHECK enum rg_status rg_tls_seal(struct rg_tls_direction *d, enum rg_tls_content type,
                                         const struct iovec *parts, int n_parts, uint8_t *out,
                                         size_t *out_size);
/**
 * Bytes of content behind this header, which then has RG_TLS_OVERHEAD more bytes in all. RG_ERR_PROTOCOL: not the
 * header of an encrypted record of ours.
 */
RG_MUST_CHECK enum rg_status rg_tls_header(const uint8_t header[RG_TLS_HEADER], size_t *content_size);
/**
 * Opens a record into `content`, which may be what follows its header. RG_ERR_PROTOCOL: it is not what was sealed; what
 * has been written of it is wiped. `type` is whatever the peer says.
 */
RG_MUST_CHECK enum rg_status rg_tls_open(struct rg_tls_direction *d, const uint8_t *record,
                                         size_t content_size, uint8_t *content, uint8_t *type);

#endif
