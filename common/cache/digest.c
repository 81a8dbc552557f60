/* digest.c - see digest.h. */
#include "common/cache/digest.h"

#include <blake2.h>
#include <stdbool.h>

static struct rg_digest digest_of(const struct rg_digest_part *parts, size_t n, bool sizes)
{
    struct rg_digest digest;
    blake2b_state state;
    (void)blake2b_init(&state, sizeof digest.bytes); /* fails for impossible sizes alone, as the others do */
    for (size_t i = 0; i < n; i++) {
        const uint64_t size = parts[i].size;
        if (sizes)
            (void)blake2b_update(&state, (const uint8_t *)&size, sizeof size);
        (void)blake2b_update(&state, parts[i].data, parts[i].size);
    }
    (void)blake2b_final(&state, digest.bytes, sizeof digest.bytes);
    return digest;
}

struct rg_digest rg_digest_of(const struct rg_digest_part *parts, size_t n)
{
    return digest_of(parts, n, true);
}

struct rg_digest rg_digest_of_bytes(const struct rg_digest_part *parts, size_t n)
{
    return digest_of(parts, n, false);
}
