/*
 * task.c - tasks and streams as objects; what runs when is executors.c's. A stream lives as long as tasks of
 * it do. Any thread; without memory none is made.
 */
#include <stdlib.h>
#include <string.h>

#include "softgpu/driver/schedule/schedule.h"

struct sg_task *sg_task_new(size_t payload_size, void (*run)(struct sg_task *),
                            void (*dispose)(struct sg_task *))
{
    struct sg_task *task = NULL;
    if (payload_size > SIZE_MAX / 2 || posix_memalign((void **)&task, 16, sizeof *task + payload_size) != 0)
        return NULL;
    memset(task, 0, sizeof *task + payload_size);
    atomic_init(&task->references, 1);
    task->run = run;
    task->dispose = dispose;
    return task;
}

void sg_task_release(struct sg_task *task)
{
    if (task == NULL || atomic_fetch_sub_explicit(&task->references, 1, memory_order_acq_rel) != 1)
        return;
    if (task->dispose != NULL)
        task->dispose(task);
    if (task->stream != NULL)
        sg_release(&task->stream->object);
    free(task);
}

static void finish_stream(struct sg_object *object)
{
    free(object);
}

struct sg_stream *sg_stream_new(struct sg_context *context, unsigned flags, int priority, bool legacy)
{
    static _Atomic unsigned long long next_stream_id = 1;
    struct sg_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return NULL;
    stream->flags = flags;
    stream->priority = priority;
    stream->blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
    stream->synchronization_policy = CU_SYNC_POLICY_AUTO;
    stream->id = atomic_fetch_add(&next_stream_id, 1);
    stream->legacy = legacy;
    sg_handle_add(&stream->object, SG_KIND_STREAM, legacy ? NULL : context, finish_stream);
    if (legacy) { /* its context holds it, not the other way round; its names are NULL and CU_STREAM_LEGACY */
        stream->object.context = context;
        sg_handle_remove(stream, SG_KIND_STREAM);
    }
    return stream;
}
