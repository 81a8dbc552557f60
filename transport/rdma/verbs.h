/*
 * verbs.h - the libraries of RDMA, libibverbs and librdmacm, opened by name when they are first needed.
 *
 * A client runs in images that have them, lack them or have others than this was built with, so nothing is linked with them. The
 * rest of the transport calls their functions by the names that their headers declare: verbs.c defines those, each passing on to
 * the library's.
 */
#ifndef RG_TRANSPORT_RDMA_VERBS_H
#define RG_TRANSPORT_RDMA_VERBS_H

#include "common/base/status.h"

#include <stddef.h>

/**
 * Opens both libraries, once in a process; they stay open. RG_ERR_UNSUPPORTED: one is absent or too old, and `why` says which
 * and what to install. No function of theirs may be called before this has returned RG_OK. Threads: any.
 */
RG_MUST_CHECK enum rg_status rg_rdma_verbs_open(char *why, size_t why_size);

/** The same for `remote-gpu doctor`, which looks it up in transport/rdma.so by this name (part.c). */
#define RG_RDMA_VERBS_SYMBOL "rg_rdma_part_open_verbs"

#endif
