/*
 * shareable_handle.c - shareable handles, by which other processes have allocations and pools too.
 *
 * A handle that is a descriptor is made here: one end of a pair of sockets in which the worker's token (server/export/export.h)
 * waits to be read. It can be duplicated, inherited and passed on like the driver's; who imports it looks at
 * the token without taking it out. When all copies of it are closed, the other end sees that, and the worker
 * is told with the next call of this file to close the driver's descriptor.
 */
#include "client/api/exported.h"
#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/device_list.h"
#include "client/core/handle.h"
#include "client/core/thread.h"
#include "common/base/log.h"
#include "common/base/poll.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOKEN 64

/* What waits in the socket. */
struct message {
    char magic[16];
    uint32_t kind; /* enum rg_kind */
    uint32_t unused;
    unsigned char token[TOKEN];
};
static const char magic[] = "remote-gpu share"; /* its end is not sent */

/* A descriptor that was given out: our end of it. */
struct given {
    struct given *next;
    int end;
    CUdevice device; /* of the server whose token it is */
    unsigned char token[TOKEN];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list */
static struct given *all_given;

/* Tells the workers of descriptors that have no copies any more. */
static void collect(void)
{
    struct given *gone = NULL;
    pthread_mutex_lock(&lock);
    for (struct given **link = &all_given; *link;) {
        struct given *at = *link;
        struct pollfd state = {.fd = at->end};
        if (rg_poll(&state, 1, 0) == 1 && (state.revents & (POLLHUP | POLLERR))) {
            *link = at->next;
            at->next = gone;
            gone = at;
        } else {
            link = &at->next;
        }
    }
    pthread_mutex_unlock(&lock);
    while (gone) {
        struct given *next = gone->next;
        close(gone->end);
        (void)rg_op_rgShareEnd(gone->device, gone->token);
        free(gone);
        gone = next;
    }
}

/* A descriptor for the token; -1: the system refused. */
static int give(enum rg_kind kind, CUdevice device, const unsigned char *token)
{
    int ends[2];
    struct message message = {.kind = kind};
    struct given *given = calloc(1, sizeof *given);
    memcpy(message.magic, magic, sizeof message.magic);
    memcpy(message.token, token, TOKEN);
    if (!given || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        free(given);
        return -1;
    }
    if (send(ends[0], &message, sizeof message, MSG_NOSIGNAL) != (ssize_t)sizeof message) {
        close(ends[0]);
        close(ends[1]);
        free(given);
        return -1;
    }
    given->end = ends[0];
    given->device = device;
    memcpy(given->token, token, TOKEN);
    RG_SCOPED_LOCK(&lock);
    given->next = all_given;
    all_given = given;
    return ends[1];
}

/* The token in a descriptor that the application was given, here or in another process. */
static bool token_of(int fd, enum rg_kind kind, unsigned char *token)
{
    struct message message;
    ssize_t size;
    do
        size = recv(fd, &message, sizeof message, MSG_PEEK | MSG_DONTWAIT);
    while (size < 0 && errno == EINTR);
    if (size != (ssize_t)sizeof message || memcmp(message.magic, magic, sizeof message.magic) != 0 ||
        message.kind != kind)
        return false;
    memcpy(token, message.token, TOKEN);
    return true;
}

/* Hands a token out in the form that was asked for. */
static CUresult export_token(enum rg_kind kind, CUdevice device, CUmemAllocationHandleType type,
                             const unsigned char *token, void *out)
{
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        memcpy(out, token, TOKEN);
        return CUDA_SUCCESS;
    }
    int fd = give(kind, device, token);
    if (fd < 0) {
        rg_warn("no socket for a shareable handle: %s", strerror(errno));
        (void)rg_op_rgShareEnd(device, token);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    memcpy(out, &fd, sizeof fd);
    return CUDA_SUCCESS;
}

/* Takes a handle in; `handle` is a descriptor's number, or points to a fabric handle. */
static bool import_token(enum rg_kind kind, CUmemAllocationHandleType type, void *handle,
                         unsigned char *token)
{
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return token_of((int)(intptr_t)handle, kind, token);
    if (!handle)
        return false;
    memcpy(token, handle, TOKEN);
    return true;
}

static CUresult begin(CUmemAllocationHandleType type, unsigned long long flags, const void *out)
{
    RG_TRY(rg_call_allowed(0));
    collect();
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || type == CU_MEM_HANDLE_TYPE_FABRIC
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long flags)
{
    unsigned char token[TOKEN];
    RG_TRY(begin(handleType, flags, shareableHandle));
    if (!rg_handle_shadow(RG_KIND_ALLOCATION, handle))
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_op_rgShareAllocation(handle, handleType, flags, token));
    return export_token(RG_KIND_ALLOCATION, rg_exported_device(RG_KIND_ALLOCATION, handle), handleType, token,
                        shareableHandle);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                        CUmemAllocationHandleType shHandleType)
{
    unsigned char token[TOKEN];
    RG_TRY(begin(shHandleType, 0, handle));
    if (!import_token(RG_KIND_ALLOCATION, shHandleType, osHandle, token))
        return CUDA_ERROR_INVALID_VALUE;
    CUmemGenericAllocationHandle made = rg_handle_create(RG_KIND_ALLOCATION);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUdevice device = rg_device_current_or_first(); /* whose server the handle is taken to be of */
    int location = -1;
    CUresult status = rg_op_rgImportAllocation(device, &made, shHandleType, token, &location);
    if (status != CUDA_SUCCESS) {
        rg_handle_delete(RG_KIND_ALLOCATION, made);
        return status;
    }
    const CUdevice here = rg_device_here(rg_device_session(device), location);
    rg_handle_shadow(RG_KIND_ALLOCATION, made)->allocation = (struct rg_allocation){
        .device = here < 0 ? device : here, .references = 1, .handle_types = (unsigned)shHandleType};
    *handle = made;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
                                          CUmemAllocationHandleType handleType, unsigned long long flags)
{
    unsigned char token[TOKEN];
    RG_TRY(begin(handleType, flags, handle_out));
    if (!rg_handle_known(RG_KIND_POOL, (uint64_t)pool))
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_op_rgSharePool(pool, handleType, flags, token));
    return export_token(RG_KIND_POOL, rg_exported_device(RG_KIND_POOL, (uint64_t)pool), handleType, token,
                        handle_out);
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                            CUmemAllocationHandleType handleType, unsigned long long flags)
{
    unsigned char token[TOKEN];
    RG_TRY(begin(handleType, flags, pool_out));
    if (!import_token(RG_KIND_POOL, handleType, handle, token))
        return CUDA_ERROR_INVALID_VALUE;
    CUmemoryPool made = (CUmemoryPool)rg_handle_create(RG_KIND_POOL);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult status = rg_op_rgImportPool(rg_device_current_or_first(), &made, handleType, flags, token);
    return rg_handle_made(RG_KIND_POOL, (uint64_t)made, status, pool_out);
}
