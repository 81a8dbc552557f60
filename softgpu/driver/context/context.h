/*
 * context.h - contexts' own part: per-thread default streams, and what a context's end does to its objects.
 */
#ifndef SG_DRIVER_CONTEXT_CONTEXT_H
#define SG_DRIVER_CONTEXT_CONTEXT_H

#include "softgpu/driver/driver.h"

/** The calling thread's default stream in `context`, made on first use; NULL if memory is short. A borrowed
 * one. */
struct sg_stream *sg_thread_stream(struct sg_context *context);
/** Pushes a context on the calling thread's stack, with a reference; false: no memory. */
bool sg_context_push(struct sg_context *context);
void sg_context_pop(void);
/** Ends a life: finishes the context's work, then frees what it owns. */
void sg_context_stop(struct sg_context *context);
bool sg_context_flags_valid(unsigned flags);
unsigned long long sg_context_next_id(void);
/**
 * Says what frees the modules of a context that ends, in the thread that ends it. Before the first context
 * (cuInit).
 */
void sg_context_at_end(void (*drop_modules)(struct sg_context *context));

#endif
