/* outgoing.h - contents of shared memory on their way to the worker. */
#ifndef RG_CLIENT_MANAGED_OUTGOING_H
#define RG_CLIENT_MANAGED_OUTGOING_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct rg_session;

/** Runs of bytes on their way to the worker; sent when there are many, and by rg_outgoing_send. */
struct rg_outgoing {
    struct rg_session *session;
    uint64_t context;
    size_t n, bytes;
    uint64_t heads[64][2]; /* few: it lies on the stacks of the program's threads */
    struct iovec parts[128];
};

/** Nothing yet; for memory of a context of that session. */
void rg_outgoing_begin(struct rg_outgoing *out, struct rg_session *session, uint64_t context);
/** The bytes at `address`, which must stay as they are until they have left. */
void rg_outgoing_add(struct rg_outgoing *out, uint64_t address, uint64_t size);
/** Bytes for `address` that lie at `data`. */
void rg_outgoing_add_from(struct rg_outgoing *out, uint64_t address, const void *data, uint64_t size);
/** Sends what is gathered; the memory is the caller's again. A failure ends the session. */
void rg_outgoing_send(struct rg_outgoing *out);

#endif
