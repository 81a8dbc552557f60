/*
 * deadline.h - the thread that makes those cliques fail whose ranks do not come in time.
 *
 * SOFTGPU_NCCL_TIMEOUT (seconds, 600 unless set; 0: without end) counts from the first rank that waits for others: in a communicator's
 * beginning, in one that is made of its ranks, or in an operation.
 */
#ifndef SG_NCCL_DEADLINE_H
#define SG_NCCL_DEADLINE_H

/** Some rank waits from now on; starts the thread if it does not run. Any thread; no lock need be held, a clique's may. */
void sg_deadline_watch(void);

#endif
