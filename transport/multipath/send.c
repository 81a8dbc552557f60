/*
 * send.c - messages out: the head on the first connection, the pieces on their channels.
 *
 * The head settles which channel carries which piece: faster channels get more of them. The pieces of one message are sent
 * when it is its turn, by the thread that sends the message and, where several channels take part, by a thread of each of
 * the others.
 */
#include "transport/multipath/internal.h"

#include "common/base/clock.h"
#include "common/base/safe_copy.h"
#include "common/base/thread.h"

#include <stdlib.h>

enum {
    MEASURED_BYTES = 2 << 20, /* a channel, over which rates of channels are measured */
    WINDOW_BYTES = 24 << 20,  /* over which a rate is measured */
    WINDOW_NS = 5000000,
    RUN_LEAST = 64 << 10, /* rails: bytes; what is this small would be copied */
    MSG_PARTS = 16,
    SLOWEST = 16, /* a channel counts as at least this part of the fastest */
};
/* Bytes. The first is short: what one connection seems to carry at first is partly what buffers on the way took in, and a
 * try that failed by that is the rule's only costly mistake. */
static const uint64_t first_pause = 256ull << 20, longest_pause = 1ull << 36;
static const double worth_it =
    0.25; /* of the gain of channels that each carry as much, one more channel must bring this */

/* --- which channel carries what --- */

size_t rg_multipath_piece_size(size_t total, unsigned index)
{
    const size_t offset = (size_t)index * RG_PIECE;
    return total - offset < RG_PIECE ? total - offset : RG_PIECE;
}

unsigned rg_multipath_channel_of(uint64_t route, unsigned index)
{
    return (unsigned)(route >> (4 * index)) & 15;
}

/* As many pieces for each channel as before, but side by side: what one carries is one message then. */
static uint64_t gather_runs(uint64_t route, unsigned pieces, uint64_t number)
{
    unsigned count[RG_MULTIPATH_CHANNELS] = {0}, piece = 0;
    uint64_t gathered = 0;
    for (unsigned i = 0; i < pieces; i++)
        count[rg_multipath_channel_of(route, i)]++;
    for (unsigned turn = 0; turn < RG_MULTIPATH_CHANNELS; turn++) {
        const unsigned channel = (unsigned)((number + turn) % RG_MULTIPATH_CHANNELS);
        while (count[channel]--)
            gathered |= (uint64_t)channel << (4 * piece++);
    }
    return gathered;
}

/* Schedules the pieces so that the channels are done at the same time, as far as is known; the lock is held. One is left. */
static uint64_t schedule(struct multipath *b, uint64_t number, size_t size)
{
    const unsigned n_channels = atomic_load(&b->n_channels), active = atomic_load(&b->active);
    const unsigned n = active < n_channels ? active : n_channels;
    double takes[RG_MULTIPATH_CHANNELS], fastest = 1, first = 1e9;
    uint64_t route = 0;
    unsigned pieces = 0;
    for (unsigned i = 0; i < n; i++)
        if (!b->channels[i].dropped && b->channels[i].rate > fastest)
            fastest = b->channels[i].rate;
    for (unsigned i = 0; i < n; i++) {
        const double rate = b->channels[i].rate;
        takes[i] = RG_PIECE / (rate <= 0 ? fastest : rate < fastest / SLOWEST ? fastest / SLOWEST : rate);
    }
    for (unsigned piece = 0; piece * (size_t)RG_PIECE < size; piece++) {
        unsigned best = (unsigned)(number % n);
        while (b->channels[best].dropped)
            best = (best + 1) % n;
        for (unsigned i = 0; i < n; i++)
            if (!b->channels[i].dropped &&
                b->channels[i].due + takes[i] < b->channels[best].due + takes[best])
                best = i;
        b->channels[best].due += takes[best];
        route |= (uint64_t)best << (4 * piece);
        pieces++;
    }
    for (unsigned i = 0; i < n; i++)
        first = !b->channels[i].dropped && b->channels[i].due < first ? b->channels[i].due : first;
    for (unsigned i = 0; i < n; i++) { /* none is held back for long by what it once was */
        b->channels[i].due -= first;
        if (b->channels[i].due > SLOWEST * takes[i])
            b->channels[i].due = SLOWEST * takes[i];
    }
    if (!b->options.rails)
        return route;
    route = gather_runs(route, pieces, number);
    const unsigned last = pieces - 1;
    if (last && rg_multipath_piece_size(size, last) < RUN_LEAST) { /* too small for a message of its own */
        route &= ~((uint64_t)15 << (4 * last));
        route |= (uint64_t)rg_multipath_channel_of(route, last - 1) << (4 * last);
    }
    return route;
}

/* --- one piece --- */

/* The parts of [offset, offset + size) of the message's bulk data; returns how many. */
int rg_multipath_slice(const struct job *job, size_t offset, size_t size, struct iovec *out)
{
    int n = 0;
    for (int i = 0; i < job->n_bulk && size; i++) {
        const struct iovec *part = &job->bulk[i];
        if (offset >= part->iov_len) {
            offset -= part->iov_len;
            continue;
        }
        const size_t taken = part->iov_len - offset < size ? part->iov_len - offset : size;
        out[n++] = (struct iovec){(char *)part->iov_base + offset, taken};
        size -= taken;
        offset = 0;
    }
    return n;
}

static bool buffers(struct channel *channel)
{
    if (!channel->plain)
        channel->plain = malloc(RG_PIECE);
    if (!channel->packed)
        channel->packed = malloc(RG_PIECE);
    return channel->plain && channel->packed;
}

/* Into memory of ours, as the compressors need it; zeros for what cannot be read. False: some could not. */
static bool gather(struct channel *channel, const struct iovec *parts, int n)
{
    unsigned char *at = channel->plain;
    bool good = true;
    for (int i = 0; i < n; i++) {
        if (!rg_safe_copy_from(at, parts[i].iov_base, parts[i].iov_len)) {
            memset(at, 0, parts[i].iov_len);
            good = false;
        }
        at += parts[i].iov_len;
    }
    return good;
}

/* Compresses what has been gathered; returns the size in channel->packed, 0: better as it is. */
static size_t pack(struct channel *channel, enum rg_compression codec, size_t size)
{
    const uint64_t since = rg_now_ns();
    const size_t packed = rg_codec_pack(codec, channel->packed, size - size / 16, channel->plain, size);
    rg_compression_policy_tried(&channel->multipath->policy, codec, size, packed, rg_now_ns() - since);
    return packed;
}

/* Tries the codecs, if need be, and compresses. Returns the codec; *packed bytes are in channel->packed. */
static enum rg_compression choose(struct channel *channel, const struct iovec *parts, int n, size_t size,
                                  size_t *packed, bool *gathered, bool *fault)
{
    struct rg_compression_policy *policy = &channel->multipath->policy;
    struct rg_compression_choice choice = rg_compression_policy_choose(policy);
    if ((choice.codec == RG_COMPRESS_NONE && !choice.sample) || !buffers(channel))
        return RG_COMPRESS_NONE;
    *fault = !gather(channel, parts, n);
    *gathered = true;
    if (choice.sample) {
        for (enum rg_compression codec = RG_COMPRESS_LZ4; codec <= RG_COMPRESS_ZSTD; codec++)
            if (channel->multipath->options.codecs >> (codec - 1) & 1)
                (void)pack(channel, codec, size);
        choice.codec = rg_compression_policy_decide(policy);
    }
    *packed = choice.codec == RG_COMPRESS_NONE ? 0 : pack(channel, choice.codec, size);
    return *packed ? choice.codec : RG_COMPRESS_NONE;
}

static enum rg_status send_piece(struct channel *channel, const struct job *job, unsigned index)
{
    struct multipath *b = channel->multipath;
    struct iovec parts[RG_MULTIPATH_ROWS];
    const size_t size = rg_multipath_piece_size(job->size, index);
    int n = rg_multipath_slice(job, (size_t)index * RG_PIECE, size, parts);
    size_t packed = 0;
    bool gathered = false, fault = false;
    const enum rg_compression codec = choose(channel, parts, n, size, &packed, &gathered, &fault);
    if (gathered) {
        parts[0] = codec ? (struct iovec){channel->packed, packed} : (struct iovec){channel->plain, size};
        n = 1;
    }
    struct rg_piece head = {.kind = RG_MESSAGE_PIECE,
                            .version = RG_PROTOCOL_MAJOR,
                            .index = (uint16_t)index,
                            .codec = (uint8_t)codec,
                            .number = job->number};
    const struct iovec message = {&head, sizeof head};
    const uint64_t since = rg_now_ns();
    enum rg_status status = rg_conn_send(
        channel->conn, &(struct rg_send){.msg = &message, .n_msg = 1, .bulk = parts, .n_bulk = n});
    if (codec == RG_COMPRESS_NONE)
        rg_compression_policy_sent_plain(&b->policy, size, rg_now_ns() - since);
    if (codec != RG_COMPRESS_NONE) {
        atomic_fetch_add_explicit(&b->pressed_from, size, memory_order_relaxed);
        atomic_fetch_add_explicit(&b->pressed_to, packed, memory_order_relaxed);
    }
    return status == RG_OK && fault ? RG_ERR_FAULT : status;
}

/* --- the pieces of one message --- */

/* Sends what of a message belongs to a channel, and takes the channel off those that are waited for. */
static void send_part(struct channel *channel, struct job *job)
{
    struct multipath *b = channel->multipath;
    const unsigned own = (unsigned)(channel - b->channels);
    const uint64_t since = rg_now_ns();
    enum rg_status worst = RG_OK;
    size_t bytes = 0;
    uint32_t undelivered = 0;
    if (b->options.rails) {
        bool fault = false;
        for (unsigned i = 0; i * (size_t)RG_PIECE < job->size; i++)
            undelivered |= (uint32_t)(rg_multipath_channel_of(job->route, i) == own) << i;
        undelivered = rg_multirail_send(channel, job, undelivered, false, 0, &bytes, &fault);
        worst = fault ? RG_ERR_FAULT : RG_OK;
    }
    for (unsigned i = 0;
         !b->options.rails && i * (size_t)RG_PIECE < job->size && (worst == RG_OK || worst == RG_ERR_FAULT);
         i++) {
        if (rg_multipath_channel_of(job->route, i) != own)
            continue;
        const enum rg_status status = send_piece(channel, job, i);
        if (status != RG_OK)
            worst = status;
        bytes += rg_multipath_piece_size(job->size, i);
    }
    if (worst != RG_OK && worst != RG_ERR_FAULT)
        rg_multipath_break(b, channel, worst, "sending");
    const uint64_t ns = rg_now_ns() - since;
    pthread_mutex_lock(&b->lock);
    channel->sent += bytes;
    channel->ns += ns;
    if (job->status == RG_OK || (worst != RG_OK && worst != RG_ERR_FAULT))
        job->status = worst;
    job->undelivered |= undelivered;
    job->given_up |= (uint8_t)((undelivered != 0) << own);
    channel->job = NULL;
    job->channels_left--;
    pthread_cond_broadcast(&b->changed);
    if (channel->dropped)
        pthread_cond_broadcast(&b->keep);
    pthread_mutex_unlock(&b->lock);
}

static void *channel_main(void *arg)
{
    struct channel *channel = arg;
    struct multipath *b = channel->multipath;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        while (!channel->job && !b->ending)
            pthread_cond_wait(&channel->wake, &b->lock);
        struct job *job = channel->job;
        if (!job)
            break;
        pthread_mutex_unlock(&b->lock);
        send_part(channel, job);
        pthread_mutex_lock(&b->lock);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

void rg_multipath_end_threads(struct multipath *b)
{
    pthread_mutex_lock(&b->lock);
    b->ending = true;
    for (unsigned i = 0; i < RG_MULTIPATH_CHANNELS; i++)
        pthread_cond_signal(&b->channels[i].wake);
    pthread_cond_broadcast(&b->keep);
    pthread_mutex_unlock(&b->lock);
    for (unsigned i = 0; i < RG_MULTIPATH_CHANNELS; i++)
        if (b->channels[i].thread_runs)
            pthread_join(b->channels[i].thread, NULL);
}

/* Gives a channel's part of a job to its thread; false: there is none to be had. */
static bool give(struct channel *channel, struct job *job)
{
    if (!channel->thread_runs)
        channel->thread_runs =
            rg_thread_create(&channel->thread, "rg-channel", channel_main, channel) == RG_OK;
    if (!channel->thread_runs)
        return false;
    pthread_mutex_lock(&channel->multipath->lock);
    channel->job = job;
    pthread_cond_signal(&channel->wake);
    pthread_mutex_unlock(&channel->multipath->lock);
    return true;
}

/*
 * What the channels can do, from what they did with this job in `ns` and with those before. A channel that was done early counts
 * as twice as fast at most: what a buffer takes at once says little about the link. The lock is held.
 */
static void rate_channels(struct multipath *b, size_t size, uint64_t ns)
{
    const unsigned n = atomic_load(&b->n_channels);
    b->measured += size;
    b->measured_ns += ns;
    if (b->measured < n * (uint64_t)MEASURED_BYTES)
        return;
    for (unsigned i = 0; i < n; i++) {
        struct channel *channel = &b->channels[i];
        const uint64_t took = channel->ns > b->measured_ns / 2 ? channel->ns : b->measured_ns / 2;
        const double rate = (double)channel->sent * 1e9 / (double)(took ? took : 1);
        if (!channel->sent)
            channel->rate += channel->rate / 4; /* it is tried again in time */
        else
            channel->rate = channel->rate > 0 ? (channel->rate + rate) / 2 : rate;
        channel->sent = channel->ns = 0;
    }
    b->measured = b->measured_ns = 0;
}

/* Sends all pieces; the turn is this message's. */
static enum rg_status send_pieces(struct multipath *b, struct job *job)
{
    bool takes_part[RG_MULTIPATH_CHANNELS] = {false};
    for (unsigned i = 0; i * (size_t)RG_PIECE < job->size; i++)
        takes_part[rg_multipath_channel_of(job->route, i)] = true;
    for (unsigned i = 0; i < RG_MULTIPATH_CHANNELS; i++)
        job->channels_left += takes_part[i];
    const unsigned own = rg_multipath_channel_of(job->route, 0);
    const uint64_t since = rg_now_ns();
    for (unsigned i = 0; i < RG_MULTIPATH_CHANNELS; i++)
        takes_part[i] = takes_part[i] && i != own && !give(&b->channels[i], job);
    send_part(&b->channels[own], job);
    for (unsigned i = 0; i < RG_MULTIPATH_CHANNELS; i++)
        if (takes_part[i]) /* without a thread of its own */
            send_part(&b->channels[i], job);
    pthread_mutex_lock(&b->lock);
    while (job->channels_left)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
    if (b->options.rails)
        rg_multirail_send_again(b, job);
    pthread_mutex_lock(&b->lock);
    rate_channels(b, job->size, rg_now_ns() - since);
    const enum rg_status status = job->status;
    pthread_mutex_unlock(&b->lock);
    return status;
}

/* --- how many channels --- */

/* After a message of `size` bytes that took so long: tries one more channel now and then, and keeps it if that is faster. */
static void grow(struct multipath *b, size_t size, uint64_t ns)
{
    struct channel_count *g = &b->channel_count;
    if (!b->options.adaptive)
        return;
    g->bytes += size;
    g->ns += ns;
    g->rest -= g->rest < size ? g->rest : size;
    if (g->bytes < WINDOW_BYTES || g->ns < WINDOW_NS)
        return;
    const double rate = (double)g->bytes * 1e9 / (double)g->ns;
    const unsigned active = atomic_load(&b->active);
    g->bytes = g->ns = 0;
    if (g->fresh) {
        g->fresh = false;
    } else if (g->trying) {
        g->trying = false;
        rg_debug("%s: %u connections for bulk data: %.0f MB/s, with one less %.0f MB/s", b->head.peer, active,
                 rate / 1e6, g->before / 1e6);
        if (rate > g->before * (1 + worth_it / (active - 1))) {
            g->rest = g->pause = 0;
        } else {
            atomic_store(&b->active, active - 1);
            g->pause = !g->pause ? first_pause : g->pause * 2 < longest_pause ? g->pause * 2 : longest_pause;
            g->rest = g->pause;
        }
    } else if (!g->rest && active < b->options.channels) {
        g->before = rate;
        if (atomic_load(&b->n_channels) > active) {
            atomic_store(&b->active, active + 1);
            g->trying = g->fresh = true;
        } else {
            rg_multipath_want(b, active + 1, 0);
        }
    }
}

/* --- messages --- */

/* Whether the bulk data travels by channels. */
static bool goes_out_of_band(const struct multipath *b, const struct rg_send *send)
{
    if (send->msg_size > RG_MESSAGE_MAX - sizeof(struct rg_out_of_band) || send->n_msg >= MSG_PARTS ||
        send->n_bulk > RG_MULTIPATH_ROWS)
        return false;
    return b->options.rails ? send->bulk_size >= RG_MULTIRAIL_MIN && atomic_load(&b->striping.on)
                            : send->bulk_size >= RG_MULTIPATH_MIN &&
                                  atomic_load_explicit(&b->n_channels, memory_order_acquire) > 0;
}

/* The message, with what says where its bulk data travels. */
static enum rg_status send_head(struct multipath *b, struct rg_send *send)
{
    struct rg_out_of_band head = {.kind = RG_MESSAGE_OUT_OF_BAND,
                                  .version = RG_PROTOCOL_MAJOR,
                                  .bulk_size = (uint32_t)send->bulk_size,
                                  .number = b->last_number + 1};
    pthread_mutex_lock(&b->lock);
    enum rg_status status = b->send_failed;
    if (status == RG_OK && b->options.rails && !rg_multirail_living(b))
        status = RG_ERR_LOST;
    head.wanted = (uint8_t)b->wanted;
    if (status == RG_OK)
        head.route = schedule(b, head.number, send->bulk_size);
    pthread_mutex_unlock(&b->lock);
    if (status != RG_OK)
        return status;
    struct iovec parts[MSG_PARTS] = {{&head, sizeof head}};
    memcpy(parts + 1, send->msg, (size_t)send->n_msg * sizeof *parts);
    b->last_number = send->number = head.number;
    send->route = head.route;
    status = rg_conn_send(b->first, &(struct rg_send){.msg = parts, .n_msg = send->n_msg + 1});
    if (status != RG_OK)
        rg_multipath_break(b, NULL, status, "sending");
    return status;
}

enum rg_status rg_multipath_send_detached(struct rg_conn *conn, struct rg_send *send)
{
    struct multipath *b = (struct multipath *)conn;
    struct job job = {.bulk = send->bulk,
                      .n_bulk = send->n_bulk,
                      .size = send->bulk_size,
                      .number = send->number,
                      .route = send->route};
    pthread_mutex_lock(&b->lock);
    while (b->turn != send->number && b->send_failed == RG_OK)
        pthread_cond_wait(&b->changed, &b->lock);
    enum rg_status status = b->send_failed;
    pthread_mutex_unlock(&b->lock);
    if (status != RG_OK)
        return status;
    if (b->options.rails) {
        job.tag = rg_multirail_tag(b, &job, send->tag);
        job.base = send->base;
    }
    const uint64_t since = rg_now_ns();
    status = send_pieces(b, &job);
    if (status == RG_OK && b->options.rails)
        rg_striping_sent(b, job.size, rg_now_ns() - since, true);
    else if (status == RG_OK)
        grow(b, job.size, rg_now_ns() - since);
    pthread_mutex_lock(&b->lock);
    b->turn++;
    if (status != RG_OK && status != RG_ERR_FAULT && b->send_failed != RG_OK)
        status = b->send_failed;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return status;
}

/* By the first connection alone. */
static enum rg_status send_whole(struct multipath *b, struct rg_send *send)
{
    if (send->bulk_size >= RG_MULTIPATH_MIN)
        rg_multipath_want(b, 0, send->bulk_size);
    const uint64_t since = rg_now_ns();
    const bool large = b->options.rails && send->bulk_size >= RG_MULTIRAIL_MIN;
    enum rg_status status = RG_OK;
    if (large) {
        pthread_mutex_lock(&b->lock);
        status = b->send_failed;
        pthread_mutex_unlock(&b->lock);
    }
    if (status == RG_OK)
        status = rg_conn_send(b->first, send);
    if (large && status == RG_OK)
        rg_striping_sent(b, send->bulk_size, rg_now_ns() - since, false);
    return status;
}

enum rg_status rg_multipath_send(struct rg_conn *conn, struct rg_send *send)
{
    struct multipath *b = (struct multipath *)conn;
    if (!goes_out_of_band(b, send))
        return send_whole(b, send);
    const enum rg_status status = send_head(b, send);
    send->detached = status == RG_OK && send->detachable;
    return status != RG_OK || send->detached ? status : rg_multipath_send_detached(conn, send);
}
