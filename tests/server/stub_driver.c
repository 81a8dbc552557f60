/* stub_driver.c - see stub_driver.h. */
#include "tests/server/stub_driver.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

CUresult stub_succeed(void)
{
    return CUDA_SUCCESS;
}

CUresult stub_fail(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* The address of the next object: of nothing, so that nobody uses what is there unnoticed. */
static void *next_object(void)
{
    static atomic_uintptr_t last = 0x1000;
    return (void *)(atomic_fetch_add(&last, 64) + 64);
}

static CUresult retain(CUcontext *context, CUdevice device)
{
    *context = (CUcontext)(void *)(uintptr_t)(0x100 + 64 * (uintptr_t)(device & 7));
    return CUDA_SUCCESS;
}

static CUresult create_context(CUcontext *context, unsigned flags, CUdevice device)
{
    (void)flags, (void)device;
    *context = next_object();
    return CUDA_SUCCESS;
}

static CUresult create_stream(CUstream *stream, unsigned flags)
{
    (void)flags;
    *stream = next_object();
    return CUDA_SUCCESS;
}

static CUresult create_event(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = next_object();
    return CUDA_SUCCESS;
}

static CUresult current_device(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

static CUresult allocate(void **memory, size_t size, unsigned flags)
{
    (void)flags;
    return posix_memalign(memory, 4096, size) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult release(void *memory)
{
    free(memory);
    return CUDA_SUCCESS;
}

static CUresult mapped(CUdeviceptr *address, void *memory, unsigned flags)
{
    (void)flags;
    *address = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

static CUresult address_range(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    *base = address;
    *size = 1u << 30;
    return CUDA_SUCCESS;
}

/* As address_range says. */
static CUresult pointer_attributes(unsigned n, CUpointer_attribute *attributes, void **values,
                                   CUdeviceptr address)
{
    for (unsigned i = 0; i < n; i++)
        if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            *(unsigned *)values[i] = CU_MEMORYTYPE_DEVICE;
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
            *(CUdeviceptr *)values[i] = address;
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
            *(size_t *)values[i] = 1u << 30;
    return CUDA_SUCCESS;
}

atomic_bool stub_busy;

static CUresult stream_query(CUstream stream)
{
    (void)stream;
    return atomic_load(&stub_busy) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
    (void)event;
    return stream_query(NULL);
}

static CUresult function_parameter(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    (void)function, (void)index, (void)offset, (void)size;
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult kernel_parameter(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
    (void)kernel;
    return function_parameter(NULL, index, offset, size);
}

static CUresult function_name(const char **name, CUfunction function)
{
    (void)function;
    *name = "name";
    return CUDA_SUCCESS;
}

static CUresult function_count(unsigned *count, CUmodule module)
{
    (void)module;
    *count = 3;
    return CUDA_SUCCESS;
}

void stub_driver_use(CUresult (*all)(void))
{
    for (size_t i = 0; i < sizeof rg_driver / sizeof(void *); i++)
        memcpy((char *)&rg_driver + i * sizeof(void *), &all, sizeof all);
    rg_driver.cuDevicePrimaryCtxRetain = retain;
    rg_driver.cuCtxCreate_v2 = create_context;
    rg_driver.cuStreamCreate = create_stream;
    rg_driver.cuEventCreate = create_event;
    rg_driver.cuStreamQuery = stream_query;
    rg_driver.cuEventQuery = event_query;
    rg_driver.cuCtxGetDevice = current_device;
    rg_driver.cuMemHostAlloc = allocate;
    rg_driver.cuMemFreeHost = release;
    rg_driver.cuMemHostGetDevicePointer_v2 = mapped;
    rg_driver.cuMemGetAddressRange_v2 = address_range;
    rg_driver.cuPointerGetAttributes = pointer_attributes;
    rg_driver.cuFuncGetName = function_name;
    rg_driver.cuModuleGetFunctionCount = function_count;
    rg_driver.cuFuncGetParamInfo = function_parameter;
    rg_driver.cuKernelGetParamInfo = kernel_parameter;
}

/* --- functions that are held up -------------------------------------------------------------------------- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static bool gate_closed;   /* the gate's lock, as all of these */
static unsigned n_at_gate; /* that are held up */

void stub_pass(void)
{
    pthread_mutex_lock(&gate);
    n_at_gate++;
    pthread_cond_broadcast(&gate_changed);
    while (gate_closed)
        pthread_cond_wait(&gate_changed, &gate);
    n_at_gate--;
    pthread_mutex_unlock(&gate);
}

void stub_hold(bool held)
{
    pthread_mutex_lock(&gate);
    gate_closed = held;
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&gate);
}

void stub_wait_held(unsigned n)
{
    pthread_mutex_lock(&gate);
    while (n_at_gate < n)
        pthread_cond_wait(&gate_changed, &gate);
    pthread_mutex_unlock(&gate);
}

/* --- host functions ------------------------------------------------------------------------------------- */

struct call {
    struct call *next;
    CUstream stream;
    CUhostFn function;
    CUstreamCallback callback;
    void *user;
    _Atomic uint32_t *word; /* that it waits for, or writes */
    uint32_t value;
    bool writes;
};

atomic_bool stub_failed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct call *calls, **last_call = &calls; /* that have not returned, in their order; the lock */

/* The call that a stream has come to; NULL: it has none left. The lock is held. */
static struct call *first_of(CUstream stream)
{
    struct call *at = calls;
    while (at && at->stream != stream)
        at = at->next;
    return at;
}

/* Who changes a word wakes those who wait for it, as workers do; that the device has failed is noticed a moment later. */
static void use_word(const struct call *call)
{
    static const struct timespec moment = {.tv_nsec = 1000000};
    if (call->writes) {
        atomic_store(call->word, call->value);
        (void)syscall(SYS_futex, call->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
        return;
    }
    for (uint32_t now;
         (int32_t)((now = atomic_load(call->word)) - call->value) < 0 && !atomic_load(&stub_failed);)
        (void)syscall(SYS_futex, call->word, FUTEX_WAIT_PRIVATE, now, &moment, NULL, 0);
}

static void run(const struct call *call)
{
    if (call->word)
        use_word(call);
    else if (call->callback)
        call->callback(call->stream, CUDA_SUCCESS, call->user);
    else if (!atomic_load(&stub_failed))
        call->function(call->user);
}

/* The lock is held. */
static void remove_call(const struct call *call)
{
    struct call **link = &calls;
    while (*link != call)
        link = &(*link)->next;
    *link = call->next;
    if (!call->next)
        last_call = link;
    if (!calls)
        pthread_cond_broadcast(&changed);
}

/* There is one thread for each stream that has calls, as long as it has some. */
static void *run_stream(void *stream)
{
    pthread_mutex_lock(&lock);
    for (struct call *call; (call = first_of(stream));) {
        pthread_mutex_unlock(&lock);
        run(call);
        pthread_mutex_lock(&lock);
        remove_call(call);
        free(call);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* The lock is held. */
static bool start_stream(CUstream stream)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, run_stream, stream) == 0 && pthread_detach(thread) == 0;
}

static CUresult submit(const struct call *given)
{
    struct call *call = malloc(sizeof *call);
    if (!call)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *call = *given;
    pthread_mutex_lock(&lock);
    const bool started = first_of(call->stream) || start_stream(call->stream);
    if (started) {
        *last_call = call;
        last_call = &call->next;
    }
    pthread_mutex_unlock(&lock);
    if (!started)
        free(call);
    return started ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult launch_host(CUstream stream, CUhostFn function, void *user)
{
    return submit(&(struct call){.stream = stream, .function = function, .user = user});
}

static CUresult add_callback(CUstream stream, CUstreamCallback callback, void *user, unsigned flags)
{
    (void)flags;
    return submit(&(struct call){.stream = stream, .callback = callback, .user = user});
}

/* --- words that streams wait for: in memory that was registered; others are the client's, and lead nowhere --- */

enum { REGISTERED_MAX = 64 };
static struct {
    uintptr_t start, end;
} registered[REGISTERED_MAX]; /* the lock */

static CUresult register_memory(void *memory, size_t size, unsigned flags)
{
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    (void)flags;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < REGISTERED_MAX && result != CUDA_SUCCESS; i++) {
        if (registered[i].end)
            continue;
        registered[i].start = (uintptr_t)memory;
        registered[i].end = (uintptr_t)memory + size;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult unregister_memory(void *memory)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < REGISTERED_MAX; i++)
        if (registered[i].start == (uintptr_t)memory)
            registered[i].start = registered[i].end = 0;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult submit_word(CUstream stream, CUdeviceptr address, uint32_t value, bool writes)
{
    bool known = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < REGISTERED_MAX; i++)
        known |= address >= registered[i].start && address < registered[i].end;
    pthread_mutex_unlock(&lock);
    return known
               ? submit(&(struct call){
                     .stream = stream, .word = (void *)(uintptr_t)address, .value = value, .writes = writes})
               : CUDA_SUCCESS;
}

static CUresult wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)flags;
    return submit_word(stream, address, value, false);
}

static CUresult write_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)flags;
    return submit_word(stream, address, value, true);
}

void stub_driver_call_host(void)
{
    memset(registered, 0, sizeof registered); /* by workers that have ended */
    rg_driver.cuMemHostRegister_v2 = register_memory;
    rg_driver.cuMemHostUnregister = unregister_memory;
    rg_driver.cuStreamWaitValue32_v2 = wait_value;
    rg_driver.cuStreamWriteValue32_v2 = write_value;
    rg_driver.cuLaunchHostFunc = launch_host;
    rg_driver.cuStreamAddCallback = add_callback;
}

void stub_driver_wait(void)
{
    pthread_mutex_lock(&lock);
    while (calls)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}
