/* pace.c - how large the pieces of bulk data become on fast and on slow wires. */
#include "common/pace.h"

#include "common/limits.h"

#include <criterion/criterion.h>

/* Sends `n` pieces over a wire that takes so many bytes in a millisecond. */
static void send_pieces(struct rg_pace *pace, int n, uint64_t bytes_per_ms)
{
    for (int i = 0; i < n; i++) {
        const size_t piece = rg_pace_piece(pace);
        rg_pace_sent(pace, piece, piece * 1000000u / bytes_per_ms);
    }
}

Test(pace, fast_wires_take_all_that_a_message_may_have)
{
    struct rg_pace pace = {0};
    send_pieces(&pace, 10, 10u << 20);
    cr_assert_eq(rg_pace_piece(&pace), RG_BULK_MAX);
}

Test(pace, slow_wires_take_small_pieces)
{
    struct rg_pace pace = {0};
    send_pieces(&pace, 1, 1000);
    cr_assert_eq(rg_pace_piece(&pace), RG_PACE_LEAST);
    send_pieces(&pace, 10, 1000000);
    cr_assert(rg_pace_piece(&pace) > 800000 && rg_pace_piece(&pace) <= 1000000, "%zu", rg_pace_piece(&pace));
}

Test(pace, a_piece_grows_slowly)
{
    struct rg_pace pace = {0};
    for (int i = 0; i < 5; i++) {
        const size_t before = rg_pace_piece(&pace);
        rg_pace_sent(&pace, before, 0);
        cr_assert(rg_pace_piece(&pace) <= 2 * before);
    }
}

Test(pace, what_is_small_shows_nothing)
{
    struct rg_pace pace = {0};
    const size_t before = rg_pace_piece(&pace);
    rg_pace_sent(&pace, 64, 1000000000);
    cr_assert_eq(rg_pace_piece(&pace), before);
}
