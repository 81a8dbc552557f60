/* load_memory.c - see load_memory.h. */
#include "client/cache/load_memory.h"

#include "client/core/device_list.h"
#include "client/core/session.h"

/*
 * What is left at least. Before the server has said anything the session has nothing but a context, which takes less than half of any
 * device on which a program can do something.
 */
static uint64_t left(const struct rg_session *session)
{
    const rg_memory_level said = atomic_load_explicit(&session->memory_left, memory_order_relaxed);
    if (said)
        return rg_memory_level_bytes(said);
    const struct rg_device_info *info = rg_device(rg_device_current_or_first());
    return info ? info->memory_total / 2 : 0;
}

bool rg_load_memory_take(struct rg_session *session, rg_memory_level need)
{
    const uint64_t bytes = rg_memory_level_bytes(need), most = left(session);
    const uint64_t before = atomic_fetch_add(&session->memory_loading, bytes);
    if (before <= most && bytes <= most - before)
        return true;
    rg_load_memory_end(session, need);
    return false;
}

void rg_load_memory_take_anyway(struct rg_session *session, rg_memory_level need)
{
    atomic_fetch_add(&session->memory_loading, rg_memory_level_bytes(need));
}

void rg_load_memory_end(struct rg_session *session, rg_memory_level need)
{
    atomic_fetch_sub(&session->memory_loading, rg_memory_level_bytes(need));
}
