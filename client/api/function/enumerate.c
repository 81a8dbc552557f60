/*
 * enumerate.c - all functions of a module, and all kernels of a library. They may be thousands, with names of
 * thousands of bytes: they are asked for piece by piece.
 */
#include "client/api/function/function.h"
#include "client/core/call.h"
#include "client/core/handle.h"
#include "common/base/limits.h"
#include "common/base/status.h"
#include "generated/client/operations.h"

enum { AT_ONCE = 512 }; /* handles that are offered with one question */

/* Whose functions or kernels are asked for, and where those that are known stand. */
struct owner {
    enum rg_kind kind; /* of what is found */
    uint64_t handle;
    struct rg_found_function **list;
};

/* Reads the entry of one: *out. What is known already stays as it is. */
static CUresult read_entry(const struct owner *owner, struct rg_reader *in, uint64_t *out)
{
    const uint64_t handle = rg_get_u64(in);
    const char *name = rg_get_string(in, RG_NAME_MAX);
    struct rg_shadow *shadow = rg_handle_shadow(owner->kind, handle);
    if (!name || !shadow)
        return CUDA_ERROR_UNKNOWN;
    if (!rg_function_fill(in, &shadow->function, name, owner->handle, owner->list, handle))
        return in->bad ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OUT_OF_MEMORY;
    *out = handle;
    return CUDA_SUCCESS;
}

static CUresult ask(const struct owner *owner, unsigned first, unsigned count, const unsigned long long *ids,
                    struct rg_call *reply)
{
    return owner->kind == RG_KIND_FUNCTION
               ? rg_op_rgModuleEnumerate((CUmodule)owner->handle, first, count, ids, reply)
               : rg_op_rgLibraryEnumerate((CUlibrary)owner->handle, first, count, ids, reply);
}

/* Those from number `first` on, `count` at most: how many came, in *n. None: there are no more. */
static CUresult enumerate_from(const struct owner *owner, unsigned first, unsigned count, uint64_t *out,
                               unsigned *n)
{
    unsigned long long ids[AT_ONCE];
    unsigned offered = 0;
    while (offered < count && (ids[offered] = rg_handle_create(owner->kind)) != 0)
        offered++;
    CUresult status = offered < count ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    if (status == CUDA_SUCCESS) {
        struct rg_call reply;
        status = ask(owner, first, count, ids, &reply);
        while (status == CUDA_SUCCESS && *n < count && rg_left(&reply.reply) >= sizeof(uint64_t))
            if ((status = read_entry(owner, &reply.reply, &out[*n])) == CUDA_SUCCESS)
                ++*n;
        if (status == CUDA_ERROR_UNKNOWN && reply.reply.bad)
            status = rg_call_outputs_read(&reply);
        rg_call_done(&reply);
    }
    for (unsigned i = 0; i < offered; i++) { /* those that were not taken */
        struct rg_shadow *shadow = rg_handle_shadow(owner->kind, ids[i]);
        if (shadow && !rg_function_is_filled(&shadow->function))
            rg_handle_delete(owner->kind, ids[i]);
    }
    return status;
}

static CUresult enumerate(const struct owner *owner, uint64_t *out, unsigned count)
{
    if (!out || !count)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_found_question question = {.owner = owner->handle};
    CUresult status = CUDA_SUCCESS;
    rg_found_lock();
    rg_found_begin(&question);
    rg_found_unlock();
    for (unsigned done = 0, n = 1; done < count && n && status == CUDA_SUCCESS; done += n) {
        const unsigned left = count - done;
        n = 0;
        status = enumerate_from(owner, done, left < AT_ONCE ? left : AT_ONCE, out + done, &n);
    }
    rg_found_end(&question);
    return status;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_MODULE, (uint64_t)mod);
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    return enumerate(&(struct owner){RG_KIND_FUNCTION, (uint64_t)mod, &shadow->module.functions},
                     (uint64_t *)functions, numFunctions);
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
    RG_TRY(rg_call_allowed(0));
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, (uint64_t)lib);
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    return enumerate(&(struct owner){RG_KIND_KERNEL, (uint64_t)lib, &shadow->library.kernels},
                     (uint64_t *)kernels, numKernels);
}
