/*
 * signals.h - signals of the processor that are a kernel's faults, and what a thread needs to take them.
 */
#ifndef SG_EXEC_FAULT_SIGNALS_H
#define SG_EXEC_FAULT_SIGNALS_H

#include "softgpu/exec/engine.h"

/** Installs the signal handlers (once a process). */
void sg_signals_install(void);
/**
 * Prepares the calling thread for running kernels: alternate signal stack, signals unblocked. False: no
 * memory.
 */
bool sg_signals_thread_init(void);
/** The slot in which the calling thread works; what a signal handler looks at. */
extern __thread struct sg_slot *sg_current_slot __attribute__((tls_model("initial-exec")));

#endif
