/*
 * deadline.h - the list of cliques, and the thread that makes those fail whose ranks do not come in time.
 *
 * SOFTGPU_NCCL_TIMEOUT (seconds, 600 unless set; 0: without end) counts from the first rank that waits for others: in a communicator's
 * beginning, or in an operation. Lock order: the list's, then a clique's.
 */
#ifndef SG_NCCL_DEADLINE_H
#define SG_NCCL_DEADLINE_H

#include "softgpu/nccl/clique.h"

/** The list's lock: whoever looks a clique up by its id, makes or ends one has it. */
void sg_cliques_lock(void);
void sg_cliques_unlock(void);
/** The first of the list; the lock is held. */
struct sg_clique **sg_cliques(void);
/** Some rank waits from now on; starts the thread if it does not run. Any thread; no lock need be held, a clique's may. */
void sg_deadline_watch(void);

#endif
