/*
 * privileges.h - how the frontend gives up what it does not need: user, files, privileges, for good.
 */
#ifndef RG_SERVER_FRONTEND_PRIVILEGES_H
#define RG_SERVER_FRONTEND_PRIVILEGES_H

#include "common/base/status.h"
#include "server/sandbox/sandbox.h"

#include <stdint.h>

/**
 * Becomes user `uid` in an empty folder, if this process may (uid 0: stays who it is), and can never get rights again. Before
 * there are other threads, and before anything was received from a stranger. RG_ERR_IO: it was said what could not be had.
 * `mode`: how much of a sandbox is demanded (--sandbox).
 */
RG_MUST_CHECK enum rg_status rg_frontend_drop_privileges(uint32_t uid, enum rg_sandbox_mode mode);

#endif
