/*
 * shared_socket.h - shared files passed from process to process over sockets in a folder that they have in common.
 *
 * For processes that are kept from looking into each other's /proc: SOFTGPU_SHARE names the folder. Whoever can enter it
 * and names a file's secret gets the file. Any thread.
 */
#ifndef SG_DRIVER_CORE_SHARED_SOCKET_H
#define SG_DRIVER_CORE_SHARED_SOCKET_H

#include "softgpu/driver/core/shared_file.h"

/** Whether there is such a folder. */
bool sg_shared_socket_used(void);
/** Answers others from now on; a failure is logged once, and then nobody gets anything. */
void sg_shared_socket_serve(void);
/** Whether the process, one that answers, is there. */
bool sg_shared_socket_answers(int process);
/** The file of the handle, from its process; -1: it has none of that secret, or is not there. */
int sg_shared_socket_ask(const struct sg_shared_handle *handle);

#endif
