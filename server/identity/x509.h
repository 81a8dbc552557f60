/*
 * x509.h - what authority.c and operator.c both need of OpenSSL: PEM to objects and back, dates, names, and sentences of its errors.
 *
 * OpenSSL 3, EVP and X509 alone. Objects are void pointers to nobody: this header is for files that include OpenSSL's.
 */
#ifndef RG_SERVER_IDENTITY_X509_H
#define RG_SERVER_IDENTITY_X509_H

#include <openssl/evp.h>
#include <openssl/x509.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Starts OpenSSL without its configuration file, which could load code into a process that holds keys. */
void rg_x509_start(void);
/** The reason of the last failure, and forgets it. Static storage. */
const char *rg_x509_error(void);

/** The first certificate of the text. NULL: there is none. */
X509 *rg_x509_read(const char *pem, size_t size);
/** A private key that needs no passphrase; *locked: it does. NULL: there is none. */
EVP_PKEY *rg_x509_read_key(const char *pem, size_t size, bool *locked);
/** PEM with a NUL behind it, to be freed. NULL: no memory. */
char *rg_x509_write(const X509 *certificate, size_t *size);
char *rg_x509_write_key(const EVP_PKEY *key, size_t *size);

/** Seconds since 1970. False: the certificate has no dates. */
bool rg_x509_dates(const X509 *certificate, int64_t *not_before, int64_t *not_after);
/** "2026-11-23 10:00:00 UTC". */
void rg_x509_date_text(int64_t time, char text[32]);
/** Whether a server with this certificate may call itself by that name or address. */
bool rg_x509_has_name(X509 *certificate, const char *name);

#endif
