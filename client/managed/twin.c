/* twin.c - see twin.h. */
#include "client/managed/twin.h"

/*
 * The smallest aligned part of a word that holds all bytes in which `change` is not 0; where that has bytes that are not of the
 * memory (`mask`), only from the first to the last of those: what lies beside it never leaves the process.
 */
static void changed_part(uint64_t change, uint64_t mask, unsigned *offset, unsigned *size)
{
    const unsigned first = (unsigned)__builtin_ctzll(change) / 8,
                   last = 7 - (unsigned)__builtin_clzll(change) / 8;
    for (*size = 1; first / *size != last / *size; *size *= 2)
        ;
    *offset = first / *size * *size;
    const uint64_t part = UINT64_MAX >> (64 - 8 * *size) << 8 * *offset;
    if (part & ~mask) {
        *offset = first;
        *size = last - first + 1;
    }
}

/* Bytes that differ. */
static uint64_t byte_mask(uint64_t difference)
{
    uint64_t mask = 0;
    for (unsigned i = 0; i < 64; i += 8)
        if (difference >> i & 0xff)
            mask |= 0xffull << i;
    return mask;
}

static uint64_t mask_of(size_t i, size_t n, uint64_t first, uint64_t last)
{
    return (i == 0 ? first : UINT64_MAX) & (i == n - 1 ? last : UINT64_MAX);
}

static uint64_t words_load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

bool rg_twin_send(uint64_t *words, uint64_t *twin, size_t n, uint64_t first, uint64_t last,
                  struct rg_outgoing *out)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        const uint64_t mask = mask_of(i, n, first, last), change = (words_load(&words[i]) ^ twin[i]) & mask;
        if (!change)
            continue;
        any = true;
        const size_t start = i;
        unsigned offset, size;
        changed_part(change, mask, &offset, &size);
        twin[i] ^= change;
        /* whole words that were changed side by side leave together */
        for (uint64_t next; size == 8 * (i - start + 1) && i + 1 < n &&
                            mask_of(i + 1, n, first, last) == UINT64_MAX &&
                            (next = words_load(&words[i + 1])) != twin[i + 1];) {
            twin[++i] = next;
            size += 8;
        }
        rg_outgoing_add_from(out, (uint64_t)(uintptr_t)&words[start] + offset,
                             (unsigned char *)&twin[start] + offset, size);
    }
    return any;
}

bool rg_twin_merge(uint64_t *words, uint64_t *twin, const uint64_t *theirs, size_t n, uint64_t first,
                   uint64_t last)
{
    bool any = false;
    for (size_t i = n; i-- > 0;) {
        const uint64_t mask = byte_mask(theirs[i] ^ twin[i]) & mask_of(i, n, first, last);
        if (!mask)
            continue;
        any = true;
        uint64_t now = __atomic_load_n(&words[i], __ATOMIC_RELAXED), merged;
        do { /* a byte that the host has changed too is the host's: it leaves with the next exchange */
            const uint64_t theirs_only = mask & ~byte_mask(now ^ twin[i]);
            merged = (now & ~theirs_only) | (theirs[i] & theirs_only);
        } while (
            !__atomic_compare_exchange_n(&words[i], &now, merged, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
        twin[i] = (twin[i] & ~mask) | (theirs[i] & mask);
    }
    return any;
}
