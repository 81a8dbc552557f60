/*
 * improve.c - see improve.h.
 *
 * The thread has an LLVM context for each module, so it needs no lock of a program but to deliver. It lives as long as the process,
 * and LLVM cannot be interrupted: when the process exits, it stops at the next place where one pass has ended and another would
 * begin, so that it does not use what exit handlers destroy. That is waited for briefly; a pass over a large module can take longer.
 */
#include "softgpu/compiler/jit/improve.h"
#include "softgpu/compiler/jit/emit.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"

#include <errno.h>
#include <llvm-c/BitReader.h>
#include <llvm-c/BitWriter.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STOP_PATIENCE_NS 200000000ull

struct job {
    struct job *next;
    struct sg_improvement asked; /* its strings are the job's own */
    LLVMMemoryBufferRef module;
    char *symbol, *name;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct job *first, **end;
    struct job *running; /* its owner is NULL if that has forgotten it */
    bool delivering;     /* the running one's owner is being called */
    bool started, stopped;
    pid_t process; /* that has the thread: a fork's child has none */
} improver = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .end = &improver.first};

static atomic_bool ending; /* the process exits */

struct rg_digest sg_part_key(const struct rg_digest *kernel, enum sg_part part)
{
    const uint8_t number = (uint8_t)part;
    return rg_digest_of((const struct rg_digest_part[]){{kernel, sizeof(*kernel)}, {&number, 1}}, 2);
}

static void free_job(struct job *job)
{
    if (job->module != NULL)
        LLVMDisposeMemoryBuffer(job->module);
    free(job->symbol);
    free(job->name);
    free(job);
}

/* Does not return when the process exits. Called where nothing of LLVM's or the allocator's is locked. */
static void stop_if_ending(void)
{
    if (!atomic_load(&ending))
        return;
    pthread_mutex_lock(&improver.lock);
    improver.stopped = true;
    pthread_cond_broadcast(&improver.changed);
    pthread_mutex_unlock(&improver.lock);
    for (;;)
        pause();
}

static void between_passes(LLVMContextRef context, void *unused)
{
    (void)context;
    (void)unused;
    stop_if_ending();
}

static void at_exit(void)
{
    struct timespec until;
    if (getpid() != improver.process)
        return;
    atomic_store(&ending, true);
    clock_gettime(CLOCK_MONOTONIC, &until);
    const uint64_t end = (uint64_t)until.tv_nsec + STOP_PATIENCE_NS;
    until.tv_sec += (time_t)(end / 1000000000u);
    until.tv_nsec = (long)(end % 1000000000u);
    pthread_mutex_lock(&improver.lock);
    while (improver.running != NULL && !improver.stopped &&
           pthread_cond_clockwait(&improver.changed, &improver.lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT)
        ;
    pthread_mutex_unlock(&improver.lock);
}

static void keep(const struct sg_improvement *asked, enum sg_part part, LLVMMemoryBufferRef data)
{
    const struct rg_digest key = sg_part_key(&asked->key, part);
    if (asked->cache != NULL)
        sg_cache_write(asked->cache, &key, LLVMGetBufferStart(data), LLVMGetBufferSize(data));
}

static void drop(const struct sg_improvement *asked, enum sg_part part)
{
    const struct rg_digest key = sg_part_key(&asked->key, part);
    if (asked->cache != NULL)
        sg_cache_drop(asked->cache, &key);
}

/* Optimises the module, if that has not been done, and keeps it so. */
static bool optimise(const struct sg_emitter *emitter, const struct sg_improvement *asked,
                     LLVMModuleRef module, enum sg_effort *effort, struct sg_text *log)
{
    if (asked->optimised)
        return true;
    if (!sg_emitter_optimise(emitter, module, asked->symbol, effort, asked->guarded, log))
        return false;
    if (asked->cache != NULL) {
        LLVMMemoryBufferRef optimised = LLVMWriteBitcodeToMemoryBuffer(module);
        keep(asked, SG_PART_OPTIMISED, optimised);
        drop(asked, SG_PART_GENERATED);
        LLVMDisposeMemoryBuffer(optimised);
    }
    return true;
}

/* The better object; NULL with a message in `log`. */
static LLVMMemoryBufferRef make(const struct sg_improvement *asked, LLVMMemoryBufferRef bitcode,
                                struct sg_text *log)
{
    LLVMContextRef context = LLVMContextCreate();
    LLVMMemoryBufferRef object = NULL;
    LLVMModuleRef module = NULL;
    enum sg_effort effort = SG_EFFORT_FULL;
    struct sg_emitter *emitter = sg_emitter_create(log);
    LLVMContextSetYieldCallback(context, between_passes, NULL);
    if (emitter != NULL && !LLVMParseBitcodeInContext2(context, bitcode, &module) &&
        optimise(emitter, asked, module, &effort, log)) {
        stop_if_ending();
        object = sg_emitter_emit(emitter, module, asked->symbol, effort, log);
    }
    if (module != NULL)
        LLVMDisposeModule(module);
    sg_emitter_destroy(emitter);
    LLVMContextDispose(context);
    return object;
}

static void run(struct job *job)
{
    const struct sg_improvement *asked = &job->asked;
    struct sg_text log = {0};
    const uint64_t started = rg_now_ns();
    LLVMMemoryBufferRef object = make(asked, job->module, &log);
    stop_if_ending();
    if (object != NULL) {
        keep(asked, SG_PART_CODE, object);
        drop(asked, SG_PART_QUICK);
        drop(asked, SG_PART_OPTIMISED);
        rg_debug("kernel %s: better code in %.1f ms", asked->name, (double)(rg_now_ns() - started) / 1e6);
    } else {
        rg_debug("kernel %s: no better code: %s", asked->name, log.data != NULL ? log.data : "");
    }
    sg_text_fini(&log);
    pthread_mutex_lock(&improver.lock);
    void *owner = job->asked.owner;
    improver.delivering = owner != NULL && object != NULL;
    pthread_mutex_unlock(&improver.lock);
    if (improver.delivering)
        asked->deliver(owner, asked->index, object);
    else if (object != NULL)
        LLVMDisposeMemoryBuffer(object);
}

static void *improve_all(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&improver.lock);
    for (;;) {
        struct job *job = improver.first;
        if (job == NULL) {
            pthread_cond_wait(&improver.changed, &improver.lock);
            continue;
        }
        improver.first = job->next;
        if (improver.first == NULL)
            improver.end = &improver.first;
        improver.running = job;
        pthread_mutex_unlock(&improver.lock);
        run(job);
        pthread_mutex_lock(&improver.lock);
        improver.delivering = false;
        improver.running = NULL;
        pthread_cond_broadcast(&improver.changed);
        free_job(job);
    }
    return NULL;
}

/* Under the lock. */
static bool start(void)
{
    if (improver.started)
        return improver.process == getpid();
    improver.process = getpid();
    improver.started =
        atexit(at_exit) == 0 && rg_thread_create_detached("sg-improve", improve_all, NULL) == RG_OK;
    return improver.started;
}

void sg_improve(const struct sg_improvement *improvement, LLVMMemoryBufferRef module)
{
    struct job *job = calloc(1, sizeof(*job));
    if (job == NULL) {
        LLVMDisposeMemoryBuffer(module);
        return;
    }
    *job = (struct job){.asked = *improvement,
                        .module = module,
                        .symbol = strdup(improvement->symbol),
                        .name = strdup(improvement->name)};
    job->asked.symbol = job->symbol;
    job->asked.name = job->name;
    pthread_mutex_lock(&improver.lock);
    const bool good = job->symbol != NULL && job->name != NULL && start();
    if (good) {
        *improver.end = job;
        improver.end = &job->next;
        pthread_cond_broadcast(&improver.changed);
    }
    pthread_mutex_unlock(&improver.lock);
    if (!good)
        free_job(job);
}

void sg_improve_forget(const void *owner)
{
    struct job *forgotten = NULL;
    pthread_mutex_lock(&improver.lock);
    for (struct job **place = &improver.first; *place != NULL;) {
        struct job *job = *place;
        if (job->asked.owner != owner) {
            place = &job->next;
            continue;
        }
        *place = job->next;
        if (*place == NULL)
            improver.end = place;
        job->next = forgotten;
        forgotten = job;
    }
    if (improver.running != NULL && improver.running->asked.owner == owner) {
        while (improver.delivering && improver.running != NULL && improver.running->asked.owner == owner)
            pthread_cond_wait(&improver.changed, &improver.lock);
        if (improver.running != NULL && improver.running->asked.owner == owner)
            improver.running->asked.owner = NULL;
    }
    pthread_mutex_unlock(&improver.lock);
    while (forgotten != NULL) {
        struct job *job = forgotten;
        forgotten = job->next;
        free_job(job);
    }
}

static bool has_work_of(const void *owner)
{
    bool has = improver.running != NULL && improver.running->asked.owner == owner;
    for (const struct job *job = improver.first; job != NULL; job = job->next)
        has |= job->asked.owner == owner;
    return has;
}

void sg_improve_wait(const void *owner)
{
    pthread_mutex_lock(&improver.lock);
    while (has_work_of(owner))
        pthread_cond_wait(&improver.changed, &improver.lock);
    pthread_mutex_unlock(&improver.lock);
}
