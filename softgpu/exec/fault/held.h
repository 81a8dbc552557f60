/*
 * held.h - memory that nothing may write to for a moment, while its pages are exchanged for others. Who writes there meanwhile
 * waits in the handler of the processor's signal (signals.c) and then does it again.
 */
#ifndef SG_EXEC_FAULT_HELD_H
#define SG_EXEC_FAULT_HELD_H

#include <stdbool.h>
#include <stdint.h>

/** From now on accesses to these bytes that fault wait. One range at a time; the signal handlers are installed. */
void sg_hold(uint64_t address, uint64_t size);
/** That is over. */
void sg_hold_end(void);
/**
 * In the handler of a fault at `address`: waits while it is held. True: it was, or may have been when it was made, and is to
 * be made again; false: it is a fault.
 */
bool sg_hold_waited(uint64_t address);

#endif
