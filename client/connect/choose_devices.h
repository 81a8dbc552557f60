/* choose_devices.h - which of a server's devices a session is for. The thread that starts the sessions. */
#ifndef RG_CLIENT_CONNECT_CHOOSE_DEVICES_H
#define RG_CLIENT_CONNECT_CHOOSE_DEVICES_H

#include "proto/control/control.h"

/**
 * Those that NVML has shown, as many as were asked for, and of them what CUDA_VISIBLE_DEVICES leaves, into `hello`. May ask the server.
 * False: it leaves none, or the server does not answer; it was said.
 */
bool rg_choose_devices(const char *server, struct rg_client_hello *hello);

#endif
