/*
 * share.c - memory and events shared with other sessions of this server: descriptors (share.h), and the calls.
 *
 * The happy path of a descriptor: rg_serve_rgShareAllocation lets the driver export, offers the descriptor and answers with
 * the token; the client passes it to another process, whose worker takes the descriptor (rg_share_take) and lets the
 * driver import it.
 */
#include "server/share.h"

#include "common/log.h"
#include "common/thread.h"
#include "generated/server/serve.h"
#include "server/direct.h"
#include "server/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define PART     16 /* bytes of each half of a token */
#define OFFERED  4096
#define PATIENCE 5 /* seconds for another worker to answer */

struct offer {
    int fd; /* -1: free */
    unsigned char name[PART];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct offer *offers;
static int n_offers;
static int listener = -1;
static unsigned char self[PART]; /* this worker's half of its tokens */

/* --- handing out ------------------------------------------------------------------------------------------- */

static socklen_t address_of(const unsigned char *who, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "remote-gpu/share/");
    for (int i = 0; i < PART; i++)
        n += snprintf(address->sun_path + 1 + n, sizeof address->sun_path - 1 - (size_t)n, "%02x", who[i]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static bool same_user(int connection)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* A copy of the descriptor of that name, or -1. */
static int copy_of(const unsigned char *name)
{
    int copy = -1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_offers && copy < 0; i++)
        if (offers[i].fd >= 0 && memcmp(offers[i].name, name, PART) == 0)
            copy = fcntl(offers[i].fd, F_DUPFD_CLOEXEC, 0);
    pthread_mutex_unlock(&lock);
    return copy;
}

/* One byte, with the descriptor or without. */
static void answer(int connection, int fd)
{
    char control[CMSG_SPACE(sizeof fd)] = {0}, byte = fd >= 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    (void)sendmsg(connection, &message, MSG_NOSIGNAL); /* who has gone needs no answer */
}

static void limit_patience(int connection)
{
    const struct timeval limit = {.tv_sec = PATIENCE};
    (void)setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static void *serve(void *unused)
{
    (void)unused;
    for (;;) {
        int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (connection < 0) {
            if (errno != EINTR && errno != ECONNABORTED)
                usleep(10000); /* out of descriptors: those who ask wait in line */
            continue;
        }
        unsigned char name[PART];
        limit_patience(connection);
        if (same_user(connection) && recv(connection, name, PART, MSG_WAITALL) == PART) {
            int fd = copy_of(name);
            answer(connection, fd);
            if (fd >= 0)
                close(fd);
        }
        close(connection);
    }
    return NULL;
}

/* The socket and its thread, at the first offer. The lock is held. */
static bool listen_once(void)
{
    struct sockaddr_un address;
    pthread_t thread;
    if (listener >= 0)
        return true;
    if (getrandom(self, PART, 0) != PART)
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, address_of(self, &address)) != 0 ||
        listen(fd, 64) != 0) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    listener = fd;
    if (rg_thread_create(&thread, "rg-share", serve, NULL) != RG_OK) {
        close(fd);
        listener = -1;
        return false;
    }
    pthread_detach(thread);
    return true;
}

bool rg_share_offer(int fd, unsigned char token[RG_SHARE_TOKEN])
{
    int at = 0;
    memset(token, 0, RG_SHARE_TOKEN);
    pthread_mutex_lock(&lock);
    while (at < n_offers && offers[at].fd >= 0)
        at++;
    bool offered = listen_once() && at < OFFERED;
    if (offered && at == n_offers) {
        struct offer *more = realloc(offers, (size_t)(n_offers + 1) * sizeof *offers);
        offered = more != NULL;
        if (more) {
            offers = more;
            offers[n_offers++].fd = -1;
        }
    }
    if (offered && getrandom(offers[at].name, PART, 0) == PART) {
        offers[at].fd = fd;
        memcpy(token, self, PART);
        memcpy(token + PART, offers[at].name, PART);
    } else {
        offered = false;
    }
    pthread_mutex_unlock(&lock);
    if (!offered) {
        rg_warn("memory cannot be offered to other sessions: %s", strerror(errno));
        close(fd);
    }
    return offered;
}

void rg_share_end(const unsigned char token[RG_SHARE_TOKEN])
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_offers; i++)
        if (offers[i].fd >= 0 && memcmp(token, self, PART) == 0 &&
            memcmp(offers[i].name, token + PART, PART) == 0) {
            close(offers[i].fd);
            offers[i].fd = -1;
        }
    pthread_mutex_unlock(&lock);
}

/* --- asking another worker ----------------------------------------------------------------------------------- */

static int receive(int connection)
{
    char control[CMSG_SPACE(sizeof(int))], byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) != 1)
        return -1;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int fd = -1;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
}

int rg_share_take(const unsigned char token[RG_SHARE_TOKEN])
{
    struct sockaddr_un address;
    int fd = -1, connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0)
        return -1;
    limit_patience(connection);
    if (connect(connection, (struct sockaddr *)&address, address_of(token, &address)) == 0 &&
        same_user(connection) && send(connection, token + PART, PART, MSG_NOSIGNAL) == PART)
        fd = receive(connection);
    close(connection);
    return fd;
}

/* --- calls: descriptors -------------------------------------------------------------------------------------- */

/* What the driver exported, as a token. */
static CUresult offer_handle(unsigned type, const void *exported, unsigned char *token)
{
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        memcpy(token, exported, RG_SHARE_TOKEN);
        return CUDA_SUCCESS;
    }
    int fd;
    memcpy(&fd, exported, sizeof fd);
    return rg_share_offer(fd, token) ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

static bool type_known(unsigned type)
{
    return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || type == CU_MEM_HANDLE_TYPE_FABRIC;
}

CUresult rg_serve_rgShareAllocation(struct rg_job *job, CUmemGenericAllocationHandle handle,
                                    unsigned int type, unsigned long long flags, unsigned char *token)
{
    unsigned char exported[RG_SHARE_TOKEN] = {0};
    (void)job;
    if (!rg_driver.cuMemExportToShareableHandle || !type_known(type))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result =
        rg_driver.cuMemExportToShareableHandle(exported, handle, (CUmemAllocationHandleType)type, flags);
    return result == CUDA_SUCCESS ? offer_handle(type, exported, token) : result;
}

CUresult rg_serve_rgSharePool(struct rg_job *job, CUmemoryPool pool, unsigned int type,
                              unsigned long long flags, unsigned char *token)
{
    unsigned char exported[RG_SHARE_TOKEN] = {0};
    (void)job;
    if (!rg_driver.cuMemPoolExportToShareableHandle || !type_known(type))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result =
        rg_driver.cuMemPoolExportToShareableHandle(exported, pool, (CUmemAllocationHandleType)type, flags);
    return result == CUDA_SUCCESS ? offer_handle(type, exported, token) : result;
}

CUresult rg_serve_rgShareEnd(struct rg_job *job, CUdevice device, const unsigned char *token)
{
    (void)job, (void)device;
    rg_share_end(token);
    return CUDA_SUCCESS;
}

/* The driver's argument for a token; `fd` is to be closed afterwards, if there is one. */
static bool take_handle(unsigned type, const unsigned char *token, int *fd, void **handle)
{
    *fd = -1;
    *handle = (void *)(uintptr_t)token;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return true;
    *fd = rg_share_take(token);
    *handle = (void *)(intptr_t)*fd;
    return *fd >= 0;
}

CUresult rg_serve_rgImportAllocation(struct rg_job *job, CUdevice device, uint64_t handle, unsigned int type,
                                     const unsigned char *token, int *location)
{
    CUmemGenericAllocationHandle made = 0;
    CUmemAllocationProp properties;
    int fd;
    void *given;
    (void)device;
    if (!rg_driver.cuMemImportFromShareableHandle || !rg_driver.cuMemGetAllocationPropertiesFromHandle ||
        !rg_driver.cuMemRelease || !type_known(type))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!take_handle(type, token, &fd, &given))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = rg_driver.cuMemImportFromShareableHandle(&made, given, (CUmemAllocationHandleType)type);
    if (fd >= 0)
        close(fd);
    if (result != CUDA_SUCCESS)
        return result;
    result = rg_driver.cuMemGetAllocationPropertiesFromHandle(&properties, made);
    if (result != CUDA_SUCCESS) {
        (void)rg_driver.cuMemRelease(made);
        return result;
    }
    *location = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? properties.location.id : -1;
    rg_job_new(job, RG_KIND_ALLOCATION, handle, (void *)(uintptr_t)made);
    return CUDA_SUCCESS;
}

CUresult rg_serve_rgImportPool(struct rg_job *job, CUdevice device, uint64_t pool, unsigned int type,
                               unsigned long long flags, const unsigned char *token)
{
    CUmemoryPool made = NULL;
    int fd;
    void *given;
    (void)device;
    if (!rg_driver.cuMemPoolImportFromShareableHandle || !type_known(type))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!take_handle(type, token, &fd, &given))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result =
        rg_driver.cuMemPoolImportFromShareableHandle(&made, given, (CUmemAllocationHandleType)type, flags);
    if (fd >= 0)
        close(fd);
    if (result == CUDA_SUCCESS)
        rg_job_new(job, RG_KIND_POOL, pool, made);
    return result;
}

/* --- calls: pointers and events -------------------------------------------------------------------------------- */

CUresult rg_serve_rgPoolImportPointer(struct rg_job *job, CUmemoryPool pool,
                                      const CUmemPoolPtrExportData *data, unsigned long long *address,
                                      size_t *size)
{
    CUdeviceptr found = 0, base = 0;
    CUmemPoolPtrExportData mine = *data;
    (void)job;
    if (!rg_driver.cuMemPoolImportPointer || !rg_driver.cuMemGetAddressRange_v2)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = rg_driver.cuMemPoolImportPointer(&found, pool, &mine);
    if (result == CUDA_SUCCESS)
        result = rg_driver.cuMemGetAddressRange_v2(&base, size, found);
    *address = found;
    return result;
}

CUresult rg_serve_rgIpcOpenMemory(struct rg_job *job, const CUipcMemHandle *handle, unsigned int flags,
                                  unsigned long long *address, size_t *size)
{
    CUdeviceptr found = 0, base = 0;
    (void)job;
    if (!rg_driver.cuIpcOpenMemHandle_v2 || !rg_driver.cuIpcCloseMemHandle ||
        !rg_driver.cuMemGetAddressRange_v2)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = rg_driver.cuIpcOpenMemHandle_v2(&found, *handle, flags);
    if (result != CUDA_SUCCESS)
        return result;
    result = rg_driver.cuMemGetAddressRange_v2(&base, size, found);
    if (result != CUDA_SUCCESS)
        (void)rg_driver.cuIpcCloseMemHandle(found);
    *address = found;
    return result;
}

CUresult rg_serve_rgIpcCloseMemory(struct rg_job *job, CUdeviceptr address)
{
    struct rg_direct_area *area = rg_direct_take(job->worker, address);
    rg_job_let_pass(job, true);
    rg_direct_end(job, area);
    return rg_driver.cuIpcCloseMemHandle ? rg_driver.cuIpcCloseMemHandle(address) : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult rg_serve_rgIpcOpenEvent(struct rg_job *job, uint64_t event, const CUipcEventHandle *handle)
{
    CUevent made = NULL;
    if (!rg_driver.cuIpcOpenEventHandle)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = rg_driver.cuIpcOpenEventHandle(&made, *handle);
    if (result == CUDA_SUCCESS)
        rg_job_new(job, RG_KIND_EVENT, event, made);
    return result;
}
