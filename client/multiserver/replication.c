/* replication.c - see replication.h. One lock, held while a server is given something: nobody meets half of it. */
#include "client/multiserver/replication.h"

#include "client/core/call.h"
#include "client/core/thread.h"
#include "generated/client/operations.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What loading a library again takes. */
struct rg_replication {
    struct rg_image_copy *image;
    unsigned count;
    CUjit_option options[RG_JIT_OPTIONS];
    unsigned long long values[RG_JIT_OPTIONS];
};

static bool has(const _Atomic uint32_t *servers, const struct rg_session *session)
{
    return atomic_load(servers) >> session->number & 1;
}

CUresult rg_replication_keep(const struct rg_image_view *view, struct rg_image_copy **image)
{
    *image = NULL;
    return rg_several_servers() ? rg_image_copy(view, image) : CUDA_SUCCESS;
}

void rg_replication_note(uint64_t library, struct rg_image_copy *image, const struct rg_jit *jit)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, library);
    struct rg_replication *spread = image && shadow ? calloc(1, sizeof *spread) : NULL;
    if (!spread) {
        free(image);
        return;
    }
    spread->image = image;
    spread->count = jit->count;
    for (unsigned i = 0; i < jit->count; i++) {
        spread->options[i] = jit->options[i];
        spread->values[i] = jit->values[i];
    }
    shadow->library.spread = spread;
    atomic_store(&shadow->library.servers, 1u << rg_session_current()->number);
}

/* Loads the library on the current server, which does not have it. The lock is held. */
static CUresult load(uint64_t library, struct rg_library *known)
{
    const struct rg_replication *spread = known->spread;
    uint64_t id;
    if (!spread)
        return CUDA_ERROR_OUT_OF_MEMORY; /* there was none for the copy */
    CUresult status = rg_image_send_copy(spread->image, &id);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_call reply;
    status = rg_op_rgLibraryLoad(&(CUlibrary){(CUlibrary)library}, id, spread->count, spread->options,
                                 spread->values, 0, NULL, NULL, 0, 0, &reply);
    rg_call_done(&reply);
    if (status == CUDA_SUCCESS)
        atomic_fetch_or(&known->servers, 1u << rg_session_current()->number);
    return status;
}

/* Finds the kernel on the current server, which has not been asked for it. The lock is held. */
static CUresult find_kernel(uint64_t kernel, struct rg_function *known)
{
    struct rg_call reply;
    CUresult status =
        rg_op_rgLibraryGetKernel(&(CUkernel){(CUkernel)kernel}, (CUlibrary)known->owner, known->name, &reply);
    rg_call_done(&reply);
    if (status == CUDA_SUCCESS)
        atomic_fetch_or(&known->servers, 1u << rg_session_current()->number);
    return status;
}

/* With the server as the thread's target. */
static CUresult spread(struct rg_shadow *kernel, uint64_t kernel_handle, struct rg_shadow *library,
                       uint64_t library_handle, const struct rg_session *session)
{
    CUresult status = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!has(&library->library.servers, session))
        status = load(library_handle, &library->library);
    if (status == CUDA_SUCCESS && kernel && !has(&kernel->function.servers, session))
        status = find_kernel(kernel_handle, &kernel->function);
    pthread_mutex_unlock(&lock);
    return status;
}

CUresult rg_replication_look_up(enum rg_kind kind, uint64_t handle, uint64_t owner)
{
    struct rg_session *session = rg_home_session(owner);
    struct rg_shadow *kernel = kind == RG_KIND_LIBRARY ? NULL : rg_handle_shadow(RG_KIND_KERNEL, handle);
    if (kernel ? has(&kernel->function.servers, session) : kind != RG_KIND_LIBRARY)
        return CUDA_SUCCESS;
    const uint64_t library_handle = kernel ? kernel->function.owner : handle;
    struct rg_shadow *library = rg_handle_shadow(RG_KIND_LIBRARY, library_handle);
    struct rg_thread *thread = rg_thread_current();
    if (!library || !thread)
        return library ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS; /* the call itself will be refused */
    if (!kernel && has(&library->library.servers, session))
        return CUDA_SUCCESS;
    struct rg_session *before = thread->target;
    thread->target = session;
    CUresult status = spread(kernel, handle, library, library_handle, session);
    thread->target = before;
    return status;
}

CUresult rg_replication_unload(uint64_t library, CUresult (*unload)(CUlibrary library))
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, library);
    struct rg_thread *thread = rg_thread_current();
    if (!rg_several_servers() || !shadow || !thread)
        return unload((CUlibrary)library);
    CUresult status = CUDA_SUCCESS;
    struct rg_session *before = thread->target;
    for (unsigned i = 0; i < rg_n_sessions; i++) {
        if (!has(&shadow->library.servers, &rg_sessions[i]))
            continue;
        thread->target = &rg_sessions[i];
        CUresult result = unload((CUlibrary)library);
        if (status == CUDA_SUCCESS)
            status = result;
    }
    thread->target = before;
    if (shadow->library.spread) {
        free(shadow->library.spread->image);
        free(shadow->library.spread);
        shadow->library.spread = NULL;
    }
    return status;
}
