/* bring.c - see bring.h. */
#include "softgpu/driver/context/bring.h"

#include "softgpu/driver/context/context.h"
#include "softgpu/driver/range/range.h"

static bool has_context(void)
{
    const struct sg_context *current = sg_context_current();
    return current != NULL && atomic_load_explicit(&current->active, memory_order_acquire);
}

/* An object's context that has ended is brought too: the call then says so. */
bool sg_bring_context(struct sg_context *context)
{
    return context != NULL && !has_context() && sg_context_push(context);
}

bool sg_bring(enum sg_kind kind, const void *handle)
{
    if (has_context())
        return false;
    SG_REF(struct sg_object) object = sg_handle_get(handle, kind);
    return object != NULL &&
           sg_bring_context(kind == SG_KIND_CONTEXT ? (struct sg_context *)object : object->context);
}

/* Memory that outlives its context, as that of pools does, is of none any more. */
bool sg_bring_of_address(uint64_t address)
{
    struct sg_range range;
    if (has_context() || !sg_range_find(address, &range))
        return false;
    SG_REF(struct sg_context) context = sg_handle_get(range.context, SG_KIND_CONTEXT);
    return context != NULL && atomic_load(&context->active) &&
           atomic_load(&context->generation) == range.context_generation && sg_bring_context(context);
}

void sg_bring_end(const bool *brought)
{
    if (*brought)
        sg_context_pop();
}
