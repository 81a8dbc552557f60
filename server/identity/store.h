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
    struct rg_watch watch;
};

/** What time it is. */
int64_t rg_identity_now(const struct rg_identity_store *store);

#endif
