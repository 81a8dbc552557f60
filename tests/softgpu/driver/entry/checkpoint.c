/*
 * cuCheckpointProcess…: the states and what each call answers in them, memory of all kinds that comes back as it was, at its
 * address, calls that are held up meanwhile, work that is waited for, and what is refused.
 */
#include "softgpu/driver/range/range.h"
#include "tests/softgpu/driver/support.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHUNK (2u << 20)
#define WORDS 3000u

static int me(void)
{
    return (int)getpid();
}

static CUprocessState state(void)
{
    CUprocessState now = CU_PROCESS_STATE_FAILED;
    OK(cuCheckpointProcessGetState(me(), &now));
    return now;
}

static void suspend(void)
{
    OK(cuCheckpointProcessLock(me(), NULL));
    OK(cuCheckpointProcessCheckpoint(me(), NULL));
    cr_assert_eq(state(), CU_PROCESS_STATE_CHECKPOINTED);
}

static void resume(void)
{
    OK(cuCheckpointProcessRestore(me(), NULL));
    OK(cuCheckpointProcessUnlock(me(), NULL));
    cr_assert_eq(state(), CU_PROCESS_STATE_RUNNING);
}

static void pause_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Whether anything can be read at an address: the kernel says EFAULT where not. */
static bool is_readable(CUdeviceptr address)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    const bool readable = write(ends[1], (const void *)(uintptr_t)address, 1) == 1;
    cr_assert(readable || errno == EFAULT);
    close(ends[0]);
    close(ends[1]);
    return readable;
}

Test(checkpoint, before_init)
{
    CUprocessState now;
    int tid;
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuCheckpointProcessGetState(me(), &now));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuCheckpointProcessGetRestoreThreadId(me(), &tid));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuCheckpointProcessLock(me(), NULL));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuCheckpointProcessCheckpoint(me(), NULL));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuCheckpointProcessRestore(me(), NULL));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuCheckpointProcessUnlock(me(), NULL));
}

/* Each call in each state that it does not belong to, which stays. */
Test(checkpoint, states)
{
    start_device();
    cr_assert_eq(state(), CU_PROCESS_STATE_RUNNING);
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessCheckpoint(me(), NULL));
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessRestore(me(), NULL));
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessUnlock(me(), NULL));
    cr_assert_eq(state(), CU_PROCESS_STATE_RUNNING);

    OK(cuCheckpointProcessLock(me(), NULL));
    cr_assert_eq(state(), CU_PROCESS_STATE_LOCKED);
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessLock(me(), NULL));
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessRestore(me(), NULL));
    cr_assert_eq(state(), CU_PROCESS_STATE_LOCKED);
    OK(cuCheckpointProcessUnlock(me(), NULL));
    cr_assert_eq(state(), CU_PROCESS_STATE_RUNNING);

    suspend();
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessLock(me(), NULL));
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessCheckpoint(me(), NULL));
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessUnlock(me(), NULL));
    cr_assert_eq(state(), CU_PROCESS_STATE_CHECKPOINTED);
    OK(cuCheckpointProcessRestore(me(), NULL));
    cr_assert_eq(state(), CU_PROCESS_STATE_LOCKED);
    OK(cuCheckpointProcessUnlock(me(), NULL));
}

Test(checkpoint, parameters)
{
    CUprocessState now;
    CUcheckpointLockArgs lock = {.reserved0 = 1};
    CUcheckpointCheckpointArgs checkpoint = {.reserved = {[7] = 1}};
    CUcheckpointRestoreArgs restore = {.reserved1 = 1};
    CUcheckpointUnlockArgs unlock = {.reserved = {1}};
    start_device();
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessGetState(me(), NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessGetRestoreThreadId(me(), NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessGetState(0, &now));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessGetState(-1, &now));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessGetState((int)getppid(), &now));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessLock((int)getppid(), NULL));
    const pid_t gone = fork();
    if (gone == 0)
        _exit(0);
    cr_assert_eq(waitpid(gone, NULL, 0), gone);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessGetState((int)gone, &now));

    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessLock(me(), &lock));
    lock = (CUcheckpointLockArgs){.reserved1 = {[6] = 1}};
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessLock(me(), &lock));
    OK(cuCheckpointProcessLock(me(), NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessCheckpoint(me(), &checkpoint));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessUnlock(me(), &unlock));
    OK(cuCheckpointProcessCheckpoint(me(), NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessRestore(me(), &restore));
    cr_assert_eq(state(), CU_PROCESS_STATE_CHECKPOINTED);
    resume();
}

Test(checkpoint, gpu_pairs)
{
    CUcheckpointGpuPair pairs[2];
    CUcheckpointRestoreArgs args = {.gpuPairs = pairs, .gpuPairsCount = 2};
    setenv("SOFTGPU_DEVICES", "2", 1);
    start_device();
    for (int i = 0; i < 2; i++) {
        OK(cuDeviceGetUuid_v2(&pairs[i].oldUuid, i));
        pairs[i].newUuid = pairs[i].oldUuid;
    }
    suspend();
    args.gpuPairsCount = 1; /* every GPU must be named */
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessRestore(me(), &args));
    args.gpuPairsCount = 2;
    args.gpuPairs = NULL;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessRestore(me(), &args));
    args.gpuPairs = pairs;
    pairs[1].oldUuid = pairs[0].oldUuid; /* twice */
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessRestore(me(), &args));
    pairs[1].oldUuid = pairs[1].newUuid;
    pairs[1].newUuid = pairs[0].newUuid; /* onto another GPU */
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessRestore(me(), &args));
    pairs[1].newUuid.bytes[0] ^= 1; /* that is not there */
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessRestore(me(), &args));
    pairs[1].newUuid = pairs[1].oldUuid;
    OK(cuCheckpointProcessRestore(me(), &args));
    OK(cuCheckpointProcessUnlock(me(), NULL));
}

/* One thread of this process, the same each time. */
Test(checkpoint, restore_thread)
{
    int tid = 0, again = 0;
    char path[64];
    start_device();
    OK(cuCheckpointProcessGetRestoreThreadId(me(), &tid));
    snprintf(path, sizeof path, "/proc/self/task/%d", tid);
    cr_assert_eq(access(path, F_OK), 0);
    cr_assert_neq(tid, me());
    suspend();
    OK(cuCheckpointProcessGetRestoreThreadId(me(), &again));
    cr_assert_eq(tid, again);
    resume();
}

static void fill(CUdeviceptr at, uint32_t seed)
{
    uint32_t words[WORDS];
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = seed + i * 2654435761u;
    OK(cuMemcpyHtoD_v2(at, words, sizeof words));
}

static void check(CUdeviceptr at, uint32_t seed)
{
    uint32_t words[WORDS];
    OK(cuMemcpyDtoH_v2(words, at, sizeof words));
    for (uint32_t i = 0; i < WORDS; i++)
        cr_assert_eq(words[i], seed + i * 2654435761u, "word %u of %u", i, seed);
}

static CUdeviceptr map(CUmemGenericAllocationHandle *handle)
{
    const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                           .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc writable = {.location = on_device.location,
                                      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;
    OK(cuMemCreate(handle, CHUNK, &on_device, 0));
    OK(cuMemAddressReserve(&at, 2 * CHUNK, 0, 0, 0));
    OK(cuMemMap(at, CHUNK, 0, *handle, 0));
    OK(cuMemMap(at + CHUNK, CHUNK, 0, *handle, 0)); /* twice: an alias, left without access */
    OK(cuMemSetAccess(at, CHUNK, &writable, 1));
    return at;
}

/* Memory of every kind is gone meanwhile, counts as free, and is there again with its contents, twice over. */
Test(checkpoint, memory_comes_back)
{
    enum { SMALL, LARGE, NEIGHBOUR, MANAGED, STREAM_ORDERED, MAPPED, KINDS };
    CUdeviceptr at[KINDS];
    CUmemGenericAllocationHandle handle;
    size_t before, after, total;
    void *locked;
    start_device();
    OK(cuMemAlloc_v2(&at[SMALL], sizeof(uint32_t) * WORDS));
    OK(cuMemAlloc_v2(&at[LARGE], 5 * CHUNK));
    OK(cuMemAlloc_v2(&at[NEIGHBOUR], sizeof(uint32_t) * WORDS));
    OK(cuMemAllocManaged(&at[MANAGED], sizeof(uint32_t) * WORDS, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocAsync(&at[STREAM_ORDERED], sizeof(uint32_t) * WORDS, NULL));
    at[MAPPED] = map(&handle);
    OK(cuMemHostAlloc(&locked, 4096, 0));
    memset(locked, 7, 4096);
    for (uint32_t i = 0; i < KINDS; i++)
        fill(at[i], i);
    OK(cuMemGetInfo_v2(&before, &total));
    for (int round = 0; round < 2; round++) {
        suspend();
        for (int i = 0; i < KINDS; i++)
            cr_assert_not(is_readable(at[i]), "memory of kind %d is still there", i);
        cr_assert(is_readable((uintptr_t)locked));
        cr_assert_eq(sg_memory_used(sg_device(0)), 0);
        resume();
        for (uint32_t i = 0; i < KINDS; i++)
            check(at[i], i);
        cr_assert_not(is_readable(at[MAPPED] + CHUNK), "a mapping without access has some now");
        OK(cuMemGetInfo_v2(&after, &total));
        cr_assert_eq(before, after);
    }
    for (int i = 0; i < MAPPED; i++)
        OK(cuMemFree_v2(at[i]));
    OK(cuMemUnmap(at[MAPPED], 2 * CHUNK));
    OK(cuMemRelease(handle));
    OK(cuMemGetInfo_v2(&after, &total));
    cr_assert_gt(after, before);
}

/* Kernels, modules, streams and events go on as if nothing had been. */
Test(checkpoint, objects_stay)
{
    CUstream stream;
    CUevent event;
    CUdeviceptr at;
    uint32_t n = WORDS, value = 3, words[WORDS];
    start_device();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuMemAlloc_v2(&at, sizeof words));
    OK(cuMemsetD32Async(at, 1, WORDS, stream));
    CUfunction add = get_function("add");
    for (int round = 0; round < 3; round++) {
        suspend();
        resume();
        OK(cuLaunchKernel(add, (WORDS + 255) / 256, 1, 1, 256, 1, 1, 0, stream, (void *[]){&at, &n, &value},
                          NULL));
        OK(cuEventRecord(event, stream));
    }
    OK(cuEventSynchronize(event));
    OK(cuMemcpyDtoH_v2(words, at, sizeof words));
    for (uint32_t i = 0; i < WORDS; i++)
        cr_assert_eq(words[i], 10, "word %u is %u", i, words[i]);
    OK(cuStreamDestroy_v2(stream));
}

/* --- calls meanwhile --- */

static atomic_int returned;

static void *allocate(void *unused)
{
    CUdeviceptr at = 0;
    OK(cuCtxSetCurrent(unused));
    OK(cuMemAlloc_v2(&at, 4096));
    atomic_fetch_add(&returned, 1);
    return NULL;
}

Test(checkpoint, calls_wait)
{
    pthread_t thread;
    int version;
    const char *name;
    CUcontext context = start_device();
    suspend();
    pthread_create(&thread, NULL, allocate, context);
    OK(cuDriverGetVersion(&version)); /* changes nothing */
    OK(cuGetErrorName(CUDA_ERROR_UNKNOWN, &name));
    pause_ms(50);
    cr_assert_eq(atomic_load(&returned), 0);
    OK(cuCheckpointProcessRestore(me(), NULL));
    pause_ms(20);
    cr_assert_eq(atomic_load(&returned), 0, "restored is not unlocked");
    OK(cuCheckpointProcessUnlock(me(), NULL));
    pthread_join(thread, NULL);
    cr_assert_eq(atomic_load(&returned), 1);
}

static void *release_later(void *flag)
{
    pause_ms(50);
    release_stream(flag);
    return NULL;
}

/* Lock waits for what runs; in time it says that it has not come to rest, and all goes on. */
Test(checkpoint, lock_waits_for_work)
{
    CUstream stream;
    pthread_t thread;
    CUcheckpointLockArgs args = {.timeoutMs = 30};
    CUdeviceptr at;
    start_device();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    volatile uint32_t *flag = hold_stream(stream);
    EXPECT(CUDA_ERROR_NOT_READY, cuCheckpointProcessLock(me(), &args));
    cr_assert_eq(state(), CU_PROCESS_STATE_RUNNING);
    OK(cuMemAlloc_v2(&at, 4096)); /* calls go on */
    pthread_create(&thread, NULL, release_later, (void *)(uintptr_t)flag);
    OK(cuCheckpointProcessLock(me(), NULL)); /* no time-out */
    cr_assert_eq(*flag, 1);
    OK(cuCheckpointProcessUnlock(me(), NULL));
    EXPECT(CUDA_SUCCESS, cuStreamQuery(stream));
    pthread_join(thread, NULL);
}

static void *synchronize(void *context)
{
    OK(cuCtxSetCurrent(context));
    atomic_fetch_add(&returned, 1);
    OK(cuCtxSynchronize());
    atomic_fetch_add(&returned, 1);
    return NULL;
}

/* A thread that waits in a call is waited for as well. */
Test(checkpoint, lock_waits_for_calls)
{
    CUstream stream;
    pthread_t thread;
    CUcheckpointLockArgs args = {.timeoutMs = 30};
    CUcontext context = start_device();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    volatile uint32_t *flag = hold_stream(stream);
    pthread_create(&thread, NULL, synchronize, context);
    while (atomic_load(&returned) == 0)
        pause_ms(1);
    pause_ms(10);
    EXPECT(CUDA_ERROR_NOT_READY, cuCheckpointProcessLock(me(), &args));
    release_stream(flag);
    OK(cuCheckpointProcessLock(me(), NULL));
    OK(cuCheckpointProcessUnlock(me(), NULL));
    pthread_join(thread, NULL);
    cr_assert_eq(atomic_load(&returned), 2);
}

static CUresult in_host_function[2];

static void CUDA_CB try_to_lock(void *unused)
{
    (void)unused;
    in_host_function[0] = cuCheckpointProcessLock(me(), NULL);
    pause_ms(50); /* the lock below is waiting meanwhile: a call is refused, not held up */
    CUdeviceptr at;
    in_host_function[1] = cuMemAlloc_v2(&at, 4096);
}

Test(checkpoint, host_functions)
{
    CUstream stream;
    start_device();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchHostFunc(stream, try_to_lock, NULL));
    OK(cuCheckpointProcessLock(me(), NULL));
    EXPECT(CUDA_ERROR_NOT_PERMITTED, in_host_function[0]);
    EXPECT(CUDA_ERROR_NOT_PERMITTED, in_host_function[1]);
    OK(cuCheckpointProcessUnlock(me(), NULL));
}

/* --- what is refused --- */

Test(checkpoint, memory_of_several_processes)
{
    CUdeviceptr at;
    CUipcMemHandle handle;
    start_device();
    OK(cuMemAlloc_v2(&at, 4096));
    OK(cuIpcGetMemHandle(&handle, at));
    OK(cuCheckpointProcessLock(me(), NULL));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessCheckpoint(me(), NULL));
    cr_assert_eq(state(), CU_PROCESS_STATE_LOCKED);
    OK(cuCheckpointProcessUnlock(me(), NULL));
    OK(cuMemFree_v2(at)); /* and then there is none */
    suspend();
    resume();
}

Test(checkpoint, exported_physical_memory)
{
    const CUmemAllocationProp to_share = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    int file;
    start_device();
    OK(cuMemCreate(&handle, CHUNK, &to_share, 0));
    suspend(); /* nobody has it yet */
    resume();
    OK(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuCheckpointProcessLock(me(), NULL));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessCheckpoint(me(), NULL));
    OK(cuCheckpointProcessUnlock(me(), NULL));
    OK(cuMemRelease(handle));
    suspend();
    resume();
    close(file);
}

/* The system has no more address space for it: all is as before, and it can be done once there is. */
Test(checkpoint, no_room)
{
    struct rlimit old, none;
    CUdeviceptr at[2];
    start_device();
    for (uint32_t i = 0; i < 2; i++) {
        OK(cuMemAlloc_v2(&at[i], 3 * CHUNK));
        fill(at[i], i);
    }
    OK(cuCheckpointProcessLock(me(), NULL));
    int tid; /* the thread needs room of its own */
    OK(cuCheckpointProcessGetRestoreThreadId(me(), &tid));
    getrlimit(RLIMIT_AS, &old);
    none = (struct rlimit){.rlim_cur = 4096, .rlim_max = old.rlim_max};
    setrlimit(RLIMIT_AS, &none);
    const CUresult refused = cuCheckpointProcessCheckpoint(me(), NULL);
    setrlimit(RLIMIT_AS, &old);
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, refused);
    cr_assert_eq(state(), CU_PROCESS_STATE_LOCKED);
    OK(cuCheckpointProcessCheckpoint(me(), NULL));
    resume();
    for (uint32_t i = 0; i < 2; i++)
        check(at[i], i);
}
