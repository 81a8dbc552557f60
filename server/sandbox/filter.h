/*
 * filter.h - a seccomp filter that is being made for one program: what is allowed by name (syscalls.c), and what by its arguments
 * (arguments.c).
 */
#ifndef RG_SERVER_SANDBOX_FILTER_H
#define RG_SERVER_SANDBOX_FILTER_H

#include "server/sandbox/internal.h"

#include <seccomp.h>
#include <stdint.h>

/* Whom a rule is for. */
enum {
    W = 1 << 0, /* worker on the software device */
    N = 1 << 1, /* worker on NVIDIA's driver */
    P = 1 << 2, /* probe, manager: a driver is loaded, nothing is received from a network */
    M = 1 << 3, /* netperf */
    F = 1 << 4, /* frontend */
    R = 1 << 5, /* any of them where RDMA is allowed */
    A = 1 << 6, /* accountant */
    E = 1 << 7, /* the pool's agent, which talks to etcd */
    ALL = W | N | P | M | F | A | E,
    OPENERS = W | N | P | M | A | E,
};

struct rg_sandbox_filter {
    scmp_filter_ctx context;
    const struct rg_sandbox_policy *policy;
    int whom;
    uint32_t attack, refused; /* what becomes of these */
    char *why;
    size_t why_size;
};

/* Each adds rules: 0, or an errno with the system call in `why`. */

/** One rule; a call that this library or machine does not know needs none, and one that does what it would anyhow. */
int rg_sandbox_filter_add(struct rg_sandbox_filter *filter, uint32_t action, const char *name, unsigned n,
                          const struct scmp_arg_cmp *arguments);
/** The same for calls whatever their arguments are; names with blanks between. */
int rg_sandbox_filter_add_names(struct rg_sandbox_filter *filter, uint32_t action, const char *names);
/** All calls of which a part is allowed. */
int rg_sandbox_filter_add_arguments(struct rg_sandbox_filter *filter);

#endif
