/* internal.h - what the files of pool/etcd/ share; see etcd.h. */
#ifndef RG_POOL_ETCD_INTERNAL_H
#define RG_POOL_ETCD_INTERNAL_H

#include "pool/etcd/etcd.h"

#include <curl/curl.h>

/** A request over HTTP that is under way, a call's or the watch's. */
struct rg_etcd_transfer {
    CURL *easy;
    struct curl_slist *headers;
    char *url;
    char error[CURL_ERROR_SIZE];
    uint32_t endpoint;
    void (*ended)(struct rg_etcd_transfer *transfer, CURLcode code); /* it has been taken off */
    size_t (*received)(struct rg_etcd_transfer *transfer, const char *data,
                       size_t size); /* not all: it ends */
    void *data;
};

struct rg_etcd_text {
    char *data;
    size_t size;
};

/** PEM texts. */
struct rg_etcd_files {
    struct rg_etcd_text ca, certificate, key;
};

/** Who this is, where etcd wants to know; see login.c. */
struct rg_etcd_login {
    char *user, *password; /* NULL: nobody */
    char *token;           /* NULL: there is none yet; "": etcd wants none */
    bool under_way;
};
#define RG_ETCD_LOGIN "/v3/auth/authenticate"

struct rg_etcd_watch_state;

/** What has been seen of etcd's past. */
struct rg_etcd_past {
    int64_t revision;  /* the newest; 0: none yet */
    char cluster[24];  /* its number; "": not known yet */
    char *key, *value; /* what was told last, as of `changed`; NULL: nothing was */
    int64_t changed;
};

struct rg_etcd {
    CURLM *multi;
    char *endpoints[RG_ETCD_ENDPOINTS_MAX];
    uint32_t n_endpoints, current;
    struct rg_etcd_files files;
    struct rg_etcd_login login;
    struct rg_etcd_call *calls;
    struct rg_etcd_watch_state *watch;
    struct rg_etcd_past past;
    int64_t clock_ahead;
    bool told; /* something was called back since the poll began: whoever polls may have something to do */
};

/** Begins a request to the current endpoint; `body` stays the caller's until it has ended. */
RG_MUST_CHECK bool rg_etcd_transfer_begin(struct rg_etcd *etcd, struct rg_etcd_transfer *transfer,
                                          const char *path, const char *body, long timeout_ms);
/** Why no answer has come, by libcurl's `error`: the same sentence for the same reason, however long it took. */
void rg_etcd_explain(const char *endpoint, const char *error, CURLcode code, char *why, size_t why_size);
/** Ends it without a word. */
void rg_etcd_transfer_cancel(struct rg_etcd *etcd, struct rg_etcd_transfer *transfer);
/** The endpoint has failed: others are used, unless they are already. */
void rg_etcd_give_up(struct rg_etcd *etcd, uint32_t endpoint);
/** Appends; false: no memory, or it becomes too large. */
RG_MUST_CHECK bool rg_etcd_append(struct rg_etcd_text *text, const char *data, size_t size);

/** Whether calls have to wait for a token. */
bool rg_etcd_login_is_missing(const struct rg_etcd *etcd);
/** Asks for one, unless that is under way; rg_etcd_calls_go_on then. */
void rg_etcd_login_begin(struct rg_etcd *etcd);
/** Whether etcd has refused a call, by gRPC's code and its words, since it wants another token than it was shown: there is none then. */
bool rg_etcd_login_is_refused(struct rg_etcd *etcd, json_int_t code, const char *said);
RG_MUST_CHECK bool rg_etcd_login_set(struct rg_etcd *etcd, const char *user, const char *password);
void rg_etcd_login_fini(struct rg_etcd *etcd);
/** Calls that wait for a token are begun, or end with the reason why there is none. */
void rg_etcd_calls_go_on(struct rg_etcd *etcd, enum rg_status status, const char *why);

/** An answer to a call on keys that was begun when `before` was the newest revision (of others: 0). */
void rg_etcd_past_answered(struct rg_etcd *etcd, const json_t *reply, int64_t before);
/** The watch has told up to a revision; of a key. */
void rg_etcd_past_told(struct rg_etcd *etcd, int64_t revision);
void rg_etcd_past_put(struct rg_etcd *etcd, const struct rg_etcd_pair *pair);
/** A question that tells whether etcd still has what was told last, at that revision, for /v3/kv/range. NULL: none does. */
json_t *rg_etcd_past_question(const struct rg_etcd *etcd, int64_t revision);
/** Whether that is what it answers. */
bool rg_etcd_past_is_there(const struct rg_etcd *etcd, const json_t *reply);
void rg_etcd_past_fini(struct rg_etcd *etcd);
/** Calls that are under way were begun in another past. */
void rg_etcd_forget_revisions(struct rg_etcd *etcd);

/** What was told is of another past: all is read anew. */
void rg_etcd_watch_rewound(struct rg_etcd *etcd);
/** Restarts what is due. Returns milliseconds until something is. */
int rg_etcd_watch_look(struct rg_etcd *etcd);
void rg_etcd_watch_end(struct rg_etcd *etcd);

#endif
