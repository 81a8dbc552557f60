/*
 * handle.h - the objects this client has named, and what it knows of them without asking.
 *
 * A handle is an id of proto/kinds.h. Each live one has a shadow: a structure of its kind (below), owned by
 * the table. Looking a handle up takes no lock: slots are never freed, only marked unused, and a stale handle
 * is told by its generation. Destroying an object while another thread uses its handle is the application's
 * error; the shadow's memory stays valid regardless.
 */
#ifndef RG_CLIENT_CORE_HANDLE_H
#define RG_CLIENT_CORE_HANDLE_H

#include "client/timeline/positions.h"
#include "proto/function_info.h"
#include "proto/kinds.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rg_session;
struct rg_settings;

struct rg_context {
    struct rg_session *session;
    CUdevice device;
    unsigned flags;
    unsigned api_version;
    bool primary;
    atomic_uint attached; /* cuCtxAttach without cuCtxDetach */
    _Atomic CUresult
        sticky;     /* of a fault that ended its usefulness, or of a primary context that nobody holds */
    uint64_t green; /* the green context that it is the context of; 0: none … */
    uint64_t owner; /* … the primary context that what is made in it belongs to; 0: itself … */
    unsigned multiprocessors; /* … and how many its kernels run on; 0: all of the device's */
    struct rg_context_timeline timeline;
    struct rg_settings *settings; /* client/api/context_settings.c */
};

struct rg_stream {
    uint64_t context;
    unsigned flags;
    int priority;
    unsigned long long id;
    struct rg_stream_timeline timeline;
};

struct rg_event {
    uint64_t context;
    unsigned flags;
    struct rg_event_timeline timeline;
};

/* module, library and the functions found in them: client/api/module.c */
struct rg_found_function;
struct rg_replication;
struct rg_cached_image;
struct rg_variable;

struct rg_module {
    uint64_t context;
    uint64_t owner; /* the library, of cuLibraryGetModule; else 0 */
    uint64_t whole; /* the library that this is of and the program does not know (client/prefetch/); or 0 */
    struct rg_found_function *functions;           /* found so far, by name */
    struct rg_found_function *textures, *surfaces; /* references found so far, by name */
    struct rg_variable *variables;                 /* client/cache/variables.h */
    struct rg_cached_image *cached;                /* of its image (client/cache/image_cache.h), or NULL */
};

struct rg_library {
    struct rg_found_function *kernels;
    struct rg_found_function *modules;  /* by context */
    struct rg_variable *variables;      /* client/cache/variables.h */
    struct rg_cached_image *cached;     /* of its image (client/cache/image_cache.h), or NULL */
    struct rg_replication *replication; /* client/multiserver/replication.h */
    _Atomic uint32_t servers;           /* that have it, a bit each */
};

/** A function or kernel. Immutable once published. */
struct rg_function {
    char *name;
    uint64_t owner;   /* module or library */
    uint64_t context; /* functions */
    struct rg_function_info info;
    struct rg_param_info *params;
    uint32_t params_size;                 /* bytes of the parameter buffer */
    struct rg_found_function *by_context; /* kernels: their functions */
    _Atomic uint32_t servers;             /* kernels: that have been asked for it */
    struct rg_settings *settings;    /* attributes by number, then as client/api/function/settings.c says */
    atomic_bool loaded;              /* which it then remains */
    atomic_bool unloaded;            /* its first launch may take long */
    atomic_bool launched;            /* or loaded for that: launches wait for it no more */
    int set[RG_FUNCTION_ATTRIBUTES]; /* the attributes, as far as they have been set here */
    CUdevice device;                 /* that the attributes are for */
    atomic_bool changed;             /* attributes that can be set may not be what `info` says any more */
};

/** Physical memory (client/api/vmm.c). */
struct rg_allocation {
    CUdevice device;
    unsigned references;   /* of the application's; the worker has one for all of them */
    unsigned handle_types; /* CUmemAllocationHandleType by which it can be exported */
};

struct rg_array {
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    size_t texel_size;
    bool level; /* of a mipmapped array, with which it ends */
};

/** A texture or surface reference. */
struct rg_texref {
    bool own;               /* made by cuTexRefCreate */
    uint64_t array, mipmap; /* what it is bound to, if it is one of these */
};

struct rg_mipmap {
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    size_t texel_size;
    unsigned levels;
    uint64_t *level; /* handles of arrays */
};

/** A green context: the ordinary context of it, once it was asked for (client/api/resource.c). */
struct rg_green {
    CUdevice device;
    uint64_t context;
    uint64_t primary; /* of its device, which it retains */
};

struct rg_link_state {
    uint64_t context;
    struct rg_linker *state; /* client/api/link.c */
};

/** Whether it is one of the streams that need no creation: 0, and those that cuda.h names. */
static inline bool rg_stream_is_default(CUstream stream)
{
    return (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD;
}

struct rg_shadow {
    _Atomic uint64_t home; /* client/core/home.h */
    atomic_bool orphan;    /* its context is gone (rg_handle_orphan_context) */
    union {
        struct rg_green green;
        struct rg_context context;
        struct rg_stream stream;
        struct rg_event event;
        struct rg_module module;
        struct rg_library library;
        struct rg_function function;
        struct rg_allocation allocation;
        struct rg_array array;
        struct rg_mipmap mipmap;
        struct rg_texref texref;
        struct rg_link_state link;
    };
};

/** A new handle of `kind` with a zeroed shadow; 0 if memory or RG_OBJECTS_MAX ran out. */
uint64_t rg_handle_create(enum rg_kind kind);
/** The shadow, or NULL if `handle` is no live handle of `kind`. */
struct rg_shadow *rg_handle_shadow(enum rg_kind kind, uint64_t handle);
/** Who a new object belongs to (client/core/home.h); 0 until it is set, and for unknown handles. */
void rg_handle_set_home(uint64_t handle, uint64_t home);
uint64_t rg_handle_home(enum rg_kind kind, uint64_t handle);
/** Frees the slot; an unknown handle is fine. */
void rg_handle_delete(enum rg_kind kind, uint64_t handle);
/**
 * Whether a call may name `handle`: live, or one of the streams that need no creation. RG_KIND_FUNCTION also
 * takes kernels, as the driver does.
 */
bool rg_handle_known(enum rg_kind kind, uint64_t handle);
/** The shadow of an object whose context has not ended. CUDA_ERROR_INVALID_HANDLE; CUDA_ERROR_CONTEXT_IS_DESTROYED. */
CUresult rg_handle_live(enum rg_kind kind, uint64_t handle, const struct rg_shadow **shadow);
/**
 * A context has ended: its streams, events, arrays and linker states can be destroyed, but not be named any
 * more by other calls.
 */
void rg_handle_orphan_context(uint64_t context);
/** Whether that is so of this handle. */
bool rg_handle_orphaned(enum rg_kind kind, uint64_t handle);
/** CUDA_SUCCESS for what a call may name; else that the context of what was named is gone, `unknown`, or what is said of ended streams, events and arrays (rg_cuda_no_object). */
CUresult rg_handle_check(enum rg_kind kind, uint64_t handle, CUresult unknown);
/** Ends a call that makes an object by the name `handle`: with success *out, a handle's type, is that; else it is dropped. Returns `status`. */
CUresult rg_handle_made(enum rg_kind kind, uint64_t handle, CUresult status, void *out);
/**
 * Ends a call that found an object: `proposed` was offered, `actual` came back. Drops the proposal if it was
 * not taken or the call failed; returns `status`, or CUDA_ERROR_UNKNOWN if `actual` is no handle of this
 * client.
 */
CUresult rg_handle_found(enum rg_kind kind, uint64_t proposed, uint64_t actual, CUresult status);
/**
 * Lists live handles of `kind`, `max` of them at most; returns how many. `after`: 0, or the last one listed
 * before.
 */
size_t rg_handle_list(enum rg_kind kind, uint64_t after, uint64_t *out, size_t max);

#endif
