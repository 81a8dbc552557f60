/*
 * improve.c - see improve.h.
 *
 * The thread has an LLVM context for each module, so it needs no lock of a program but to deliver. It lives as long as the process.
 *
 * When the process exits, LLVM's destructors take away what the thread uses, and other exit handlers may run for long behind them. So
 * the first thing is to stop it: by itself, where it looks whether the process exits, else by a signal (SIGILL, which nobody sends to
 * whole processes), again and again until its handler meets it in LLVM's own code. There it holds no lock that anybody will want, of
 * ours or of the allocator's, and it stays in the handler for good.
 */
#include "softgpu/compiler/jit/improve.h"
#include "softgpu/compiler/jit/emit.h"
#include "softgpu/compiler/jit/llvm_library.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/signals.h"
#include "common/base/thread.h"

#include <llvm-c/BitReader.h>
#include <llvm-c/BitWriter.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STOP_PATIENCE_NS 1000000000ull
#define STOP_RETRY_NS    500000

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
    pthread_t thread;
    atomic_bool in_llvm; /* … is in nothing but LLVM */
} improver = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .end = &improver.first};

static atomic_bool ending; /* the process exits */
static atomic_bool held;   /* the thread is in the handler */
static struct sigaction handler_before;
static struct {
    uintptr_t first, end;
} llvm_code;

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

/* Of SIGILL, once the process exits. */
static void hold(int signal, siginfo_t *info, void *context)
{
    const uintptr_t at = rg_signal_program_counter(context);
    if (!pthread_equal(pthread_self(), improver.thread)) {
        rg_signal_pass_on(&handler_before, signal, info, context);
        return;
    }
    if (!atomic_load(&improver.in_llvm) || at < llvm_code.first || at >= llvm_code.end)
        return;
    atomic_store(&held, true);
    for (;;)
        pause();
}

static bool has_stopped(void)
{
    pthread_mutex_lock(&improver.lock);
    const bool stopped = improver.running == NULL || improver.stopped;
    pthread_mutex_unlock(&improver.lock);
    return stopped || atomic_load(&held);
}

static void at_exit(void)
{
    struct sigaction action = {.sa_sigaction = hold, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    const uint64_t end = rg_now_ns() + STOP_PATIENCE_NS;
    if (getpid() != improver.process)
        return;
    atomic_store(&ending, true);
    if (has_stopped())
        return;
    if (!sg_llvm_code(&llvm_code.first, &llvm_code.end))
        return;
    sigfillset(&action.sa_mask);
    if (sigaction(SIGILL, &action, &handler_before) != 0)
        return;
    while (!has_stopped() && rg_now_ns() < end) {
        pthread_kill(improver.thread, SIGILL);
        nanosleep(&(struct timespec){.tv_nsec = STOP_RETRY_NS}, NULL);
    } /* the handler stays: the last signal may still be on its way */
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
    atomic_store(&improver.in_llvm, true);
    const bool good = sg_emitter_optimise(emitter, module, asked->symbol, effort, asked->guarded, log);
    atomic_store(&improver.in_llvm, false);
    if (!good)
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
        atomic_store(&improver.in_llvm, true);
        object = sg_emitter_emit(emitter, module, asked->symbol, effort, log);
        atomic_store(&improver.in_llvm, false);
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
    stop_if_ending();
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
    sigset_t set;
    (void)unused;
    sigemptyset(&set);
    sigaddset(&set, SIGILL); /* at_exit's */
    pthread_mutex_lock(&improver.lock);
    improver.thread = pthread_self();
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
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
