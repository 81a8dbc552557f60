/*
 * ipc.c - memory and events by the handles of cuIpc…, and pointers into pools of other processes.
 *
 * Handles are the workers' tokens (server/export/export.h) with a note on whose server they are (exported.h). Memory that is opened is
 * reserved in this address space like any other.
 */
#include "client/api/context.h"
#include "client/api/exported.h"
#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/context_scope.h"
#include "client/core/device_list.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/thread.h"
#include "common/base/log.h"
#include "common/cuda/composed/primary.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Memory that a call opens, and where it does so. */
struct memory_opening {
    unsigned flags;
    uint64_t context; /* the program's */
    CUdevice device;
    CUdeviceptr address; /* what comes of it */
};

/* Memory opened with cuIpcOpenMemHandle, as often as it was. */
struct opened {
    struct opened *next;
    CUdeviceptr address;
    uint64_t context;
    uint64_t
        opened_in; /* as in struct rg_range; 0 also where several contexts of the program's have opened it */
    unsigned opens;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list */
static struct opened *all_opened;

/* --- memory ---------------------------------------------------------------------------------------------- */

/* Makes memory of another process known here, which is the current server's. */
static CUresult add_range(const struct rg_range *range)
{
    if (!rg_map_reserve(rg_session_current()->number, range->start, range->size)) {
        rg_error("an address of shared memory collides with this program's own memory");
        return CUDA_ERROR_MAP_FAILED;
    }
    return rg_map_add(range) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* What cuMemPoolImportPointer is given. */
struct pointer_import {
    CUdeviceptr *out;
    CUmemoryPool pool;
    CUmemPoolPtrExportData *data;
};

static CUresult import_pointer(void *arguments)
{
    const struct pointer_import *import = arguments;
    unsigned long long address;
    size_t size;
    RG_TRY(rg_op_rgPoolImportPointer(import->pool, import->data, &address, &size));
    const struct rg_range range = {.start = address,
                                   .size = size,
                                   .kind = RG_RANGE_POOL,
                                   .context = rg_context_current_owner(),
                                   .device = rg_device_current(),
                                   .pool = (uint64_t)import->pool};
    CUresult status = add_range(&range);
    if (status == CUDA_SUCCESS)
        *import->out = address;
    else
        (void)rg_op_cuMemFree_v2(address);
    return status;
}

/* Without a context, in the primary one of the pool's device, which is the first that its server has for the program. */
CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData)
{
    struct pointer_import import = {.out = ptr_out, .pool = pool, .data = shareData};
    const bool has_context = rg_context_current_owner() != 0;
    RG_TRY(rg_call_allowed(has_context ? RG_TRAIT_CONTEXT : 0));
    if (!ptr_out || !shareData || !rg_handle_known(RG_KIND_POOL, (uint64_t)pool))
        return CUDA_ERROR_INVALID_VALUE;
    return has_context ? import_pointer(&import)
                       : rg_call_in_primary_context(rg_exported_device(RG_KIND_POOL, (uint64_t)pool),
                                                    import_pointer, &import);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    struct rg_range range;
    if (!pHandle || !rg_map_find(dptr, &range) || range.kind != RG_RANGE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_op_cuIpcGetMemHandle(pHandle, dptr));
    rg_exported_mark(pHandle, range.device);
    return CUDA_SUCCESS;
}

/* Memory of a guest's session is, as far as the program can tell, of the context that it has opened it in. */
static CUresult add_opened(CUdeviceptr address, size_t size, const struct memory_opening *opening)
{
    const bool guest = rg_session_current()->guest;
    const struct rg_range range = {.start = address,
                                   .size = size,
                                   .kind = RG_RANGE_IPC,
                                   .context = rg_context_current_owner(),
                                   .opened_in = guest ? opening->context : 0,
                                   .device = guest ? opening->device : rg_device_current()};
    return add_range(&range);
}

/* Counts an opening. The first of an address makes it known. */
static CUresult note_opened(CUdeviceptr address, size_t size, const struct memory_opening *opening)
{
    const uint64_t context = rg_context_current_owner();
    CUresult status = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    struct opened *at = all_opened;
    while (at && at->address != address)
        at = at->next;
    struct rg_range known;
    const bool there =
        at && rg_map_find(address, &known) && known.kind == RG_RANGE_IPC && at->context == context;
    if (!at) {
        at = calloc(1, sizeof *at);
        if (at) {
            at->address = address;
            at->next = all_opened;
            all_opened = at;
        } else {
            status = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (at && !there) { /* new, or left over from a context that has ended */
        at->opens = 0;
        at->context = context;
        at->opened_in = rg_session_current()->guest ? opening->context : 0;
        status = add_opened(address, size, opening);
    } else if (at && at->opened_in != opening->context) {
        at->opened_in = 0;
    }
    if (status == CUDA_SUCCESS)
        at->opens++;
    pthread_mutex_unlock(&lock);
    return status;
}

static CUresult open_memory(const void *token, void *user)
{
    struct memory_opening *opening = user;
    unsigned long long address;
    size_t size;
    RG_TRY(rg_op_rgIpcOpenMemory(token, opening->flags, &address, &size));
    CUresult status = note_opened(address, size, opening);
    if (status == CUDA_SUCCESS)
        opening->address = address;
    else
        (void)rg_op_rgIpcCloseMemory(address);
    return status;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!pdptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    struct memory_opening opening = {
        .flags = Flags, .context = rg_context_current_owner(), .device = rg_device_current()};
    RG_TRY(rg_exported_open("cuIpcOpenMemHandle", &handle, open_memory, &opening));
    *pdptr = opening.address;
    return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    struct rg_range range;
    pthread_mutex_lock(&lock);
    struct opened **link = &all_opened;
    while (*link && (*link)->address != dptr)
        link = &(*link)->next;
    struct opened *at = *link;
    const bool open = at && rg_map_find(dptr, &range) && range.start == dptr && range.kind == RG_RANGE_IPC;
    const bool last = open && --at->opens == 0;
    if (last) {
        *link = at->next;
        free(at);
        (void)rg_map_remove(dptr, 1u << RG_RANGE_IPC, NULL);
    }
    pthread_mutex_unlock(&lock);
    if (!open)
        return CUDA_ERROR_INVALID_VALUE;
    if (!rg_homes_differ(range.context, 0))
        return rg_op_rgIpcCloseMemory(dptr);
    RG_TRY(rg_context_scope_enter(range.context)); /* the address says no more whose it is */
    const CUresult status = rg_op_rgIpcCloseMemory(dptr);
    rg_context_scope_leave();
    return status;
}

/* One that was opened in a context of the program's, taken out of the list; NULL: none. */
static struct opened *take_opened_in(uint64_t context)
{
    RG_SCOPED_LOCK(&lock);
    struct opened **link = &all_opened;
    while (*link && (*link)->opened_in != context)
        link = &(*link)->next;
    struct opened *at = *link;
    if (at) {
        *link = at->next;
        (void)rg_map_remove(at->address, 1u << RG_RANGE_IPC, NULL);
    }
    return at;
}

void rg_ipc_context_ends(uint64_t context)
{
    for (struct opened *at; (at = take_opened_in(context)); free(at)) {
        if (rg_context_scope_enter(at->context) != CUDA_SUCCESS)
            continue;
        while (at->opens--)
            (void)rg_op_rgIpcCloseMemory(at->address);
        rg_context_scope_leave();
    }
}

/* --- events ---------------------------------------------------------------------------------------------- */

CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!pHandle)
        return rg_invalid_value();
    RG_TRY(rg_handle_check(RG_KIND_EVENT, (uint64_t)event, CUDA_ERROR_INVALID_HANDLE));
    RG_TRY(rg_op_cuIpcGetEventHandle(pHandle, event));
    rg_exported_mark(pHandle, rg_exported_device(RG_KIND_EVENT, (uint64_t)event));
    return CUDA_SUCCESS;
}

static CUresult open_event(const void *token, void *user)
{
    CUevent event = (CUevent)rg_handle_create(RG_KIND_EVENT);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    rg_handle_shadow(RG_KIND_EVENT, (uint64_t)event)->event = (struct rg_event){
        .context = rg_context_current_owner(), .flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS};
    return rg_handle_made(RG_KIND_EVENT, (uint64_t)event, rg_op_rgIpcOpenEvent(&event, token), user);
}

CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    return phEvent ? rg_exported_open("cuIpcOpenEventHandle", &handle, open_event, phEvent)
                   : CUDA_ERROR_INVALID_VALUE;
}
