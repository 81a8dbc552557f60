/* context.h - contexts as other parts of the client need them. */
#ifndef RG_CLIENT_CONTEXT_H
#define RG_CLIENT_CONTEXT_H

#include <cuda.h>
#include <stdint.h>

/** The calling thread's current context handle, 0 if none; no checks. */
uint64_t rg_context_current(void);

#endif
