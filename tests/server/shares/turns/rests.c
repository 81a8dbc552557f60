/* rests.c - how often and for how long a device that is shared has nothing to do, in simulated time. */
#include "tests/server/shares/turns/simulation.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define MS 1000000ull
#define S  1000000000ull

/* A turn is one chunk, and its end is seen soon: the device rests once a turn, and not for long. */
Test(rests, the_device_rests_only_between_turns)
{
    static const uint64_t lengths[] = {10000, 100000, 1003000, 4 * MS};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct sim *sim = sim_create();
        sim_add(sim, lengths[i], 100, 0, RG_TURN_NORMAL);
        sim_add(sim, lengths[i], 100, 0, RG_TURN_NORMAL);
        sim_run(sim, S);
        const uint64_t idle = sim->idle_ns, rests = sim->rests;
        sim_run(sim, 3 * S);
        cr_expect_leq(sim->rests - rests, 3 * S / RG_TURN_NS * 105 / 100, "%llu ns: %llu times in 3 s",
                      (unsigned long long)lengths[i], (unsigned long long)(sim->rests - rests));
        cr_expect_leq(sim->idle_ns - idle, 3 * S / 100, "%llu ns: idle for %llu ns of 3 s",
                      (unsigned long long)lengths[i], (unsigned long long)(sim->idle_ns - idle));
        free(sim);
    }
}

/* Each look wakes a thread of the server's, which on few processors interrupts the device: all waits and turns together make few. */
Test(rests, looks_are_few)
{
    static const uint64_t lengths[] = {10000, 100000, 1003000, 4 * MS};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct sim *sim = sim_create();
        for (unsigned n = 0; n < 8; n++)
            sim_add(sim, lengths[i], 100, 0, RG_TURN_NORMAL);
        sim_run(sim, S);
        const uint64_t looks = sim->looks;
        sim_run(sim, 3 * S);
        cr_expect_leq(sim->looks - looks, 30 * 3 * S / RG_TURN_NS, "%llu ns: %llu looks in 3 s",
                      (unsigned long long)lengths[i], (unsigned long long)(sim->looks - looks));
        free(sim);
    }
}

/* The first submission of a session begins where the turn before was to end, which ended early: it is not taken for shorter than it is. */
Test(rests, a_short_first_submission_is_not_taken_for_a_shorter_one)
{
    for (unsigned n = 2; n <= 8; n++) {
        struct sim *sim = sim_create();
        for (unsigned i = 0; i < n; i++)
            sim_add(sim, 10000, 100, 0, RG_TURN_NORMAL);
        sim_run(sim, S / 2);
        for (unsigned i = 0; i < n; i++)
            for (unsigned slot = 0; slot < RG_PACER_KEYS; slot++)
                if (sim->sessions[i].pacer.estimates[slot].key)
                    cr_expect(sim->sessions[i].pacer.estimates[slot].ns >= 9000 &&
                                  sim->sessions[i].pacer.estimates[slot].ns <= 12000,
                              "session %u of %u: 10000 ns are taken for %llu", i, n,
                              (unsigned long long)sim->sessions[i].pacer.estimates[slot].ns);
        free(sim);
    }
}

/* A cap's time is used in few pieces: each ends with a look at a device that has nothing to do. */
Test(rests, a_capped_session_works_once_for_each_filling_of_its_bucket)
{
    static const uint32_t caps[] = {100000, 200000, 500000, 900000};
    for (unsigned i = 0; i < sizeof caps / sizeof *caps; i++) {
        struct sim *sim = sim_create();
        sim_add(sim, 100000, 100, caps[i], RG_TURN_NORMAL);
        sim_run(sim, S);
        const uint64_t rests = sim->rests;
        sim_run(sim, 3 * S);
        cr_expect_leq(sim->rests - rests, 2 * 3 * S / RG_CAP_BURST_NS * 11 / 10,
                      "a cap of %u: %llu times in 3 s", caps[i], (unsigned long long)(sim->rests - rests));
        free(sim);
    }
}

/* What a session had while nobody else wanted the device, and then rested, it need not do without later. */
Test(rests, what_nobody_else_wanted_is_no_debt)
{
    struct sim *sim = sim_create();
    struct sim_session *second = sim_add(sim, MS, 100, 0, RG_TURN_NORMAL); /* asks before the other */
    struct sim_session *first = sim_add(sim, S, 100, 0, RG_TURN_NORMAL);
    first->most = 1;
    second->most = second->submitted = 1; /* nothing yet */
    sim_run(sim, 2 * S);
    cr_assert_eq(first->finished, 1);
    first->lengths[0] = MS;
    first->most = second->most = 0;
    const uint64_t before = first->work_ns;
    sim_run(sim, 500 * MS);
    cr_expect_gt(first->work_ns - before, 200 * MS, "%llu ns of 500 ms",
                 (unsigned long long)(first->work_ns - before));
    free(sim);
}
