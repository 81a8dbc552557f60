/* decode.h - what machine code says: the address that an instruction is about, whether it is none at all. */
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
/** Whether a function does nothing but return; false as well where this machine's instructions are not known here. */
bool sg_code_is_empty(const void *code);

#endif
