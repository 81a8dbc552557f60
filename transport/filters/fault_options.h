/*
 * fault_options.h - the options of filter fault.
 *
 * Options name the message by its number, counted from 1 in each direction:
 *   send_close_after=N   N messages are sent; the next send ends the connection, in order for the peer
 *   recv_close_after=N   the same, with messages received
 *   send_lost_at=N       the N-th send, and every later one, finds the connection broken
 *   recv_lost_at=N       the N-th receive, and every later one, finds the connection broken
 *   send_fault_at=N      the N-th message's bulk data is zeros, and its send returns RG_ERR_FAULT
 *   send_corrupt_at=N    one byte of the N-th message sent is inverted
 *   recv_corrupt_at=N    one byte of the N-th message received is inverted
 *   byte=K               which one (default 0; the last one of a shorter message)
 *   send_delay_at=N      the N-th send takes `pause` longer
 *   pause=DURATION       (default 100ms)
 *
 * These write to the socket below by themselves, so they need a transport with a descriptor (tcp, unix); the
 * sender gets RG_ERR_LOST:
 *   truncate_at=N        the N-th message is cut in its middle and the connection ended
 *   bad_magic_at=N       the N-th message's frame is not a frame
 *   oversize_at=N        the N-th message's frame announces more than the limit
 *
 * Over TLS a cut is one within a record, and a broken frame no record at all (RG_ERR_PROTOCOL at the peer).
 *
 * And for connections that are made again (transport/resumable/resumable.h), of which each gets such a filter of its own:
 *   cut_every=BYTES      each direction is cut within the next 2 * BYTES bytes, at random, also in the middle of a message
 *                        or of bulk data; the process's first connection lets one message pass each way before
 *   seed=N               of the random numbers (default 1)
 */
#ifndef RG_TRANSPORT_FILTERS_FAULT_OPTIONS_H
#define RG_TRANSPORT_FILTERS_FAULT_OPTIONS_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

/** By the options' names; 0: off, but of send_close_after and recv_close_after, where UINT64_MAX is. `pause` is in ns. */
struct rg_fault_options {
    uint64_t send_close_after, recv_close_after;
    uint64_t send_lost_at, recv_lost_at;
    uint64_t send_fault_at;
    uint64_t send_corrupt_at, recv_corrupt_at, byte;
    uint64_t send_delay_at, pause;
    uint64_t truncate_at, bad_magic_at, oversize_at;
    uint64_t cut_every, seed;
};

/** RG_ERR_INVALID with the reason in `why`; *out is then as it was. */
enum rg_status rg_fault_options_parse(const char *text, struct rg_fault_options *out, char *why,
                                      size_t why_size);

#endif
