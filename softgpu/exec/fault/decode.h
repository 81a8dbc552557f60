/* decode.h - what address the instruction that faulted was about, where the processor does not say. */
#ifndef SG_EXEC_FAULT_DECODE_H
#define SG_EXEC_FAULT_DECODE_H

#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>

/**
 * Finds the address of the memory operand of the instruction at which `context` stopped. False: it has none,
 * or this machine's instructions are not known here.
 */
bool sg_memory_operand(const ucontext_t *context, uint64_t *address);

#endif
