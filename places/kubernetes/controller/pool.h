/*
 * pool.h - the pool of servers, as the controller asks it: what it has, and leases for claims.
 *
 * Any member speaks for the whole pool, so one that does not answer is no failure as long as another does: those that were named
 * are asked first, then those that the pool has told of; who answered last is asked next. One thread.
 */
#ifndef RG_PLACES_KUBERNETES_CONTROLLER_POOL_H
#define RG_PLACES_KUBERNETES_CONTROLLER_POOL_H

#include "client/pool/pool.h"
#include "common/base/options.h"

#include <jansson.h>

struct rg_kube_pool {
    const struct rg_text_list *named; /* the caller's */
    char **learnt;
    size_t n_learnt;
    char *last; /* who answered; NULL: nobody yet */
    uint64_t timeout_ns;
    json_t *capabilities; /* "server's address" to {"GPU-…": "9.0.0"} */
};

/** `named` stays the caller's, and must outlive it. `timeout_ns` is for one question to one server. */
void rg_kube_pool_init(struct rg_kube_pool *pool, const struct rg_text_list *named, uint64_t timeout_ns);
void rg_kube_pool_fini(struct rg_kube_pool *pool);

/** One question to one server; false: `failure`. */
typedef bool rg_kube_pool_question(const char *server, void *data, struct rg_pool_failure *failure);

/** Asks members until one answers or refuses for a reason that others would have, too. False: `failure`. */
bool rg_kube_pool_ask(struct rg_kube_pool *pool, rg_kube_pool_question *question, void *data,
                      struct rg_pool_failure *failure);
/** The pool's picture as rg_pool_list gives it, each GPU with "capability" where that is known. NULL: `failure`. */
json_t *rg_kube_pool_look(struct rg_kube_pool *pool, struct rg_pool_failure *failure);

#endif
