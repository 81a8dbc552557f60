/* bulk_log.h - what became of a connection's bulk data, for the log. */
#ifndef RG_SERVER_TRANSFER_BULK_LOG_H
#define RG_SERVER_TRANSFER_BULK_LOG_H

#include "transport/state.h"

#include <stdint.h>

/**
 * Says how much an adapter moved in its place, and how much was copied, where the transport counts it and there was any. `of`: whose data
 * it is, beginning with a space; "": the session's own. Any thread.
 */
void rg_bulk_log(uint64_t session, const struct rg_conn_statistics *bulk, const char *of);

#endif
