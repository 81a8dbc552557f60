/* symbols.c - the table of functions that generated code may call, and the clocks. Any thread. */
#include "softgpu/exec/engine.h"
#include "softgpu/exec/texture/texture.h"

#include "common/base/clock.h"

uint64_t sg_rt_clock(struct sg_thread *t)
{
    (void)t;
    return rg_now_ns();
}

uint64_t sg_rt_globaltimer(struct sg_thread *t)
{
    struct timespec now;
    (void)t;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

const struct sg_rt_symbol *sg_rt_symbols(void)
{
#define SYMBOL(function)                                                                                     \
    {                                                                                                        \
#function, (void *)(uintptr_t)function                                                               \
    }
    static const struct sg_rt_symbol symbols[] = {
        SYMBOL(sg_rt_exit),
        SYMBOL(sg_rt_fault),
        SYMBOL(sg_rt_yield),
        SYMBOL(sg_rt_fence),
        SYMBOL(sg_rt_pass),
        SYMBOL(sg_rt_barrier_sync),
        SYMBOL(sg_rt_barrier_red),
        SYMBOL(sg_rt_barrier_arrive),
        SYMBOL(sg_rt_cluster_arrive),
        SYMBOL(sg_rt_cluster_wait),
        SYMBOL(sg_rt_tensor),
        SYMBOL(sg_rt_warp_sync),
        SYMBOL(sg_rt_activemask),
        SYMBOL(sg_rt_shfl),
        SYMBOL(sg_rt_vote),
        SYMBOL(sg_rt_match_any),
        SYMBOL(sg_rt_match_all),
        SYMBOL(sg_rt_redux),
        SYMBOL(sg_rt_vprintf),
        SYMBOL(sg_rt_assertfail),
        SYMBOL(sg_rt_device_call),
        SYMBOL(sg_rt_malloc),
        SYMBOL(sg_rt_free),
        SYMBOL(sg_rt_clock),
        SYMBOL(sg_rt_globaltimer),
        SYMBOL(sg_rt_matrix),
        SYMBOL(sg_rt_texture),
        SYMBOL(sg_rt_tex),
        SYMBOL(sg_rt_txq),
        SYMBOL(sg_rt_suld),
        SYMBOL(sg_rt_sust),
        SYMBOL(sg_rt_sured),
        SYMBOL(sg_rt_set_conditional),
        SYMBOL(sg_rt_misaligned),
        SYMBOL(sg_rt_access),
        SYMBOL(sg_rt_local_stack),
        {NULL, NULL},
    };
#undef SYMBOL
    return symbols;
}
