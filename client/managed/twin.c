/* twin.c - see twin.h. */
#include "client/managed/twin.h"

#include "client/core/queue.h"
#include "common/base/limits.h"
#include "proto/wire.h"

void rg_outgoing_begin(struct rg_outgoing *out, struct rg_session *session, uint64_t context)
{
    out->session = session;
    out->context = context;
    out->n = 0;
    out->bytes = 0;
}

void rg_outgoing_send(struct rg_outgoing *out)
{
    struct rg_answer answer = {.type = RG_ANSWER_MANAGED_IN, .id = out->context};
    if (out->n)
        rg_queue_answer(out->session, &answer, out->parts, (int)(2 * out->n), NULL);
    out->n = 0;
    out->bytes = 0;
}

void rg_outgoing_add_from(struct rg_outgoing *out, uint64_t address, const void *data, uint64_t size)
{
    const size_t head = sizeof out->heads[0];
    while (size) {
        if (out->n == sizeof out->heads / head || out->bytes + head >= RG_BULK_MAX)
            rg_outgoing_send(out);
        const uint64_t room = RG_BULK_MAX - out->bytes - head, part = size < room ? size : room;
        out->heads[out->n][0] = address;
        out->heads[out->n][1] = part;
        out->parts[2 * out->n] = (struct iovec){out->heads[out->n], head};
        out->parts[2 * out->n + 1] = (struct iovec){(void *)(uintptr_t)data, part};
        out->n++;
        out->bytes += head + part;
        address += part;
        data = (const unsigned char *)data + part;
        size -= part;
    }
}

void rg_outgoing_add(struct rg_outgoing *out, uint64_t address, uint64_t size)
{
    rg_outgoing_add_from(out, address, (const void *)(uintptr_t)address, size);
}

/* The smallest aligned part of a word that holds all bytes in which `change` is not 0. */
static void changed_part(uint64_t change, unsigned *offset, unsigned *size)
{
    const unsigned first = (unsigned)__builtin_ctzll(change) / 8,
                   last = 7 - (unsigned)__builtin_clzll(change) / 8;
    for (*size = 1; first / *size != last / *size; *size *= 2)
        ;
    *offset = first / *size * *size;
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
        const uint64_t change = (words_load(&words[i]) ^ twin[i]) & mask_of(i, n, first, last);
        if (!change)
            continue;
        any = true;
        const size_t start = i;
        unsigned offset, size;
        changed_part(change, &offset, &size);
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
    for (size_t i = 0; i < n; i++) {
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
