/* peer.c - see peer.h; what is said by links is in receive.c. */
#include "softgpu/nccl/peer.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "softgpu/nccl/extension.h"
#include "softgpu/nccl/list.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#define FLUSH_NS 5000000000ull
#define PAUSE_NS 200000 /* between looks whether all is sent */

struct sg_peer {
    struct sg_peer *next; /* in the list; under the lock of the list of cliques */
    void *link;
    uint64_t process; /* 0: not told */
    struct early {
        uint64_t key; /* 0: none */
        bool ready;
    } early[RG_NCCL_EARLY_READY_MAX]; /* what it said of communicators before they were here, or placed */
    unsigned n_early;                 /* that was ever noted: the list is a ring */
    pthread_t sender;
    pthread_mutex_t lock;   /* of what follows */
    pthread_cond_t changed; /* something was queued, or all of it sent */
    struct sg_job *first, **last;
    unsigned users; /* who have posted, and not released it yet */
    bool busy, ending;
};

/* A message as a job. */
struct told {
    struct sg_job job; /* first */
    size_t size;
    unsigned char bytes[];
};

static const struct rg_nccl_network *network;
static struct sg_peer *peers; /* under the list's lock */
static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t own_process;
static unsigned char own_place[RG_NCCL_PLACE_BYTES];

/* --- this process --------------------------------------------------------------------------------------- */

uint64_t sg_process(void)
{
    RG_SCOPED_LOCK(&own_lock);
    uint64_t drawn = own_process;
    if (!drawn && getrandom(&drawn, sizeof drawn, 0) == sizeof drawn)
        own_process = drawn;
    return own_process;
}

void sg_own_place(unsigned char place[RG_NCCL_PLACE_BYTES])
{
    RG_SCOPED_LOCK(&own_lock);
    memcpy(place, own_place, sizeof own_place);
}

void sg_extension_set_place(const unsigned char place[RG_NCCL_PLACE_BYTES])
{
    RG_SCOPED_LOCK(&own_lock);
    memcpy(own_place, place, sizeof own_place);
}

void sg_extension_use(const struct rg_nccl_network *used)
{
    network = used;
}

bool sg_has_network(void)
{
    return network != NULL;
}

/* --- sending -------------------------------------------------------------------------------------------- */

bool sg_peer_send(struct sg_peer *peer, const struct sg_wire *wire, const void *data, size_t size)
{
    return network->send(peer->link, wire, sizeof *wire, data, size);
}

bool sg_peer_receive(struct sg_peer *peer, void *memory, size_t size)
{
    return network->receive(peer->link, memory, size);
}

static void send_told(struct sg_job *job, struct sg_peer *peer, bool lost)
{
    const struct told *told = (struct told *)job;
    if (!lost)
        (void)network->send(peer->link, told->bytes, told->size, NULL, 0);
    free(job);
}

/* The peer's lock is held. */
static void append(struct sg_peer *peer, struct sg_job *job)
{
    job->next = NULL;
    *peer->last = job;
    peer->last = &job->next;
}

void sg_peer_queue(struct sg_peer *peer, struct sg_job *job)
{
    RG_SCOPED_LOCK(&peer->lock);
    append(peer, job);
    pthread_cond_broadcast(&peer->changed);
}

/* A message as a job; NULL: out of memory, and the link ends. */
static struct sg_job *make_told(struct sg_peer *peer, const struct sg_wire *wire, const void *behind,
                                size_t size)
{
    struct told *told = malloc(sizeof *told + sizeof *wire + size);
    if (!told) {
        network->interrupt(peer->link);
        return NULL;
    }
    told->job.send = send_told;
    told->size = sizeof *wire + size;
    memcpy(told->bytes, wire, sizeof *wire);
    if (size)
        memcpy(told->bytes + sizeof *wire, behind, size);
    return &told->job;
}

void sg_peer_tell(struct sg_peer *peer, const struct sg_wire *wire, const void *behind, size_t size)
{
    struct sg_job *job = make_told(peer, wire, behind, size);
    if (job)
        sg_peer_queue(peer, job);
}

void sg_peer_post(struct sg_peer *peer, const struct sg_wire *wire, const void *behind, size_t size)
{
    struct sg_job *job = make_told(peer, wire, behind, size);
    RG_SCOPED_LOCK(&peer->lock);
    peer->users++;
    if (job)
        append(peer, job);
}

/* Sends the first of what is queued. The peer's lock is held, and given up meanwhile; nobody else is sending. */
static void send_first(struct sg_peer *peer)
{
    struct sg_job *job = peer->first;
    peer->first = job->next;
    if (!peer->first)
        peer->last = &peer->first;
    peer->busy = true;
    const bool lost = peer->ending;
    pthread_mutex_unlock(&peer->lock);
    job->send(job, peer, lost);
    pthread_mutex_lock(&peer->lock);
    peer->busy = false;
}

void sg_peer_push(struct sg_peer *peer)
{
    RG_SCOPED_LOCK(&peer->lock);
    while (peer->first && !peer->busy && peer->first->send == send_told)
        send_first(peer);
    if (peer->first)
        pthread_cond_broadcast(&peer->changed);
}

void sg_peer_interrupt(const struct sg_peer *peer)
{
    network->interrupt(peer->link);
}

bool sg_peer_read(struct sg_peer *peer)
{
    return network->read(peer->link);
}

void sg_peer_release(struct sg_peer *peer)
{
    RG_SCOPED_LOCK(&peer->lock);
    if (--peer->users == 0 && peer->ending)
        pthread_cond_broadcast(&peer->changed);
}

/* Sends what is queued until the peer ends; what is left then is told that it is lost. */
static void *sender_main(void *argument)
{
    struct sg_peer *peer = argument;
    pthread_mutex_lock(&peer->lock);
    for (;;) {
        while ((!peer->first && (!peer->ending || peer->users)) || peer->busy)
            pthread_cond_wait(&peer->changed, &peer->lock);
        if (!peer->first)
            break;
        send_first(peer);
    }
    pthread_mutex_unlock(&peer->lock);
    return NULL;
}

bool sg_peer_leads_to(const struct sg_peer *peer, const struct sg_wire_place *place)
{
    return network->leads_to(peer->link, place->place);
}

struct sg_peer *sg_peer_at(const struct sg_wire_place *place)
{
    struct sg_peer *peer = peers;
    while (peer && (peer->process != place->process || !sg_peer_leads_to(peer, place)))
        peer = peer->next;
    return peer;
}

uint64_t sg_peer_process(const struct sg_peer *peer)
{
    return peer->process;
}

void sg_peer_note_early(struct sg_peer *peer, uint64_t key, bool ready)
{
    peer->early[peer->n_early++ % RG_NCCL_EARLY_READY_MAX] = (struct early){key, ready};
}

struct sg_peer *sg_peer_take_early(uint64_t key, bool *ready)
{
    for (struct sg_peer *peer = peers; peer; peer = peer->next) {
        const unsigned kept =
            peer->n_early < RG_NCCL_EARLY_READY_MAX ? peer->n_early : RG_NCCL_EARLY_READY_MAX;
        for (unsigned i = peer->n_early - kept; i != peer->n_early; i++) {
            struct early *early = &peer->early[i % RG_NCCL_EARLY_READY_MAX];
            if (early->key != key)
                continue;
            *ready = early->ready;
            early->key = 0;
            return peer;
        }
    }
    return NULL;
}

/* Whether all that was queued is sent, or it has been removed: then nobody may look at it. The list's lock is held. */
static bool is_flushed(const struct sg_peer *wanted)
{
    struct sg_peer *peer = peers;
    while (peer && peer != wanted)
        peer = peer->next;
    if (!peer)
        return true;
    RG_SCOPED_LOCK(&peer->lock);
    return !peer->first && !peer->busy;
}

void sg_peer_flush(const struct sg_peer *peer)
{
    const uint64_t until = rg_now_ns() + FLUSH_NS;
    while (rg_now_ns() < until) {
        if (is_flushed(peer))
            return;
        sg_cliques_unlock();
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        sg_cliques_lock();
    }
}

/* --- beginning and end ---------------------------------------------------------------------------------- */

struct sg_peer *sg_extension_opened(void *link)
{
    struct sg_peer *peer = calloc(1, sizeof *peer);
    if (!peer || !sg_process()) {
        free(peer);
        return NULL;
    }
    peer->link = link;
    peer->last = &peer->first;
    pthread_mutex_init(&peer->lock, NULL);
    pthread_cond_init(&peer->changed, NULL);
    if (rg_thread_create(&peer->sender, "softgpu-nccl", sender_main, peer) != RG_OK) {
        pthread_cond_destroy(&peer->changed);
        pthread_mutex_destroy(&peer->lock);
        free(peer);
        return NULL;
    }
    sg_peer_tell(peer,
                 &(struct sg_wire){.type = SG_WIRE_HELLO,
                                   .version = NCCL_VERSION_CODE,
                                   .clique = sg_process(),
                                   .number = SG_WIRE_PROTOCOL},
                 NULL, 0);
    sg_cliques_lock();
    peer->next = peers;
    peers = peer;
    sg_cliques_unlock();
    return peer;
}

void sg_peer_remove(const struct sg_peer *peer)
{
    for (struct sg_peer **at = &peers; *at; at = &(*at)->next)
        if (*at == peer) {
            *at = peer->next;
            return;
        }
}

void sg_peer_set_process(struct sg_peer *peer, uint64_t process)
{
    peer->process = process;
}

void sg_peer_destroy(struct sg_peer *peer)
{
    pthread_mutex_lock(&peer->lock);
    peer->ending = true;
    pthread_cond_broadcast(&peer->changed);
    pthread_mutex_unlock(&peer->lock);
    pthread_join(peer->sender, NULL);
    pthread_cond_destroy(&peer->changed);
    pthread_mutex_destroy(&peer->lock);
    free(peer);
}
