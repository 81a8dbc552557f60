/* mps.h - whether a session that is to share its devices by MPS does. See common/cuda/mps.h. */
#ifndef RG_SERVER_SHARES_WORKER_MPS_H
#define RG_SERVER_SHARES_WORKER_MPS_H

#include <stdbool.h>
#include <stddef.h>

/**
 * Once the driver is initialised: asks it. False: the session is not to begin, as nothing would hold it to its part; `why` is a
 * sentence. True as well where MPS was not granted.
 */
bool rg_mps_holds(char *why, size_t why_size);

#endif
