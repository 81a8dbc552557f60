/*
 * export.h - descriptors and handles of the driver's that other sessions on this machine may ask for.
 *
 * The worker that exported one keeps it, and a thread of its own hands copies to whoever names its token: 16
 * bytes that name the socket of that worker, 16 random bytes that name what it keeps, zeros. The socket is in a folder
 * that the sessions of one identity have in common, and who asks must know what stands in the file `secret` there, which
 * workers of other identities cannot read; so a token is worth nothing to them. Clients see only tokens: of a handle that a
 * driver's library believes as it is, no byte is theirs.
 */
#ifndef RG_SERVER_EXPORT_EXPORT_H
#define RG_SERVER_EXPORT_EXPORT_H

#include <stdbool.h>

#define RG_EXPORT_TOKEN   64
#define RG_EXPORT_HANDLES 65536u

/** What a token can stand for; told between workers. */
enum rg_export_kind {
    RG_EXPORT_DESCRIPTOR = 1,
    /* handles of RG_EXPORT_TOKEN bytes */
    RG_EXPORT_MEMORY,
    RG_EXPORT_EVENT,
    RG_EXPORT_POINTER,
    RG_EXPORT_FABRIC,
};

/** Where sessions of this identity find each other; valid as long as the process. Before the first call. */
void rg_export_set_folder(const char *folder);
/** Removes the socket, at the end of the process. */
void rg_export_leave(void);

/** Whether anything was ever given to, or taken from, another session. Any thread. */
bool rg_export_shared(void);

/** Keeps `fd` and fills in its token; false: the system refused (logged), `fd` is closed. Any thread. */
bool rg_export_offer(int fd, unsigned char token[RG_EXPORT_TOKEN]);
/** Closes what the token names. */
void rg_export_end(const unsigned char token[RG_EXPORT_TOKEN]);
/** A copy of the descriptor that the token names, of this worker or another; -1: there is no such thing. */
int rg_export_take(const unsigned char token[RG_EXPORT_TOKEN]);

/**
 * Puts a token in the place of the driver's handle, for the same handle the same one; false: the system
 * refused (logged). RG_EXPORT_HANDLES are kept, of more the oldest are forgotten. Any thread.
 */
bool rg_export_offer_handle(enum rg_export_kind kind, unsigned char handle[RG_EXPORT_TOKEN]);
/** Puts the driver's handle in the place of its token; false: it is none that a worker here has given out. */
bool rg_export_take_handle(enum rg_export_kind kind, unsigned char token[RG_EXPORT_TOKEN]);

#endif
