/*
 * rails.h - which of this machine's RDMA devices, or of its network interfaces, a session uses, in which order.
 *
 * A rail is an RDMA device that has an address; over TCP a network interface. REMOTE_GPU_RAILS says which are used:
 *   auto, or nothing   one of each physical port, up to RG_RAILS_MAX; used together if that is measured to be faster
 *   off, 1             one
 *   N, always          so many of them at most, or all; used together without being measured
 *   NAME,…             these, in this order: devices ("mlx5_0"), network interfaces ("ens1f0") or addresses; likewise
 */
#ifndef RG_TRANSPORT_TOPOLOGY_RAILS_H
#define RG_TRANSPORT_TOPOLOGY_RAILS_H

#include "common/base/status.h"
#include "transport/topology/devices.h"

enum { RG_RAILS_MAX = 8 };

/** An address of a rail; those of a rail (all of its physical port) come together, the best rail first. */
struct rg_rail {
    struct rg_rdma_address way;
    unsigned number; /* of the rail, from 0 */
    char port[64];   /* rg_port_name */
    char pci[24];    /* "" where there is none */
    unsigned near;   /* enum rg_proximity: to the nearest of the GPUs in question */
    unsigned mbps;   /* of the port; 0: not known */
};

/**
 * The addresses of the rails of this machine, in the order in which REMOTE_GPU_RAILS has them; or, where it
 * names none, by how near they are to the GPUs (PCI functions) and then by speed. Returns how many there are.
 * Threads: any.
 */
unsigned rg_rails_here(const char *const *gpus, unsigned n_gpus, struct rg_rail *out, unsigned max);
/**
 * The same of the links of this machine by which TCP goes: its network interfaces, whatever is behind them. A link is named by its
 * interface or an address; faster ones first.
 */
unsigned rg_rails_links(struct rg_rail *out, unsigned max);
/** Whether `text` is as REMOTE_GPU_RAILS takes it. RG_ERR_INVALID with a phrase in `why`. */
RG_MUST_CHECK enum rg_status rg_rails_check(const char *text, char *why, size_t why_size);
/** How many rails are wanted at most. */
unsigned rg_rails_wanted(void);
/** Whether REMOTE_GPU_RAILS names rails. */
bool rg_rails_named(void);
/** Whether rails are to be used without measuring whether that is faster. */
bool rg_rails_always(void);
/** Whether two addresses (numbers) are of one network, whose part of them is `prefix` bits. */
bool rg_rails_same_network(const char *one, const char *other, unsigned prefix);
/**
 * The rail of this machine by which `host` (a number) is reached, among `rails`; NULL: none of them. *direct:
 * the host is on the same network.
 */
const struct rg_rail *rg_rails_to(const char *host, const struct rg_rail *rails, unsigned n, bool *direct);
/** "mlx5_0 (ens1f0, 10.0.0.1, 100 Gb/s, GPU behind the same switch)" of each, joined by "; ". */
void rg_rails_describe(const struct rg_rail *rails, unsigned n, char *out, size_t size);

#endif
