/*
 * compression_policy.c - bulk data that is compressed, or not: the choice, and the counters of a connection.
 */
#include "tests/transport/support.h"

#include "transport/multipath/compression_policy.h"
#include "transport/multipath/wire.h"
#include "transport/state.h"

#include <string.h>

static const char address[] = "127.0.0.1:0";
static unsigned char data[2 * RG_PIECE], into[2 * RG_PIECE];

/* The model alone: rates as they would be measured. */
static void feed(struct rg_compression_policy *press, double wire, unsigned pieces)
{
    for (unsigned i = 0; i < pieces; i++)
        rg_compression_policy_sent_plain(press, RG_PIECE, (uint64_t)(RG_PIECE / wire * 1e9));
}

static enum rg_compression decide(double wire, double lz4, double lz4_left, double zstd, double zstd_left)
{
    struct rg_compression_policy press;
    rg_compression_policy_init(&press, RG_COMPRESS_AUTO);
    struct rg_compression_choice choice = {0};
    for (int i = 0; i < 10000 && !choice.sample; i++) {
        choice = rg_compression_policy_choose(&press);
        CHECK(choice.codec == RG_COMPRESS_NONE); /* nothing is known */
        feed(&press, wire, 1);
    }
    enum rg_compression decision = RG_COMPRESS_NONE;
    if (choice.sample) {
        rg_compression_policy_tried(&press, RG_COMPRESS_LZ4, RG_PIECE, (uint64_t)(RG_PIECE * lz4_left),
                                    (uint64_t)(RG_PIECE / lz4 * 1e9));
        rg_compression_policy_tried(&press, RG_COMPRESS_ZSTD, RG_PIECE, (uint64_t)(RG_PIECE * zstd_left),
                                    (uint64_t)(RG_PIECE / zstd * 1e9));
        decision = rg_compression_policy_decide(&press);
        CHECK(rg_compression_policy_choose(&press).codec == decision);
    }
    rg_compression_policy_fini(&press);
    return decision;
}

static void test_choice(void)
{
    CHECK(decide(10e6, 500e6, 0.5, 300e6, 0.3) == RG_COMPRESS_ZSTD);  /* slow: what is smallest */
    CHECK(decide(200e6, 500e6, 0.5, 250e6, 0.3) == RG_COMPRESS_LZ4);  /* what packs fast enough */
    CHECK(decide(1.2e9, 500e6, 0.1, 300e6, 0.1) == RG_COMPRESS_NONE); /* faster than both pack */
    CHECK(decide(5e9, 5e9, 0.01, 5e9, 0.01) == RG_COMPRESS_NONE);     /* no samples are taken */
    CHECK(decide(100e6, 2e9, 0, 400e6, 0) == RG_COMPRESS_NONE);       /* nothing gets smaller */
}

/* What stops being compressible stops being compressed, and samples become rare. */
static void test_choice_changes(void)
{
    struct rg_compression_policy press;
    rg_compression_policy_init(&press, RG_COMPRESS_AUTO);
    feed(&press, 100e6, 40);
    unsigned samples = 0, compressed = 0;
    for (unsigned i = 0; i < 20000; i++) {
        const struct rg_compression_choice choice = rg_compression_policy_choose(&press);
        enum rg_compression codec = choice.codec;
        const bool good = i < 1000; /* the data */
        if (choice.sample) {
            samples++;
            for (enum rg_compression c = RG_COMPRESS_LZ4; c <= RG_COMPRESS_ZSTD; c++)
                rg_compression_policy_tried(&press, c, RG_PIECE, good ? RG_PIECE / 10 : 0, RG_PIECE);
            codec = rg_compression_policy_decide(&press);
        }
        if (codec == RG_COMPRESS_NONE)
            feed(&press, 100e6, 1);
        else
            rg_compression_policy_tried(&press, codec, RG_PIECE, good ? RG_PIECE / 10 : 0, RG_PIECE);
        compressed += i < 1000 && codec != RG_COMPRESS_NONE;
        CHECK(i < 1020 || choice.sample || codec == RG_COMPRESS_NONE);
    }
    CHECK(compressed >= 850); /* but for those by which the wire is measured */
    CHECK(samples >= 3 && samples < 60);
    rg_compression_policy_fini(&press);
}

/* The counters tell what was compressed; what does not get smaller travels as it is. */
static void test_counters(void)
{
    for (enum rg_compression codec = RG_COMPRESS_NONE; codec <= RG_COMPRESS_ZSTD; codec++) {
        if (!rg_codec_available(codec))
            continue;
        struct pair pair = pair_open(address, "", RG_WAIT_AUTO);
        pair_multipath(&pair, "", 1, codec);
        struct rg_conn_statistics sent, received;
        static const char head[] = "a head";
        for (int random = 0; random < 2; random++) {
            uint64_t state = 88172645463325252u;
            for (size_t i = 0; i < sizeof data; i++) {
                state ^= state << 13, state ^= state >> 7, state ^= state << 17;
                data[i] = random ? (unsigned char)(state >> 32) : (unsigned char)(i >> 10);
            }
            for (int i = 0; i < 2; i++) {
                struct rg_message m;
                CHECK_OK(send_bytes(pair.a, head, sizeof head, data, RG_PIECE));
                CHECK_OK(rg_conn_recv(pair.b, 5000, &m));
                CHECK_OK(rg_conn_recv_bulk(pair.b, into, RG_PIECE));
                CHECK(memcmp(into, data, RG_PIECE) == 0);
            }
        }
        rg_conn_get_statistics(pair.a, &sent);
        rg_conn_get_statistics(pair.b, &received);
        CHECK(sent.channels == 1 && received.channels == 1);
        CHECK(sent.compressed_from == (codec ? 2 * RG_PIECE : 0));
        CHECK(codec ? sent.compressed_to < RG_PIECE : sent.compressed_to == 0);
        CHECK(sent.bulk_copied_sent == 0 && received.bulk_copied_received == 0);
        CHECK(codec ||
              (sent.bulk_direct_sent == 4 * RG_PIECE && received.bulk_direct_received == 4 * RG_PIECE));
        pair_close(&pair);
    }
}

int main(void)
{
    test_begin();
    test_choice();
    test_choice_changes();
    test_counters();
    return 0;
}
