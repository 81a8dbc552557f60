/* transcript.c - see transcript.h. */
#include "server/http/transcript.h"

#include <gnutls/gnutls.h>
#include <string.h>

enum { MESSAGE_HASH = 254, RANDOM_AT = 2, RANDOM_SIZE = 32 };

static const gnutls_digest_algorithm_t kinds[RG_TRANSCRIPT_HASHES] = {GNUTLS_DIG_SHA256, GNUTLS_DIG_SHA384};

/* By its random a server's hello is none, but asks for another one of the client (RFC 8446, 4.1.3). */
static const uint8_t asks_again[RANDOM_SIZE] = {
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c};

bool rg_transcript_init(struct rg_transcript *transcript)
{
    memset(transcript, 0, sizeof *transcript);
    for (int i = 0; i < RG_TRANSCRIPT_HASHES; i++)
        if (gnutls_hash_init(&transcript->hashes[i], kinds[i]) < 0) {
            transcript->hashes[i] = NULL;
            rg_transcript_fini(transcript);
            return false;
        }
    return true;
}

void rg_transcript_fini(struct rg_transcript *transcript)
{
    for (int i = 0; i < RG_TRANSCRIPT_HASHES; i++) {
        if (transcript->hashes[i])
            gnutls_hash_deinit(transcript->hashes[i], NULL);
        transcript->hashes[i] = NULL;
    }
}

static bool add(gnutls_hash_hd_t hash, unsigned type, const uint8_t *body, size_t size)
{
    const uint8_t head[] = {(uint8_t)type, (uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size};
    return gnutls_hash(hash, head, sizeof head) >= 0 && (!size || gnutls_hash(hash, body, size) >= 0);
}

/* The first hello becomes its hash. */
static bool begin_again(gnutls_hash_hd_t hash, gnutls_digest_algorithm_t kind)
{
    uint8_t before[RG_TRANSCRIPT_SIZE];
    gnutls_hash_output(hash, before); /* and it begins anew */
    return add(hash, MESSAGE_HASH, before, gnutls_hash_get_len(kind));
}

void rg_transcript_add(struct rg_transcript *transcript, unsigned type, const uint8_t *body, size_t size)
{
    bool good = transcript->hashes[0] && size < 1u << 24;
    const bool again =
        (type == GNUTLS_HANDSHAKE_SERVER_HELLO || type == GNUTLS_HANDSHAKE_HELLO_RETRY_REQUEST) &&
        size >= RANDOM_AT + RANDOM_SIZE && memcmp(body + RANDOM_AT, asks_again, RANDOM_SIZE) == 0;
    for (int i = 0; i < RG_TRANSCRIPT_HASHES && good; i++)
        good = (!again || begin_again(transcript->hashes[i], kinds[i])) &&
               add(transcript->hashes[i], again ? GNUTLS_HANDSHAKE_SERVER_HELLO : type, body, size);
    if (!good)
        rg_transcript_fini(transcript);
}

size_t rg_transcript_hash(const struct rg_transcript *transcript, gnutls_digest_algorithm_t which,
                          uint8_t out[RG_TRANSCRIPT_SIZE])
{
    for (int i = 0; i < RG_TRANSCRIPT_HASHES; i++) {
        gnutls_hash_hd_t copy =
            which == kinds[i] && transcript->hashes[i] ? gnutls_hash_copy(transcript->hashes[i]) : NULL;
        if (!copy)
            continue;
        gnutls_hash_deinit(copy, out);
        return gnutls_hash_get_len(which);
    }
    return 0;
}
