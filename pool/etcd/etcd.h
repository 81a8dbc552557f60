/*
 * etcd.h - etcd through its v3 JSON gateway: calls, and a watch over keys below a prefix that keeps a caller's copy of them true.
 *
 * Everything is asynchronous and on one thread: calls are begun, rg_etcd_poll waits for what happens and calls back. Several
 * endpoints are members of one etcd cluster. One of them is used at a time; when it fails to answer, the next one is, for
 * calls and the watch alike, so a member that is cut off from the others cannot show an old state for long: calls to it fail.
 *
 * Happy path: rg_etcd_create, rg_etcd_watch; then rg_etcd_poll again and again, with rg_etcd_call in between.
 * Failures: a call that no endpoint answers ends with RG_ERR_UNREACHABLE after each was tried; the watch goes on trying for
 * ever. A transaction that ended so may have been done or not: make it such that asking again tells. An etcd that is another one than
 * before, as after a backup was restored, is noticed (rewind.c): by the number of its cluster, by a revision that is lower than what had been
 * answered before a call was begun, and, where a watch has broken, by whether the change that was told last is still there.
 *
 * The gateway: https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/ (64-bit numbers are strings, zeros are left out).
 */
#ifndef RG_POOL_ETCD_ETCD_H
#define RG_POOL_ETCD_ETCD_H

#include "common/base/limits.h"
#include "common/base/status.h"

#include <jansson.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#define RG_ETCD_WHY 512 /* bytes of a reason */

struct rg_etcd;

/** Texts are copied. `ca`, `certificate`, `key`: PEM, NULL: none (the machine's authorities; no certificate is shown). */
struct rg_etcd_settings {
    const char *const *endpoints; /* "https://host:2379" */
    uint32_t n_endpoints;
    const char *ca, *certificate, *key;
    const char *user, *password; /* of etcd with authentication; NULL: nobody */
};

/** What has been seen of etcd's past, for another process that goes on in this one's place. */
struct rg_etcd_seen {
    int64_t revision; /* the newest; 0: none */
    char cluster[24]; /* its number; "": not known */
};

/** NULL with the reason in `why`. */
struct rg_etcd *rg_etcd_create(const struct rg_etcd_settings *settings, char *why, size_t why_size);
/** Ends all calls without calling back. */
void rg_etcd_destroy(struct rg_etcd *etcd);
/** Connections that are made from now on go by these certificates, and this user, whatever the endpoints. False: no memory. */
RG_MUST_CHECK bool rg_etcd_identify(struct rg_etcd *etcd, const struct rg_etcd_settings *settings);

/**
 * What came of a call. RG_OK: `reply` is etcd's, until this returns. RG_ERR_NOT_FOUND, RG_ERR_REFUSED: etcd answered that it
 * will not; RG_ERR_UNREACHABLE: no endpoint answered. Then `why` says it, and the reply is NULL.
 */
typedef void rg_etcd_done(void *data, enum rg_status status, const json_t *reply, const char *why);

/**
 * Begins a call, "/v3/kv/txn" with its body, which becomes the function's; a NULL body is a GET. `done` is called once, from
 * rg_etcd_poll; on a failure at once (no memory) as well.
 */
void rg_etcd_call(struct rg_etcd *etcd, const char *path, json_t *body, rg_etcd_done *done, void *data);

/** A key and its value. */
struct rg_etcd_pair {
    const char *key;
    const char *value;        /* with a NUL behind it */
    int64_t created, changed; /* revisions */
};

/** How the watch tells of the keys below its prefix. */
struct rg_etcd_watcher {
    void (*reset)(
        void *data); /* what is told from now on is everything; what is not told until `whole` is not there */
    void (*put)(void *data, const struct rg_etcd_pair *pair);
    void (*removed)(void *data, const char *key);
    void (*whole)(void *data, int64_t revision); /* all of the state at a revision has been told */
    void (*rewound)(
        void *data); /* what was told is of a past that etcd has not: all is told anew. May be NULL */
    void *data;
};

struct rg_etcd_seen rg_etcd_get_seen(const struct rg_etcd *etcd);
/** What another process has seen: an etcd that has less, or is another one, has another past. Before the first call. */
void rg_etcd_set_seen(struct rg_etcd *etcd, const struct rg_etcd_seen *seen);

/** Begins to watch all below a prefix; once. `prefix` is copied. */
RG_MUST_CHECK bool rg_etcd_watch(struct rg_etcd *etcd, const char *prefix,
                                 const struct rg_etcd_watcher *watcher);

/** Keys from `first` to before `end`; NULL: that key alone. Below the watch's prefix, without it. */
struct rg_etcd_range {
    const char *first, *end;
};

/**
 * Watches these from now on and nothing else (n = 0: all below the prefix); texts are copied. What there is of them is read at one
 * revision and told as a whole, and nothing is told before. Several ranges are watched beside each other: then what is told of a
 * revision may come in parts, and `whole` is called behind each. False: no memory, and all stays as it is. Not to be called by
 * what the watch calls.
 */
RG_MUST_CHECK bool rg_etcd_watch_ranges(struct rg_etcd *etcd, const struct rg_etcd_range *ranges, uint32_t n);

/** Waits for etcd, for `fds` (whose revents are set) or until the time is over, and calls back. */
void rg_etcd_poll(struct rg_etcd *etcd, struct pollfd *fds, uint32_t n, int timeout_ms);

/** Why what is watched could not be read the last time; "": it was, or was not asked for yet. Valid until the next poll. */
const char *rg_etcd_watch_why(const struct rg_etcd *etcd);

/** The endpoint that is used now; valid until the next poll. */
const char *rg_etcd_endpoint(const struct rg_etcd *etcd);
/** How far etcd's clock is ahead of this machine's, in seconds, as its answers say; 0 until there was one. */
int64_t rg_etcd_clock_ahead(const struct rg_etcd *etcd);

/** Parts of bodies; NULL where memory has run out, which json_pack takes as a failure. */
json_t *rg_etcd_bytes(const char *text);        /* base64 */
json_t *rg_etcd_plain(const json_t *bytes);     /* the text that such bytes stand for */
json_t *rg_etcd_number(int64_t number);         /* a string */
json_t *rg_etcd_prefix_end(const char *prefix); /* the first key behind all that begin so, base64 */
int64_t rg_etcd_get_number(const json_t *object, const char *name); /* 0: it is not there */

#endif
