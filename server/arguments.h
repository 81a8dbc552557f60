/* arguments.h - what remote-gpud starts a worker with (main.c lists the options). */
#ifndef RG_SERVER_ARGUMENTS_H
#define RG_SERVER_ARGUMENTS_H

#include "server/handshake/hello.h"
#include "server/handshake/warm.h"

/** Descriptors are -1 where they are not given; texts are the caller's. */
struct rg_worker_arguments {
    struct rg_hello hello;
    int fd, hand_fd, tls_fd, share_fd, warm_fd;
    struct rg_shape shape; /* with warm_fd: what it is to expect */
    uint64_t contexts;
    uint64_t stack_limit; /* 0: as it is */
    const char *sandbox;  /* NULL: none */
};

/** False: an option is not known, its value wrong, or they do not fit together. */
bool rg_worker_arguments_parse(int argc, char **argv, struct rg_worker_arguments *out);

#endif
