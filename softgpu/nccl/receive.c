/* receive.c - what other processes say by their links, and the end of those: functions of struct rg_nccl_extension. See peer.h. */
#include "common/base/printable.h"
#include "softgpu/nccl/clique.h"
#include "softgpu/nccl/deadline.h"
#include "softgpu/nccl/extension.h"
#include "softgpu/nccl/far.h"
#include "softgpu/nccl/list.h"
#include "softgpu/nccl/meeting.h"
#include "softgpu/nccl/peer.h"
#include "softgpu/nccl/split.h"

static bool take_hello(struct sg_peer *peer, const struct sg_wire *wire)
{
    if (sg_peer_process(peer) || !wire->clique || wire->clique == sg_process())
        return false;
    sg_cliques_lock();
    const bool same = wire->version == NCCL_VERSION_CODE && wire->number == SG_WIRE_PROTOCOL;
    if (same)
        sg_peer_set_process(peer, wire->clique);
    sg_cliques_met(peer, wire->clique, same ? 0 : wire->version, (uint32_t)wire->number);
    sg_cliques_unlock();
    return same;
}

/* A rank that has joined an id of this process has failed before all had come. */
static void fail_meeting(const struct sg_wire *wire, const void *text, size_t size)
{
    char why[SG_NCCL_WHY] = "";
    memcpy(why, text, size < sizeof why ? size : sizeof why - 1);
    rg_printable_clean(why);
    sg_meeting_failed(wire->clique, ncclRemoteError, why);
}

/* Of a communicator that is here: what it concerns is done under its lock. */
static bool take_of_clique(struct sg_peer *peer, const struct sg_wire *wire, const void *behind, size_t size)
{
    sg_cliques_lock();
    struct sg_clique *clique = sg_clique_by_key(wire->clique);
    if (!clique && (wire->type == SG_WIRE_MEET || wire->type == SG_WIRE_READY))
        sg_peer_note_early(peer, wire->clique, wire->type == SG_WIRE_READY);
    if (wire->type == SG_WIRE_FAIL)
        fail_meeting(wire, behind, size);
    bool good = true;
    if (clique) {
        pthread_mutex_lock(&clique->lock);
        switch (wire->type) {
        case SG_WIRE_TABLE:
            good = sg_clique_place(clique, peer, NULL, wire, behind, size);
            break;
        case SG_WIRE_MEET:
        case SG_WIRE_READY:
            good = sg_clique_meets(clique, peer, wire->type == SG_WIRE_READY);
            break;
        case SG_WIRE_COME:
            good = sg_far_comes(clique, peer, wire, behind, size);
            break;
        case SG_WIRE_FAIL:
            if (!sg_clique_has_left(clique,
                                    peer)) /* else it speaks of another use of the id, which is refused */
                sg_clique_told_failure(clique, wire->rank, behind, size);
            break;
        case SG_WIRE_LEAVE:
            sg_clique_far_left(clique, peer);
            break;
        default:
            good = false;
        }
        pthread_mutex_unlock(&clique->lock);
    }
    sg_cliques_unlock();
    return good;
}

bool sg_extension_message(struct sg_peer *peer, const void *message, size_t size, size_t data_size)
{
    struct sg_wire wire;
    if (size < sizeof wire)
        return false;
    memcpy(&wire, message, sizeof wire);
    const void *behind = (const char *)message + sizeof wire;
    size -= sizeof wire;
    if (wire.type == SG_WIRE_HELLO)
        return !data_size && take_hello(peer, &wire);
    if (!sg_peer_process(peer) || (data_size && wire.type != SG_WIRE_DATA))
        return false;
    switch (wire.type) {
    case SG_WIRE_JOIN:
        sg_deadline_watch();
        return sg_meeting_joins(peer, &wire, behind, size);
    case SG_WIRE_SPLIT:
        return sg_split_far_enters(peer, &wire);
    case SG_WIRE_DATA:
        return sg_far_data(peer, &wire, data_size);
    default:
        return take_of_clique(peer, &wire, behind, size);
    }
}

void sg_extension_lost(struct sg_peer *peer)
{
    sg_cliques_lock();
    sg_peer_remove(peer);
    sg_meetings_lost(peer);
    sg_cliques_lost(peer);
    sg_cliques_unlock(); /* from here on nobody finds it */
    sg_peer_destroy(peer);
}
