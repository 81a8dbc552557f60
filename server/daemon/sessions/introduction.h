/*
 * introduction.h - connections between two servers that serve sessions of one client (RG_ASK_CONNECT).
 *
 * The frontend may open no socket, so the monitor does, if the operator allows it, for a client that has the session it names.
 * The address is a number of the client's choice. What keeps a client from speaking to strangers by it: by TLS nothing of the
 * client's is sent before the other end has shown the certificate that the client has named, and without TLS only loopback
 * addresses are connected to, unless the server takes everybody. That an address takes connections can be learned.
 *
 * The monitor's, main thread; nothing here waits.
 */
#ifndef RG_SERVER_DAEMON_SESSIONS_INTRODUCTION_H
#define RG_SERVER_DAEMON_SESSIONS_INTRODUCTION_H

#include "server/daemon/sessions/sessions.h"

/**
 * A socket that is being connected to what the question says, in *out. RG_ERR_REFUSED with the reason in `answer`.
 * `everywhere`: also in the clear.
 */
RG_MUST_CHECK enum rg_status rg_introduction_connect(const struct rg_sessions *sessions,
                                                     const struct rg_monitor_question *question,
                                                     const struct rg_who *who, bool everywhere, int *out,
                                                     struct rg_monitor_answer *answer);

#endif
