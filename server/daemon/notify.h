/* notify.h - tells a service manager how the server is (sd_notify(3)'s protocol, without its library). */
#ifndef RG_SERVER_DAEMON_NOTIFY_H
#define RG_SERVER_DAEMON_NOTIFY_H

#include <stdint.h>

/**
 * Sends `state` ("READY=1", "STOPPING=1") to the socket that NOTIFY_SOCKET names; does nothing where there is
 * none, and says at level warn what went wrong.
 */
void rg_notify(const char *state);

/** Says that settings are being read again, from now until the next "READY=1" (Type=notify-reload). */
void rg_notify_reloading(void);

/**
 * Tells a service manager that watches over the server (WATCHDOG_USEC) that it is alive, if that is due. Returns when to come
 * again, UINT64_MAX: never. Of one thread, the one whose life it is.
 */
uint64_t rg_notify_alive(void);

#endif
