/*
 * reconnect.h - a session goes on after its connection was lost (transport/resumable/resumable.h): the
 * client's side.
 */
#ifndef RG_CLIENT_CONNECT_RECONNECT_H
#define RG_CLIENT_CONNECT_RECONNECT_H

#include <stdbool.h>
#include <stdint.h>

struct rg_control;
struct rg_session;

/** Whether the user lets sessions outlive their connections (REMOTE_GPU_RECONNECT, 0: not). */
bool rg_reconnect_wanted(void);
/** The hello of a client that comes back, and has so many messages. */
void rg_reconnect_hello(const struct rg_session *session, uint64_t received, struct rg_control *hello);
/**
 * After the hellos: makes the session's connection a resumable one, if the server offers that. False: no
 * memory.
 */
bool rg_reconnect_begin(struct rg_session *session);

#endif
