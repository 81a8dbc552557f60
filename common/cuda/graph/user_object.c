/*
 * user_object.c - objects of the application that graphs keep alive. See graph.h.
 *
 * References are the application's own or a graph's; copies of a graph, executable ones too, have references
 * of their own. When the last one goes, the destructor is called on a thread that only does this, where calls
 * of the driver are not permitted.
 */
#include "common/cuda/graph/call.h"

#include "common/base/signals.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"

#include <stdlib.h>

struct user_object {
    struct rg_graph_object object;
    uint64_t references; /* of the application and of graphs */
    uint64_t own;        /* of them the application's */
    CUhostFn destroy;
    void *pointer;
    struct user_object *next; /* to be destroyed */
};

struct rg_user_reference {
    struct rg_user_reference *next;
    struct user_object *object;
    uint64_t count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the queue; a leaf */
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static struct user_object *first, **last = &first;
static bool running;

static void *destroyer(void *unused)
{
    (void)unused;
    rg_signals_allow_faults();
    rg_graph_backend_destructor_thread();
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!first)
            pthread_cond_wait(&wake, &lock);
        struct user_object *object = first;
        first = object->next;
        if (!first)
            last = &first;
        pthread_mutex_unlock(&lock);
        object->destroy(object->pointer);
        free(object);
        pthread_mutex_lock(&lock);
    }
    return NULL;
}

/* Sees to it that there is somebody to call destructors. */
static bool start(void)
{
    RG_SCOPED_LOCK(&lock);
    running = running || rg_thread_start("rg-destructors", destroyer, NULL);
    return running;
}

/* The rest with the graphs' lock held. */

static void drop(struct user_object *object, uint64_t count)
{
    object->references -= count;
    if (object->references)
        return;
    rg_graph_unregister(&object->object);
    object->next = NULL;
    RG_SCOPED_LOCK(&lock);
    *last = object;
    last = &object->next;
    pthread_cond_signal(&wake);
}

static struct rg_user_reference **reference_of(struct rg_graph *graph, const struct user_object *object)
{
    struct rg_user_reference **at = &graph->users;
    while (*at && (*at)->object != object)
        at = &(*at)->next;
    return at;
}

static CUresult retain(struct rg_graph *graph, struct user_object *object, uint64_t count)
{
    struct rg_user_reference **at = reference_of(graph, object);
    if (!*at && !(*at = calloc(1, sizeof **at)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*at)->object = object;
    (*at)->count += count;
    object->references += count;
    return CUDA_SUCCESS;
}

CUresult rg_graph_users_share(struct rg_graph *to, const struct rg_graph *from)
{
    CUresult result = CUDA_SUCCESS;
    for (const struct rg_user_reference *r = from->users; r && result == CUDA_SUCCESS; r = r->next)
        result = retain(to, r->object, 1);
    return result;
}

void rg_graph_users_release(struct rg_user_reference *users)
{
    while (users) {
        struct rg_user_reference *gone = users;
        users = gone->next;
        drop(gone->object, gone->count);
        free(gone);
    }
}

/* --- the API --- */

CUresult cuUserObjectCreate(CUuserObject *out, void *pointer, CUhostFn destroy, unsigned int count,
                            unsigned int flags)
{
    RG_TRY(rg_graph_backend_enter());
    /*
     * The one flag must be given: it says that nothing can be waited for that would tell of the destructor's
     * end.
     */
    if (!out || !destroy || !count || count > INT32_MAX || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    struct user_object *object = calloc(1, sizeof *object);
    if (!object || !start()) {
        free(object);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    object->references = object->own = count;
    object->destroy = destroy;
    object->pointer = pointer;
    RG_GRAPH_LOCKED;
    rg_graph_register(&object->object, RG_GRAPH_KIND_USER_OBJECT);
    *out = (CUuserObject)object;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned int count)
{
    RG_TRY(rg_graph_backend_enter());
    RG_GRAPH_LOCKED;
    struct user_object *object = rg_graph_find(handle, RG_GRAPH_KIND_USER_OBJECT);
    if (!object || !count || count > INT32_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    object->references += count;
    object->own += count;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned int count)
{
    RG_TRY(rg_graph_backend_enter());
    RG_GRAPH_LOCKED;
    struct user_object *object = rg_graph_find(handle, RG_GRAPH_KIND_USER_OBJECT);
    if (!object || !count || count > object->own)
        return CUDA_ERROR_INVALID_VALUE;
    object->own -= count;
    drop(object, count);
    return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count,
                                 unsigned int flags)
{
    RG_TRY(rg_graph_backend_enter());
    RG_GRAPH_LOCKED;
    struct rg_graph *graph = rg_graph_find(graph_handle, RG_GRAPH_KIND_GRAPH);
    struct user_object *object = rg_graph_find(handle, RG_GRAPH_KIND_USER_OBJECT);
    const bool move = flags & CU_GRAPH_USER_OBJECT_MOVE;
    if (!graph || !object || !count || count > INT32_MAX || (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) ||
        (move && count > object->own))
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(retain(graph, object, count));
    if (move) {
        object->own -= count;
        drop(object, count);
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count)
{
    RG_TRY(rg_graph_backend_enter());
    RG_GRAPH_LOCKED;
    struct rg_graph *graph = rg_graph_find(graph_handle, RG_GRAPH_KIND_GRAPH);
    struct user_object *object = rg_graph_find(handle, RG_GRAPH_KIND_USER_OBJECT);
    struct rg_user_reference **at = graph && object ? reference_of(graph, object) : NULL;
    if (!at || !*at || !count || count > (*at)->count)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_user_reference *reference = *at;
    reference->count -= count;
    if (!reference->count) {
        *at = reference->next;
        free(reference);
    }
    drop(object, count);
    return CUDA_SUCCESS;
}
