/* part.c - how the loadable part transport/rdma.so is entered. */
#include "common/base/log.h"
#include "transport/operations.h"
#include "transport/rdma/verbs.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT enum rg_status rg_rdma_part_open_verbs(char *why, size_t why_size);

EXPORT enum rg_status rg_rdma_part_open_verbs(char *why, size_t why_size)
{
    return rg_rdma_verbs_open(why, why_size);
}

EXPORT struct rg_transport_ops *rg_transport_part(const struct rg_transport_host *host)
{
    if (!rg_transport_part_enter(host))
        return NULL;
    /* The libraries come with the part, since a server's process may be confined soon. Who connects or listens without them is
     * told so. */
    char why[512];
    if (rg_rdma_verbs_open(why, sizeof why) != RG_OK)
        rg_info("no RDMA: %s", why);
    return &rg_transport_rdma_ops;
}
