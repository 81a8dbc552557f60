/*
 * conditional.c - cudaGraphSetConditional: kernels set the conditions of graphs, which are the driver's.
 */
#include "softgpu/exec/exec.h"

#include <stdatomic.h>

static _Atomic(sg_condition_setter) setter;

void sg_exec_set_conditions(sg_condition_setter set)
{
    atomic_store(&setter, set);
}

void sg_rt_set_conditional(struct sg_thread *t, uint64_t handle, uint32_t value)
{
    (void)t;
    sg_condition_setter set = atomic_load(&setter);
    if (set)
        set(handle, value);
}
