/*
 * digest.h - a digest of bytes that nobody can find others for: BLAKE2b of 32 bytes, by libb2.
 *
 * A layer of its own, so that only those that need it load the library. Any thread; there is no state but the caller's.
 */
#ifndef RG_COMMON_CACHE_DIGEST_H
#define RG_COMMON_CACHE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define RG_DIGEST_BYTES 32

struct rg_digest {
    _Alignas(8) uint8_t bytes[RG_DIGEST_BYTES];
};

struct rg_digest_part {
    const void *data;
    size_t size;
};

/** Of the parts one behind the other; where one ends and the next begins counts as well. */
struct rg_digest rg_digest_of(const struct rg_digest_part *parts, size_t n);
/** The same, but it does not count: the digest of all bytes as if they were one part, and nothing else. */
struct rg_digest rg_digest_of_bytes(const struct rg_digest_part *parts, size_t n);

#endif
