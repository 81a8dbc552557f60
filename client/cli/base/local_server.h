/*
 * local_server.h - a private server on this machine for one command.
 */
#ifndef RG_CLIENT_CLI_BASE_LOCAL_SERVER_H
#define RG_CLIENT_CLI_BASE_LOCAL_SERVER_H

#include "common/base/status.h"

#include <sys/types.h>

struct rg_local_server {
    pid_t pid;
    char address[128];
};

/**
 * Starts remote-gpud with `driver` on a unix socket that only this user can use, and waits until it listens.
 * It ends with this process, however that ends. Says why not.
 */
RG_MUST_CHECK enum rg_status rg_local_server_start(struct rg_local_server *server, const char *driver);
/** Stops it and waits for its end. */
void rg_local_server_stop(struct rg_local_server *server);

/**
 * Runs a command as a child, forwards the signals that this process gets, and waits for it. Returns its exit
 * status, 128 and the signal's number if it was killed, or 126/127 (it was said why).
 */
int rg_local_server_run(char **argv);

#endif
