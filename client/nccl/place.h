/*
 * place.h - where another process with ranks of a communicator is (proto/nccl/call.h), as an id or a server states it: whoever made the id
 * has chosen every byte of it.
 *
 * A place names its server twice: by the address at which servers reach it, and by the name under which its client knows it. This client
 * goes to the latter with its user's credentials, or says in the clear who it is where the name is of this machine; so it has to be what
 * the address is. Pure.
 */
#ifndef RG_CLIENT_NCCL_PLACE_H
#define RG_CLIENT_NCCL_PLACE_H

#include "proto/control/control.h"
#include "proto/nccl/call.h"

#include <stdbool.h>
#include <stddef.h>

/** How a server is reached: by servers, and by clients. */
struct rg_nccl_way {
    char address[RG_CONTROL_TEXT]; /* "tcp://10.0.0.7:7600", "unix:/run/…" */
    char server[sizeof((struct rg_nccl_place *)0)->server + 1];
};

/** Reads a place. False: nobody is to go there, and `why` says why. */
bool rg_nccl_place_read(const struct rg_nccl_place *place, struct rg_nccl_way *out, char *why,
                        size_t why_size);

#endif
