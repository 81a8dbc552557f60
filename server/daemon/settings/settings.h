/*
 * settings.h - what remote-gpud is told: one row an option in settings.c gives flag, file key and help.
 */
#ifndef RG_SERVER_DAEMON_SETTINGS_SETTINGS_H
#define RG_SERVER_DAEMON_SETTINGS_SETTINGS_H

#include "common/base/options.h"
#include "common/base/status.h"
#include "server/identity/identity.h"

#include <stdbool.h>
#include <stdint.h>

struct rg_daemon_settings {
    struct rg_text_list listen; /* empty: loopback, default port */
    char *driver;               /* "auto", "soft" or a path */
    char *config;
    bool allow_unauthenticated;
    bool no_netperf;
    char *encrypt, *rdma, *peers;
    char *frontend_user; /* NULL: nobody's */
    int64_t max_sessions;
    int64_t max_sessions_of_one; /* 0: as many as there may be */
    char *rules;                 /* file; NULL: none */
    bool overcommit;
    char *mps;             /* the folder of nvidia-cuda-mps-control; NULL: GPUs are not shared by it */
    char *accounts;        /* "auto", "on" or "off" */
    int64_t accounts_days; /* 0: for ever */
    uint64_t grace_ns;
    char *sandbox, *worker_uids, *share_ipc; /* server/sandbox/identities.h */
    char *pool;                              /* NULL: none */
    struct rg_text_list etcd, pool_labels, pool_taints, pool_operators;
    char *pool_preempt; /* a time; NULL: leases of this server's GPUs are not suspended for others */
    char *etcd_ca, *etcd_cert, *etcd_key, *etcd_user, *etcd_password_file, *advertise;
    char *http; /* where HTTP is answered; NULL: nowhere */
    char *http_token_file;
    char *job_mapping_dir; /* NULL: none */
    char *wait;
    char *image_cache; /* NULL: where it is by default */
    uint64_t image_cache_size;
    char *reconnect_grace;   /* "auto", or a time */
    char *rails;             /* "auto", "off", or addresses */
    uint64_t session_memory; /* if it is set */
    char *state_dir;         /* NULL: where it is by default */
    char *tls_ca, *tls_cert, *tls_key;
    struct rg_text_list tls_names, tls_allow;
    int64_t certificate_days;
    uint64_t suspended_ns; /* sessions are suspended so long at most; 0: for ever */
    int64_t keep_alive, keep_alive_most;
    char *warm_workers; /* "auto", or how many */
    uint64_t warm_ns;   /* how long after a session workers are kept warm for the next */
    char *log;
    int64_t ready_fd; /* -1: none */
    char *ready_file;
    char *worker;   /* NULL: lib/remote-gpu/worker */
    bool no_grants; /* a server of one command: who may use it is no news for the audit log */
    bool foreground;
    bool help;
    bool version;
    struct rg_options options;
};

/** What main does after rg_daemon_settings_load: serve, or exit with a status. */
enum rg_daemon_start { RG_DAEMON_SERVE, RG_DAEMON_EXIT_OK, RG_DAEMON_EXIT_FAILURE };

/**
 * Loads command line, then configuration file. Answers --help and --version itself, on stdout; says what is
 * wrong with a setting through the log.
 */
RG_MUST_CHECK enum rg_daemon_start rg_daemon_settings_load(struct rg_daemon_settings *settings, int argc,
                                                           char **argv);
void rg_daemon_settings_fini(struct rg_daemon_settings *settings);

/** What rg_identity_open needs of them; the texts stay theirs. */
struct rg_identity_settings rg_daemon_settings_identity(const struct rg_daemon_settings *settings);

/** How many seconds the session of a client that has lost its connection is kept. *automatic: where it is worth it. */
uint32_t rg_daemon_settings_reconnect(const struct rg_daemon_settings *settings, bool *automatic);

/**
 * Whether `address` (as given to --listen) can be reached from this machine alone: a unix socket, or a name
 * all of whose addresses are loopback. RG_ERR_INVALID with the reason in `why`: malformed, or the name is not
 * known.
 */
RG_MUST_CHECK enum rg_status rg_daemon_address_is_local(const char *address, bool *local, char *why,
                                                        size_t why_size);

#endif
