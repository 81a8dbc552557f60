/* worker.c - beginning and end of a worker, and what it leaves to its modules. See worker.h. */
#include "server/core/worker.h"

#include "generated/server/driver.h"
#include "generated/server/execute.h"
#include "server/core/leader_followers.h"

#include <stdlib.h>

static void free_worker(struct rg_worker *worker)
{
    for (unsigned i = 0; worker->modules[i]; i++) {
        if (worker->modules[i]->locked && worker->state[i])
            pthread_mutex_destroy(worker->state[i]);
        free(worker->state[i]);
    }
    free(worker);
}

static bool make_states(struct rg_worker *worker)
{
    for (unsigned i = 0; worker->modules[i]; i++) {
        const struct rg_server_module *module = worker->modules[i];
        if (module->size && !(worker->state[i] = calloc(1, module->size)))
            return false;
        if (module->locked)
            pthread_mutex_init(worker->state[i], NULL);
    }
    return true;
}

struct rg_worker *rg_worker_create(struct rg_conn *conn, uint64_t session, int over_fd,
                                   const struct rg_server_module *const *modules)
{
    struct rg_worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return NULL;
    worker->conn = conn;
    worker->session = session;
    worker->over_fd = over_fd;
    worker->modules = modules;
    if (!make_states(worker)) {
        free_worker(worker);
        return NULL;
    }
    rg_register_all(worker->operations);
    rg_priority_lock_init(&worker->send_lock);
    pthread_mutex_init(&worker->end_lock, NULL);
    pthread_cond_init(&worker->end_changed, NULL);
    rg_device_gate_init(&worker->device_gate);
    rg_leader_init(worker);
    rg_objects_init(&worker->objects);
    rg_out_of_order_init(&worker->out_of_order);
    RG_MODULES_CALL(worker, init, worker);
    return worker;
}

enum rg_status rg_worker_start(struct rg_worker *worker)
{
    return rg_leader_start(worker);
}

bool rg_worker_reclaim(struct rg_request *request)
{
    bool any = false;
    for (const struct rg_server_module *const *module = request->worker->modules; *module; module++)
        any |= (*module)->reclaim && (*module)->reclaim(request);
    return any;
}

/* --- what a client leaves behind ------------------------------------------------------------------------ */

static void destroy_unbound(struct rg_object *entry, void *user)
{
    (void)user;
    if (rg_handle_kind(entry->handle) == RG_KIND_LIBRARY)
        (void)rg_driver.cuLibraryUnload(entry->object);
    if (rg_handle_kind(entry->handle) != RG_KIND_CONTEXT)
        rg_extra_release(entry->extra);
}

static void destroy_context(struct rg_object *entry, void *user)
{
    struct rg_worker *worker = user;
    if (rg_handle_kind(entry->handle) != RG_KIND_CONTEXT)
        return;
    struct rg_worker_context *context = entry->extra;
    if (rg_driver.cuCtxSetCurrent(context->object) == CUDA_SUCCESS)
        rg_context_release(worker, context);
    (void)rg_driver.cuCtxSetCurrent(NULL);
    if (!context->primary)
        (void)rg_driver.cuCtxDestroy_v2(context->object);
    for (; context->primary && context->retained; context->retained--)
        (void)rg_driver.cuDevicePrimaryCtxRelease_v2(context->device);
    rg_context_free(context);
}

void rg_worker_destroy(struct rg_worker *worker)
{
    if (!worker)
        return;
    rg_worker_end(worker, 0, NULL);
    (void)rg_worker_wait(worker); /* somebody else may still be ending it */
    rg_leader_fini(worker);
    rg_out_of_order_fini(worker);
    RG_MODULES_CALL(worker, stop, worker);
    rg_objects_each(&worker->objects, destroy_context, worker); /* with what is watched in them */
    rg_objects_each(&worker->objects, destroy_unbound, NULL);
    RG_MODULES_CALL(worker, fini, worker);
    for (uint32_t i = 0; i < worker->n_threads; i++)
        if (worker->threads[i])
            rg_client_thread_free(worker->threads[i]);
    while (worker->retired) {
        struct rg_worker_context *context = worker->retired;
        worker->retired = context->next_retired;
        rg_context_free(context);
    }
    rg_objects_fini(&worker->objects);
    rg_conn_destroy(worker->conn);
    rg_device_gate_fini(&worker->device_gate);
    rg_priority_lock_fini(&worker->send_lock);
    pthread_mutex_destroy(&worker->end_lock);
    pthread_cond_destroy(&worker->end_changed);
    free_worker(worker);
}
