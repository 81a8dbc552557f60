/*
 * exit_gate.h - threads of the program that make code while the process exits. LLVM's destructors take away what they use: so the exit
 * waits for them first, and no code is made afterwards. Any thread.
 */
#ifndef SG_COMPILER_JIT_EXIT_GATE_H
#define SG_COMPILER_JIT_EXIT_GATE_H

#include <stdbool.h>

/** Before code is made; false: the process exits. Each true is followed by sg_exit_gate_leave. */
bool sg_exit_gate_enter(void);
void sg_exit_gate_leave(void);

#endif
