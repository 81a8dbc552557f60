/* share.h - the share of each GPU that the user wishes for (remote-gpu run -m, -p, --compute, …), as the environment has it. */
#ifndef RG_CLIENT_QUERY_SHARE_H
#define RG_CLIENT_QUERY_SHARE_H

#include "proto/control/control.h"

/**
 * False: a variable is wrong, which was said. The session must not begin then: it would have more than was meant.
 */
bool rg_share_wanted(struct rg_share_wish *out);

#endif
