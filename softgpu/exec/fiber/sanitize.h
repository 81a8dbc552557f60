/*
 * sanitize.h - tells the address and thread sanitizers of switches between stacks; nothing in other builds.
 *
 * Each flow of control (fiber or scheduler) has a struct sg_sanitize. A switch is bracketed by
 * sg_sanitize_leave(from, to, stack of to) and, on the other side, sg_sanitize_entered(self).
 */
#ifndef SG_EXEC_FIBER_SANITIZE_H
#define SG_EXEC_FIBER_SANITIZE_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define SG_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define SG_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__)
#define SG_TSAN 1
#include <sanitizer/tsan_interface.h>
#else
#define SG_TSAN 0
#endif

struct sg_sanitize {
    const void *stack; /* lowest address */
    size_t size;
#if SG_ASAN
    void *fake_stack;
#endif
#if SG_TSAN
    void *fiber;
#endif
};

/** A fiber's state is made, and made anew after its frames were abandoned. */
static inline void sg_sanitize_reset(struct sg_sanitize *s, const void *stack, size_t size)
{
    s->stack = stack;
    s->size = size;
#if SG_ASAN
    s->fake_stack = NULL;
    __asan_unpoison_memory_region(stack, size);
#endif
#if SG_TSAN
    if (s->fiber)
        __tsan_destroy_fiber(s->fiber);
    s->fiber = __tsan_create_fiber(0);
#endif
}

/** The calling thread's own flow of control. */
static inline void sg_sanitize_thread(struct sg_sanitize *s, const void *stack, size_t size)
{
    s->stack = stack;
    s->size = size;
#if SG_TSAN
    s->fiber = __tsan_get_current_fiber();
#endif
}

static inline __attribute__((always_inline)) void sg_sanitize_leave(struct sg_sanitize *from,
                                                                    struct sg_sanitize *to)
{
    (void)from;
    (void)to;
#if SG_ASAN
    __sanitizer_start_switch_fiber(from ? &from->fake_stack : NULL, to->stack, to->size);
#endif
#if SG_TSAN
    __tsan_switch_to_fiber(to->fiber, 0);
#endif
}

static inline __attribute__((always_inline)) void sg_sanitize_entered(struct sg_sanitize *self)
{
    (void)self;
#if SG_ASAN
    __sanitizer_finish_switch_fiber(self->fake_stack, NULL, NULL);
#endif
}

#endif
