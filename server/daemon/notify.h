/* notify.h - tells a service manager how the server is (sd_notify(3)'s protocol, without its library). */
#ifndef RG_SERVER_DAEMON_NOTIFY_H
#define RG_SERVER_DAEMON_NOTIFY_H

/**
 * Sends `state` ("READY=1", "STOPPING=1") to the socket that NOTIFY_SOCKET names; does nothing where there is
 * none, and says at level warn what went wrong.
 */
void rg_notify(const char *state);

#endif
