/*
 * aside.h - records that take long by themselves, because the driver compiles, stand aside: others' records pass.
 *
 * A record may do so where its caller waits for the answer and sends nothing before (RG_RECORD_AWAITED). Its thread gives its
 * roles away (roles.h) and may then touch nothing of the dispatcher's, but by the functions here and those of job.h that say so.
 * What it makes is entered by the dispatcher before the next record: the client names it only when it has the answer, which
 * comes later.
 *
 * What it uses stays meanwhile: the dispatcher waits before it ends a module, a library, a linker state or a context
 * (rg_aside_settle). That is no deadlock: records that stand aside wait for nothing but the driver, which works on the host,
 * and for bytes of an image that the client has been asked for, which another thread reads (answers_due).
 *
 * Lock order: that of this file, then the objects'.
 */
#ifndef RG_SERVER_ASIDE_H
#define RG_SERVER_ASIDE_H

#include "server/job.h"

#include <pthread.h>
#include <stdatomic.h>

struct rg_thread;
struct rg_made;

struct rg_aside {
    pthread_mutex_t lock;
    pthread_cond_t changed;  /* a record has come to its end */
    struct rg_thread *first; /* threads of those that stand aside */
    struct rg_made *made, **last_made;
    atomic_bool any_made;
};

void rg_aside_init(struct rg_aside *aside);
/** After the end of the pool's threads: enters what nobody has, so that it is ended with the rest. */
void rg_aside_fini(struct rg_worker *worker);

/** The record of a thread that stands aside has come to its end; before its reply. */
void rg_aside_done(struct rg_thread *thread);
/** Notes what a record that stands aside has made: see rg_job_new. */
void rg_aside_made(struct rg_job *job, uint64_t handle, void *object);
/**
 * The handle of an object that a record has found: the one that it has, or `proposed`, which it gets. Any record, whether it
 * stands aside or not.
 */
uint64_t rg_aside_found(struct rg_job *job, enum rg_kind kind, uint64_t proposed, void *object);
/** Before each record: enters what others have made. The dispatcher. */
static inline bool rg_aside_any(const struct rg_aside *aside)
{
    return atomic_load_explicit(&aside->any_made, memory_order_acquire);
}
void rg_aside_enter(struct rg_job *job);
/**
 * Waits until no record that stands aside uses `object` (NULL: none), or the context of that handle (0: none), be it its lane's
 * or that of what it uses, and enters what they have made. The dispatcher.
 */
void rg_aside_settle(struct rg_job *job, const void *object, uint64_t context);

#endif
