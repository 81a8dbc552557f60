/* compression_policy.c - see compression_policy.h. */
#include "transport/multipath/compression_policy.h"

#include "common/base/log.h"
#include "common/sync/adaptive.h"
#include "common/sync/scoped_lock.h"

enum {
    SKIPPED_BYTES = 3 << 20,  /* buffers of sockets take these at once */
    MEASURED_BYTES = 1 << 20, /* of which a rate is told */
    FIRST_SAMPLE = 17,        /* pieces */
    RARE_SAMPLE = 1024,
    FIRST_CONFIRM =
        128, /* pieces compressed before the wire is measured again, doubled when that has said the same */
    RARE_CONFIRM = 2048,
};
static const double fastest_wire = 1.5e9; /* bytes a second; no compressor keeps up with a faster one */
static const double gain = 0.9;           /* compression must take less than this part of the time */

void rg_compression_policy_init(struct rg_compression_policy *policy, enum rg_compression asked)
{
    *policy =
        (struct rg_compression_policy){.asked = asked, .interval = FIRST_SAMPLE, .confirm = FIRST_CONFIRM};
    pthread_mutex_init(&policy->lock, NULL);
}

void rg_compression_policy_fini(struct rg_compression_policy *policy)
{
    pthread_mutex_destroy(&policy->lock);
}

static void forget_wire(struct rg_compression_policy *policy)
{
    policy->wire = 0;
    policy->plain_bytes = policy->plain_ns = policy->skipped = 0;
}

struct rg_compression_choice rg_compression_policy_choose(struct rg_compression_policy *policy)
{
    if (policy->asked != RG_COMPRESS_AUTO)
        return (struct rg_compression_choice){policy->asked, false};
    struct rg_compression_choice choice = {RG_COMPRESS_NONE, false};
    RG_SCOPED_LOCK(&policy->lock);
    policy->pieces++;
    if (policy->now != RG_COMPRESS_NONE && policy->pieces >= policy->confirm) {
        policy->now = RG_COMPRESS_NONE;
        policy->pieces = 0;
        policy->interval = FIRST_SAMPLE;
        policy->confirm = policy->confirm * 2 < RARE_CONFIRM ? policy->confirm * 2 : RARE_CONFIRM;
        forget_wire(policy);
    } else if (policy->now == RG_COMPRESS_NONE && policy->pieces >= policy->interval && policy->wire > 0) {
        policy->pieces = 0;
        choice.sample = policy->wire < fastest_wire;
        for (int codec = RG_COMPRESS_LZ4; codec <= RG_COMPRESS_ZSTD; codec++)
            policy->rate[codec] = policy->left[codec] = 0; /* what was known is of other data */
    }
    choice.codec = policy->now;
    return choice;
}

/* Seconds a byte takes with a codec, overlapped with the wire. */
static double cost(const struct rg_compression_policy *policy, enum rg_compression codec)
{
    if (policy->rate[codec] <= 0)
        return 1e9;
    const double packing = 1 / policy->rate[codec], sending = policy->left[codec] / policy->wire;
    return packing > sending ? packing : sending;
}

void rg_compression_policy_tried(struct rg_compression_policy *policy, enum rg_compression codec,
                                 uint64_t size, uint64_t packed, uint64_t ns)
{
    if (policy->asked != RG_COMPRESS_AUTO)
        return;
    RG_SCOPED_LOCK(&policy->lock);
    policy->rate[codec] = rg_smoothed(policy->rate[codec], (double)size * 1e9 / (double)(ns ? ns : 1));
    policy->left[codec] = rg_smoothed(policy->left[codec], packed ? (double)packed / (double)size : 1);
    if (policy->now == codec && policy->wire > 0 && cost(policy, codec) > gain / policy->wire) {
        policy->now = RG_COMPRESS_NONE;
        policy->pieces = 0;
        policy->interval = FIRST_SAMPLE * 2;
        policy->confirm = FIRST_CONFIRM;
        forget_wire(policy);
    }
}

enum rg_compression rg_compression_policy_decide(struct rg_compression_policy *policy)
{
    RG_SCOPED_LOCK(&policy->lock);
    const enum rg_compression best =
        cost(policy, RG_COMPRESS_LZ4) <= cost(policy, RG_COMPRESS_ZSTD) ? RG_COMPRESS_LZ4 : RG_COMPRESS_ZSTD;
    const bool faster = policy->wire > 0 && cost(policy, best) < gain / policy->wire;
    policy->now = faster ? best : RG_COMPRESS_NONE;
    if (!faster)
        policy->confirm = FIRST_CONFIRM;
    if (!faster)
        policy->interval = policy->interval * 2 < RARE_SAMPLE ? policy->interval * 2 : RARE_SAMPLE;
    rg_debug("compression: wire %.0f MB/s, lz4 %.0f MB/s leaves %.2f, zstd %.0f MB/s leaves %.2f: %s",
             policy->wire / 1e6, policy->rate[RG_COMPRESS_LZ4] / 1e6, policy->left[RG_COMPRESS_LZ4],
             policy->rate[RG_COMPRESS_ZSTD] / 1e6, policy->left[RG_COMPRESS_ZSTD],
             !faster                   ? "none"
             : best == RG_COMPRESS_LZ4 ? "lz4"
                                       : "zstd");
    return policy->now;
}

void rg_compression_policy_sent_plain(struct rg_compression_policy *policy, uint64_t bytes, uint64_t ns)
{
    if (policy->asked != RG_COMPRESS_AUTO)
        return;
    RG_SCOPED_LOCK(&policy->lock);
    if (policy->skipped < SKIPPED_BYTES) {
        policy->skipped += bytes;
    } else {
        policy->plain_bytes += bytes;
        policy->plain_ns += ns;
    }
    if (policy->plain_bytes >= MEASURED_BYTES) {
        policy->wire = rg_smoothed(policy->wire, (double)policy->plain_bytes * 1e9 /
                                                     (double)(policy->plain_ns ? policy->plain_ns : 1));
        policy->plain_bytes = policy->plain_ns = 0;
    }
}
