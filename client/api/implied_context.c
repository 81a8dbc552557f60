/* implied_context.c - see implied_context.h. */
#include "client/api/implied_context.h"

#include "client/api/texture.h"
#include "client/core/address_map.h"
#include "client/core/handle.h"
#include "client/core/session.h"
#include "client/core/thread.h"

static bool is_live(uint64_t context)
{
    const struct rg_shadow *shadow = context ? rg_handle_shadow(RG_KIND_CONTEXT, context) : NULL;
    return shadow && atomic_load_explicit(&shadow->context.sticky, memory_order_relaxed) !=
                         CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Whether the thread's context will do: there is one, and it has not ended. */
static bool has_context(void)
{
    const struct rg_thread *thread = rg_thread_if_any();
    return thread && is_live(rg_thread_context(thread));
}

/* Whether there is anything to look up: not before cuInit, not in a child of fork. */
static bool may_bring(void)
{
    return !has_context() && atomic_load_explicit(&rg_sessions_ended, memory_order_acquire) == CUDA_SUCCESS;
}

/* An object's context that has ended is brought too: the call then says so. */
static bool begin(uint64_t context)
{
    return rg_context_scope_enter(context) == CUDA_SUCCESS;
}

/* The context that an object was made in, 0 if it belongs to none. */
static uint64_t context_of(enum rg_kind kind, uint64_t handle)
{
    const struct rg_shadow *shadow = rg_handle_shadow(kind, handle);
    if (!shadow)
        return 0;
    switch (kind) {
    case RG_KIND_CONTEXT:
        return handle;
    case RG_KIND_STREAM:
        return shadow->stream.context;
    case RG_KIND_EVENT:
        return shadow->event.context;
    case RG_KIND_MODULE:
        return shadow->module.context;
    case RG_KIND_FUNCTION:
        return shadow->function.context;
    default: {
        const uint64_t owner = rg_handle_home(kind, handle);
        return owner > rg_n_sessions ? owner : 0;
    }
    }
}

bool rg_implied_context_begin(enum rg_kind kind, uint64_t handle)
{
    return may_bring() && begin(context_of(kind, handle));
}

/* Memory that outlives its context, as that of pools does, is of none any more. */
bool rg_implied_context_of_address(uint64_t address)
{
    struct rg_range range;
    return may_bring() && rg_map_find(address, &range) && is_live(range.context) && begin(range.context);
}

bool rg_implied_context_of_texture(uint64_t number)
{
    return may_bring() && begin(rg_texture_context(number));
}
