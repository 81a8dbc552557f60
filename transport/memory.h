/*
 * memory.h - memory that a connection knows of, so that bulk data goes between it and the network without copies.
 *
 * Memory is registered as a whole, once. What the peer may then put where is advertised to it: for one transfer, by a tag, or for
 * whatever comes. Nothing depends on any of it: a transport that cannot, or cannot just now, says so, and the data goes by
 * rg_conn_recv_bulk. Implemented by transport.c and the transports.
 */
#ifndef RG_TRANSPORT_MEMORY_H
#define RG_TRANSPORT_MEMORY_H

#include "transport/transport.h"

/* --- registering --- */

/**
 * Declares memory from and into which much bulk data will go (pinned memory, staging), so that the transport
 * can prepare it for transfers without copies. It must stay mapped until it is unregistered by its base. The
 * peer of a transport with one-sided writes may write into it at any time. Not needed for anything to work:
 * RG_ERR_UNSUPPORTED where it changes nothing; RG_ERR_NO_MEMORY, RG_ERR_FAULT if it cannot be registered. Any
 * thread.
 */
enum rg_status rg_conn_register(struct rg_conn *conn, void *base, size_t size);
/** Waits until no transfer uses the memory. Nothing happens if it was not registered. Any thread. */
void rg_conn_unregister(struct rg_conn *conn, void *base);

/* --- a GPU's memory --- */

/** How the memory of a GPU can be registered: rg_conn_register_device. */
enum {
    RG_DEVICE_DMABUF = 1u << 0, /* by a descriptor of a dma-buf */
    RG_DEVICE_PEER = 1u << 1,   /* by its address, where a kernel module knows it (nvidia_peermem) */
};

/**
 * What the transport and its device may be able to do: RG_DEVICE_*; 0: nothing. What one is worth shows in
 * use.
 */
unsigned rg_conn_device_paths(struct rg_conn *conn);
/**
 * As rg_conn_register, of a GPU's memory, which this process's CPU must not touch: bulk data goes to and from
 * there by the devices alone, and from it only by rg_conn_send of memory that is registered. `fd` is a
 * dma-buf that holds the memory from its byte `offset` on; it is not kept. -1: by the address.
 * RG_ERR_UNSUPPORTED, RG_ERR_NO_MEMORY, RG_ERR_FAULT: it cannot be registered so, of which errno tells more.
 * Unregistered by rg_conn_unregister, which must come before the memory is freed.
 */
enum rg_status rg_conn_register_device(struct rg_conn *conn, void *base, size_t size, int fd,
                                       uint64_t offset);
/**
 * Whether bulk data of the current message would go straight into this memory, no CPU touching it. The
 * receiver.
 */
bool rg_conn_writes_directly(struct rg_conn *conn, const void *memory, size_t size);

/* --- advertising --- */

/** A tag that nothing is ever advertised for: bulk data that is sent to it is asked for. */
#define RG_TAG_NOWHERE UINT64_MAX

/**
 * Advertises registered memory to the peer, which may then place bulk data there without asking where it
 * belongs. With a tag: that bulk data alone which the peer sends by rg_conn_send with this tag, its byte
 * `base` into the first byte of the memory; until it is withdrawn. Receiving this data into where it lies
 * already costs nothing. Without (0): whatever comes, once; the receiver takes it with
 * rg_conn_take_advertised, upon which the memory is the caller's again and must be advertised anew. Never
 * waits. RG_ERR_UNSUPPORTED: not by this transport, or the memory is not registered and cannot be;
 * RG_ERR_TIMEOUT: too much is advertised already, now. Nothing depends on it: what finds no room is asked
 * for. Any thread.
 */
enum rg_status rg_conn_advertise(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory,
                                 size_t size);
/**
 * Ends the advert of memory for a tag, whose peer will send nothing more for it. Nothing happens if it was
 * not advertised. Any thread.
 */
void rg_conn_withdraw(struct rg_conn *conn, uint64_t tag, void *memory);
/**
 * The next bytes of the current message's bulk data, up to `most`, where they lie in memory that was
 * advertised without a tag: the rest of one advert, which is over. *size is 0 if they do not: they are taken
 * by rg_conn_recv_bulk. A call of rg_conn_recv_bulk for what does lie there copies it, and the memory is
 * advertised again by itself. The receiver.
 */
RG_MUST_CHECK enum rg_status rg_conn_take_advertised(struct rg_conn *conn, size_t most, void **memory,
                                                     size_t *size);
/**
 * Whether the adverts without a tag have ended since this was asked last, on a connection that changes what it
 * is made of (resumable/): all that was advertised and not taken is the caller's again, as it is. Until the
 * caller has been told so, rg_conn_advertise takes none without a tag (RG_ERR_TIMEOUT): what would be advertised
 * by who still counts on the former adverts would be advertised twice. The receiver.
 */
bool rg_conn_adverts_ended(struct rg_conn *conn);
/**
 * Whether the peer has advertised enough without a tag for `size` bytes of bulk data, as of now. The sender.
 */
bool rg_conn_has_advertised(struct rg_conn *conn, size_t size);

#endif
