/* end_reason.c - why a session is ended, for its client: the worker says it, or the monitor to a client that comes later. */
#include "server/handshake/end_reason.h"

const char *rg_session_end_why(enum rg_session_end_reason reason)
{
    switch (reason) {
    case RG_END_REVOKED:
        return "your right to use this server was revoked; ask its operator";
    case RG_END_EXPIRED:
        return "the certificate by which it was begun has expired, and the program has shown no renewed one; "
               "join again with a new token, or see to the renewal of the files";
    case RG_END_USED_UP:
        return "your GPU hours on the server are used up; 'remote-gpu quota' shows when there are more";
    case RG_END_LEASE:
        return "the lease of the pool by which it was begun is over: it was given back, its time has passed, "
               "or who held it has gone";
    case RG_END_WANTED:
        return "it was ended on the server, by its user or by the server's operator (the status page, or "
               "remote-gpud end)";
    case RG_END_SHUTDOWN:
        break;
    }
    return "the server is shutting down";
}
