/* part.c - the one symbol of the loadable part transport/rdma.so. */
#include "transport/operations.h"

#include <string.h>

__attribute__((visibility("default"))) struct rg_transport_ops *
rg_transport_part(const struct rg_transport_host *host)
{
    if (host->size != sizeof *host || host->ops_size != sizeof(struct rg_transport_ops) ||
        strcmp(host->version, RG_VERSION) != 0)
        return NULL;
    rg_log_name(host->log_name);
    rg_log_set_level(host->log_level);
    return &rg_transport_rdma_ops;
}
