/* attach.h - a worker that the daemon started takes turns with the others on its devices. See gate.h. */
#ifndef RG_SERVER_SHARES_GATE_ATTACH_H
#define RG_SERVER_SHARES_GATE_ATTACH_H

#include "server/core/worker.h"

/** Before the worker starts. Where no share was attached (server/shares/worker/share.h), nothing is shared. */
RG_MUST_CHECK enum rg_status rg_gate_attach(struct rg_worker *worker);

#endif
