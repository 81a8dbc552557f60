/*
 * implied_context.c - the context that a call without a current one gets from what it names: that of the
 * object, or of the allocation that an address is in. It is pushed on the thread's stack for the call's
 * duration. Where there is none, or no memory, nothing is done and the call says that it lacks a context. The
 * calling thread's stack alone is changed.
 */
#include "softgpu/driver/context/implied_context.h"

#include "softgpu/driver/context/context.h"
#include "softgpu/driver/range/range.h"

static bool has_context(void)
{
    const struct sg_context *current = sg_context_current();
    return current != NULL && atomic_load_explicit(&current->active, memory_order_acquire);
}

/* An object's context that has ended is implied too: the call then says so. */
bool sg_implied_context_set(struct sg_context *context)
{
    return context != NULL && !has_context() && sg_context_push(context);
}

bool sg_implied_context_begin(enum sg_kind kind, const void *handle)
{
    if (has_context())
        return false;
    SG_REF(struct sg_object) object = sg_handle_get(handle, kind);
    return object != NULL &&
           sg_implied_context_set(kind == SG_KIND_CONTEXT ? (struct sg_context *)object : object->context);
}

/* Memory that outlives its context, as that of pools does, is of none any more. */
bool sg_implied_context_of_address(uint64_t address)
{
    struct sg_range range;
    if (has_context() || !sg_range_find(address, &range))
        return false;
    SG_REF(struct sg_context) context = sg_handle_get(range.context, SG_KIND_CONTEXT);
    return context != NULL && atomic_load(&context->active) &&
           atomic_load(&context->generation) == range.context_generation && sg_implied_context_set(context);
}

void sg_implied_context_end(const bool *implied)
{
    if (*implied)
        sg_context_pop();
}
