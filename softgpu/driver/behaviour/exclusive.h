/*
 * exclusive.h - the compute mode "exclusive process": one process at a time has contexts on a device.
 *
 * Who has one holds the lock of a file, which ends with the process: in the folder that the processes of a server share
 * (SOFTGPU_SHARE), else in /tmp, where it is the user's own. Any thread.
 */
#ifndef SG_DRIVER_BEHAVIOUR_EXCLUSIVE_H
#define SG_DRIVER_BEHAVIOUR_EXCLUSIVE_H

#include <stdbool.h>

/** Counts a context on device `number` of the machine in; false: another process has one. */
bool sg_exclusive_enter(int number);
/** Counts it out. */
void sg_exclusive_leave(int number);

#endif
