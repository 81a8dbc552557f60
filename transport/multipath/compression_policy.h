/*
 * compression_policy.h - decides for each piece whether to compress it.
 *
 * With a codec asked for by name every piece is tried. With `auto` a model decides: sending a byte as it is
 * takes 1 / w (w: the measured rate of the channel), compressed it takes the longer of 1 / c (the
 * compressor's rate; it works while the wire does) and r / w (r: what is left of a byte). Samples are taken
 * of every so many pieces, less often the more often they said no, and not at all where the wire is faster
 * than compressors are. While compression is on, the wire is measured again now and then by pieces as they
 * are, since a wire that does not block cannot be measured.
 */
#ifndef RG_TRANSPORT_MULTIPATH_COMPRESSION_POLICY_H
#define RG_TRANSPORT_MULTIPATH_COMPRESSION_POLICY_H

#include "transport/multipath/codec.h"

#include <pthread.h>
#include <stdint.h>

struct rg_compression_policy {
    pthread_mutex_t lock;
    enum rg_compression asked;
    /* the rest: auto; guarded by the lock */
    enum rg_compression now;
    double wire;                    /* bytes a second; 0: not known */
    uint64_t plain_bytes, plain_ns; /* of the measurement under way */
    uint64_t skipped;               /* bytes before it that filled buffers */
    double rate[3], left[3];        /* by codec: bytes a second, part that is left; 0: not known */
    unsigned confirm;               /* pieces that are compressed until the wire is measured again */
    unsigned pieces, interval;      /* since the last sample or change; until the next */
};

/** What to do with one piece. */
struct rg_compression_choice {
    enum rg_compression codec; /* as this it goes */
    bool
        sample; /* codecs are to be tried on it (rg_compression_policy_tried) first; the choice is made again then */
};

/** `asked`: a codec, RG_COMPRESS_NONE, or RG_COMPRESS_AUTO, with which it is measured what is faster. */
void rg_compression_policy_init(struct rg_compression_policy *policy, enum rg_compression asked);
void rg_compression_policy_fini(struct rg_compression_policy *policy);
/** For the next piece. Any thread. */
struct rg_compression_choice rg_compression_policy_choose(struct rg_compression_policy *policy);
/** A piece of `size` bytes became `packed` (0: it did not get smaller) in so much time. */
void rg_compression_policy_tried(struct rg_compression_policy *policy, enum rg_compression codec,
                                 uint64_t size, uint64_t packed, uint64_t ns);
/** After the tries of a sample: what to do with that piece. */
enum rg_compression rg_compression_policy_decide(struct rg_compression_policy *policy);
/** So many bytes of a piece that was not compressed took so long to send. */
void rg_compression_policy_sent_plain(struct rg_compression_policy *policy, uint64_t bytes, uint64_t ns);

#endif
