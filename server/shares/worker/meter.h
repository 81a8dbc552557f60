/*
 * meter.h - what the session holds of its devices' memory, and whether it may have more.
 *
 * Whatever takes device memory begins by charging what it is about to take, calls the driver, and ends by what the driver has
 * really taken. Who runs out has pools give back what they keep ready, and looks again, before the call is refused; memory that
 * was made ready before it was asked for is given back by the dispatcher, which then executes the record again.
 *
 * Two ways to know what the driver has taken. Where each process has the whole device's memory for itself (rg_share.own_memory),
 * the driver's count of free memory says it, for everything: contexts, modules, pools, arrays. Where a device's memory is
 * shared, that count is of all processes: each allocation is charged by its size in the driver's granularity, pools by what
 * they have reserved, and contexts and modules by how the device's free memory changed, less what was charged meanwhile, here
 * or by other sessions. `lock` is held for arithmetic, for questions that do not block, and while pools are trimmed; not while
 * the driver allocates or frees otherwise.
 */
#ifndef RG_SERVER_SHARES_WORKER_METER_H
#define RG_SERVER_SHARES_WORKER_METER_H

#include "generated/server/driver.h"
#include "server/shares/worker/share.h"

/** The driver's own functions; the worker's table (rg_driver) has those that charge. */
extern struct rg_driver_table rg_share_direct;

/** Memory that is being taken. */
struct rg_meter {
    struct rg_share_account *account; /* NULL: nothing is counted */
    CUdevice device;
    uint64_t charged;
};

/** Something that holds memory: an address, or a handle, of a kind. */
enum rg_meter_kind {
    RG_METER_LINEAR = 1,
    RG_METER_ARRAY,
    RG_METER_MIPMAP,
    RG_METER_PHYSICAL, /* cuMemCreate; physical.c has the keys */
    RG_METER_IMPORT,   /* what another session has; once, however often it is imported */
    RG_METER_OPENED,   /* the same, opened by cuIpcOpenMemHandle: it goes with its context */
    RG_METER_CONTEXT,
    RG_METER_MODULE,
    RG_METER_LIBRARY,
    RG_METER_INSTANCE,     /* of a library, in a context: libraries.c */
    RG_METER_COMMUNICATOR, /* of NCCL */
};

/** Of memory of another session, which the driver does not count: it is checked here, whatever the driver keeps itself. */
RG_MUST_CHECK bool rg_meter_begin_import(struct rg_meter *meter, CUdevice device, uint64_t bytes);
/** Charges `bytes` of a device; false: there are not so many left. */
RG_MUST_CHECK bool rg_meter_begin(struct rg_meter *meter, CUdevice device, uint64_t bytes);
/** The same of the device of the calling thread's context; without one nothing is counted, and the driver says what is wrong. */
RG_MUST_CHECK bool rg_meter_begin_current(struct rg_meter *meter, uint64_t bytes);
/**
 * Ends it: the driver's result, and under which key it holds how much where the driver does not say by itself. False: it is
 * more than is left; it is to be undone, and is not charged.
 */
RG_MUST_CHECK bool rg_meter_end(struct rg_meter *meter, CUresult result, enum rg_meter_kind kind,
                                uint64_t key, uint64_t bytes);

/** Whether something of that kind and key is held: then it is used once more, which another free ends. */
bool rg_meter_again(enum rg_meter_kind kind, uint64_t key);

/** Whether something of that kind and key is held in the calling thread's context. */
bool rg_meter_has_here(enum rg_meter_kind kind, uint64_t key);

/** Ends what a pool has taken, of which it says itself how much that is. False: as rg_meter_end. */
RG_MUST_CHECK bool rg_meter_pool_end(struct rg_meter *meter, CUresult result);

/** What is being freed: out of the table before the driver frees it, as the key may be given away again at once. */
struct rg_meter_freed {
    struct rg_meter_entry *entry; /* NULL: nothing of that kind and key is held */
};
/** Around the driver's call, with its result. */
struct rg_meter_freed rg_meter_free_begin(enum rg_meter_kind kind, uint64_t key);
void rg_meter_free_end(struct rg_meter_freed *freed, CUresult result);

/** A context has gone, and all that was allocated in it. */
void rg_meter_context_gone(CUcontext context);

/** How the device's free memory changes, where only that tells what is taken: contexts, modules. */
struct rg_meter_change {
    CUdevice device;
    bool known;
    uint64_t free_before, held_before; /* free of the device; charged to all sessions, this one too */
};
/** Looks how much is free before something is taken; rg_meter_watched looks again. */
void rg_meter_watch(struct rg_meter_change *change, CUdevice device);
/** The same of the device of the calling thread's context; without one nothing is counted. */
void rg_meter_watch_current(struct rg_meter_change *change);
/** False: as rg_meter_end. */
RG_MUST_CHECK bool rg_meter_watched(const struct rg_meter_change *change, CUresult result,
                                    enum rg_meter_kind kind, uint64_t key);

/**
 * Ends what an instance of a library has taken, of which `meter` has what was expected, and `change` shows what it was. It cannot be undone:
 * what is more than is left is charged all the same. False then.
 */
RG_MUST_CHECK bool rg_meter_instance_end(struct rg_meter *meter, const struct rg_meter_change *change,
                                         CUresult result, uint64_t key);

/** Counts a pool of the session's in, and out. */
void rg_meter_pool_add(CUmemoryPool pool, CUdevice device);
void rg_meter_pool_drop(CUmemoryPool pool);
/** The device of a pool that was counted in; false: it is none. */
bool rg_meter_pool_device(CUmemoryPool pool, CUdevice *device);
/** Looks what pools have reserved by now, and how much of the device the driver says is in use. */
void rg_meter_look(CUdevice device);

/** In the driver's granularity. */
uint64_t rg_meter_round(uint64_t bytes);
/** The device of the calling thread's context; false: it has none. */
bool rg_meter_current(CUdevice *device);

#endif
