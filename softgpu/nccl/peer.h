/*
 * peer.h - other processes that have ranks: the links to them, and what is sent by those.
 *
 * A link's reader calls sg_extension_message for what comes, which goes to the communicator (clique.h), the operation (far.h) or the meeting
 * (meeting.h) that it concerns. What is sent is put into the peer's queue, and a thread of the peer's sends it; so nobody waits
 * for a slow link but that thread, and readers never do. Only a stream that has got to an operation sends what it has to say of it
 * itself, if nobody else is sending (sg_peer_post, sg_peer_push), and reads the answer itself (sg_peer_read): that saves the time until
 * another thread is awake.
 *
 * Locks: the list's (list.h), a clique's, then a peer's queue, which is a leaf. Nothing is held while a link is used.
 */
#ifndef SG_NCCL_PEER_H
#define SG_NCCL_PEER_H

#include "softgpu/nccl/wire.h"

struct sg_clique;
struct sg_peer;

/** Random, of this process; 0: the system gives no random numbers. */
uint64_t sg_process(void);
/** Where this process is found. */
void sg_own_place(unsigned char place[RG_NCCL_PLACE_BYTES]);
/** Whether there can be other processes at all. */
bool sg_has_network(void);

/** Whether the link was made to that place, so that the process there is at its end. */
bool sg_peer_leads_to(const struct sg_peer *peer, const struct sg_wire_place *place);
/** One that leads there and is that process; NULL: there is no such link (yet). The list's lock is held, and the peer stays until it is released. */
struct sg_peer *sg_peer_at(const struct sg_wire_place *place);
/** Which process it says that it is; 0: it has not said yet. */
uint64_t sg_peer_process(const struct sg_peer *peer);
/** It has said MEET or READY of a communicator that is not here yet, or not placed: the last so many are kept. The list's lock is held. */
void sg_peer_note_early(struct sg_peer *peer, uint64_t key, bool ready);
/** One that has said so, the first thing first, which is forgotten; NULL: none has. The list's lock is held. */
struct sg_peer *sg_peer_take_early(uint64_t key, bool *ready);

/** It is that process. The list's lock is held. */
void sg_peer_set_process(struct sg_peer *peer, uint64_t process);
/** Nobody finds it from now on. The list's lock is held. */
void sg_peer_remove(const struct sg_peer *peer);
/** Its jobs end, and it. It has been removed; no lock is held. */
void sg_peer_destroy(struct sg_peer *peer);

/** Queues a message with what stands behind it; without memory the link ends. Any lock but a queue's may be held. */
void sg_peer_tell(struct sg_peer *peer, const struct sg_wire *wire, const void *behind, size_t size);
/** The same for who can wait for the link: sg_peer_push and sg_peer_release are to follow, and the peer stays until then. */
void sg_peer_post(struct sg_peer *peer, const struct sg_wire *wire, const void *behind, size_t size);
/** Sends what has been posted, unless the peer's thread is at work and does it. No lock is held. */
void sg_peer_push(struct sg_peer *peer);
/** Takes the place of the link's reader for a message, if one comes soon; false: none came. No lock is held. */
bool sg_peer_read(struct sg_peer *peer);
void sg_peer_release(struct sg_peer *peer);
/** Ends the link, whoever is inside of it. Any lock may be held. */
void sg_peer_interrupt(const struct sg_peer *peer);
/** Queues work: `send` is called by the peer's thread with no lock held; where it cannot be any more, `lost` is true. */
struct sg_job {
    struct sg_job *next;
    void (*send)(struct sg_job *job, struct sg_peer *peer, bool lost); /* frees the job */
};
/** Takes the job over. */
void sg_peer_queue(struct sg_peer *peer, struct sg_job *job);
/** Sends at once; false: the link is lost. Inside of a job alone. */
bool sg_peer_send(struct sg_peer *peer, const struct sg_wire *wire, const void *data, size_t size);
/** Takes the data of the message that is being told; NULL: throws it away. */
bool sg_peer_receive(struct sg_peer *peer, void *memory, size_t size);
/** Waits until all that has been queued for it is sent, some seconds at most, or it is removed. The list's lock is held, and given up meanwhile. */
void sg_peer_flush(const struct sg_peer *peer);

#endif
