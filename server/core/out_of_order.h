/*
 * out_of_order.h - records that take long by themselves, because the driver compiles or loads, go out of order:
 * others' records pass.
 *
 * A record may do so where its caller waits for the answer and sends nothing before (RG_RECORD_AWAITED). Its
 * thread gives its roles away (leader_followers.h) and may then touch nothing of the dispatcher's, but by the
 * functions here and those of request.h that say so. What it makes is entered by the dispatcher before the
 * next record: the client names it only when it has the answer, which comes later.
 *
 * What it uses stays meanwhile: the dispatcher waits before it ends a module, a library, a linker state or a
 * context (rg_out_of_order_settle). That is no deadlock: records that go out of order wait for the driver, which
 * works on the host, or lets the context do what it was given before, as it may for what ends the object; and for
 * bytes of an image that the client has been asked for, which another thread reads (answers_due).
 *
 * Lock order: that of this file, then the objects'.
 */
#ifndef RG_SERVER_CORE_OUT_OF_ORDER_H
#define RG_SERVER_CORE_OUT_OF_ORDER_H

#include "server/core/request.h"

#include <pthread.h>
#include <stdatomic.h>

struct rg_executor;
struct rg_pending_object;

struct rg_out_of_order {
    pthread_mutex_t lock;
    pthread_cond_t changed;    /* a record has come to its end */
    struct rg_executor *first; /* threads of those that went out of order */
    struct rg_pending_object *made, **last_made;
    atomic_bool any_made;
};

/** `out_of_order` is zeroed. */
void rg_out_of_order_init(struct rg_out_of_order *out_of_order);
/** After the end of the pool's threads: enters what nobody has, so that it is ended with the rest. */
void rg_out_of_order_fini(struct rg_worker *worker);

/** The record of a thread that went out of order has come to its end; before its reply. */
void rg_out_of_order_end(struct rg_executor *executor);
/** Notes what a record that went out of order has made: see rg_request_new_of. */
void rg_out_of_order_note(struct rg_request *request, uint64_t handle, void *object, const void *owner);
/**
 * The handle of an object that a record has found: the one that it has, or `proposed`, which it gets. Any
 * record, whether it went out of order or not.
 */
uint64_t rg_out_of_order_find(struct rg_request *request, enum rg_kind kind, uint64_t proposed, void *object,
                              const void *owner);
/** Whether others have made something that has not been entered. The dispatcher. */
static inline bool rg_out_of_order_any(const struct rg_out_of_order *out_of_order)
{
    return atomic_load_explicit(&out_of_order->any_made, memory_order_acquire);
}
/** Before each record, if there is any: enters what others have made; waits for nobody. The dispatcher. */
void rg_out_of_order_register(struct rg_request *request);
/**
 * Waits until no record that went out of order uses `object` (NULL: none), or the context of that handle (0:
 * none), be it its client thread's or that of what it uses, and enters what they have made. The dispatcher.
 */
void rg_out_of_order_settle(struct rg_request *request, const void *object, uint64_t context);

#endif
