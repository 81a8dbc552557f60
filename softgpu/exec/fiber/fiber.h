/*
 * fiber.h - stacks and fibers of a slot, and the switch between them. Slot's thread only.
 */
#ifndef SG_EXEC_FIBER_FIBER_H
#define SG_EXEC_FIBER_FIBER_H

#include "softgpu/exec/engine.h"

/** The class of stack for `size` bytes; SG_STACK_CLASSES if there is none that large. */
unsigned sg_stack_class(uint64_t size);
/** A parked fiber with a stack of that class, made if need be; NULL if memory ran out. */
struct sg_fiber *sg_fiber_acquire(struct sg_slot *slot, unsigned stack_class);
/** Puts a fiber back that is suspended between two pieces of work. */
void sg_fiber_park(struct sg_slot *slot, struct sg_fiber *fiber);
/** Puts a fiber back whose frames are given up. */
void sg_fiber_abandon(struct sg_slot *slot, struct sg_fiber *fiber);
/** Gives the memory below the tops of large parked stacks back to the system, unless that was done a moment ago. */
void sg_fiber_trim(struct sg_slot *slot, unsigned stack_class);
/** Whether `address` is in the guard below the fiber's stack, or below that of its .local variables. */
static inline bool sg_fiber_overflowed(const struct sg_fiber *fiber, uintptr_t address)
{
    uintptr_t stack = (uintptr_t)fiber->stack;
    return (address < stack && address >= stack - SG_STACK_GUARD) ||
           (address < fiber->local.low && address >= fiber->local.low - SG_STACK_GUARD);
}

static inline struct sg_fiber *sg_thread_fiber(const struct sg_thread *t)
{
    return t->engine;
}

/** Suspends the running fiber in favour of `to`. */
static inline void sg_switch(struct sg_slot *slot, struct sg_fiber *from, struct sg_fiber *to)
{
    slot->current = to;
    sg_sanitize_leave(&from->sanitize, &to->sanitize);
    sg_fiber_context_switch(&from->context, &to->context);
    sg_sanitize_entered(&from->sanitize);
}

/** Suspends the running fiber in favour of the scheduler; slot->leave is set. */
static inline void sg_leave(struct sg_slot *slot, struct sg_fiber *from)
{
    sg_sanitize_leave(&from->sanitize, &slot->scheduler_sanitize);
    sg_fiber_context_switch(&from->context, &slot->scheduler);
    sg_sanitize_entered(&from->sanitize);
}

#endif
