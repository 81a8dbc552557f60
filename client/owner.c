/* owner.c - see owner.h. */
#include "client/owner.h"

#include "client/address_map.h"
#include "client/context.h"
#include "client/device.h"
#include "client/lane.h"
#include "client/pinned.h"

uint64_t rg_owner_look_up(enum rg_kind kind, uint64_t handle)
{
    return kind == RG_KIND_CONTEXT ? handle : rg_handle_owner(kind, handle);
}

uint64_t rg_owner_look_up_device(CUdevice device)
{
    const struct rg_session *session = rg_device_session(device);
    return session ? session->number + 1u : 0;
}

uint64_t rg_owner_look_up_address(uint64_t address)
{
    struct rg_range range;
    if (!rg_map_find(address, &range) || !rg_range_on_device(&range))
        return (uint64_t)(rg_map_reserved_by(address) + 1);
    if (range.mapped) /* by the first device that used it */
        return rg_pinned_mapped_in(address);
    return range.context ? range.context : rg_owner_look_up_device(range.device);
}

struct rg_session *rg_owner_session(uint64_t owner)
{
    if (owner && owner <= rg_n_sessions)
        return &rg_sessions[owner - 1];
    const struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_CONTEXT, owner ? owner : rg_context_current());
    return shadow ? shadow->context.session : &rg_sessions[0];
}

struct rg_session *rg_session_current(void)
{
    return rg_owner_session(0);
}
