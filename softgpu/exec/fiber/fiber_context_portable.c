/*
 * fiber_context_portable.c - the context switch by ucontext, for machines without hand-written code; see
 * fiber_context.h.
 */
#include "softgpu/exec/fiber/fiber_context.h"

#include <stdint.h>
#include <stdlib.h>

/* makecontext passes ints only: a pointer goes in two halves. */
static void start(unsigned entry_high, unsigned entry_low, unsigned argument_high, unsigned argument_low)
{
    uintptr_t entry = (uintptr_t)((uint64_t)entry_high << 32 | entry_low);
    uintptr_t argument = (uintptr_t)((uint64_t)argument_high << 32 | argument_low);
    ((void (*)(void *))entry)((void *)argument);
    abort(); /* entries do not return */
}

void sg_fiber_context_make(struct sg_fiber_context *context, void *stack, size_t size, void (*entry)(void *),
                           void *argument)
{
    uint64_t e = (uintptr_t)entry, a = (uintptr_t)argument;
    getcontext(&context->state);
    context->state.uc_stack.ss_sp = stack;
    context->state.uc_stack.ss_size = size;
    context->state.uc_link = NULL;
    makecontext(&context->state, (void (*)(void))(uintptr_t)start, 4, (unsigned)(e >> 32), (unsigned)e,
                (unsigned)(a >> 32), (unsigned)a);
}

void sg_fiber_context_switch(struct sg_fiber_context *from, const struct sg_fiber_context *to)
{
    swapcontext(&from->state, &to->state);
}
