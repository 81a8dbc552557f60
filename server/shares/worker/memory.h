/*
 * memory.h - the driver's functions that take or free device memory, or say how much there is, in the worker's table of functions
 * (rg_driver): each in front of the driver's own. So whatever the worker does is charged, whoever does it: records, blocks that
 * are made ready, images, buffers.
 */
#ifndef RG_SERVER_SHARES_WORKER_MEMORY_H
#define RG_SERVER_SHARES_WORKER_MEMORY_H

#include "generated/server/driver.h"

/** Before the driver is loaded: the software device is told what the session has, and shows and keeps it by itself. */
void rg_share_tell_driver(void);
/** Once rg_driver is filled, and before its first function is called. Nothing is changed where no share is attached. */
void rg_share_enter_driver(void);

/** Of the parts: each puts its functions in. */
void rg_share_enter_linear(struct rg_driver_table *table);
void rg_share_enter_arrays(struct rg_driver_table *table);
void rg_share_enter_pools(struct rg_driver_table *table);
void rg_share_enter_physical(struct rg_driver_table *table);
void rg_share_enter_measured(struct rg_driver_table *table);

/** Puts a function in front of the driver's own, if the driver has it. */
#define RG_SHARE_ENTER(table, name, function)                                                                \
    do {                                                                                                     \
        if ((table)->name)                                                                                   \
            (table)->name = (function);                                                                      \
    } while (0)

#endif
