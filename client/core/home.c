/* home.c - see home.h. */
#include "client/core/home.h"

#include "client/core/address_map.h"
#include "client/core/device_list.h"
#include "client/core/thread.h"

uint64_t rg_home_look_up(enum rg_kind kind, uint64_t handle)
{
    return kind == RG_KIND_CONTEXT ? handle : rg_handle_home(kind, handle);
}

uint64_t rg_home_look_up_device(CUdevice device)
{
    const struct rg_session *session = rg_device_session(device);
    return session ? rg_home_of_session(session) : 0;
}

uint64_t rg_home_look_up_address(uint64_t address)
{
    struct rg_range range;
    if (!rg_map_find(address, &range) || !rg_range_on_device(&range))
        return (uint64_t)(rg_map_reserved_by(address) + 1);
    if (range.mapped) /* by the first device that used it */
        return range.mapped;
    /* memory of pools outlives the context that it came to */
    return rg_handle_known(RG_KIND_CONTEXT, range.context) ? range.context
                                                           : rg_home_look_up_device(range.device);
}

struct rg_session *rg_home_session(uint64_t home)
{
    if (!rg_several_servers())
        return &rg_sessions[0];
    if (home && home <= rg_n_sessions)
        return &rg_sessions[home - 1];
    const struct rg_shadow *shadow =
        rg_handle_shadow(RG_KIND_CONTEXT, home ? home : rg_context_current_owner());
    return shadow ? shadow->context.session : &rg_sessions[0];
}

struct rg_session *rg_session_current(void)
{
    return rg_home_session(0);
}

uint64_t rg_home_context(uint64_t home)
{
    if (home > rg_n_sessions)
        return home;
    return home ? atomic_load(&rg_home_session(home)->context) : rg_context_current_owner();
}

uint64_t rg_home_context_of_stream(CUstream stream)
{
    return rg_home_context(rg_home_of(RG_KIND_STREAM, (uint64_t)stream));
}
