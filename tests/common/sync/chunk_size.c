/* chunk_size.c - how large the pieces of bulk data become on fast and on slow wires. */
#include "common/sync/chunk_size.h"

#include "common/base/limits.h"

#include <criterion/criterion.h>

/* Sends `n` pieces over a wire that takes so many bytes in a millisecond. */
static void send_pieces(struct rg_chunk_size *chunk, int n, uint64_t bytes_per_ms)
{
    for (int i = 0; i < n; i++) {
        const size_t piece = rg_chunk_size_get(chunk);
        rg_chunk_size_sent(chunk, piece, piece * 1000000u / bytes_per_ms);
    }
}

Test(chunk_size, fast_wires_take_all_that_a_message_may_have)
{
    struct rg_chunk_size chunk = {0};
    send_pieces(&chunk, 10, 10u << 20);
    cr_assert_eq(rg_chunk_size_get(&chunk), RG_BULK_MAX);
}

Test(chunk_size, slow_wires_take_small_pieces)
{
    struct rg_chunk_size chunk = {0};
    send_pieces(&chunk, 1, 1000);
    cr_assert_eq(rg_chunk_size_get(&chunk), RG_CHUNK_SIZE_LEAST);
    send_pieces(&chunk, 10, 1000000);
    cr_assert(rg_chunk_size_get(&chunk) > 800000 && rg_chunk_size_get(&chunk) <= 1000000, "%zu",
              rg_chunk_size_get(&chunk));
}

Test(chunk_size, a_piece_grows_slowly)
{
    struct rg_chunk_size chunk = {0};
    for (int i = 0; i < 5; i++) {
        const size_t before = rg_chunk_size_get(&chunk);
        rg_chunk_size_sent(&chunk, before, 0);
        cr_assert(rg_chunk_size_get(&chunk) <= 2 * before);
    }
}

Test(chunk_size, what_is_small_shows_nothing)
{
    struct rg_chunk_size chunk = {0};
    const size_t before = rg_chunk_size_get(&chunk);
    rg_chunk_size_sent(&chunk, 64, 1000000000);
    cr_assert_eq(rg_chunk_size_get(&chunk), before);
}
