/*
 * lease.h - the lease of a pool by which this program's sessions begin, as remote-gpu run has put it into REMOTE_GPU_LEASE:
 * "ID/0,3/1", for each server of REMOTE_GPU_SERVER the GPUs that the lease has there. Any thread.
 */
#ifndef RG_CLIENT_QUERY_LEASE_H
#define RG_CLIENT_QUERY_LEASE_H

#include "proto/control/control.h"

/** 0: there is none. */
uint64_t rg_lease_id(void);
/** Its GPUs on a server, by the server's numbers, up to RG_DEVICES_MAX; returns how many. 0: there is no lease, or it has none there. */
uint32_t rg_lease_gpus(const char *server, uint32_t *out);
/** Leaves the lease's GPUs of a server's inventory; all, where there is no lease. */
void rg_lease_narrow(const char *server, struct rg_inventory *inventory);

#endif
