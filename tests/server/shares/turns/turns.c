/* turns.c - shares of a GPU in simulated time: weights, caps, priorities, deaths, work that waits, and a hostile page. */
#include "tests/server/shares/turns/simulation.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull
#define S  1000000000ull

/* Points of a hundred by which a session's part of what the device did is off in windows of a second: the worst. */
/* Without expected[SIM_SESSIONS] the device is to be busy all the time. */
static double worst_error(struct sim *sim, unsigned n, const double *expected, unsigned seconds)
{
    double worst = 0;
    for (unsigned second = 0; second < seconds; second++) {
        uint64_t before[SIM_SESSIONS], total = 0;
        for (unsigned i = 0; i < n; i++)
            before[i] = sim->sessions[i].work_ns;
        sim_run(sim, S);
        for (unsigned i = 0; i < n; i++)
            total += sim->sessions[i].work_ns - before[i];
        for (unsigned i = 0; i < n; i++) {
            const double part = 100.0 * (double)(sim->sessions[i].work_ns - before[i]) / (double)S;
            const double error = part > expected[i] ? part - expected[i] : expected[i] - part;
            worst = error > worst ? error : worst;
        }
        cr_expect_gt(total, 97 * S / 100 * (expected[SIM_SESSIONS] > 0 ? 0 : 1), "the device was idle");
    }
    return worst;
}

static void equal_shares(unsigned n, uint64_t length)
{
    struct sim *sim = sim_create();
    double expected[SIM_SESSIONS + 1] = {0};
    for (unsigned i = 0; i < n; i++) {
        sim_add(sim, length, 100, 0, RG_TURN_NORMAL);
        expected[i] = 100.0 / n;
    }
    sim_run(sim, S);
    const double worst = worst_error(sim, n, expected, 3);
    cr_expect_leq(worst, 3.0, "%u sessions, %llu ns each: off by %.2f points", n, (unsigned long long)length,
                  worst);
    free(sim);
}

Test(turns, equal_weights_are_equal_shares)
{
    static const uint64_t lengths[] = {10000, 100000, MS, 10 * MS};
    for (unsigned n = 2; n <= 8; n *= 2)
        for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++)
            equal_shares(n, lengths[i]);
}

Test(turns, weights_hold_whatever_the_lengths)
{
    struct sim *sim = sim_create();
    sim_add(sim, 10000, 100, 0, RG_TURN_NORMAL);
    sim_add(sim, 2 * MS, 200, 0, RG_TURN_NORMAL);
    sim_add(sim, 20 * MS, 500, 0, RG_TURN_NORMAL);
    struct sim_session *mixed = sim_add(sim, 30000, 200, 0, RG_TURN_NORMAL);
    mixed->n_lengths = 3;
    mixed->lengths[1] = 3 * MS;
    mixed->lengths[2] = 200000;
    sim_run(sim, S);
    const double expected[SIM_SESSIONS + 1] = {10, 20, 50, 20};
    const double worst = worst_error(sim, 4, expected, 5);
    cr_expect_leq(worst, 3.0, "off by %.2f points", worst);
    free(sim);
}

Test(turns, kernels_longer_than_turns_share_in_the_long_run)
{
    struct sim *sim = sim_create();
    sim_add(sim, 10000, 100, 0, RG_TURN_NORMAL);
    sim_add(sim, 100 * MS, 100, 0, RG_TURN_NORMAL);
    sim_run(sim, 2 * S);
    const uint64_t a = sim->sessions[0].work_ns, b = sim->sessions[1].work_ns;
    sim_run(sim, 20 * S);
    const double part = 100.0 * (double)(sim->sessions[0].work_ns - a) /
                        (double)(sim->sessions[0].work_ns - a + sim->sessions[1].work_ns - b);
    cr_expect(part > 47 && part < 53, "%.2f", part);
    free(sim);
}

Test(turns, a_cap_holds_soon_and_stays)
{
    static const uint64_t lengths[] = {10000, 100000, MS, 5 * MS};
    for (unsigned i = 0; i < 4; i++) {
        struct sim *sim = sim_create();
        struct sim_session *session = sim_add(sim, lengths[i], 100, 250000, RG_TURN_NORMAL);
        sim_run(sim, 50 * MS);
        cr_expect_leq(session->work_ns, 50 * MS / 4 + 50 * MS / 10 + lengths[i], "%llu in the first 50 ms",
                      (unsigned long long)session->work_ns);
        const double expected[SIM_SESSIONS + 1] = {25, [SIM_SESSIONS] = 1};
        const double worst = worst_error(sim, 1, expected, 4);
        cr_expect_leq(worst, 3.0, "%llu ns: off by %.2f points", (unsigned long long)lengths[i], worst);
        free(sim);
    }
}

Test(turns, what_a_cap_leaves_goes_to_others)
{
    struct sim *sim = sim_create();
    sim_add(sim, 100000, 100, 100000, RG_TURN_NORMAL);
    sim_add(sim, 50000, 100, 0, RG_TURN_NORMAL);
    sim_add(sim, MS, 100, 0, RG_TURN_NORMAL);
    sim_run(sim, S);
    const double expected[SIM_SESSIONS + 1] = {10, 45, 45};
    const double worst = worst_error(sim, 3, expected, 4);
    cr_expect_leq(worst, 3.0, "off by %.2f points", worst);
    free(sim);
}

Test(turns, an_idle_share_is_used_and_comes_back)
{
    struct sim *sim = sim_create();
    sim_add(sim, 100000, 100, 0, RG_TURN_NORMAL);
    struct sim_session *idle = sim_add(sim, 100000, 900, 0, RG_TURN_NORMAL);
    idle->most = 1;
    sim_run(sim, 10 * S);
    cr_expect_gt(sim->sessions[0].work_ns, 98 * S / 10, "it uses what is idle");
    idle->most = 0;
    const double expected[SIM_SESSIONS + 1] = {10, 90};
    const double worst = worst_error(sim, 2, expected, 3);
    cr_expect_leq(worst, 3.0, "off by %.2f points: what was used alone is no debt", worst);
    free(sim);
}

Test(turns, alone_nothing_waits_and_busy_is_measured)
{
    struct sim *sim = sim_create();
    struct sim_session *session = sim_add(sim, 30000, 100, 0, RG_TURN_NORMAL);
    session->pause = 270000;
    sim_run(sim, 10 * S);
    cr_expect_eq(session->waited_max_ns, 0);
    cr_expect_eq(session->pacer.throttled_ns, 0);
    const double part = (double)session->pacer.busy_ns / (double)session->work_ns;
    cr_expect(part > 0.85 && part < 1.15, "measured %.3f of what it was", part);
    free(sim);
}

/* The look that a submission brings about after a rest does not count the rest. */
Test(turns, alone_what_is_short_and_rare_is_little)
{
    struct sim *sim = sim_create();
    struct sim_session *session = sim_add(sim, 30000, 100, 0, RG_TURN_NORMAL);
    session->pause = 250 * MS;
    sim_run(sim, 20 * S);
    cr_expect_lt(session->pacer.busy_ns, 20 * S / 100, "%llu ns were measured of %llu",
                 (unsigned long long)session->pacer.busy_ns, (unsigned long long)session->work_ns);
    free(sim);
}

Test(turns, what_is_charged_is_what_was_used)
{
    struct sim *sim = sim_create();
    sim_add(sim, 10000, 100, 0, RG_TURN_NORMAL);
    sim_add(sim, 7 * MS, 300, 0, RG_TURN_NORMAL);
    sim_add(sim, 400000, 100, 200000, RG_TURN_NORMAL);
    sim_run(sim, 10 * S);
    for (unsigned i = 0; i < 3; i++) {
        const double part = (double)sim->sessions[i].pacer.busy_ns / (double)sim->sessions[i].work_ns;
        cr_expect(part > 0.97 && part < 1.03, "session %u was charged %.3f of what it used", i, part);
    }
    free(sim);
}

/* Work that a device is given without a turn, every 10 ms: it is charged, and holds up nobody. */
Test(turns, what_was_not_admitted_is_charged)
{
    struct sim *sim = sim_create();
    sim_add(sim, 100000, 100, 0, RG_TURN_NORMAL);
    struct sim_session *session = sim_add(sim, MS, 100, 0, RG_TURN_NORMAL);
    session->most = session->submitted = 1; /* it submits nothing else */
    for (unsigned i = 0; i < 100; i++) {
        sim_run(sim, 10 * MS);
        rg_pacer_note(&session->pacer, sim->now);
        session->queue[session->end++ % SIM_QUEUE] = MS;
        session->step_at = sim->now;
    }
    sim_run(sim, 100 * MS);
    cr_expect_eq(session->finished, 100);
    cr_expect_geq(session->pacer.busy_ns, session->work_ns);
    cr_expect_eq(sim->turns.places[1].charged, session->pacer.busy_ns);
    cr_expect_gt(sim->sessions[0].work_ns, 900 * MS);
    free(sim);
}

static uint64_t wakes_of(const struct sim *sim)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < SIM_SESSIONS; i++)
        n += sim->turns.places[i].bell;
    return n;
}

/* Eight programs that wait for each of their short kernels need not wake each other for it, and are charged all the same. */
Test(turns, short_work_that_is_waited_for_wakes_nobody)
{
    struct sim *sim = sim_create();
    for (unsigned i = 0; i < 8; i++)
        sim_add(sim, 10000, 100, 0, RG_TURN_NORMAL)->pause = 90000 + i * 10000;
    sim_run(sim, S);
    uint64_t before = 0, after = 0;
    const uint64_t woken = wakes_of(sim);
    for (unsigned i = 0; i < 8; i++)
        before += sim->sessions[i].finished;
    sim_run(sim, 2 * S);
    for (unsigned i = 0; i < 8; i++) {
        after += sim->sessions[i].finished;
        cr_expect_geq(sim->sessions[i].pacer.busy_ns, sim->sessions[i].work_ns * 9 / 10);
    }
    cr_expect_gt(after - before, 100000);
    cr_expect_lt((wakes_of(sim) - woken) * 10, after - before, "%llu were woken for %llu kernels",
                 (unsigned long long)(wakes_of(sim) - woken), (unsigned long long)(after - before));
    free(sim);
}

/* Who has shown short kernels, and then gives the device long ones, gets no more by it than its share. */
Test(turns, a_guest_gains_nothing)
{
    static const uint64_t lengths[] = {10000, 150000, MS, 20 * MS};
    for (unsigned i = 0; i < 4; i++) {
        struct sim *sim = sim_create();
        for (unsigned k = 0; k < 3; k++)
            sim_add(sim, 300000, 100, 0, RG_TURN_NORMAL);
        struct sim_session *guest = sim_add(sim, 10000, 100, 0, RG_TURN_NORMAL);
        guest->pause = 20000;
        for (unsigned round = 0; round < 20; round++) {
            guest->lengths[0] = 10000;
            sim_run(sim, 100 * MS);
            guest->lengths[0] = lengths[i];
            sim_run(sim, 100 * MS);
        }
        const double part = 100.0 * (double)guest->work_ns / (4.0 * (double)S);
        cr_expect_leq(part, 28.0, "%llu ns each: %.2f of a hundred", (unsigned long long)lengths[i], part);
        free(sim);
    }
}

Test(turns, high_priority_waits_for_one_kernel_at_most)
{
    static const uint64_t lengths[] = {10000, 400000, 3 * MS, 15 * MS};
    for (unsigned i = 0; i < 4; i++) {
        struct sim *sim = sim_create();
        for (unsigned k = 0; k < 3; k++)
            sim_add(sim, lengths[i], 100, 0, RG_TURN_NORMAL);
        struct sim_session *high = sim_add(sim, 20000, 100, 0, RG_TURN_HIGH);
        high->pause = 3700000;
        sim_run(sim, 500 * MS);
        high->waited_max_ns = 0;
        sim_run(sim, 3 * S);
        const uint64_t most = (lengths[i] > RG_PACER_SHORT_NS ? lengths[i] : RG_PACER_SHORT_NS) + 300000;
        cr_expect_leq(high->waited_max_ns, most, "it waited %llu ns for kernels of %llu",
                      (unsigned long long)high->waited_max_ns, (unsigned long long)lengths[i]);
        free(sim);
    }
}

Test(turns, priority_is_no_share)
{
    struct sim *sim = sim_create();
    sim_add(sim, 100000, 100, 0, RG_TURN_LOW);
    sim_add(sim, 100000, 100, 0, RG_TURN_HIGH);
    sim_add(sim, 100000, 200, 0, RG_TURN_NORMAL);
    sim_run(sim, S);
    const double expected[SIM_SESSIONS + 1] = {25, 25, 50, [SIM_SESSIONS] = 1};
    const double worst = worst_error(sim, 3, expected, 3);
    cr_expect_leq(worst, 4.0, "off by %.2f points", worst);
    free(sim);
}

Test(turns, a_dead_sessions_turn_goes_on_at_once)
{
    struct sim *sim = sim_create();
    for (unsigned i = 0; i < 3; i++)
        sim_add(sim, MS, 100, 0, RG_TURN_NORMAL);
    for (unsigned round = 0; round < 50; round++) {
        sim_run(sim, 7 * MS + round * 130000);
        for (unsigned i = 0; i < 2; i++) {
            if (!rg_turns_mine(&sim->turns, i))
                continue;
            struct sim_session *session = &sim->sessions[i];
            session->dead = true;
            session->first = session->end;
            rg_turns_leave(&sim->turns, i, sim->now); /* as the monitor does */
            cr_expect(!rg_turns_mine(&sim->turns, i));
            const uint64_t done = sim->sessions[2].work_ns;
            sim_run(sim, 20 * MS);
            cr_expect_gt(sim->sessions[2].work_ns, done);
            memset(session, 0, sizeof *session);
            sim_add(sim, MS, 100, 0, RG_TURN_NORMAL);
        }
    }
    free(sim);
}

Test(turns, a_session_that_stands_still_loses_its_turn)
{
    struct sim *sim = sim_create();
    sim_add(sim, MS, 100, 0, RG_TURN_NORMAL);
    sim_add(sim, MS, 100, 0, RG_TURN_NORMAL);
    sim_run(sim, 100 * MS);
    while (!rg_turns_mine(&sim->turns, 0))
        sim_run(sim, SIM_TICK_NS);
    sim->sessions[0].dead = true; /* nobody says so */
    sim_run(sim, RG_TURN_HELD_MAX_NS + 500 * MS);
    const uint64_t done = sim->sessions[1].work_ns;
    sim_run(sim, S);
    cr_expect_gt(sim->sessions[1].work_ns, done + 900 * MS);
    sim->sessions[0].dead = false; /* and it goes on as if nothing had been */
    sim_run(sim, S);
    cr_expect_gt(sim->sessions[0].finished, 0);
    free(sim);
}

Test(turns, work_may_wait_for_what_comes_later)
{
    for (unsigned others = 0; others < 3; others++) {
        struct sim *sim = sim_create();
        struct sim_session *stuck = sim_add(sim, MS, 100, 0, RG_TURN_NORMAL);
        stuck->stuck = true;
        stuck->releases = 3;
        for (unsigned i = 0; i < others; i++)
            sim_add(sim, MS, 100, 0, RG_TURN_NORMAL);
        sim_run(sim, 3 * S);
        cr_expect_gt(stuck->finished, 10, "with %u others it never went on", others);
        cr_expect(!stuck->pacer.behind, "with %u others its turns never ended with its work again", others);
        free(sim);
    }
}

/* What one alone has submitted, much of it, is still to be done when another comes. */
Test(turns, a_backlog_is_worked_off_and_then_turns_are_taken)
{
    struct sim *sim = sim_create();
    struct sim_session *first = sim_add(sim, 500000, 100, 0, RG_TURN_NORMAL);
    sim_run(sim, 100 * MS);
    cr_assert_eq(first->end - first->first, SIM_QUEUE);
    struct sim_session *second = sim_add(sim, 500000, 100, 0, RG_TURN_NORMAL);
    sim_run(sim, S);
    cr_expect_gt(second->finished, 0, "it does not wait for all of that");
    sim_run(sim, 14 * S);
    cr_expect_lt(first->end - first->first, SIM_QUEUE / 4, "what it had submitted is done");
    const double expected[SIM_SESSIONS + 1] = {50, 50};
    const double worst = worst_error(sim, 2, expected, 3);
    cr_expect_leq(worst, 3.0, "off by %.2f points", worst);
    free(sim);
}

Test(turns, a_kernel_without_end_stops_nobody_else)
{
    struct sim *sim = sim_create();
    struct sim_session *endless = sim_add(sim, SIM_FOREVER, 100, 0, RG_TURN_NORMAL);
    endless->most = 2;
    sim_add(sim, MS, 100, 0, RG_TURN_NORMAL);
    sim_add(sim, 100000, 100, 0, RG_TURN_NORMAL);
    sim_run(sim, 2 * S);
    const uint64_t a = sim->sessions[1].work_ns, b = sim->sessions[2].work_ns;
    sim_run(sim, 4 * S);
    /* The device itself gives the endless kernel half of its time. */
    cr_expect_gt(sim->sessions[1].work_ns - a, 800 * MS);
    cr_expect_gt(sim->sessions[2].work_ns - b, 800 * MS);
    free(sim);
}

Test(turns, a_hostile_page_harms_nothing_but_fairness)
{
    struct sim *sim = sim_create();
    for (unsigned i = 0; i < 4; i++)
        sim_add(sim, 200000, 100, i == 3 ? 500000 : 0, RG_TURN_NORMAL);
    uint64_t random = 88172645463325252ull;
    for (unsigned round = 0; round < 10000; round++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        unsigned char *byte = (unsigned char *)&sim->turns;
        const size_t size = offsetof(struct rg_turns, places) + 16 * sizeof sim->turns.places[0];
        memset(byte + random % (size - 8), (int)(random >> 56) & (round % 3 ? 0xff : 0x80),
               1 + (random >> 32) % 8);
        sim_run(sim, SIM_TICK_NS * (1 + random % 7));
    }
    /* Once the writer has gone, all go on: here without the debts that it made up, as those of new sessions. */
    for (unsigned i = 0; i < 4; i++) {
        rg_turns_leave(&sim->turns, i, sim->now);
        rg_turns_join(&sim->turns, i, 100, RG_TURN_NORMAL);
    }
    sim_run(sim, RG_TURN_HELD_MAX_NS + 2 * S);
    for (unsigned i = 0; i < 4; i++) {
        const uint64_t finished = sim->sessions[i].finished;
        sim_run(sim, 2 * S);
        cr_expect_gt(sim->sessions[i].finished, finished, "session %u", i);
    }
    free(sim);
}
