/*
 * servers.h - the servers as the user names them: "a,b" means the GPUs of both, as one list in this order;
 * "a|b" the first of the two that will do. REMOTE_GPU_SERVER, -s and the configuration file are all of this
 * form.
 */
#ifndef RG_CLIENT_QUERY_SERVERS_H
#define RG_CLIENT_QUERY_SERVERS_H

#include "common/base/limits.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct rg_servers {
    unsigned n;
    char *items[RG_SERVERS_MAX]; /* each one server, or alternatives */
    char *text;                  /* what items point into */
};

/**
 * Takes `list` apart (empty items do not count). False: no memory, none, or more than RG_SERVERS_MAX; it was
 * said.
 */
bool rg_servers_read(struct rg_servers *out, const char *list);
void rg_servers_free(struct rg_servers *servers);
/** What the environment names, else the server that was joined last, else the default. */
const char *rg_servers_named(void);
/** How many GPUs the user wants of all servers together (REMOTE_GPU_GPUS); 0: all that there are. */
unsigned rg_servers_gpus(void);
/**
 * PCI domains that each server's devices are moved up by, so that an address names one device of the list.
 */
#define RG_SERVER_DOMAINS 0x1000u
/** Moves the address of a device of server `number` (PCI text, which is left alone if it is none). */
void rg_servers_place(unsigned number, char *pci, size_t size);
/** What messages call a server: as the user did, with " (port N)" where that says no port and one is used. */
void rg_servers_describe(const char *server, char *out, size_t size);
/**
 * The sentence about a server that could not be connected to, of rg_client_connect's status and reason. Where nothing
 * was reached, `advice` ends it; what credentials lack says itself what to do.
 */
void rg_servers_unreached(const char *server, enum rg_status status, const char *reason, const char *advice,
                          char *out, size_t size);
/** Cuts the next alternative off `*rest`; NULL: there is none left. */
char *rg_servers_next(char **rest);
/**
 * Loads the parts that connecting to the servers takes, and (`rdma`) that sessions may move to, for who is about to connect to them under a
 * lock: another thread that waits for that lock in a constructor of a library that it opens has the loader's (dlopen(3)). Names are looked
 * up for the same reason, for the connections that follow. What is wrong is said by who connects. Any thread, however small its stack is; no
 * locks are held.
 */
void rg_servers_load(bool rdma);

#endif
