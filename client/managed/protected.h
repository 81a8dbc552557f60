/*
 * protected.h - memory that the program has protected, and opens itself when it is touched: write barriers of garbage collectors,
 * checkpoints, arrays that are read from files page by page.
 */
#ifndef RG_CLIENT_MANAGED_PROTECTED_H
#define RG_CLIENT_MANAGED_PROTECTED_H

#include "client/core/region.h"

/**
 * Before host memory is read, or written to, in system calls or by other threads, which no handler of SIGSEGV is asked about: touches those of its
 * pages that cannot be accessed as a copy of the program's own would, if the program has such a handler. Written pages keep their contents.
 * The calling thread is the program's and holds no locks: the handler may take its time, or leave by siglongjmp. Else does nothing.
 */
void rg_protected_open(const struct rg_region *region, bool write);

#endif
