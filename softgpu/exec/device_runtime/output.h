/*
 * output.h - the FIFO of device printf.
 */
#ifndef SG_EXEC_DEVICE_RUNTIME_OUTPUT_H
#define SG_EXEC_DEVICE_RUNTIME_OUTPUT_H

#include "softgpu/exec/engine.h"

/** Appends one message, for standard error if `error`; the oldest are dropped where the FIFO is full. */
void sg_output_append(const char *text, size_t size, bool error);

#endif
