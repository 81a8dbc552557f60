/* store.h - the inside of struct rg_identity_store, for the files of this folder. */
#ifndef RG_SERVER_IDENTITY_STORE_H
#define RG_SERVER_IDENTITY_STORE_H

#include "server/identity/authority.h"
#include "server/identity/identity.h"
#include "server/identity/state.h"
#include "server/identity/watch.h"

#include <stdbool.h>
#include <stdint.h>

struct rg_identity_store {
    struct rg_identity_settings settings;
    struct rg_state state;
    bool is_own; /* else: the operator's authority */
    bool is_new;
    char canonical[256];           /* name of this machine; asked for once, as the resolver may take long */
    struct rg_authority authority; /* ours */
    char *operator_ca;             /* the operator's, PEM */
    size_t operator_ca_size;
    struct rg_key_pair server;
    uint32_t generation;             /* of `server`: how many there were before */
    void *server_key, *previous_key; /* EVP_PKEYs of it and the one before; NULL: nothing was signed by it */
    uint32_t used;                   /* the last generation that something was signed by */
    void *used_key;                  /* its EVP_PKEY, if it is older than these */
    struct rg_watch watch;
};

/** What time it is. */
int64_t rg_identity_now(const struct rg_identity_store *store);
/** `server` is about to be replaced: handshakes that have begun with it may still be signed. */
void rg_identity_turn_key(struct rg_identity_store *store);
void rg_identity_forget_keys(struct rg_identity_store *store);

#endif
