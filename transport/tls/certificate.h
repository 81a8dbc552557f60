/*
 * certificate.h - reading certificates and keys, and what is wrong with them in a sentence. Internal to transport/tls/.
 *
 * Threads: any; nothing is shared.
 */
#ifndef RG_TRANSPORT_TLS_CERTIFICATE_H
#define RG_TRANSPORT_TLS_CERTIFICATE_H

#include "transport/tls/tls.h"

#include <openssl/types.h>
#include <openssl/x509.h>

/** Starts OpenSSL without its configuration file and without handlers at the end of the process. Any number of times. */
void rg_tls_start(void);

/** The certificates of a PEM text, in its order; NULL if there is none, or one that cannot be read. */
STACK_OF(X509) * rg_tls_read_certificates(const void *pem, size_t size);
/** The private key of a PEM text, without a pass phrase; NULL: none. */
EVP_PKEY *rg_tls_read_key(const void *pem, size_t size);
/**
 * A whole file, to be freed with rg_tls_free_file. `secret`: only its owner may read it, or root's group if it is
 * root's. RG_ERR_NOT_FOUND, RG_ERR_INVALID with the sentence in `why`; `what` it is: "the key".
 */
RG_MUST_CHECK enum rg_status rg_tls_read_file(const char *path, const char *what, bool secret, char **data,
                                              size_t *size, char *why, size_t why_size);
/** Wipes it as well; NULL is fine. */
void rg_tls_free_file(char *data, size_t size);

/** What is said of it to people: names, serial, time. */
void rg_tls_describe(const X509 *certificate, struct rg_tls_certificate *out);
/** SHA-256 of its SubjectPublicKeyInfo. False: out of memory. */
bool rg_tls_key_hash(const X509 *certificate, uint8_t hash[RG_TLS_FINGERPRINT_SIZE]);

enum rg_tls_role { RG_TLS_ROLE_CLIENT, RG_TLS_ROLE_SERVER };

/** How a certificate is to be judged. */
struct rg_tls_judgement {
    enum rg_tls_role role;    /* what its holder is */
    STACK_OF(X509) * roots;   /* who is believed; NULL: by `root_hash` */
    const uint8_t *root_hash; /* whose key it is that is believed, wherever its certificate comes from */
    const char *name;         /* of a server: host name, address or spiffe://…; NULL: any */
    const char *owner;        /* how the sentence begins: "the certificate of the server" */
};
/**
 * Whether `leaf` is to be believed, by the help of the certificates that came with it. RG_ERR_REFUSED with the
 * sentence in `why`; *error is X509_V_… for the alert.
 */
RG_MUST_CHECK enum rg_status rg_tls_judge(const struct rg_tls_judgement *judgement, X509 *leaf,
                                          STACK_OF(X509) * others, int *error, char *why, size_t why_size);
/** Whether it may be used by one of that role: what has the extension for it. */
bool rg_tls_serves_as(X509 *certificate, enum rg_tls_role role);

#endif
