/*
 * names.h - what clients may call this server: host name, canonical name, addresses of interfaces, loopback, and what the operator adds.
 *
 * Any thread.
 */
#ifndef RG_SERVER_IDENTITY_NAMES_H
#define RG_SERVER_IDENTITY_NAMES_H

#include "common/base/limits.h"
#include "common/base/status.h"

#include <stddef.h>

struct rg_names {
    char *items[RG_IDENTITY_NAMES_MAX]; /* the first is the machine's */
    size_t n;
};

/** What the resolver calls this machine ("gpu-machine.example.org"), "" if it does not know. Takes as long as the resolver. */
void rg_names_canonical(char *name, size_t size);

/**
 * Host name, then those of the operator, loopback, the canonical name ("": none), addresses of interfaces; each once. RG_ERR_INVALID:
 * one of `more` is neither a host's name nor an address. To be released by rg_names_fini, also on failure.
 */
RG_MUST_CHECK enum rg_status rg_names_collect(struct rg_names *names, const char *const *more, size_t n_more,
                                              const char *canonical, char *why, size_t why_size);
void rg_names_fini(struct rg_names *names);

#endif
