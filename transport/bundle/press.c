/* press.c - see press.h. */
#include "transport/bundle/press.h"

#include "common/base/log.h"

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

void rg_press_init(struct rg_press *press, enum rg_compression asked)
{
    *press = (struct rg_press){.asked = asked, .interval = FIRST_SAMPLE, .confirm = FIRST_CONFIRM};
    pthread_mutex_init(&press->lock, NULL);
}

void rg_press_fini(struct rg_press *press)
{
    pthread_mutex_destroy(&press->lock);
}

static void forget_wire(struct rg_press *press)
{
    press->wire = 0;
    press->plain_bytes = press->plain_ns = press->skipped = 0;
}

struct rg_press_choice rg_press_choose(struct rg_press *press)
{
    if (press->asked != RG_COMPRESS_AUTO)
        return (struct rg_press_choice){press->asked, false};
    struct rg_press_choice choice = {RG_COMPRESS_NONE, false};
    pthread_mutex_lock(&press->lock);
    press->pieces++;
    if (press->now != RG_COMPRESS_NONE && press->pieces >= press->confirm) {
        press->now = RG_COMPRESS_NONE;
        press->pieces = 0;
        press->interval = FIRST_SAMPLE;
        press->confirm = press->confirm * 2 < RARE_CONFIRM ? press->confirm * 2 : RARE_CONFIRM;
        forget_wire(press);
    } else if (press->now == RG_COMPRESS_NONE && press->pieces >= press->interval && press->wire > 0) {
        press->pieces = 0;
        choice.sample = press->wire < fastest_wire;
        for (int codec = RG_COMPRESS_LZ4; codec <= RG_COMPRESS_ZSTD; codec++)
            press->rate[codec] = press->left[codec] = 0; /* what was known is of other data */
    }
    choice.codec = press->now;
    pthread_mutex_unlock(&press->lock);
    return choice;
}

static void smooth(double *value, double next)
{
    *value = *value > 0 ? *value + (next - *value) / 4 : next;
}

/* Seconds a byte takes with a codec, overlapped with the wire. */
static double cost(const struct rg_press *press, enum rg_compression codec)
{
    if (press->rate[codec] <= 0)
        return 1e9;
    const double packing = 1 / press->rate[codec], sending = press->left[codec] / press->wire;
    return packing > sending ? packing : sending;
}

void rg_press_tried(struct rg_press *press, enum rg_compression codec, uint64_t size, uint64_t packed,
                    uint64_t ns)
{
    if (press->asked != RG_COMPRESS_AUTO)
        return;
    pthread_mutex_lock(&press->lock);
    smooth(&press->rate[codec], (double)size * 1e9 / (double)(ns ? ns : 1));
    smooth(&press->left[codec], packed ? (double)packed / (double)size : 1);
    if (press->now == codec && press->wire > 0 && cost(press, codec) > gain / press->wire) {
        press->now = RG_COMPRESS_NONE;
        press->pieces = 0;
        press->interval = FIRST_SAMPLE * 2;
        press->confirm = FIRST_CONFIRM;
        forget_wire(press);
    }
    pthread_mutex_unlock(&press->lock);
}

enum rg_compression rg_press_decide(struct rg_press *press)
{
    pthread_mutex_lock(&press->lock);
    const enum rg_compression best =
        cost(press, RG_COMPRESS_LZ4) <= cost(press, RG_COMPRESS_ZSTD) ? RG_COMPRESS_LZ4 : RG_COMPRESS_ZSTD;
    const bool faster = press->wire > 0 && cost(press, best) < gain / press->wire;
    press->now = faster ? best : RG_COMPRESS_NONE;
    if (!faster)
        press->confirm = FIRST_CONFIRM;
    if (!faster)
        press->interval = press->interval * 2 < RARE_SAMPLE ? press->interval * 2 : RARE_SAMPLE;
    rg_debug("compression: wire %.0f MB/s, lz4 %.0f MB/s leaves %.2f, zstd %.0f MB/s leaves %.2f: %s",
             press->wire / 1e6, press->rate[RG_COMPRESS_LZ4] / 1e6, press->left[RG_COMPRESS_LZ4],
             press->rate[RG_COMPRESS_ZSTD] / 1e6, press->left[RG_COMPRESS_ZSTD],
             !faster                   ? "none"
             : best == RG_COMPRESS_LZ4 ? "lz4"
                                       : "zstd");
    const enum rg_compression now = press->now;
    pthread_mutex_unlock(&press->lock);
    return now;
}

void rg_press_sent_plain(struct rg_press *press, uint64_t bytes, uint64_t ns)
{
    if (press->asked != RG_COMPRESS_AUTO)
        return;
    pthread_mutex_lock(&press->lock);
    if (press->skipped < SKIPPED_BYTES) {
        press->skipped += bytes;
    } else {
        press->plain_bytes += bytes;
        press->plain_ns += ns;
    }
    if (press->plain_bytes >= MEASURED_BYTES) {
        smooth(&press->wire,
               (double)press->plain_bytes * 1e9 / (double)(press->plain_ns ? press->plain_ns : 1));
        press->plain_bytes = press->plain_ns = 0;
    }
    pthread_mutex_unlock(&press->lock);
}
