/*
 * tls.h - connections by TLS 1.3: the server's side of a handshake, and the tools of enrolment.
 *
 * A client connects by rg_transport_connect with options->tls. A server accepts a socket, looks whether the
 * peer begins with TLS (rg_tls_is_hello), performs the handshake (rg_tls_accept) and makes a connection of the
 * socket and the keys (rg_transport_adopt_fd with options->tls_keys). From then on no object of OpenSSL's
 * connection is left: the keys are a plain structure, so that another process can go on with the connection
 * (rg_conn_tls_export, then the descriptor and the keys travel; see ../transport.h).
 *
 * The client's certificate is asked for, never demanded: a handshake ends well without one, or with one that is
 * expired or of a foreign authority, so that the server can refuse with a sentence over the encrypted connection.
 * `verified` of struct rg_tls_peer alone tells whom to believe.
 *
 * Threads: any; a struct rg_tls_server may be used by many at once.
 */
#ifndef RG_TRANSPORT_TLS_TLS_H
#define RG_TRANSPORT_TLS_TLS_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RG_TLS_SECRET_SIZE = 48,             /* the longest traffic secret: of a cipher with SHA-384 */
    RG_TLS_EXPORTER_SIZE = 32,           /* what binds a proof to a connection */
    RG_TLS_NAME_SIZE = 256,              /* a name in a certificate, with its end */
    RG_TLS_SERIAL_SIZE = 20,             /* RFC 5280, 4.1.2.2 */
    RG_TLS_FINGERPRINT_SIZE = 32,        /* SHA-256 */
    RG_TLS_POINT_SIZE = 65,              /* a public key: an uncompressed point of P-256 */
    RG_TLS_SIGNATURE_SIZE = 80,          /* the longest signature (ECDSA, DER) */
    RG_TLS_SERVER_SIGNATURE_SIZE = 1024, /* a server's in a handshake: of a key of RSA with 8192 bits */
    RG_TLS_KEY_PEM_SIZE = 512,           /* a private key of ours as PEM, with its end */
};

/**
 * What is needed to go on with a connection after its handshake: nothing in here is a pointer, so it can be
 * handed to another process. Secret: wiped by rg_tls_wipe when it has been used.
 */
struct rg_tls_keys {
    uint16_t cipher; /* TLS 1.3's number of the cipher suite: 0x1302 is TLS_AES_256_GCM_SHA384 */
    uint8_t is_server;
    uint8_t secret_size;                                           /* bytes of each secret that count */
    uint8_t reserved[4];                                           /* 0 */
    uint8_t send[RG_TLS_SECRET_SIZE], receive[RG_TLS_SECRET_SIZE]; /* application traffic secrets */
    uint64_t sent, received; /* records under these secrets so far: the next one's number */
};
_Static_assert(sizeof(struct rg_tls_keys) == 120, "processes hand it to each other");

/** Overwrites secrets, in a way that no compiler leaves out. */
void rg_tls_wipe(void *secret, size_t size);

/* --- certificates --- */

/** What a certificate says of its holder. */
struct rg_tls_certificate {
    char name
        [RG_TLS_NAME_SIZE]; /* the first URI "spiffe://…" among the alternative names, else the common name */
    uint8_t serial[RG_TLS_SERIAL_SIZE]; /* big-endian */
    uint8_t serial_size;
    uint8_t fingerprint[RG_TLS_FINGERPRINT_SIZE]; /* SHA-256 of the certificate (DER) */
    int64_t not_before, not_after;                /* seconds since 1970 */
};

/* --- the server's side --- */

enum rg_tls_digest {
    RG_TLS_DIGEST_NONE, /* of a key that takes the text as it is: Ed25519, Ed448 */
    RG_TLS_DIGEST_SHA256,
    RG_TLS_DIGEST_SHA384,
    RG_TLS_DIGEST_SHA512,
    RG_TLS_DIGESTS
};

/** What a server proves itself by in a handshake: a signature over the text of RFC 8446, 4.4.3, that ends with this hash. */
struct rg_tls_to_sign {
    uint32_t generation;       /* of the signer's that is given with the certificate: by which key */
    enum rg_tls_digest digest; /* with which it is signed */
    uint8_t hash_size;         /* 32 or 48 */
    uint8_t hash[RG_TLS_SECRET_SIZE];
};

/** Who signs where this process has no key of its own. Any thread, several at once. */
struct rg_tls_signer {
    /** RSA pads by PSS, with a salt as long as the digest. *size: of the signature. Anything but RG_OK ends the handshake. */
    enum rg_status (*sign)(void *data, const struct rg_tls_to_sign *what,
                           uint8_t signature[RG_TLS_SERVER_SIGNATURE_SIZE], size_t *size);
    void *data;
    uint32_t generation;
};

/** PEM in memory. The certificate may be followed by those of intermediate authorities. */
struct rg_tls_pem {
    const void *ca, *certificate, *key;
    size_t ca_size, certificate_size, key_size;
    const struct rg_tls_signer *signer; /* a server's, in the place of `key`; copied */
};

struct rg_tls_server;
/**
 * Made of a certificate and its key, and of the authorities whose clients are believed. RG_ERR_INVALID with the
 * sentence in `why`: PEM cannot be read, the key does not fit the certificate, the certificate is not for servers.
 * The memory of `pem` is the caller's again. One reference, to be released.
 */
RG_MUST_CHECK enum rg_status rg_tls_server_create(const struct rg_tls_pem *pem, struct rg_tls_server **out,
                                                  char *why, size_t why_size);
/** Another reference, for who uses it while it may be replaced. */
struct rg_tls_server *rg_tls_server_acquire(struct rg_tls_server *server);
void rg_tls_server_release(struct rg_tls_server *server); /* NULL is fine */

/** Who is at the other end. */
struct rg_tls_peer {
    bool shown;    /* it has shown a certificate, and proved to have its key */
    bool verified; /* of an authority of ours, for clients, and valid now. `certificate` is to be believed */
    struct rg_tls_certificate certificate;  /* as shown */
    char why[512];                          /* shown and not verified: the sentence for the peer */
    uint8_t exporter[RG_TLS_EXPORTER_SIZE]; /* RFC 8446, 7.5, label "EXPORTER-remote-gpu-join" */
};

/**
 * Waits up to timeout_ms for the first byte of a connected socket, and leaves it there: *is_tls if it begins a
 * TLS record, which no message of ours without TLS does. RG_ERR_TIMEOUT; RG_ERR_CLOSED: the peer went away.
 */
RG_MUST_CHECK enum rg_status rg_tls_is_hello(int fd, int timeout_ms, bool *is_tls);
/**
 * The server's handshake over a connected socket, which stays the caller's. Nothing behind the handshake has been
 * read afterwards. RG_ERR_TIMEOUT; RG_ERR_CLOSED: the peer went away; RG_ERR_PROTOCOL: no handshake that we
 * understand; the reason is in `why`.
 */
RG_MUST_CHECK enum rg_status rg_tls_accept(int fd, struct rg_tls_server *server, int timeout_ms,
                                           struct rg_tls_peer *peer, struct rg_tls_keys *keys, char *why,
                                           size_t why_size);

/** A certificate as it is sent (DER). */
struct rg_tls_der {
    const void *data;
    size_t size;
};
/**
 * Judges a client's certificate, the first of `chain`, that was shown to somebody else who had it proved that the client has its key, as
 * rg_tls_accept would: fills all of `peer` but the exporter.
 */
void rg_tls_judge_client(const struct rg_tls_server *server, const struct rg_tls_der *chain, size_t n,
                         struct rg_tls_peer *peer);
/** Whether the server's certificate is for this name or address. */
bool rg_tls_server_is_named(const struct rg_tls_server *server, const char *host);

/* --- enrolment --- */

/**
 * What the client side needs to get a certificate. A program that links transport_tls calls the functions; one that
 * loads the part gets the table by rg_transport_tls_tools (../connect/connect.h).
 */
struct rg_tls_tools {
    /** A new key of P-256: as PEM (PKCS #8), and its public half. */
    enum rg_status (*make_key)(char pem[RG_TLS_KEY_PEM_SIZE], uint8_t public_key[RG_TLS_POINT_SIZE]);
    /**
     * Proves that this side has the key, over a connection whose exporter is given (rg_conn_tls_exporter). *size is
     * what the signature takes. RG_ERR_INVALID: not the PEM of such a key.
     */
    enum rg_status (*prove)(const char *pem, size_t pem_size, const uint8_t exporter[RG_TLS_EXPORTER_SIZE],
                            uint8_t signature[RG_TLS_SIGNATURE_SIZE], size_t *size);
    /** The public half of a key. RG_ERR_INVALID likewise. */
    enum rg_status (*public_key)(const char *pem, size_t pem_size, uint8_t public_key[RG_TLS_POINT_SIZE]);
    /** What the first certificate of `pem` says. RG_ERR_INVALID: none can be read. */
    enum rg_status (*describe)(const char *pem, size_t pem_size, struct rg_tls_certificate *out);
    /**
     * Whether the first certificate of `pem` belongs to the key and is signed by one of `ca`: what a client makes
     * sure of before it keeps an answer. RG_ERR_INVALID with the sentence in `why`.
     */
    enum rg_status (*check)(const struct rg_tls_pem *pem, char *why, size_t why_size);
    /** SHA-256 of the first certificate's SubjectPublicKeyInfo: what names an authority. RG_ERR_INVALID. */
    enum rg_status (*key_hash)(const char *pem, size_t pem_size, uint8_t hash[RG_TLS_FINGERPRINT_SIZE]);
};
extern const struct rg_tls_tools rg_tls_tools;

/** What rg_tls_tools.prove has made: the server's check. */
bool rg_tls_verify_proof(const uint8_t public_key[RG_TLS_POINT_SIZE],
                         const uint8_t exporter[RG_TLS_EXPORTER_SIZE], const uint8_t *signature, size_t size);

#endif
