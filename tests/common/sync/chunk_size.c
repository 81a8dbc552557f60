/* chunk_size.c - how large the pieces of bulk data become on fast and on slow wires. */
#include "common/sync/chunk_size.h"

#include "common/base/limits.h"

#include <criterion/criterion.h>

/* Sends `n` pieces over a wire that takes so many bytes in a millisecond. */
static void send_pieces(struct rg_chunk_size *pace, int n, uint64_t bytes_per_ms)
{
    for (int i = 0; i < n; i++) {
        const size_t piece = rg_chunk_size_get(pace);
        rg_chunk_size_sent(pace, piece, piece * 1000000u / bytes_per_ms);
    }
}

Test(pace, fast_wires_take_all_that_a_message_may_have)
{
    struct rg_chunk_size pace = {0};
    send_pieces(&pace, 10, 10u << 20);
    cr_assert_eq(rg_chunk_size_get(&pace), RG_BULK_MAX);
}

Test(pace, slow_wires_take_small_pieces)
{
    struct rg_chunk_size pace = {0};
    send_pieces(&pace, 1, 1000);
    cr_assert_eq(rg_chunk_size_get(&pace), RG_CHUNK_SIZE_LEAST);
    send_pieces(&pace, 10, 1000000);
    cr_assert(rg_chunk_size_get(&pace) > 800000 && rg_chunk_size_get(&pace) <= 1000000, "%zu",
              rg_chunk_size_get(&pace));
}

Test(pace, a_piece_grows_slowly)
{
    struct rg_chunk_size pace = {0};
    for (int i = 0; i < 5; i++) {
        const size_t before = rg_chunk_size_get(&pace);
        rg_chunk_size_sent(&pace, before, 0);
        cr_assert(rg_chunk_size_get(&pace) <= 2 * before);
    }
}

Test(pace, what_is_small_shows_nothing)
{
    struct rg_chunk_size pace = {0};
    const size_t before = rg_chunk_size_get(&pace);
    rg_chunk_size_sent(&pace, 64, 1000000000);
    cr_assert_eq(rg_chunk_size_get(&pace), before);
}
