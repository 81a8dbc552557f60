/*
 * implied_context.h - contexts that calls get from what they name. For as long as such a call lasts, the
 * context of what it names is the thread's current one, if the thread has none that lives. Which calls do so
 * is data (context=PARAMETER, proto/api/README.md).
 */
#ifndef SG_DRIVER_CONTEXT_IMPLIED_CONTEXT_H
#define SG_DRIVER_CONTEXT_IMPLIED_CONTEXT_H

#include "softgpu/driver/driver.h"

/**
 * Makes the context of an object, of an address, or one that is known, current; true: sg_implied_context_end
 * takes that back.
 */
bool sg_implied_context_begin(enum sg_kind kind, const void *handle);
bool sg_implied_context_of_address(uint64_t address);
bool sg_implied_context_set(struct sg_context *context);
void sg_implied_context_end(const bool *implied);

/* To the end of the scope; before anything else that the function does. */
#define SG_IMPLYING_CONTEXT __attribute__((cleanup(sg_implied_context_end))) const bool implied_

#define SG_IMPLY_CONTEXT(kind, handle)       SG_IMPLYING_CONTEXT = sg_implied_context_begin(kind, handle)
#define SG_IMPLY_CONTEXT_OF_ADDRESS(address) SG_IMPLYING_CONTEXT = sg_implied_context_of_address(address)

#endif
