/*
 * device_list.h - the devices of all servers, as the one list that the application sees. Constant once the
 * sessions have begun. Any thread.
 */
#ifndef RG_CLIENT_CORE_DEVICE_LIST_H
#define RG_CLIENT_CORE_DEVICE_LIST_H

#include "proto/control/control.h"

#include <cuda.h>

struct rg_session;

/** The device's entry of the handshake, or NULL if there is no such device. */
const struct rg_device_info *rg_device(CUdevice device);
/** How many there are, of all servers. */
unsigned rg_device_count(void);
/** The session of a device's server, or NULL if there is no such device. Also of a guest's. */
struct rg_session *rg_device_session(CUdevice device);
/** The number that a session's server gives a device; -1 if it is another server's. Also of a guest's. */
CUdevice rg_device_there(const struct rg_session *session, CUdevice device);
/** The device that a session's server gives this number. */
CUdevice rg_device_here(const struct rg_session *session, CUdevice number);
/** Puts a session's device into the list; while sessions begin. */
void rg_device_set(unsigned device, struct rg_session *session, CUdevice number);
/**
 * Adds the only device of a session as a guest (client/connect/guest.h), for contexts that the application does not know; -1: there are
 * too many. One thread at a time.
 */
CUdevice rg_device_add_guest(struct rg_session *session);
/** The current context's device; -1 if there is none. */
CUdevice rg_device_current(void);
/** The same; without a context the first device. */
CUdevice rg_device_current_or_first(void);

#endif
