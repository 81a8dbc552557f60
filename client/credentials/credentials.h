/*
 * credentials.h - what this user shows to a server, and whom the user trusts to be that server.
 *
 * Credentials are three PEM files in one folder, as `remote-gpu join` leaves them and as a Kubernetes TLS secret is
 * mounted: ca.crt (the authority that has signed the server's certificate), tls.crt and tls.key (this user's). The
 * folder of settings is REMOTE_GPU_CREDENTIALS, else $XDG_CONFIG_HOME/remote-gpu, else ~/.config/remote-gpu. A
 * server's own credentials are below it in servers/HOST:PORT, where join puts them; three files directly in it are for
 * all other servers.
 *
 * Happy path: rg_credentials_find says for a server's address whether TLS is spoken, and with which files. Unix
 * sockets never need it. Without credentials a server is only used on this machine's loopback, or where the user has
 * said so (REMOTE_GPU_ALLOW_UNAUTHENTICATED): what an attacker on the network does never decides it. Credentials that
 * are there and cannot be used (incomplete, unreadable, a key that others can read) are an error, not none.
 *
 * Any thread. The environment is read, as secure_getenv does: in a set-user-ID program nobody's variables count.
 */
#ifndef RG_CLIENT_CREDENTIALS_CREDENTIALS_H
#define RG_CLIENT_CREDENTIALS_CREDENTIALS_H

#include "common/base/status.h"
#include "transport/address.h"
#include "transport/transport.h"

#include <limits.h>
#include <stdbool.h>

#define RG_CREDENTIALS_AUTHORITY   "ca.crt"
#define RG_CREDENTIALS_CERTIFICATE "tls.crt"
#define RG_CREDENTIALS_KEY         "tls.key"
#define RG_CREDENTIALS_SERVER      "server" /* the address of the server that made them; in a folder of join's */

struct rg_credentials {
    bool found;  /* else the server is used without TLS, and may be */
    bool joined; /* they were made by join, so that they renew themselves */
    char folder[PATH_MAX];
    char authority[PATH_MAX], certificate[PATH_MAX], key[PATH_MAX]; /* files */
    char server_name[256]; /* what the server's certificate must be for */
    char name[256];        /* in our certificate, once rg_enrol_renew has looked; "" before, or without */
    int64_t not_after;     /* likewise: when it expires, seconds since 1970 */
};

/**
 * Finds the credentials for `server`, an address. RG_ERR_REFUSED: there are none and it must not be used without, or
 * they are not as they should be; `why` is a sentence that says what to do. RG_ERR_INVALID: no address.
 */
RG_MUST_CHECK enum rg_status rg_credentials_find(const char *server, struct rg_credentials *out, char *why,
                                                 size_t why_size);
/** What they are to rg_transport_connect, as long as `credentials` lives: `tls`, or NULL without TLS. */
const struct rg_tls_client *rg_credentials_tls(const struct rg_credentials *credentials,
                                               struct rg_tls_client *tls);

/**
 * The folder of settings that holds credentials; `*named`: the user has named it. RG_ERR_NOT_FOUND: there is none, as
 * there is no home.
 */
RG_MUST_CHECK enum rg_status rg_credentials_base(char *out, size_t size, bool *named);
/** Where below `base` the credentials for that server belong. RG_ERR_INVALID: the path is too long. */
RG_MUST_CHECK enum rg_status rg_credentials_place(const char *base, const struct rg_address *server,
                                                  char *out, size_t size);
/** "gpu-machine:7600": the server's name in messages and as the name of its folder. */
void rg_credentials_server(const struct rg_address *address, char *out, size_t size);
/** The server that was joined last, which is used where no server is named. False: none was. */
bool rg_credentials_joined(char *out, size_t size);
/** False: it has seen enough. */
typedef bool rg_credentials_visitor(const char *server, void *user);
/** Calls it for each server that this user has joined, in no order. */
void rg_credentials_each_joined(rg_credentials_visitor *visit, void *user);
/** Whether the address is this machine's loopback, by number or as "localhost". */
bool rg_credentials_is_loopback(const struct rg_address *address);

/** What the user wants of RDMA, by which data travels unencrypted. */
struct rg_security_policy {
    bool unauthenticated; /* servers may be used that nobody has vouched for */
    bool
        control_only; /* REMOTE_GPU_ENCRYPT=control: a session may go by RDMA, which encrypts nothing, calls included */
    bool no_rdma; /* REMOTE_GPU_RDMA_POLICY=deny */
};
/** Reads it of the environment; what is wrong there is said once, and the strict choice taken. */
struct rg_security_policy rg_security_policy(void);
/** Whether it lets a session with these credentials go by RDMA; `why` says why not. */
bool rg_credentials_allow_rdma(const struct rg_credentials *credentials, char *why, size_t why_size);

#endif
