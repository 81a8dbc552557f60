/*
 * identity.h - who may use this server: the authority that makes certificates, tokens, users, and what was revoked.
 *
 * All of it lies in the state folder (state.h) and belongs to remote-gpud's privileged process and to its commands token, users
 * and revoke, which work on the folder while the server runs. There is one of two authorities. Our own, made at the first start:
 * tokens let users join, and only certificates that users/ knows are accepted. Or the operator's (--tls-ca, --tls-cert,
 * --tls-key): it decides who gets a certificate, and only what the file `revoked` names is refused.
 *
 * Happy path: rg_identity_open, rg_identity_material for the TLS of the server, then rg_identity_join, _renew and _check as
 * clients ask. When rg_identity_watch_fd is readable and rg_identity_changed says so, each running session is checked again.
 * rg_identity_reload at SIGHUP and once a day.
 *
 * What clients send is a secret of 16 bytes, a public key of 65 and a name that was proved; nothing else is looked at, and only
 * the public key reaches OpenSSL, as a point that must be on the curve. Failures: RG_ERR_REFUSED (the client may not: `why` is a
 * sentence for it) and RG_ERR_IO, RG_ERR_NO_MEMORY, RG_ERR_TIMEOUT (this server cannot: `why` is for its operator and the client
 * is told nothing of it). A failure leaves nothing half done. One thread at a time; other processes are kept out by a lock.
 */
#ifndef RG_SERVER_IDENTITY_IDENTITY_H
#define RG_SERVER_IDENTITY_IDENTITY_H

#include "common/base/limits.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RG_IDENTITY_SECRET = 16,      /* of a token */
    RG_IDENTITY_PUBLIC_KEY = 65,  /* a point of P-256, not compressed */
    RG_IDENTITY_SERIAL = 20,      /* at most, of a certificate */
    RG_IDENTITY_NAME = 256,       /* with its NUL */
    RG_IDENTITY_PEM = 8192,       /* of a certificate, with the NUL */
    RG_IDENTITY_HANDSHAKE = 48,   /* the longest hash of a handshake of TLS 1.3 */
    RG_IDENTITY_SIGNATURE = 1024, /* the longest signature: of a key of RSA with 8192 bits */
};

/** With what the server's key signs. */
enum rg_identity_digest {
    RG_IDENTITY_NO_DIGEST, /* Ed25519, Ed448 */
    RG_IDENTITY_SHA256,
    RG_IDENTITY_SHA384,
    RG_IDENTITY_SHA512,
    RG_IDENTITY_DIGESTS
};

struct rg_identity_store;

/** What the texts point to must last as long as the store. */
struct rg_identity_settings {
    const char *state_dir; /* NULL: rg_identity_state_dir */
    /* The operator's own authority, PEM: all three, or none. */
    const char *ca_file, *certificate_file, *key_file;
    const char *const *names; /* of the server, besides those that it finds itself */
    size_t n_names;
    /* Of another authority's certificates, only those with such names: each the whole name, or its beginning and '*'. None: all. */
    const char *const *allowed;
    size_t n_allowed;
    uint32_t certificate_days; /* 0: RG_IDENTITY_DAYS_DEFAULT */
    int64_t now;               /* seconds since 1970, for tests; 0: the clock's */
};

/** What a user may have at once; 0: no limit but the server's. */
struct rg_identity_limits {
    uint32_t max_sessions;
    uint32_t max_gpus; /* of one session */
};

/** A certificate made for a client. */
struct rg_identity_grant {
    char certificate[RG_IDENTITY_PEM];
    char authority[RG_IDENTITY_PEM];
    char user[RG_IDENTITY_NAME];
    uint8_t serial[RG_IDENTITY_SERIAL];
    uint8_t serial_size;
    int64_t not_after;
};

/** What the server's side of TLS needs, PEM; who can have rg_identity_sign asked is not to get the key. Belongs to the store, until rg_identity_reload says `changed` or it is closed. */
struct rg_identity_material {
    const char *authority, *certificate, *key;
    size_t authority_size, certificate_size, key_size;
    uint32_t generation; /* of the certificate and its key: rg_identity_sign */
};

/**
 * The default folder: $STATE_DIRECTORY (set by a service manager), /var/lib/remote-gpu for root, else remote-gpu below
 * $XDG_STATE_HOME or ~/.local/state. RG_ERR_NOT_FOUND: none of them is known.
 */
RG_MUST_CHECK enum rg_status rg_identity_state_dir(char *path, size_t size, char *why, size_t why_size);

/**
 * Opens the state folder, and makes what is missing: the folder, the authority, the server's certificate. Fails with RG_ERR_INVALID
 * or RG_ERR_IO and a sentence if a file is wrong, unreadable or open to others.
 */
RG_MUST_CHECK enum rg_status rg_identity_open(const struct rg_identity_settings *settings,
                                              struct rg_identity_store **store, char *why, size_t why_size);
/** Wipes keys. NULL is fine. */
void rg_identity_close(struct rg_identity_store *store);

/**
 * Reads the operator's files again, or makes the server's certificate anew where two thirds of its life are over or a name is
 * missing in it. *changed: rg_identity_material has other contents. On failure the store stays as it was.
 */
RG_MUST_CHECK enum rg_status rg_identity_reload(struct rg_identity_store *store, bool *changed, char *why,
                                                size_t why_size);
void rg_identity_material(const struct rg_identity_store *store, struct rg_identity_material *material);
/**
 * What the server proves itself by in a handshake of TLS 1.3, of which `hash` is that of its messages so far: RFC 8446, 4.4.3.
 * By the key of that generation, of which there are the last, the one before, and the one used last: whoever found that none of the
 * certificates since can be used goes on with that one. RG_ERR_INVALID: it is another one, the key is of another kind than the digest is
 * for, or the hash is longer than there is.
 */
RG_MUST_CHECK enum rg_status rg_identity_sign(struct rg_identity_store *store, uint32_t generation,
                                              enum rg_identity_digest digest, const uint8_t *hash,
                                              size_t hash_size, uint8_t signature[RG_IDENTITY_SIGNATURE],
                                              size_t *size);
/** Whether this is our own authority, so that users join by tokens. */
bool rg_identity_is_own(const struct rg_identity_store *store);
/** Whether open has made the authority just now: the first start, whose message says what to do next. */
bool rg_identity_is_new(const struct rg_identity_store *store);
/** The state folder. */
const char *rg_identity_folder(const struct rg_identity_store *store);

/**
 * Notes the port that clients come to, which remote-gpud token puts into tokens. A failure is logged and nothing more: tokens then
 * name the default port.
 */
void rg_identity_note_port(struct rg_identity_store *store, uint16_t port);

/**
 * A certificate for the user of a token. It is entered and the use is counted, on disk, before the certificate is given. RG_ERR_REFUSED: the token is
 * unknown, used up or expired, or the point is not on the curve (the token is then not used).
 */
RG_MUST_CHECK enum rg_status rg_identity_join(struct rg_identity_store *store,
                                              const uint8_t secret[RG_IDENTITY_SECRET],
                                              const uint8_t public_key[RG_IDENTITY_PUBLIC_KEY],
                                              struct rg_identity_grant *grant, char *why, size_t why_size);
/**
 * One more for the same name, for a client that has shown a certificate that rg_identity_check allows. RG_ERR_REFUSED also if the user
 * has got RG_IDENTITY_RENEWALS_MAX within a minute.
 */
RG_MUST_CHECK enum rg_status rg_identity_renew(struct rg_identity_store *store, const char *name,
                                               const uint8_t *serial, size_t serial_size,
                                               const uint8_t public_key[RG_IDENTITY_PUBLIC_KEY],
                                               struct rg_identity_grant *grant, char *why, size_t why_size);
/**
 * Whether the holder of this certificate, whose signature and dates TLS has verified, may use the server, and its limits. *expires (NULL
 * is fine): when it does by our own account, seconds since 1970; 0: it is of the operator's authority, and no account is kept.
 * RG_ERR_REFUSED: revoked, or not one of ours. Any other failure: it could not be found out; a session that runs may continue.
 */
RG_MUST_CHECK enum rg_status rg_identity_check(struct rg_identity_store *store, const char *name,
                                               const uint8_t *serial, size_t serial_size,
                                               struct rg_identity_limits *limits, int64_t *expires, char *why,
                                               size_t why_size);

/** A descriptor that is readable when users or revocations may have changed; the store's. */
int rg_identity_watch_fd(const struct rg_identity_store *store);
/** Takes what the descriptor has. True: check all sessions again. */
bool rg_identity_changed(struct rg_identity_store *store);

#endif
