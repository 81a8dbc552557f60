/*
 * certificate_verify.h - the text that a server signs to prove in a handshake of TLS 1.3 who it is: what stands here, and behind it the
 * hash of the handshake (RFC 8446, 4.4.3). Who makes handshakes and who has the key are different processes, and all make this text
 * by themselves, so that nobody gets a signature that means anything else. Pure.
 */
#ifndef RG_COMMON_BASE_CERTIFICATE_VERIFY_H
#define RG_COMMON_BASE_CERTIFICATE_VERIFY_H

#include <stdint.h>
#include <string.h>

#define RG_CERTIFICATE_VERIFY_SPACE 64
#define RG_CERTIFICATE_VERIFY_NAME  "TLS 1.3, server CertificateVerify" /* with its zero */

enum {
    RG_CERTIFICATE_VERIFY_BEFORE = RG_CERTIFICATE_VERIFY_SPACE + sizeof RG_CERTIFICATE_VERIFY_NAME,
    RG_CERTIFICATE_VERIFY_HASH = 48, /* the longest: SHA-384 */
    RG_CERTIFICATE_VERIFY_SIZE = RG_CERTIFICATE_VERIFY_BEFORE + RG_CERTIFICATE_VERIFY_HASH,
};

/** Writes all that comes before the hash. */
static inline void rg_certificate_verify_begin(uint8_t text[RG_CERTIFICATE_VERIFY_BEFORE])
{
    memset(text, ' ', RG_CERTIFICATE_VERIFY_SPACE);
    memcpy(text + RG_CERTIFICATE_VERIFY_SPACE, RG_CERTIFICATE_VERIFY_NAME, sizeof RG_CERTIFICATE_VERIFY_NAME);
}

#endif
