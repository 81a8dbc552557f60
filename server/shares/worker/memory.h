/*
 * memory.h - the driver's functions that take or free device memory, or say how much there is, in the worker's table of functions
 * (rg_driver): each in front of the driver's own. So whatever the worker does is charged, whoever does it: records, blocks that
 * are made ready, images, buffers.
 */
#ifndef RG_SERVER_SHARES_WORKER_MEMORY_H
#define RG_SERVER_SHARES_WORKER_MEMORY_H

#include "server/shares/worker/meter.h"

/** Before the driver is loaded: the software device is told what the session has, and shows and keeps it by itself. */
void rg_share_tell_driver(void);
/** Once rg_driver is filled, and before its first function is called. Nothing is changed where no share is attached. */
void rg_share_enter_driver(void);

/** Of the parts: each puts its functions in. */
void rg_share_enter_linear(void);
void rg_share_enter_arrays(void);
void rg_share_enter_pools(void);
void rg_share_enter_physical(void);
void rg_share_enter_measured(void);
void rg_share_enter_libraries(void);

/** Puts a function in front of the driver's own, if the driver has it. */
#define RG_SHARE_ENTER(name, function)                                                                       \
    do {                                                                                                     \
        if (rg_driver_has(name))                                                                             \
            rg_driver.name = (function);                                                                     \
    } while (0)

/** Makes a function in front of one of the driver's that frees what it is given, by which it is known to the meter. */
#define RG_SHARE_FREES(function, kind, name, type)                                                           \
    static CUresult function(type object)                                                                    \
    {                                                                                                        \
        struct rg_meter_freed freed = rg_meter_free_begin(kind, (uintptr_t)object);                          \
        const CUresult result = rg_share_direct.name(object);                                                \
        rg_meter_free_end(&freed, result);                                                                   \
        return result;                                                                                       \
    }

#endif
