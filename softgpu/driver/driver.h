/*
 * driver.h - what the objects of the software driver share: state of the process, handles, contexts, entry
 * checks.
 *
 * Every exported function begins with one of the sg_enter functions, which give the errors that do not depend
 * on the call (not initialised, inside a host function, no current context, a context that a fault has
 * poisoned). Handles that applications hold are pointers to objects; sg_handle_get proves that a handle is
 * live and of the right kind before anything is read through it, and takes a reference, so an object outlives
 * its destruction for as long as queued work needs it.
 *
 * Lock order: README.md; no lock is held while code of the application runs.
 */
#ifndef SG_DRIVER_DRIVER_H
#define SG_DRIVER_DRIVER_H

#include "common/cuda/api.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash_table.h"
#include "common/base/log.h"
#include "common/base/status.h"

#define SG_DEVICES_MAX        16
#define SG_LIMIT_COUNT        16
#define SG_CAPABILITY_DEFAULT 130 /* 13.0: above any device that libraries carry machine code for */
#define SG_MAJOR_MIN          5

/*
 * Set by the generated _ptsz/_ptds wrappers around a call: a null stream then names the thread's own stream.
 */
extern __thread bool sg_per_thread_default_stream;

/* --- objects and handles (handle.c) --- */

struct sg_context;

enum sg_kind {
    SG_KIND_CONTEXT = 1,
    SG_KIND_STREAM,
    SG_KIND_EVENT,
    SG_KIND_MODULE,
    SG_KIND_FUNCTION,
    SG_KIND_LIBRARY,
    SG_KIND_KERNEL,
    SG_KIND_POOL,
    SG_KIND_ARRAY,
    SG_KIND_MIPMAP,
    SG_KIND_TEXREF,
    SG_KIND_SURFREF,
    SG_KIND_LINK,
    SG_KIND_ALLOCATION,
    SG_KIND_RESOURCES,
    SG_KIND_GREEN,
};

struct sg_object {
    struct rg_hash_link link; /* in the table of the living */
    enum sg_kind kind;
    _Atomic uint32_t references;
    void (*finish)(struct sg_object *object); /* frees it; called when the last reference goes */
    struct sg_context *context;               /* that it belongs to, reference held; NULL: to none */
    unsigned long long generation;            /* the life of that context in which it was made */
};

/**
 * Starts `object` with one reference, the handle's, and makes its address a valid handle. It belongs to
 * `context`, or to none (NULL).
 */
void sg_handle_add(struct sg_object *object, enum sg_kind kind, struct sg_context *context,
                   void (*finish)(struct sg_object *));
/** Whether the life of the context that the object, which belongs to one, was made in lasts. */
bool sg_object_lives(const struct sg_object *object);
/**
 * The stream, event, array or mipmapped array that `handle` names, with a reference, if it belongs to a context that lives: else
 * CUDA_ERROR_INVALID_HANDLE or CUDA_ERROR_CONTEXT_IS_DESTROYED (rg_cuda_no_object).
 */
CUresult sg_handle_get_living(const void *handle, enum sg_kind kind, void **object);
/** The live object that `handle` names, with a reference taken, or NULL. */
void *sg_handle_get(const void *handle, enum sg_kind kind);
/** Makes the handle invalid; true for the one caller that did it, who then owns the handle's reference. */
bool sg_handle_remove(const void *handle, enum sg_kind kind);
static inline void sg_acquire(struct sg_object *object)
{
    atomic_fetch_add_explicit(&object->references, 1, memory_order_relaxed);
}
/** Drops a reference; NULL is allowed. */
void sg_release(struct sg_object *object);

/* A reference that is dropped at the end of the scope: SG_REF(struct sg_event) event = sg_handle_get(…). */
static inline void sg_release_p(void *p)
{
    sg_release(*(struct sg_object **)p);
}
#define SG_REF(type) __attribute__((cleanup(sg_release_p))) type *

/* The object that a handle names, with a reference for the rest of the scope, or return. */
#define SG_HANDLE_OR_RETURN(type, var, kind, handle)                                                         \
    SG_REF(type) var = sg_handle_get(handle, kind);                                                          \
    if (var == NULL)                                                                                         \
    return CUDA_ERROR_INVALID_HANDLE

/* --- device and process (device.c, init.c) --- */

struct sg_pool;

struct sg_device {
    int ordinal, number; /* among those that are visible, and among all */
    char name[64];
    CUuuid uuid;
    int pci_domain, pci_bus, pci_device;
    int numa_node, nvlink, pcie; /* as topology.h has them */
    int multiprocessors;
    uint64_t memory_total;
    bool mig;     /* it is an instance of a divided device … */
    int instance; /* … of this number among its instances, from 0 … */
    bool divided; /* it is divided: a process gets one of its instances (sg_devices_all alone has such) */
    CUuuid whole; /* … and this is the UUID of that device */
    struct sg_context *primary; /* made with the device, lives as long; active only while retained */
    struct sg_pool *default_pool, *current_pool;
};

struct sg_state {
    pthread_mutex_t lock; /* primary contexts' reference counts and flags, current pools */
    _Atomic bool initialised;
    _Atomic bool forked;  /* this process is a fork of one that had called cuInit */
    _Atomic bool exiting; /* exit handlers run: nothing is waited for any more */
    uint32_t capability;  /* of all devices: 130 for 13.0 */
    bool mps;             /* NVIDIA's multi-process service orders their work */
    int n_devices;
    struct sg_device devices[SG_DEVICES_MAX];
};
extern struct sg_state sg_state;

/** The device, or NULL if there is no such ordinal. */
struct sg_device *sg_device(CUdevice ordinal);
/** Creates the devices; called once by cuInit. */
CUresult sg_devices_init(void);
/** The value of an attribute; CUDA_ERROR_INVALID_VALUE for unknown ones. */
CUresult sg_device_attribute(const struct sg_device *device, int attribute, int *value);

/* --- contexts (context.c) --- */

struct sg_stream;
struct sg_task;

/* The part that schedule.c guards with its own lock. */
struct sg_context_work {
    struct sg_stream *busy;                  /* streams with tasks queued or running */
    unsigned queued;                         /* tasks of all of them */
    struct sg_context_work *next, *previous; /* among those that have such streams */
};

struct sg_green;

/** Some of a device's multiprocessors, by number, in order. */
struct sg_multiprocessors {
    uint32_t n;
    uint32_t at[];
};

/*
 * A green context's is one of its own for streams and what waits for them; all else that is made in it, memory, modules and
 * events, belongs to its owner, and so do settings and errors.
 */
struct sg_context {
    struct sg_object object;
    struct sg_device *device;
    struct sg_context *owner;     /* the device's primary context if this is a green context's, else itself */
    const struct sg_green *green; /* whose it is; NULL: of none */
    struct sg_multiprocessors *provisioned; /* that its kernels run on; NULL: all */
    bool primary;
    _Atomic bool active; /* false before the first retain and after destruction */
    uint32_t retained;   /* primary only; sg_state.lock */
    unsigned flags;
    unsigned api_version;
    unsigned long long id;
    _Atomic int sticky;                    /* CUresult of a fault; ends the usefulness of the context */
    _Atomic unsigned long long generation; /* counts lives of a primary context */
    _Atomic uint32_t peers;                /* devices whose memory was made accessible, by bit */
    _Atomic unsigned attached;             /* cuCtxAttach without cuCtxDetach */
    struct sg_stream *legacy;              /* the legacy default stream */
    pthread_mutex_t lock;                  /* modules */
    _Atomic size_t limits[SG_LIMIT_COUNT];
    _Atomic bool printed, allocated; /* kernels that use what two of the limits are for have been launched */
    CUfunc_cache cache_config;
    struct sg_module *modules;   /* list through module->next */
    struct sg_context_work work; /* of green contexts in their owner's */
};

/** Says once that `name` is not supported; CUDA_ERROR_NOT_SUPPORTED. */
CUresult sg_unsupported(const char *name);

/** Checks that apply to every call but a few: initialised, not in a host function. */
CUresult sg_enter(void);
/**
 * sg_enter, a live current context (no reference taken: the thread's stack holds one), not poisoned. *context is its owner: what is
 * made belongs to that.
 */
CUresult sg_enter_context(struct sg_context **context);
#define SG_CONTEXT_OR_RETURN(var)                                                                            \
    struct sg_context *var;                                                                                  \
    RG_TRY(sg_enter_context(&var))
/** The same, but lets a poisoned context pass: for calls that only answer from state or destroy. */
CUresult sg_enter_context_any(struct sg_context **context);
/** sg_enter_context, or sg_enter_context_any, but *context is the current context, for what has streams in it. */
CUresult sg_enter_current(bool any, struct sg_context **context);
/** For calls that need no context, but are refused in one that has failed. */
CUresult sg_enter_anywhere(void);
/** The context of a handle given as an argument, NULL meaning the current one; takes a reference. */
CUresult sg_context_argument(CUcontext handle, struct sg_context **context);
#define SG_CONTEXT_ARGUMENT_OR_RETURN(var, handle)                                                           \
    SG_REF(struct sg_context) var = NULL;                                                                    \
    RG_TRY(sg_context_argument(handle, &var))
/** The thread's current context or NULL, without any check. */
struct sg_context *sg_context_current(void);
/** Activates a primary context that has been retained for the first time; sg_state.lock held. */
CUresult sg_context_start(struct sg_context *context);
struct sg_context *sg_context_new(struct sg_device *device, bool primary, unsigned flags,
                                  unsigned api_version);

/** Records a fault of the context's work: the first one stays. */
void sg_context_poison(struct sg_context *context, CUresult error);
/** The first fault that any context of this process has had, or CUDA_SUCCESS. */
CUresult sg_context_process_error(void);

/** True on threads that are running a host function or a stream callback. */
extern __thread bool sg_in_host_function;

static inline CUcontext sg_context_handle(struct sg_context *context)
{
    return (CUcontext)(void *)context;
}

#endif
