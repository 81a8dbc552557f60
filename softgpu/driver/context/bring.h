/*
 * bring.h - calls that bring a context along: for as long as one lasts, the context of what it names is the
 * thread's current one, if the thread has none that lives. Which calls do is data (context=PARAMETER,
 * proto/api/README.md).
 */
#ifndef SG_DRIVER_CONTEXT_BRING_H
#define SG_DRIVER_CONTEXT_BRING_H

#include "softgpu/driver/driver.h"

/**
 * Makes the context of an object, of an address, or one that is known, current; true: sg_bring_end takes that
 * back.
 */
bool sg_bring(enum sg_kind kind, const void *handle);
bool sg_bring_of_address(uint64_t address);
bool sg_bring_context(struct sg_context *context);
void sg_bring_end(const bool *brought);

/* To the end of the scope; before anything else that the function does. */
#define SG_BRINGING                  __attribute__((cleanup(sg_bring_end))) const bool brought_
#define SG_BRING(kind, handle)       SG_BRINGING = sg_bring(kind, handle)
#define SG_BRING_OF_ADDRESS(address) SG_BRINGING = sg_bring_of_address(address)

#endif
