/*
 * guest.h - sessions on servers that the program does not use itself, in which it opens what another process has there
 * (client/api/exported.h).
 *
 * Such a session stands behind the program's own ones (rg_n_own_sessions), and has one GPU, that of the other process. It is none of the
 * program's devices: no kernel and no allocation of the program's comes to be there, only copies to and from what is opened, and waits
 * for it. So it asks for no share, and nothing of the program's is prepared there. It ends with the process.
 *
 * Servers are looked for by number. One that the user has named (but for whose GPUs the program does not see), or joined, is called
 * by that name, so that its credentials are those that belong to it; any other one by its number, with the credentials for all
 * servers, if there are such. Everything that holds of a program's own servers holds of it: what nobody vouches for is not used but where
 * the user has said so. A lease is shown only to a server that the user has named, or that has proved who it is. Where it has no GPU of
 * that server's, the server lets the guest begin by the lease of the other process's session, if they have proved to be of one identity.
 *
 * What can fail: all that can where a session begins, told in a sentence. It is tried again by the next call that needs it.
 */
#ifndef RG_CLIENT_CONNECT_GUEST_H
#define RG_CLIENT_CONNECT_GUEST_H

#include "client/core/session.h"

#include <netinet/in.h>

/** Where what is to be opened is. */
struct rg_guest_place {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;       /* with the port, as the other process reaches the server */
    unsigned gpu;    /* 1 more than the server's number of it; 0: not known */
    uint64_t beside; /* the other process's session there, of whose lease the guest's may be; 0: not known */
};

/**
 * The session there, which begins if there is none. NULL: `why` says why in a sentence. Any thread of the application, no locks held;
 * takes as long as connecting does, and other threads that want one wait.
 */
struct rg_session *rg_guest_session(const struct rg_guest_place *place, char *why, size_t why_size);
/** The device of a guest's session, for a context there. */
CUdevice rg_guest_device(const struct rg_session *session);

#endif
