/*
 * list.h - the list of cliques and its lock, under which also meetings and peers are: whoever looks one of them up, makes or ends it has it.
 * Lock order: this one, then a clique's.
 */
#ifndef SG_NCCL_LIST_H
#define SG_NCCL_LIST_H

#include "softgpu/nccl/clique.h"

/** Not to be nested, nor taken with a clique's lock held. */
void sg_cliques_lock(void);
void sg_cliques_unlock(void);
/** The first of the list; the lock is held. */
struct sg_clique **sg_cliques(void);

#endif
