/* context.h - contexts' own part: per-thread default streams, and what a context's end does to its objects.
 */
#ifndef SG_CONTEXT_H
#define SG_CONTEXT_H

#include "softgpu/driver/driver.h"

/** The calling thread's default stream in `context`, made on first use; NULL if memory is short. A borrowed
 * one. */
struct sg_stream *sg_thread_stream(struct sg_context *context);
/** Called when a context's life ends: destroys context-local storage that others hung on it. */
void sg_context_storage_reset(struct sg_context *context);

#endif
