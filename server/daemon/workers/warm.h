/*
 * warm.h - workers that are started before anybody asks for them, so that a program need not wait for the driver to initialise.
 *
 * The process of a worker has its identity's user, namespaces and folders from before it runs, its devices from the environment,
 * and its addresses from before the driver is loaded. So a warm worker is made for a *kind* of session: those of one identity, on
 * certain devices, with what their hellos say that a driver depends on (server/handshake/shape.h). Which kinds there are is learned
 * from the sessions that begin; the first one of a kind waits as ever. As many workers are warm as the operator allows, in turns
 * for the kinds that were seen last, and a kind that was not seen for a time has none.
 *
 * What a warm worker holds of a device's memory is on the device's page, and is a session's as soon as that needs it: a worker
 * leaves by itself when a session runs out (server/shares/warm_places.h), and is ended when a session cannot be guaranteed its part.
 * One that fails is followed by another after a pause that doubles. Main thread.
 */
#ifndef RG_SERVER_DAEMON_WORKERS_WARM_H
#define RG_SERVER_DAEMON_WORKERS_WARM_H

#include "server/daemon/driver/driver.h"
#include "server/daemon/grant/shares.h"
#include "server/daemon/grant/who.h"
#include "server/handshake/shape.h"

struct rg_sessions;
struct rg_session_entry;
struct rg_session_files;

enum { RG_WARM_MAX = 64 };

/** How many are kept where the operator leaves it to the server: with NVIDIA's driver, and with others none. */
enum { RG_WARM_AUTO = 2 };

struct rg_warm_kind {
    char identity[2 * RG_CONTROL_TEXT]; /* "": none */
    struct rg_who who;
    struct rg_session_info devices; /* of it, the devices alone */
    struct rg_shape shape;
    uint64_t contexts; /* devices, a bit each, of which contexts are made */
    uint64_t seen_ns;  /* when a session of it last began or ended */
    uint64_t from_ns;  /* not before */
    uint64_t pause_ns; /* after the next failure: twice as long */
};

struct rg_warm_worker {
    pid_t pid; /* 0: none */
    struct rg_warm_kind *kind;
    uint64_t number; /* on the devices' pages */
    uint64_t started_ns;
    int socket; /* -1: it is to end, or has */
    bool ready;
    struct rg_sandbox_lease *lease;
    struct rg_shares_session share; /* without limits or guarantees */
};

/** Zeroed: none are kept. */
struct rg_warm {
    uint32_t most;
    uint64_t keep_ns; /* how long after a kind was seen */
    uint64_t seen_ns; /* when a session last began */
    int events;       /* an epoll descriptor, of the workers' sockets */
    uint64_t next_number;
    struct rg_warm_kind kinds[RG_WARM_MAX];
    struct rg_warm_worker workers[RG_WARM_MAX];
};

/** "auto" or a number; false: it is neither. */
RG_MUST_CHECK bool rg_warm_most(const char *text, const struct rg_driver *driver, uint32_t *out);
RG_MUST_CHECK enum rg_status rg_warm_open(struct rg_warm *warm, uint32_t most, uint64_t keep_ns);
/** Ends all. */
void rg_warm_close(struct rg_sessions *sessions);

/**
 * Gives the session to a warm worker of its kind, whose process it has then. `theirs`: the worker's end of the session's socket for
 * further connections. False: there is none; nothing has changed.
 */
RG_MUST_CHECK bool rg_warm_adopt(struct rg_sessions *sessions, const struct rg_driver *driver,
                                 struct rg_session_entry *entry, const char *identity,
                                 const struct rg_shape *shape, const struct rg_session_files *files,
                                 int theirs);
/** A session of this kind has begun. */
void rg_warm_begun(struct rg_sessions *sessions, const struct rg_session_entry *entry, const char *identity,
                   const struct rg_shape *shape, uint64_t contexts);
/** A session of this identity has ended. */
void rg_warm_ended(struct rg_sessions *sessions, const char *identity);

/** Polls readable when rg_warm_continue has something to read; -1: none are kept. */
int rg_warm_events(const struct rg_warm *warm);
/**
 * Ends those that are not wanted any more, and starts one that is missing. `closed`: no sessions begin. Returns when to come
 * again; UINT64_MAX: there is no need.
 */
uint64_t rg_warm_continue(struct rg_sessions *sessions, const struct rg_driver *driver, bool closed);
/** After SIGCHLD. */
void rg_warm_reap(struct rg_sessions *sessions);
/** Ends those of identities that may not stay. */
void rg_warm_recheck(struct rg_sessions *sessions, const struct rg_who_policy *policy);
/** A session cannot have its devices as it is to have them: ends the workers there. True: some are on their way out. */
bool rg_warm_make_room(struct rg_sessions *sessions, const struct rg_session_info *info);

/** How many a device has, and what they hold. */
uint32_t rg_warm_of_device(const struct rg_sessions *sessions, uint32_t device, uint64_t *held);

#endif
