/* part.c - the one symbol of the loadable part transport/tls.so. */
#include "transport/operations.h"

__attribute__((visibility("default"))) struct rg_transport_ops *
rg_transport_part(const struct rg_transport_host *host)
{
    return rg_transport_part_enter(host) ? &rg_transport_tls_ops : NULL;
}
