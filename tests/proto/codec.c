/* The reader never passes the end, and stays bad once it is. */
#include "proto/codec.h"

#include <criterion/criterion.h>

Test(codec, round_trip)
{
    unsigned char memory[64];
    struct rg_writer w = {memory};
    rg_put_u32(&w, 7);
    rg_put_u64(&w, 1ull << 40);
    rg_put_f32(&w, 0.5f);
    rg_put_string(&w, "name");
    rg_put_string(&w, NULL);
    cr_assert_eq((size_t)(w.at - memory), 4 + 8 + 4 + rg_size_of_string("name") + rg_size_of_string(NULL));
    struct rg_reader r = rg_reader_of(memory, (size_t)(w.at - memory));
    cr_assert_eq(rg_get_u32(&r), 7);
    cr_assert_eq(rg_get_u64(&r), 1ull << 40);
    cr_assert_eq(rg_get_f32(&r), 0.5f);
    cr_assert_str_eq(rg_get_string(&r, 64), "name");
    cr_assert_null(rg_get_string(&r, 64));
    cr_assert(!r.bad && rg_left(&r) == 0);
}

Test(codec, short_input_is_bad_for_ever)
{
    unsigned char memory[6] = {1, 2, 3, 4, 5, 6};
    struct rg_reader r = rg_reader_of(memory, sizeof memory);
    cr_assert_eq(rg_get_u64(&r), 0);
    cr_assert(r.bad);
    cr_assert_eq(rg_get_u32(&r), 0, "nothing is read after a failure");
    cr_assert_null(rg_get(&r, 1));
}

Test(codec, counts_are_held_to_limit_and_input)
{
    unsigned char memory[16];
    struct rg_writer w = {memory};
    rg_put_u64(&w, 3);
    struct rg_reader r = rg_reader_of(memory, sizeof memory);
    cr_assert_eq(rg_get_count(&r, 10, 2), 3);
    r = rg_reader_of(memory, sizeof memory);
    cr_assert_eq(rg_get_count(&r, 2, 2), 0);
    cr_assert(r.bad);
    r = rg_reader_of(memory, sizeof memory);
    cr_assert_eq(rg_get_count(&r, 10, 4), 0);
    cr_assert(r.bad, "three elements of four bytes are not there");
    w.at = memory;
    rg_put_u64(&w, UINT64_MAX);
    r = rg_reader_of(memory, sizeof memory);
    cr_assert_eq(rg_get_count(&r, SIZE_MAX, 8), 0);
    cr_assert(r.bad);
}

Test(codec, strings_end_where_they_say)
{
    unsigned char memory[16];
    struct rg_writer w = {memory};
    rg_put_u64(&w, 3);
    rg_put(&w, "abc", 3); /* no NUL */
    struct rg_reader r = rg_reader_of(memory, 11);
    cr_assert_null(rg_get_string(&r, 64));
    cr_assert(r.bad);
    w.at = memory + 8;
    rg_put(&w, "a\0\0", 3); /* a NUL inside */
    r = rg_reader_of(memory, 11);
    cr_assert_null(rg_get_string(&r, 64));
    cr_assert(r.bad);
}
