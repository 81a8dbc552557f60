/*
 * authority.h - certificates for tests: an authority, servers and clients of it, good ones and those that have
 * something wrong; all in a folder that is removed at the end.
 */
#ifndef RG_TESTS_TRANSPORT_TLS_AUTHORITY_H
#define RG_TESTS_TRANSPORT_TLS_AUTHORITY_H

#include "transport/tls/tls.h"
#include "transport/transport.h"

#include <limits.h>
#include <openssl/types.h>

struct authority {
    EVP_PKEY *key;
    X509 *certificate;
    char *pem;
};

/** What a certificate says; a zeroed one is a good client's of a day. */
struct request {
    const char *name;             /* common name; NULL: "alice" */
    const char *alternative;      /* as OpenSSL writes them: "DNS:localhost,IP:127.0.0.1" */
    const char *usage;            /* "clientAuth", "serverAuth"; NULL: clientAuth; "": no extension */
    long starts_in, ends_in;      /* seconds from now; 0, 0: an hour ago, in a day */
    const struct authority *from; /* NULL: the folder's */
    long serial;
};

/** PEM of one certificate and its key, to be freed. */
struct issued {
    char *certificate, *key;
};

struct authority authority_create(const char *name);
void authority_destroy(struct authority *authority);
struct issued authority_issue(const struct authority *authority, const struct request *request);
void issued_free(struct issued *issued);

/** A folder for files, removed when the program ends. */
const char *folder(void);
/** Writes FOLDER/NAME with that mode; the path, in static storage that lives as long as the program. */
const char *write_file(const char *name, const char *text, unsigned mode);

/** A server that believes the clients of an authority. */
struct rg_tls_server *server_of(const struct authority *believed, const struct issued *its);

/** What all tests may share: one authority, a server for localhost, alice's credentials in files. */
struct world {
    struct authority authority;
    struct rg_tls_server *server;
    struct rg_tls_client client; /* alice */
};
const struct world *world(void);

#endif
