/* region_copy.h - copies between regions, wherever they are. Any thread; no locks held. */
#ifndef RG_CLIENT_API_REGION_COPY_H
#define RG_CLIENT_API_REGION_COPY_H

#include "client/transfer/protocol.h"

/**
 * Both ends have the same extents, which are not 0; boxes of arrays lie in them. The context, and the stream,
 * an effective one, have been checked. Changes `copy`.
 */
CUresult rg_region_copy(struct rg_copy *copy);

#endif
