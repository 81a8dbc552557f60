/*
 * fiber_context.h - a suspended flow of control and the switch between two of them.
 *
 * On x86-64 the switch saves the six callee-saved registers on the stack and exchanges stack pointers: about
 * a dozen instructions. Elsewhere ucontext does it (a system call each time). The floating-point control
 * registers are not switched: all fibers of a thread share them, and the engine sets them when it enters and
 * leaves a grid.
 */
#ifndef SG_EXEC_FIBER_FIBER_CONTEXT_H
#define SG_EXEC_FIBER_FIBER_CONTEXT_H

#include <stddef.h>

#if defined(__x86_64__) && !defined(SG_FIBER_CONTEXT_PORTABLE)

struct sg_fiber_context {
    void *sp; /* where the callee-saved registers and the return address lie */
};
_Static_assert(sizeof(struct sg_fiber_context) == 8 && offsetof(struct sg_fiber_context, sp) == 0,
               "fiber_context_x86_64.S knows this layout");

/** Where a new context begins: calls the function in r13 with the argument in r12. Never returned to. */
void sg_fiber_context_entry(void);

/** Prepares `context` to call entry(argument) on the stack [stack, stack + size) when first switched to. */
static inline void sg_fiber_context_make(struct sg_fiber_context *context, void *stack, size_t size,
                                         void (*entry)(void *), void *argument)
{
    void **top = (void **)(((__UINTPTR_TYPE__)stack + size) & ~(__UINTPTR_TYPE__)15);
    *--top = NULL; /* ends the chain of frames; keeps sg_fiber_context_entry's stack 16-byte aligned */
    *--top = NULL;
    *--top = (void *)(__UINTPTR_TYPE__)sg_fiber_context_entry;
    *--top = NULL;                            /* rbp */
    *--top = NULL;                            /* rbx */
    *--top = argument;                        /* r12 */
    *--top = (void *)(__UINTPTR_TYPE__)entry; /* r13 */
    *--top = NULL;                            /* r14 */
    *--top = NULL;                            /* r15 */
    context->sp = top;
}

/** Suspends the caller in `from` and resumes `to`; returns when something switches to `from`. */
void sg_fiber_context_switch(struct sg_fiber_context *from, const struct sg_fiber_context *to);

#else

#include <ucontext.h>

struct sg_fiber_context {
    ucontext_t state;
};
void sg_fiber_context_make(struct sg_fiber_context *context, void *stack, size_t size, void (*entry)(void *),
                           void *argument);
void sg_fiber_context_switch(struct sg_fiber_context *from, const struct sg_fiber_context *to);

#endif

/** Reads and writes the floating-point control register, where the machine has one that matters (MXCSR). */
static inline unsigned sg_float_control(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr();
#else
    return 0;
#endif
}
static inline void sg_set_float_control(unsigned value)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(value);
#else
    (void)value;
#endif
}
#define SG_FLOAT_CONTROL_DEFAULT 0x1f80u /* round to nearest, no exceptions, denormals kept */

#endif
