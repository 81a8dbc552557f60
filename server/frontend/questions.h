/*
 * questions.h - answers to clients that want no session: which devices there are and who uses them, and what the driver's
 * management library says.
 *
 * Sent over the connection that the question came by; a client that has left is no failure. Threads of handshakes; those that
 * look at the devices wait for the one that does already, and no longer than LOOK_TIMEOUT_MS: then they tell what was known.
 */
#ifndef RG_SERVER_FRONTEND_QUESTIONS_H
#define RG_SERVER_FRONTEND_QUESTIONS_H

#include "server/frontend/frontend.h"
#include "transport/transport.h"

#include <sys/types.h>

/** Who asks. */
struct rg_viewer {
    enum rg_proof proof;
    const char *name; /* RG_PROOF_CERTIFICATE */
    uid_t uid;        /* RG_PROOF_USER */
};

/**
 * To RG_PURPOSE_INVENTORY, and with `status` to RG_PURPOSE_STATUS. Of the command lines of others it tells the program's
 * name alone: they hold passwords. Who uses which GPU is told. The server's own user and root see all.
 */
void rg_answer_inventory(struct rg_frontend *frontend, struct rg_conn *conn, bool status,
                         const struct rg_viewer *viewer);
/** To RG_PURPOSE_MANAGEMENT. */
void rg_answer_management(struct rg_frontend *frontend, struct rg_conn *conn,
                          const struct rg_client_hello *hello);

#endif
