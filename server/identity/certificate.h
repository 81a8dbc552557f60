/*
 * certificate.h - what all certificates of our authority have in common: serial number, dates, name, key, extensions, signature.
 *
 * A certificate is begun, gets what it is for, and is signed at its end. Whatever fails in OpenSSL gives false or NULL, of which
 * rg_certificate_failed makes a sentence. One thread at a time.
 */
#ifndef RG_SERVER_IDENTITY_CERTIFICATE_H
#define RG_SERVER_IDENTITY_CERTIFICATE_H

#include "server/identity/authority.h"

#include <openssl/x509.h>

#define RG_CERTIFICATE_DAY            86400ll
#define RG_CERTIFICATE_AUTHORITY_DAYS 3652ll
#define RG_CERTIFICATE_EARLIER        600ll /* seconds by which clocks may differ */
#define RG_CERTIFICATE_SERIAL         16

/** RG_ERR_NO_MEMORY, with what failed and what OpenSSL says of it. */
enum rg_status rg_certificate_failed(const char *what, char *why, size_t why_size);
/** Whether this machine's clock can be right: one at 1970 would make certificates that nobody believes later. */
RG_MUST_CHECK enum rg_status rg_certificate_check_clock(int64_t now, char *why, size_t why_size);
/** What all have, not signed yet, the caller's; `issuer` NULL: it is its own. NULL: it failed. */
X509 *rg_certificate_begin(const char *name, EVP_PKEY *public_key, X509 *issuer, int64_t from, int64_t until,
                           uint8_t serial[RG_CERTIFICATE_SERIAL]);
/** Adds an extension, as OpenSSL's configuration files write it. */
bool rg_certificate_add(X509 *certificate, X509 *issuer, int nid, const char *value);
/** Says that it signs nothing, and what it is for ("clientAuth"), and has the authority sign it. */
bool rg_certificate_end_leaf(X509 *certificate, const struct rg_authority *authority, const char *usage);
/** The last second of one made now: not beyond the authority's own. */
int64_t rg_certificate_ends(const struct rg_authority *authority, int64_t now, int64_t days);

#endif
