/* internal.h - what etcd.c and watch.c share; see etcd.h. */
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

struct rg_etcd_watch_state;

struct rg_etcd {
    CURLM *multi;
    char *endpoints[RG_ETCD_ENDPOINTS_MAX];
    uint32_t n_endpoints, current;
    struct rg_etcd_text ca, certificate, key;
    struct rg_etcd_call *calls;
    struct rg_etcd_watch_state *watch;
    int64_t clock_ahead;
    bool told; /* something was called back since the poll began: whoever polls may have something to do */
};

/** Begins a request to the current endpoint; `body` stays the caller's until it has ended. */
RG_MUST_CHECK bool rg_etcd_transfer_begin(struct rg_etcd *etcd, struct rg_etcd_transfer *transfer,
                                          const char *path, const char *body, long timeout_ms);
/** Ends it without a word. */
void rg_etcd_transfer_cancel(struct rg_etcd *etcd, struct rg_etcd_transfer *transfer);
/** The endpoint has failed: others are used, unless they are already. */
void rg_etcd_give_up(struct rg_etcd *etcd, uint32_t endpoint);
/** Appends; false: no memory, or it becomes too large. */
RG_MUST_CHECK bool rg_etcd_append(struct rg_etcd_text *text, const char *data, size_t size);

/** Restarts what is due. Returns milliseconds until something is. */
int rg_etcd_watch_look(struct rg_etcd *etcd);
void rg_etcd_watch_end(struct rg_etcd *etcd);

#endif
