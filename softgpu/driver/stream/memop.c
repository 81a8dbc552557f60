/*
 * memop.c - stream memory operations: writing a word, and waiting until a word compares.
 *
 * A wait is a task that looks at the word now and then; it occupies one executor thread, sleeps in between,
 * and gives up when the context has failed. Whoever writes the word by an operation here, or wakes its futex
 * (futex(2); NCCL of the software device), ends the sleep at once.
 */
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/cuda/graph/graph.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"

#define LOOK_MIN_NS 2000
#define LOOK_MAX_NS 200000

struct memop {
    uint64_t address, value;
    unsigned compare; /* CUstreamWaitValue_flags without FLUSH */
    bool wide;
};

static uint64_t load(const struct memop *op)
{
    return op->wide ? __atomic_load_n((const uint64_t *)(uintptr_t)op->address, __ATOMIC_ACQUIRE)
                    : __atomic_load_n((const uint32_t *)(uintptr_t)op->address, __ATOMIC_ACQUIRE);
}

static void run_write(struct sg_task *task)
{
    const struct memop *op = (const void *)task->payload;
    if (!sg_range_holds(op->address, op->wide ? 8 : 4))
        sg_context_poison(task->stream->object.context, CUDA_ERROR_ILLEGAL_ADDRESS);
    else if (op->wide)
        __atomic_store_n((uint64_t *)(uintptr_t)op->address, op->value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)(uintptr_t)op->address, (uint32_t)op->value, __ATOMIC_RELEASE);
    (void)syscall(SYS_futex, (void *)(uintptr_t)op->address, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static bool satisfied(const struct memop *op, uint64_t now)
{
    switch (op->compare) {
    case CU_STREAM_WAIT_VALUE_GEQ: /* cyclic: the difference is not negative */
        return op->wide ? (int64_t)(now - op->value) >= 0
                        : (int32_t)((uint32_t)now - (uint32_t)op->value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == op->value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & op->value) != 0;
    default:
        return (~(now | op->value) & (op->wide ? UINT64_MAX : UINT32_MAX)) != 0;
    }
}

static void run_wait(struct sg_task *task)
{
    const struct memop *op = (const void *)task->payload;
    const struct sg_context *context = task->stream->object.context;
    for (long pause = LOOK_MIN_NS; atomic_load(&context->owner->sticky) == CUDA_SUCCESS;) {
        if (!sg_range_holds(op->address, op->wide ? 8 : 4)) {
            sg_context_poison(task->stream->object.context, CUDA_ERROR_ILLEGAL_ADDRESS);
            return;
        }
        const uint64_t now = load(op);
        if (satisfied(op, now))
            return;
        (void)syscall(SYS_futex, (void *)(uintptr_t)op->address, FUTEX_WAIT_PRIVATE, (uint32_t)now,
                      &(struct timespec){.tv_nsec = pause}, NULL, 0);
        pause = pause * 2 < LOOK_MAX_NS ? pause * 2 : LOOK_MAX_NS;
    }
}

static CUresult check(const struct memop *op)
{
    uint64_t size = op->wide ? 8 : 4;
    return op->address % size == 0 && sg_range_holds(op->address, size) ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_INVALID_VALUE;
}

static CUresult submit(struct sg_stream *stream, const struct memop *op, void (*run)(struct sg_task *))
{
    struct sg_task *task = sg_task_new(sizeof *op, run, NULL);
    if (task != NULL)
        *(struct memop *)(void *)task->payload = *op;
    return sg_stream_submit(stream, task);
}

static CUresult write_value(CUstream handle, CUdeviceptr address, uint64_t value, bool wide, unsigned flags)
{
    SG_STREAM_OR_RETURN(stream, handle);
    if (rg_capture_takes(handle))
        return rg_capture_memop(wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32,
                                address, value, flags, handle);
    if ((flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct memop op = {.address = address, .value = value, .wide = wide};
    RG_TRY(check(&op));
    return submit(stream, &op, run_write);
}

static CUresult wait_value(CUstream handle, CUdeviceptr address, uint64_t value, bool wide, unsigned flags)
{
    SG_STREAM_OR_RETURN(stream, handle);
    if (rg_capture_takes(handle))
        return rg_capture_memop(wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32,
                                address, value, flags, handle);
    unsigned compare = flags & ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH;
    if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0)
        return CUDA_ERROR_NOT_SUPPORTED; /* CAN_FLUSH_REMOTE_WRITES is 0 */
    if (compare > CU_STREAM_WAIT_VALUE_NOR)
        return CUDA_ERROR_INVALID_VALUE;
    struct memop op = {.address = address, .value = value, .compare = compare, .wide = wide};
    RG_TRY(check(&op));
    return submit(stream, &op, run_wait);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
    return write_value(stream, address, value, false, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)
{
    return write_value(stream, address, value, true, flags);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
    return wait_value(stream, address, value, false, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)
{
    return wait_value(stream, address, value, true, flags);
}

#define BATCH_MAX 256

/* Queues one operation of a batch. */
static CUresult operate(CUstream stream, const CUstreamBatchMemOpParams *op)
{
    switch (op->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        return wait_value(stream, op->waitValue.address, op->waitValue.value, false, op->waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return wait_value(stream, op->waitValue.address, op->waitValue.value64, true, op->waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return write_value(stream, op->writeValue.address, op->writeValue.value, false, op->writeValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return write_value(stream, op->writeValue.address, op->writeValue.value64, true,
                           op->writeValue.flags);
    case CU_STREAM_MEM_OP_BARRIER: /* tasks of a stream see each other's writes anyway */
        return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations,
                               unsigned int flags)
{
    RG_TRY(sg_enter());
    if (operations == NULL || count > BATCH_MAX || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_capture_takes(stream))
        return rg_capture_memops(operations, count, flags, stream);
    for (unsigned i = 0; i < count; i++)
        RG_TRY(operate(stream, &operations[i]));
    return CUDA_SUCCESS;
}
