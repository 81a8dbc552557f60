/* replication.c - see replication.h. One lock, held while a server is given something: nobody meets half of
 * it. */
#include "client/multiserver/replication.h"

#include "client/core/call.h"
#include "common/sync/scoped_lock.h"
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
    return rg_several_own_servers() ? rg_image_copy(view, image) : CUDA_SUCCESS;
}

void rg_replication_note(uint64_t library, struct rg_image_copy *image, const struct rg_jit *jit)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, library);
    struct rg_replication *replication = image && shadow ? calloc(1, sizeof *replication) : NULL;
    if (!replication) {
        free(image);
        return;
    }
    replication->image = image;
    replication->count = jit->count;
    for (unsigned i = 0; i < jit->count; i++) {
        replication->options[i] = jit->options[i];
        replication->values[i] = jit->values[i];
    }
    shadow->library.replication = replication;
    atomic_store(&shadow->library.servers, 1u << rg_session_current()->number);
}

/* Loads the library on a server that does not have it. The lock is held. */
static CUresult load(uint64_t library, struct rg_library *known, const struct rg_session *session)
{
    const struct rg_replication *replication = known->replication;
    const uint64_t home = rg_home_of_session(session);
    uint64_t id;
    if (!replication)
        return CUDA_ERROR_OUT_OF_MEMORY; /* there was none for the copy */
    RG_TRY(rg_image_send_copy(replication->image, home, &id));
    struct rg_call reply;
    CUresult status =
        rg_op_rgLibraryLoad(&(CUlibrary){(CUlibrary)library}, id, replication->count, replication->options,
                            replication->values, 0, NULL, NULL, 0, 0, home, NULL, &reply);
    rg_call_done(&reply);
    if (status == CUDA_SUCCESS)
        atomic_fetch_or(&known->servers, 1u << session->number);
    return status;
}

/* Finds the kernel on a server that has not been asked for it. The lock is held. */
static CUresult find_kernel(uint64_t kernel, struct rg_function *known, const struct rg_session *session)
{
    struct rg_call reply;
    CUresult status = rg_op_rgLibraryGetKernel(&(CUkernel){(CUkernel)kernel}, (CUlibrary)known->owner,
                                               known->name, rg_home_of_session(session), NULL, &reply);
    rg_call_done(&reply);
    if (status == CUDA_SUCCESS)
        atomic_fetch_or(&known->servers, 1u << session->number);
    return status;
}

CUresult rg_replication_look_up(enum rg_kind kind, uint64_t handle, uint64_t home)
{
    const struct rg_session *session = rg_home_session(home);
    struct rg_shadow *kernel = kind == RG_KIND_LIBRARY ? NULL : rg_handle_shadow(RG_KIND_KERNEL, handle);
    if (kernel ? has(&kernel->function.servers, session) : kind != RG_KIND_LIBRARY)
        return CUDA_SUCCESS;
    const uint64_t library_handle = kernel ? kernel->function.owner : handle;
    struct rg_shadow *library = rg_handle_shadow(RG_KIND_LIBRARY, library_handle);
    if (!library || (!kernel && has(&library->library.servers, session)))
        return CUDA_SUCCESS; /* an unknown one is refused by the call itself */
    CUresult status = CUDA_SUCCESS;
    RG_SCOPED_LOCK(&lock);
    if (!has(&library->library.servers, session))
        status = load(library_handle, &library->library, session);
    if (status == CUDA_SUCCESS && kernel && !has(&kernel->function.servers, session))
        status = find_kernel(handle, &kernel->function, session);
    return status;
}

CUresult rg_replication_unload(uint64_t library)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, library);
    if (!rg_several_own_servers() || !shadow)
        return rg_op_cuLibraryUnload((CUlibrary)library, 0);
    CUresult status = CUDA_SUCCESS;
    for (unsigned i = 0; i < rg_n_own_sessions; i++) {
        if (!has(&shadow->library.servers, &rg_sessions[i]))
            continue;
        const CUresult result =
            rg_op_cuLibraryUnload((CUlibrary)library, rg_home_of_session(&rg_sessions[i]));
        if (status == CUDA_SUCCESS)
            status = result;
    }
    if (shadow->library.replication) {
        free(shadow->library.replication->image);
        free(shadow->library.replication);
        shadow->library.replication = NULL;
    }
    return status;
}
