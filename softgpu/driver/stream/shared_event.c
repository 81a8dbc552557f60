/*
 * shared_event.c - see shared_event.h. What fails: memory, and a recorder that dies, which completes nothing any more.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "softgpu/driver/stream/shared_event.h"

#define LOOK_MIN_NS 2000
#define LOOK_MAX_NS 200000

/* The page of an interprocess event. */
struct sg_event_page {
    _Atomic uint64_t given, done; /* numbers of records */
    _Atomic int32_t recorder;     /* process of the last record */
};

void sg_shared_event_release(struct sg_shared_event *shared)
{
    if (shared == NULL || atomic_fetch_sub(&shared->references, 1) != 1)
        return;
    if (shared->page != NULL)
        munmap(shared->page, sizeof *shared->page);
    if (shared->file >= 0)
        close(shared->file);
    free(shared);
}

struct sg_shared_event *sg_shared_event_new(int file, bool own, const struct sg_shared_file *about)
{
    struct sg_shared_event *shared = calloc(1, sizeof *shared);
    void *page = mmap(NULL, sizeof *shared->page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == NULL || page == MAP_FAILED || !own)
        close(file);
    if (shared == NULL || page == MAP_FAILED) {
        if (page != MAP_FAILED)
            munmap(page, sizeof *shared->page);
        free(shared);
        return NULL;
    }
    atomic_init(&shared->references, 1);
    shared->page = page;
    shared->about = *about;
    shared->file = own ? file : -1;
    return shared;
}

uint64_t sg_shared_event_last(const struct sg_shared_event *shared)
{
    return atomic_load(&shared->page->given);
}

bool sg_shared_event_done(const struct sg_shared_event *shared, uint64_t number)
{
    const struct sg_event_page *page = shared->page;
    if (atomic_load_explicit(&page->done, memory_order_acquire) >= number)
        return true;
    const int32_t recorder =
        atomic_load(&page->recorder); /* a process that died completes nothing any more */
    return recorder > 0 && recorder != (int32_t)getpid() && !sg_shared_process_lives(recorder) &&
           atomic_load(&page->given) == number;
}

struct work {
    struct sg_shared_event *shared;
    uint64_t number;
};

static void run_record(struct sg_task *task)
{
    const struct work *work = (const void *)task->payload;
    uint64_t before = atomic_load(&work->shared->page->done);
    while (before < work->number &&
           !atomic_compare_exchange_weak_explicit(&work->shared->page->done, &before, work->number,
                                                  memory_order_release, memory_order_relaxed))
        ;
}

void sg_shared_event_wait(const struct sg_shared_event *shared, uint64_t number,
                          const struct sg_context *context)
{
    for (long pause = LOOK_MIN_NS; !sg_shared_event_done(shared, number);) {
        if (atomic_load(&context->owner->sticky) != CUDA_SUCCESS)
            return;
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
        pause = pause * 2 < LOOK_MAX_NS ? pause * 2 : LOOK_MAX_NS;
    }
}

static void run_wait(struct sg_task *task)
{
    const struct work *work = (const void *)task->payload;
    sg_shared_event_wait(work->shared, work->number, task->stream->object.context);
}

static void dispose(struct sg_task *task)
{
    sg_shared_event_release(((struct work *)(void *)task->payload)->shared);
}

static struct sg_task *new_task(struct sg_shared_event *shared, uint64_t number,
                                void (*run)(struct sg_task *))
{
    struct sg_task *task = sg_task_new(sizeof(struct work), run, dispose);
    if (task == NULL)
        return NULL;
    atomic_fetch_add(&shared->references, 1);
    *(struct work *)(void *)task->payload = (struct work){shared, number};
    return task;
}

struct sg_task *sg_shared_event_record(struct sg_shared_event *shared)
{
    struct sg_task *task = new_task(shared, 0, run_record);
    if (task == NULL)
        return NULL;
    task->always = true; /* others wait for it whatever becomes of this context */
    atomic_store(&shared->page->recorder, (int32_t)getpid());
    ((struct work *)(void *)task->payload)->number = atomic_fetch_add(&shared->page->given, 1) + 1;
    return task;
}

struct sg_task *sg_shared_event_await(struct sg_shared_event *shared, uint64_t number)
{
    return new_task(shared, number, run_wait);
}
