/* handed.c - see handed.h. Called before there are other threads, or by the one that takes connections. */
#include "server/handshake/handed.h"

#include "transport/connect/connect.h"

#include <string.h>
#include <unistd.h>

bool rg_handed_keys(int file, struct rg_tls_keys *keys)
{
    const bool read_all = pread(file, keys, sizeof *keys, 0) == (ssize_t)sizeof *keys;
    close(file);
    return read_all;
}

enum rg_status rg_handed_adopt(int fd, int key_file, struct rg_conn **conn)
{
    struct rg_tls_keys keys;
    const struct rg_transport_options options = {.tls_keys = key_file >= 0 ? &keys : NULL};
    if (key_file >= 0 && !rg_handed_keys(key_file, &keys))
        return RG_ERR_INVALID;
    const enum rg_status status = rg_transport_adopt_fd(fd, &options, conn);
    explicit_bzero(&keys, sizeof keys);
    return status;
}
