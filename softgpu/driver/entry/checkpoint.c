/*
 * checkpoint.c - cuCheckpointProcess…: the process is locked, its device memory is put away, comes back, and calls go on.
 *
 * RUNNING -Lock-> LOCKED -Checkpoint-> CHECKPOINTED -Restore-> LOCKED -Unlock-> RUNNING; any other order is
 * CUDA_ERROR_ILLEGAL_STATE. Lock holds up new calls, lets those under way return, and waits for all work that was submitted, host
 * functions too; a Lock that does not succeed in time leaves the process running (CUDA_ERROR_NOT_READY). A Checkpoint or Restore
 * that the system refuses leaves the state as it was, and may be repeated; FAILED is what cannot be mended: contexts are poisoned
 * then, and calls go on to tell so.
 *
 * What cuda.h and NVIDIA's cuda-checkpoint say holds here (memory that processes share is refused, as is another GPU to restore
 * onto; memory of kernels' malloc and page-locked memory stay where they are), except that a process can do this to itself alone:
 * another one is CUDA_ERROR_NOT_SUPPORTED. These calls pass the gate (core/gate.h): they are what opens it. The work is done by a
 * thread of its own, the one that cuCheckpointProcessGetRestoreThreadId names, which starts when it is first needed.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/base/uncancelled.h"
#include "common/sync/scoped_lock.h"
#include "softgpu/driver/core/gate.h"
#include "softgpu/driver/driver.h"
#include "softgpu/driver/memory/vmm.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"

static struct {
    pthread_mutex_t turn; /* of the caller whose operation it is */
    pthread_mutex_t lock; /* all below */
    pthread_cond_t changed;
    CUprocessState state;
    int thread; /* the restore thread's; 0: there is none */
    CUresult (*job)(void);
    CUresult result;
} process = {.turn = PTHREAD_MUTEX_INITIALIZER,
             .lock = PTHREAD_MUTEX_INITIALIZER,
             .changed = PTHREAD_COND_INITIALIZER};

/* --- the restore thread --- */

static void *restore_thread(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&process.lock);
    process.thread = (int)syscall(SYS_gettid);
    pthread_cond_broadcast(&process.changed);
    for (;;) {
        while (process.job == NULL)
            pthread_cond_wait(&process.changed, &process.lock);
        CUresult (*job)(void) = process.job;
        pthread_mutex_unlock(&process.lock);
        const CUresult result = job();
        pthread_mutex_lock(&process.lock);
        process.result = result;
        process.job = NULL;
        pthread_cond_broadcast(&process.changed);
    }
    return NULL;
}

/* Lock held. */
static bool have_thread(void)
{
    static bool started;
    if (!started)
        started = rg_thread_start("softgpu-restore", restore_thread, NULL);
    while (started && process.thread == 0)
        pthread_cond_wait(&process.changed, &process.lock);
    return started;
}

static CUresult do_job(CUresult (*job)(void))
{
    RG_SCOPED_LOCK(&process.lock);
    if (!have_thread())
        return CUDA_ERROR_OUT_OF_MEMORY;
    process.job = job;
    pthread_cond_broadcast(&process.changed);
    while (process.job != NULL)
        pthread_cond_wait(&process.changed, &process.lock);
    return process.result;
}

/* --- the calls --- */

static CUprocessState state(void)
{
    RG_SCOPED_LOCK(&process.lock);
    const CUprocessState now = process.state;
    return now;
}

static void set_state(CUprocessState now)
{
    RG_SCOPED_LOCK(&process.lock);
    process.state = now;
}

/* What every one of these calls begins with: `pid` is this process, and it may. */
static CUresult enter(int pid)
{
    RG_TRY(sg_enter());
    if (pid <= 0 || (pid != (int)getpid() && kill(pid, 0) != 0 && errno == ESRCH))
        return CUDA_ERROR_INVALID_VALUE;
    if (pid != (int)getpid())
        return sg_unsupported("cuCheckpointProcess… of another process");
    return CUDA_SUCCESS;
}

static bool is_zero(const void *memory, size_t size)
{
    const unsigned char *bytes = memory;
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

CUresult cuCheckpointProcessGetState(int pid, CUprocessState *out)
{
    RG_TRY(enter(pid));
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = state();
    return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
    RG_TRY(enter(pid));
    if (tid == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_UNCANCELLED;
    RG_SCOPED_LOCK(&process.lock);
    if (!have_thread())
        return CUDA_ERROR_OUT_OF_MEMORY;
    *tid = process.thread;
    return CUDA_SUCCESS;
}

static CUresult lock_process(unsigned timeout_ms)
{
    const uint64_t deadline = timeout_ms == 0 ? UINT64_MAX : rg_now_ns() + timeout_ms * 1000000ull;
    if (state() != CU_PROCESS_STATE_RUNNING)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (!sg_gate_close(deadline))
        return CUDA_ERROR_NOT_READY;
    if (!sg_wait_for_rest(deadline)) {
        sg_gate_open();
        return CUDA_ERROR_NOT_READY;
    }
    set_state(CU_PROCESS_STATE_LOCKED);
    return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    RG_TRY(enter(pid));
    if (args != NULL && (args->reserved0 != 0 || !is_zero(args->reserved1, sizeof args->reserved1)))
        return CUDA_ERROR_INVALID_VALUE;
    if (sg_gate_inside()) /* from a callback inside a call, for which it would wait */
        return CUDA_ERROR_NOT_PERMITTED;
    RG_UNCANCELLED;
    RG_SCOPED_LOCK(&process.turn);
    const CUresult result = lock_process(args != NULL ? args->timeoutMs : 0);
    return result;
}

static void poison_all(void)
{
    for (int i = 0; i < sg_state.n_devices; i++)
        sg_context_poison(sg_state.devices[i].primary, CUDA_ERROR_UNKNOWN);
}

static CUresult checkpoint(void)
{
    if (state() != CU_PROCESS_STATE_LOCKED)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (sg_allocations_common()) {
        rg_warn("memory that was exported to or imported from other processes cannot be checkpointed");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const CUresult result = sg_ranges_put_away();
    if (result == CUDA_SUCCESS) {
        set_state(CU_PROCESS_STATE_CHECKPOINTED);
    } else if (result == CUDA_ERROR_UNKNOWN) {
        set_state(CU_PROCESS_STATE_FAILED);
        poison_all();
        sg_gate_open();
    }
    return result;
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    RG_TRY(enter(pid));
    if (args != NULL && !is_zero(args->reserved, sizeof args->reserved))
        return CUDA_ERROR_INVALID_VALUE;
    RG_UNCANCELLED;
    RG_SCOPED_LOCK(&process.turn);
    const CUresult result = do_job(checkpoint);
    return result;
}

/* Whether the pairs name every device once, as the one that it is: CUDA_SUCCESS. */
static CUresult check_pairs(const CUcheckpointGpuPair *pairs, unsigned count)
{
    unsigned named = 0;
    bool moves = false;
    if (count == 0)
        return CUDA_SUCCESS;
    if (pairs == NULL || count != (unsigned)sg_state.n_devices)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        int from = -1, to = -1;
        for (int j = 0; j < sg_state.n_devices; j++) {
            const CUuuid *uuid = &sg_state.devices[j].uuid;
            from = memcmp(uuid, &pairs[i].oldUuid, sizeof *uuid) == 0 ? j : from;
            to = memcmp(uuid, &pairs[i].newUuid, sizeof *uuid) == 0 ? j : to;
        }
        if (from < 0 || to < 0 || (named & 1u << from) != 0)
            return CUDA_ERROR_INVALID_VALUE;
        named |= 1u << from;
        moves = moves || from != to;
    }
    return moves ? sg_unsupported("cuCheckpointProcessRestore onto another GPU") : CUDA_SUCCESS;
}

static CUresult restore(void)
{
    if (state() != CU_PROCESS_STATE_CHECKPOINTED)
        return CUDA_ERROR_ILLEGAL_STATE;
    const CUresult result = sg_ranges_bring_back();
    if (result == CUDA_SUCCESS)
        set_state(CU_PROCESS_STATE_LOCKED);
    return result;
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
    RG_TRY(enter(pid));
    if (args != NULL && (!is_zero(args->reserved, sizeof args->reserved) || args->reserved1 != 0))
        return CUDA_ERROR_INVALID_VALUE;
    if (args != NULL)
        RG_TRY(check_pairs(args->gpuPairs, args->gpuPairsCount));
    RG_UNCANCELLED;
    RG_SCOPED_LOCK(&process.turn);
    const CUresult result = do_job(restore);
    return result;
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
    RG_TRY(enter(pid));
    if (args != NULL && !is_zero(args->reserved, sizeof args->reserved))
        return CUDA_ERROR_INVALID_VALUE;
    RG_UNCANCELLED;
    RG_SCOPED_LOCK(&process.turn);
    if (state() != CU_PROCESS_STATE_LOCKED)
        return CUDA_ERROR_ILLEGAL_STATE;
    set_state(CU_PROCESS_STATE_RUNNING);
    sg_gate_open();
    return CUDA_SUCCESS;
}
