/* topology.h - list --topology: how a server's GPUs are linked with each other, and how far it is; of one server, or of all of its pool. */
#ifndef RG_CLIENT_CLI_TOPOLOGY_H
#define RG_CLIENT_CLI_TOPOLOGY_H

#include "client/cli/base/inventory.h"

/** Prints it of a server that answered. */
void rg_cli_print_topology(const struct rg_answer_of *answer);

#endif
