/*
 * send.c - pieces out, compressed where that is faster; and how many channels are used.
 *
 * What fails is the fanout's: a channel that breaks ends all, memory that cannot be read goes out as zeros.
 * Threads: a channel's thread, or the sender for it, is alone with the channel's buffers.
 */
#include "transport/multipath/internal.h"

#include "common/base/clock.h"
#include "common/base/safe_copy.h"

#include <stdlib.h>

/*
 * The first pause is short: what one connection seems to carry at first is partly what buffers on the way
 * took in, and a try that failed by that is the rule's only costly mistake.
 */
static const struct rg_trial_settings more_channels = {
    .window_bytes = 24 << 20,
    .window_ns = 5000000,
    .pause_bytes = {.least = 256ull << 20, .first = 256ull << 20, .most = 1ull << 36},
};
static const double worth_it =
    0.25; /* of the gain of channels that each carry as much, one more must bring this */

/* --- one piece --- */

static bool buffers(struct path *path)
{
    if (!path->plain)
        path->plain = malloc(RG_PIECE);
    if (!path->packed)
        path->packed = malloc(RG_PIECE);
    return path->plain && path->packed;
}

/* Into memory of ours, as the compressors need it; zeros for what cannot be read. False: some could not. */
static bool gather(struct path *path, const struct iovec *parts, int n)
{
    unsigned char *at = path->plain;
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

/* Compresses what has been gathered; returns the size in path->packed, 0: better as it is. */
static size_t pack(struct multipath *m, struct path *path, enum rg_compression codec, size_t size)
{
    const uint64_t since = rg_now_ns();
    const size_t packed = rg_codec_pack(codec, path->packed, size - size / 16, path->plain, size);
    rg_compression_policy_tried(&m->policy, codec, size, packed, rg_now_ns() - since);
    return packed;
}

/* Tries the codecs, if need be, and compresses. Returns the codec; *packed bytes are in path->packed. */
static enum rg_compression choose(struct multipath *m, struct path *path, const struct iovec *parts, int n,
                                  size_t size, size_t *packed, bool *gathered, bool *fault)
{
    struct rg_compression_policy *policy = &m->policy;
    struct rg_compression_choice choice = rg_compression_policy_choose(policy);
    if ((choice.codec == RG_COMPRESS_NONE && !choice.sample) || !buffers(path))
        return RG_COMPRESS_NONE;
    *fault = !gather(path, parts, n);
    *gathered = true;
    if (choice.sample) {
        for (enum rg_compression codec = RG_COMPRESS_LZ4; codec <= RG_COMPRESS_ZSTD; codec++)
            if (m->options.codecs >> (codec - 1) & 1)
                (void)pack(m, path, codec, size);
        choice.codec = rg_compression_policy_decide(policy);
    }
    *packed = choice.codec == RG_COMPRESS_NONE ? 0 : pack(m, path, choice.codec, size);
    return *packed ? choice.codec : RG_COMPRESS_NONE;
}

static enum rg_status send_piece(struct path *path, const struct rg_send *send, unsigned index)
{
    struct multipath *m = (struct multipath *)path->base.fanout;
    struct iovec *const parts = path->parts;
    const size_t size = rg_fanout_piece_size(send->bulk_size, index);
    int n = rg_fanout_slice(send, (size_t)index * RG_PIECE, size, parts);
    size_t packed = 0;
    bool gathered = false, fault = false;
    const enum rg_compression codec = choose(m, path, parts, n, size, &packed, &gathered, &fault);
    if (gathered) {
        parts[0] = codec ? (struct iovec){path->packed, packed} : (struct iovec){path->plain, size};
        n = 1;
    }
    struct rg_piece head = {.kind = RG_MESSAGE_PIECE,
                            .version = RG_PROTOCOL_MAJOR,
                            .index = (uint16_t)index,
                            .codec = (uint8_t)codec,
                            .number = send->number};
    const struct iovec message = {&head, sizeof head};
    const uint64_t since = rg_now_ns();
    enum rg_status status = rg_conn_send(
        path->base.conn, &(struct rg_send){.msg = &message, .n_msg = 1, .bulk = parts, .n_bulk = n});
    if (codec == RG_COMPRESS_NONE)
        rg_compression_policy_sent_plain(&m->policy, size, rg_now_ns() - since);
    if (codec != RG_COMPRESS_NONE) {
        atomic_fetch_add_explicit(&m->compressed_from, size, memory_order_relaxed);
        atomic_fetch_add_explicit(&m->compressed_to, packed, memory_order_relaxed);
    }
    return status == RG_OK && fault ? RG_ERR_FAULT : status;
}

/* --- messages --- */

static enum rg_status send_part(struct rg_channel *channel, struct rg_sending *sending, size_t *bytes)
{
    const struct rg_send *send = sending->send;
    enum rg_status worst = RG_OK;
    for (unsigned i = 0; i * (size_t)RG_PIECE < send->bulk_size && (worst == RG_OK || worst == RG_ERR_FAULT);
         i++) {
        if (rg_fanout_channel_of(send->route, i) != channel->index)
            continue;
        const enum rg_status status = send_piece((struct path *)channel, send, i);
        if (status != RG_OK)
            worst = status;
        *bytes += rg_fanout_piece_size(send->bulk_size, i);
    }
    return worst;
}

static void lost(struct rg_fanout *f, const struct rg_channel *channel)
{
    const struct multipath *m = (const struct multipath *)f;
    if (m->options.lost)
        m->options.lost(m->options.user, channel->index);
}

const struct rg_fanout_kind rg_multipath_kind = {
    .least = RG_MULTIPATH_MIN, .send_part = send_part, .lost = lost};

/*
 * After a message of `size` bytes that took so long: tries one more channel now and then, and keeps it if
 * that is faster.
 */
static void adapt(struct multipath *m, size_t size, uint64_t ns)
{
    struct rg_trial *trial = &m->more_channels;
    const unsigned active = atomic_load(&m->f.active);
    if (!m->options.adaptive)
        return;
    const enum rg_trial_step step =
        rg_trial_sent(trial, &more_channels, size, ns, 1 + worth_it / (active > 1 ? active - 1 : 1));
    if (step == RG_TRIAL_KEEP || step == RG_TRIAL_GIVE_UP)
        rg_debug("%s: %u connections for bulk data: %.0f MB/s, with one less %.0f MB/s", m->f.head.peer,
                 active, trial->rate / 1e6, trial->before / 1e6);
    if (step == RG_TRIAL_GIVE_UP) {
        atomic_store(&m->f.active, active - 1);
    } else if (step == RG_TRIAL_READY && active < m->options.channels) {
        if (atomic_load(&m->f.n_channels) > active) {
            atomic_store(&m->f.active, active + 1);
            rg_trial_begin(trial);
        } else {
            rg_multipath_want(m, active + 1, 0);
        }
    }
}

enum rg_status rg_multipath_send_detached(struct rg_conn *conn, struct rg_send *send)
{
    struct multipath *m = (struct multipath *)conn;
    struct rg_sending sending = {.send = send};
    RG_TRY(rg_fanout_begin(&m->f, send));
    const uint64_t since = rg_now_ns();
    rg_fanout_send_pieces(&m->f, &sending);
    const uint64_t ns = rg_now_ns() - since;
    if (sending.status == RG_OK)
        adapt(m, send->bulk_size, ns);
    return rg_fanout_end(&m->f, &sending, ns);
}

enum rg_status rg_multipath_send(struct rg_conn *conn, struct rg_send *send)
{
    struct multipath *m = (struct multipath *)conn;
    if (!rg_fanout_fits(&m->f, send) || !atomic_load_explicit(&m->f.n_channels, memory_order_acquire)) {
        if (send->bulk_size >= RG_MULTIPATH_MIN)
            rg_multipath_want(m, 0, send->bulk_size);
        return rg_conn_send(m->f.first, send);
    }
    if (m->options.again_ns) /* one that could not be had may be there now */
        rg_multipath_want(m, 0, 0);
    const enum rg_status status = rg_fanout_send_head(&m->f, send);
    return status != RG_OK || send->detached ? status : rg_multipath_send_detached(conn, send);
}
