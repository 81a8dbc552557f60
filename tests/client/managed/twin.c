/* twin.c - memory that both sides change: what leaves, what is taken over, and whose a byte is that both have changed. */
#include "client/managed/twin.h"

#include <criterion/criterion.h>
#include <string.h>

enum { WORDS = 4 };

static uint64_t words[WORDS], twin[WORDS];
static struct {
    uint64_t offset; /* in words[] */
    uint64_t size;
    unsigned char data[8 * WORDS];
} sent[8];
static unsigned n_sent;

void rg_outgoing_add_from(struct rg_outgoing *out, uint64_t address, const void *data, uint64_t size)
{
    (void)out;
    cr_assert_lt(n_sent, 8);
    sent[n_sent].offset = address - (uint64_t)(uintptr_t)words;
    sent[n_sent].size = size;
    memcpy(sent[n_sent++].data, data, size);
}

static void begin(void)
{
    n_sent = 0;
    for (unsigned i = 0; i < WORDS; i++)
        words[i] = twin[i] = 0x1111111111111111u * (i + 1);
}

TestSuite(twin, .init = begin);

Test(twin, sends_nothing_of_what_has_not_changed)
{
    cr_assert(!rg_twin_send(words, twin, WORDS, UINT64_MAX, UINT64_MAX, NULL));
    cr_assert_eq(n_sent, 0);
}

Test(twin, sends_the_smallest_aligned_part)
{
    static const struct {
        uint64_t change;
        uint64_t offset, size;
    } table[] = {
        {0x01, 0, 1},
        {0xff00, 1, 1},
        {0x0101, 0, 2},
        {0x010100, 0, 4},
        {0x01010000, 2, 2},
        {1ull << 32, 4, 1},
        {1ull << 56, 7, 1},
        {0x0101000000000000u, 6, 2},
        {0x0100010000000000u, 4, 4},
        {0x0100000000000001u, 0, 8},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        begin();
        words[1] ^= table[i].change;
        cr_assert(rg_twin_send(words, twin, WORDS, UINT64_MAX, UINT64_MAX, NULL));
        cr_assert_eq(n_sent, 1);
        cr_assert_eq(sent[0].offset, 8 + table[i].offset, "change %zu", i);
        cr_assert_eq(sent[0].size, table[i].size, "change %zu", i);
        cr_assert_arr_eq(sent[0].data, (unsigned char *)&words[1] + table[i].offset, table[i].size);
        cr_assert(!rg_twin_send(words, twin, WORDS, UINT64_MAX, UINT64_MAX, NULL), "it has left");
    }
}

Test(twin, sends_whole_words_side_by_side_together)
{
    for (unsigned i = 1; i < WORDS; i++)
        words[i] = ~words[i];
    cr_assert(rg_twin_send(words, twin, WORDS, UINT64_MAX, UINT64_MAX, NULL));
    cr_assert_eq(n_sent, 1);
    cr_assert_eq(sent[0].offset, 8);
    cr_assert_eq(sent[0].size, 24);
    cr_assert_arr_eq(sent[0].data, &words[1], 24);
}

Test(twin, leaves_to_others_what_lies_beside_the_memory)
{
    const uint64_t first = 0xffffffff00000000u, last = 0xffff;
    words[0] = ~words[0];
    words[3] = ~words[3];
    cr_assert(rg_twin_send(words, twin, WORDS, first, last, NULL));
    cr_assert_eq(n_sent, 2);
    cr_assert_eq(sent[0].offset, 4);
    cr_assert_eq(sent[0].size, 4);
    cr_assert_eq(sent[1].offset, 24);
    cr_assert_eq(sent[1].size, 2);
    cr_assert(!rg_twin_send(words, twin, WORDS, first, last, NULL));
}

Test(twin, what_lies_beside_the_memory_does_not_leave)
{
    const uint64_t first = 0xffffffffff000000u,
                   last = 0xffffff; /* from byte 3 of the first word to byte 2 of the last */
    words[0] ^= 0x01000000ff000000u;
    words[3] ^= 0x010001;
    cr_assert(rg_twin_send(words, twin, WORDS, first, last, NULL));
    cr_assert_eq(n_sent, 2);
    cr_assert_eq(sent[0].offset, 3);
    cr_assert_eq(sent[0].size, 5);
    cr_assert_arr_eq(sent[0].data, (unsigned char *)words + 3, 5);
    cr_assert_eq(sent[1].offset, 24);
    cr_assert_eq(sent[1].size, 3);
    cr_assert(!rg_twin_send(words, twin, WORDS, first, last, NULL));
}

Test(twin, takes_over_what_the_device_has_changed)
{
    uint64_t theirs[WORDS];
    memcpy(theirs, words, sizeof theirs);
    cr_assert(!rg_twin_merge(words, twin, theirs, WORDS, UINT64_MAX, UINT64_MAX));
    theirs[2] = 0x3333aa3333333333u;
    cr_assert(rg_twin_merge(words, twin, theirs, WORDS, UINT64_MAX, UINT64_MAX));
    cr_assert_eq(words[2], theirs[2]);
    cr_assert(!rg_twin_send(words, twin, WORDS, UINT64_MAX, UINT64_MAX, NULL), "it came from there");
}

Test(twin, what_both_have_changed_is_the_hosts)
{
    uint64_t theirs[WORDS];
    memcpy(theirs, words, sizeof theirs);
    words[0] = 0x11111111111111eeu;  /* the host's byte */
    theirs[0] = 0x11111111cc1111ddu; /* the device's, of which one is the same */
    cr_assert(rg_twin_merge(words, twin, theirs, WORDS, UINT64_MAX, UINT64_MAX));
    cr_assert_eq(words[0], 0x11111111cc1111eeu);
    cr_assert(rg_twin_send(words, twin, WORDS, UINT64_MAX, UINT64_MAX, NULL));
    cr_assert_eq(n_sent, 1);
    cr_assert_eq(sent[0].size, 1);
    cr_assert_eq(sent[0].data[0], 0xee);
}

Test(twin, takes_nothing_beside_the_memory)
{
    uint64_t theirs[WORDS];
    for (unsigned i = 0; i < WORDS; i++)
        theirs[i] = ~words[i];
    const uint64_t before = words[0];
    cr_assert(rg_twin_merge(words, twin, theirs, 1, 0xff00, UINT64_MAX));
    cr_assert_eq(words[0], (before & ~0xff00ull) | (theirs[0] & 0xff00));
    cr_assert_eq(words[1], twin[1]);
}
