/*
 * managed.c - see managed.h. `lock` guards the list of allocations and the states of their chunks; it is held while
 * chunks are sent or fetched, so release and fetch never overlap. The handler takes no lock: it queues a request on its
 * own stack and sleeps until the service thread has dealt with it.
 */
#include "common/cuda/graph/graph.h"
#include "client/managed.h"

#include "client/address_map.h"
#include "client/call.h"
#include "client/command.h"
#include "client/context.h"
#include "client/device.h"
#include "client/handle.h"
#include "client/lane.h"
#include "client/owner.h"
#include "common/limits.h"
#include "common/log.h"
#include "generated/client/operations.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGE      4096u
#define CHUNK     65536u
#define FETCH_MAX (4u << 20) /* bytes fetched at a touch, once touches come one after another */

enum state { DEVICE, SHARED, DIRTY, FRESH };

struct managed {
    struct managed *next;
    uint64_t base;  /* what the worker allocated */
    uint64_t start; /* page-aligned address that the application has */
    size_t size;    /* rounded up to pages */
    size_t n_chunks;
    uint64_t context;
    uint64_t next_fetch; /* where the last fetch ended */
    size_t stretch;      /* bytes to fetch at the next touch */
    unsigned char state[];
};

struct request {
    struct request *next;
    uint64_t address;
    bool write;
    bool handled;
    _Atomic uint32_t done;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct managed *allocations;
static atomic_size_t n_held; /* chunks that are not DEVICE */
static __thread bool releasing;

static _Atomic(struct request *) requests; /* pushed by handlers (release), taken by the service (acquire) */
static _Atomic uint32_t requests_made;
static _Atomic uint64_t lowest = UINT64_MAX, highest; /* all managed addresses lie in between */
static struct sigaction previous_action;
static bool started;
static pid_t owner;

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static struct managed *find(uint64_t address)
{
    for (struct managed *m = allocations; m; m = m->next)
        if (address - m->start < m->size)
            return m;
    return NULL;
}

static size_t chunk_size(const struct managed *m, size_t chunk)
{
    size_t left = m->size - chunk * CHUNK;
    return left < CHUNK ? left : CHUNK;
}

/* --- to the device ---------------------------------------------------------------------------------------------- */

static CUresult send(uint64_t start, size_t size)
{
    CUresult status = CUDA_SUCCESS;
    for (size_t at = 0; at < size && status == CUDA_SUCCESS; at += RG_BULK_MAX) {
        size_t part = size - at < RG_BULK_MAX ? size - at : RG_BULK_MAX;
        struct iovec bulk = {(void *)(uintptr_t)(start + at), part};
        status = rg_op_rgCopyIn(start + at, part, part, 1, CU_STREAM_LEGACY, 1, &bulk, 1);
    }
    return status;
}

/* Sends the pages of a fresh stretch that have been touched. */
static CUresult send_touched(uint64_t start, size_t size)
{
    unsigned char resident[FETCH_MAX / PAGE];
    CUresult status = CUDA_SUCCESS;
    for (size_t at = 0; at < size && status == CUDA_SUCCESS; at += FETCH_MAX) {
        size_t part = size - at < FETCH_MAX ? size - at : FETCH_MAX;
        if (mincore((void *)(uintptr_t)(start + at), part, resident) != 0)
            return send(start + at, size - at);
        size_t pages = part / PAGE;
        for (size_t i = 0; i < pages && status == CUDA_SUCCESS;) {
            size_t end = i;
            while (end < pages && (resident[end] & 1))
                end++;
            if (end > i)
                status = send(start + at + i * PAGE, (end - i) * PAGE);
            i = end > i ? end : i + 1;
        }
    }
    return status;
}

/* Gives all of an allocation that the host holds to the device. The lock is held, its context is current. */
static CUresult release_one(struct managed *m)
{
    CUresult status = CUDA_SUCCESS;
    for (size_t i = 0; i < m->n_chunks && status == CUDA_SUCCESS;) {
        const enum state state = (enum state)m->state[i];
        size_t end = i, size = 0;
        while (end < m->n_chunks && m->state[end] == state)
            size += chunk_size(m, end++);
        const uint64_t start = m->start + i * CHUNK;
        if (state == DIRTY)
            status = send(start, size);
        else if (state == FRESH)
            status = send_touched(start, size);
        if (state != DEVICE) {
            mprotect((void *)(uintptr_t)start, size, PROT_NONE);
            memset(&m->state[i], DEVICE, end - i);
            atomic_fetch_sub(&n_held, end - i);
        }
        i = end;
    }
    return status;
}

CUresult rg_managed_release(void)
{
    if (atomic_load_explicit(&n_held, memory_order_acquire) == 0 || releasing)
        return CUDA_SUCCESS;
    struct rg_lane *lane = rg_lane_current();
    CUresult status = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    releasing = true;
    for (struct managed *m = allocations; m && status == CUDA_SUCCESS; m = m->next) {
        if (!rg_handle_shadow(RG_KIND_CONTEXT, m->context) || !rg_lane_push_context(lane, m->context))
            continue;
        status = release_one(m);
        lane->n_contexts--;
    }
    releasing = false;
    pthread_mutex_unlock(&lock);
    return status;
}

/* --- to the host ------------------------------------------------------------------------------------------------ */

/* Fetches [start, start + size) into new memory and puts that in place. */
static bool fetch(const struct managed *m, uint64_t start, size_t size, int protection)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    struct rg_lane *lane = rg_lane_current();
    CUresult status = CUDA_ERROR_OUT_OF_MEMORY;
    if (lane && rg_lane_push_context(lane, m->context)) {
        struct rg_call reply;
        releasing = true; /* this is the device's data, nothing need be sent before */
        rg_call_expect_bulk(memory, size, size, 1);
        status = rg_op_rgCopyOut(start, size, size, 1, CU_STREAM_LEGACY, 0, &reply);
        rg_call_done(&reply);
        rg_call_expect_bulk(NULL, 0, 0, 0);
        releasing = false;
        lane->n_contexts--;
    }
    if (status != CUDA_SUCCESS)
        rg_error("managed memory at %#llx could not be fetched from the device (error %d); it reads as zeros",
                 (unsigned long long)start, (int)status);
    if (mprotect(memory, size, protection) != 0 ||
        mremap(memory, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(uintptr_t)start) == MAP_FAILED) {
        munmap(memory, size);
        return false;
    }
    return true;
}

/* The host touched `address`. Returns whether the access can be tried again. */
static bool touched(uint64_t address, bool write)
{
    struct managed *m = find(address);
    if (!m)
        return false;
    const size_t chunk = (address - m->start) / CHUNK;
    const uint64_t start = m->start + chunk * CHUNK;
    const enum state state = (enum state)m->state[chunk];
    if (state == DIRTY || state == FRESH || (state == SHARED && !write))
        return true; /* another thread was faster */
    if (state == SHARED) {
        m->state[chunk] = DIRTY;
        return mprotect((void *)(uintptr_t)start, chunk_size(m, chunk), PROT_READ | PROT_WRITE) == 0;
    }
    /* Touches in sequence fetch more and more at once. */
    if (start == m->next_fetch && m->stretch < FETCH_MAX)
        m->stretch *= 2;
    else if (start != m->next_fetch)
        m->stretch = CHUNK;
    size_t end = chunk, size = 0;
    while (end < m->n_chunks && m->state[end] == DEVICE && size + chunk_size(m, end) <= m->stretch)
        size += chunk_size(m, end++);
    if (!fetch(m, start, size, write ? PROT_READ | PROT_WRITE : PROT_READ))
        return false;
    memset(&m->state[chunk], write ? DIRTY : SHARED, end - chunk);
    atomic_fetch_add(&n_held, end - chunk);
    m->next_fetch = start + size;
    return true;
}

static void *service_main(void *unused)
{
    (void)unused;
    for (;;) {
        uint32_t made = atomic_load(&requests_made);
        struct request *list = atomic_exchange_explicit(&requests, NULL, memory_order_acquire);
        if (!list) {
            futex_wait(&requests_made, made);
            continue;
        }
        while (list) {
            struct request *request = list;
            list = list->next;
            pthread_mutex_lock(&lock);
            request->handled = touched(request->address, request->write);
            pthread_mutex_unlock(&lock);
            atomic_store(&request->done, 1);
            futex_wake(&request->done);
        }
    }
    return NULL;
}

static void pass_on(int signal_number, siginfo_t *info, void *context)
{
    if (previous_action.sa_flags & SA_SIGINFO) {
        previous_action.sa_sigaction(signal_number, info, context);
    } else if (previous_action.sa_handler == SIG_DFL || previous_action.sa_handler == SIG_IGN) {
        /* the access is tried again and ends the process as it would have without us */
        struct sigaction standard = {.sa_handler = SIG_DFL};
        sigaction(signal_number, &standard, NULL);
    } else {
        previous_action.sa_handler(signal_number);
    }
}

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    const uint64_t address = (uint64_t)(uintptr_t)info->si_addr;
    if (address < atomic_load(&lowest) || address >= atomic_load(&highest) || getpid() != owner) {
        pass_on(signal_number, info, context);
        return;
    }
    const int error = errno;
    struct request request = {.address = address, .write = true};
#ifdef __x86_64__
    request.write = (((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#endif
    struct request *first = atomic_load(&requests);
    do
        request.next = first;
    while (!atomic_compare_exchange_weak_explicit(&requests, &first, &request, memory_order_release,
                                                  memory_order_relaxed));
    atomic_fetch_add(&requests_made, 1);
    futex_wake(&requests_made);
    while (!atomic_load(&request.done))
        futex_wait(&request.done, 0);
    errno = error;
    if (!request.handled)
        pass_on(signal_number, info, context);
}

/* The service thread and the handler, at the first allocation; the lock is held. */
static bool start_service(void)
{
    if (started)
        return true;
    owner = getpid();
    if (rg_thread_start("rg-managed", service_main, NULL) != RG_OK)
        return false;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigemptyset(&action.sa_mask);
    started = sigaction(SIGSEGV, &action, &previous_action) == 0;
    return started;
}

/* --- the calls -------------------------------------------------------------------------------------------------- */

static CUresult place(struct managed *m, CUdeviceptr *out, size_t size, enum rg_range_kind kind,
                      unsigned flags)
{
    struct rg_range range = {.start = m->start,
                             .size = size,
                             .kind = kind,
                             .flags = flags,
                             .context = m->context,
                             .device = rg_device_current()};
    if (!rg_map_reserve(rg_session_current()->number, m->start, m->size)) {
        rg_error("the server's address for managed memory is in use in this program");
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* Fresh pages: what an earlier allocation left here must not look like the host's writes. */
    void *memory = mmap((void *)(uintptr_t)m->start, m->size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (memory == MAP_FAILED || !rg_map_add(&range))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(m->state, FRESH, m->n_chunks);
    pthread_mutex_lock(&lock);
    bool ready = start_service();
    if (ready) {
        m->next = allocations;
        allocations = m;
        if (m->start < atomic_load(&lowest))
            atomic_store(&lowest, m->start);
        if (m->start + m->size > atomic_load(&highest))
            atomic_store(&highest, m->start + m->size);
        atomic_fetch_add(&n_held, m->n_chunks);
    }
    pthread_mutex_unlock(&lock);
    if (!ready)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = m->start;
    return CUDA_SUCCESS;
}

CUresult rg_managed_allocate(size_t size, enum rg_range_kind kind, unsigned flags, CUdeviceptr *out)
{
    const size_t rounded = (size + PAGE - 1) & ~(size_t)(PAGE - 1);
    if (rounded < size || rounded + PAGE < rounded)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (rg_several_servers()) /* devices of other servers could not use it */
        return rg_unsupported("managed memory, or mapped host memory, with several servers");
    const size_t n_chunks = (rounded + CHUNK - 1) / CHUNK;
    struct managed *m = calloc(1, sizeof *m + n_chunks);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUdeviceptr base;
    CUresult status = rg_op_cuMemAlloc_v2(&base, rounded + PAGE);
    if (status != CUDA_SUCCESS) {
        free(m);
        return status;
    }
    m->base = base;
    m->start = (base + PAGE - 1) & ~(uint64_t)(PAGE - 1);
    m->size = rounded;
    m->n_chunks = n_chunks;
    m->context = rg_context_current();
    m->stretch = CHUNK;
    status = place(m, out, size, kind, flags);
    if (status != CUDA_SUCCESS) {
        (void)rg_op_cuMemFree_v2(base);
        free(m);
    }
    return status;
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    if (!dptr || !bytesize || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    status = rg_capture_unsafe();
    if (status != CUDA_SUCCESS)
        return status;
    return rg_managed_allocate(bytesize, RG_RANGE_MANAGED, flags, dptr);
}

/* Unlinks an allocation and takes its pages back; the lock is held. */
static void unlink_one(struct managed **at)
{
    struct managed *m = *at;
    *at = m->next;
    for (size_t i = 0; i < m->n_chunks; i++)
        if (m->state[i] != DEVICE)
            atomic_fetch_sub(&n_held, 1);
    mmap((void *)(uintptr_t)m->start, m->size, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    free(m);
}

bool rg_managed_free(uint64_t start, CUresult *result)
{
    CUdeviceptr base = 0;
    pthread_mutex_lock(&lock);
    for (struct managed **at = &allocations; *at; at = &(*at)->next)
        if ((*at)->start == start) {
            base = (*at)->base;
            unlink_one(at);
            break;
        }
    pthread_mutex_unlock(&lock);
    if (!base)
        return false;
    *result = rg_op_cuMemFree_v2(base);
    return true;
}

void rg_managed_drop_context(uint64_t context)
{
    pthread_mutex_lock(&lock);
    for (struct managed **at = &allocations; *at;) {
        if ((*at)->context == context)
            unlink_one(at);
        else
            at = &(*at)->next;
    }
    pthread_mutex_unlock(&lock);
}

/* Hints and attachments: what they promise holds without them. The range must be managed memory. */
static CUresult hint(CUdeviceptr address, size_t size, CUstream stream)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    if (!rg_handle_known(RG_KIND_STREAM, (uint64_t)stream))
        return CUDA_ERROR_INVALID_HANDLE;
    struct rg_range range;
    bool good = rg_map_find(address, &range) && range.kind == RG_RANGE_MANAGED &&
                size <= range.size - (address - range.start);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_range range;
    if (length == 0 && rg_map_find(dptr, &range)) /* the whole allocation */
        length = range.size;
    return hint(dptr, length, hStream);
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
    if (dstDevice != CU_DEVICE_CPU && !rg_device(dstDevice))
        return CUDA_ERROR_INVALID_DEVICE;
    return count ? hint(devPtr, count, hStream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                               CUstream hStream)
{
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    return cuMemPrefetchAsync(
        devPtr, count, location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : CU_DEVICE_CPU, hStream);
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    (void)device;
    return count ? hint(devPtr, count, NULL) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location)
{
    return cuMemAdvise(devPtr, count, advice, location.id);
}
