/* simulate.c - what a made-up program takes over networks of which that can be said by hand. */
#include "tests/client/predict/subject.h"

#define STEPS 10

static void make(struct subject *subject, unsigned launches, uint64_t kernel_ns, uint64_t bulk)
{
    *subject = (struct subject){0};
    build_steps(&subject->built, STEPS, launches, kernel_ns, bulk);
    read_built(subject);
}

static struct rg_outcome over(const struct subject *subject, uint64_t oneway_ns, uint64_t rate, uint64_t off)
{
    const struct rg_wire wire = {.oneway_ns = oneway_ns, .bytes_per_second = rate, .buffer = 1 << 20};
    struct rg_outcome outcome;
    cr_assert_eq(rg_simulate(&subject->model, &wire, off, &outcome), RG_OK);
    return outcome;
}

Test(simulate, recorded_network_gives_recorded_time)
{
    struct subject subject;
    make(&subject, 20, 30000, 0);
    const struct rg_outcome same = over(&subject, 0, 0, 0);
    near(same.ns, subject.trace.elapsed, subject.trace.elapsed / 100, "as recorded");
    cr_assert_eq(same.round_trips, STEPS);
    near(subject.model.round_trip, 10000, 2000, "round trip");
    near(subject.model.device_busy, STEPS * 20 * 30000, 30000, "work of the device");
    discard(&subject);
}

Test(simulate, each_wait_costs_one_round_trip)
{
    struct subject subject;
    make(&subject, 20, 30000, 0);
    const struct rg_outcome near_by = over(&subject, 0, 0, 0), far = over(&subject, 5000000, 0, 0);
    near(far.ns - near_by.ns, STEPS * 10000000ull, 20000, "ten waits over 10 ms more");
    cr_assert_eq(far.round_trips, STEPS);
    discard(&subject);
}

Test(simulate, without_async_all_wait)
{
    struct subject subject;
    make(&subject, 20, 30000, 0);
    const struct rg_outcome far = over(&subject, 5000000, 0, 1 << OPT_ASYNC);
    cr_assert_eq(far.round_trips, STEPS * 21);
    cr_assert_gt(far.ns, STEPS * 21 * 10000000ull);
    discard(&subject);
}

Test(simulate, without_batch_there_are_more_messages)
{
    struct subject subject;
    make(&subject, 20, 30000, 0);
    const struct rg_outcome with = over(&subject, 100000, 0, 0),
                            without = over(&subject, 100000, 0, 1 << OPT_BATCH);
    cr_assert_eq(without.messages, STEPS * 21);
    cr_assert_lt(with.messages, without.messages);
    cr_assert_eq(with.round_trips, without.round_trips);
    discard(&subject);
}

Test(simulate, without_delta_all_of_each_record_is_sent)
{
    struct subject subject;
    make(&subject, 20, 30000, 0);
    uint64_t all = 0;
    for (size_t i = 0; i < subject.model.n_records; i++)
        all += subject.model.records[i].size;
    subject.trace.repeated = all / 4 * 3;
    const struct rg_outcome with = over(&subject, 0, 1000000, 0),
                            without = over(&subject, 0, 1000000, 1 << OPT_DELTA);
    cr_assert_eq(with.round_trips, without.round_trips);
    cr_assert_gt(without.sent, with.sent);
    near(without.sent - with.sent, subject.trace.repeated - (without.messages - with.messages) * 40,
         2 * STEPS * 21, "what repeats"); /* a message has 40 bytes of its own */
    cr_assert_gt(without.ns, with.ns);
    discard(&subject);
}

Test(simulate, what_was_saved_is_paid_without_it)
{
    struct subject subject;
    make(&subject, 20, 30000, 0);
    const struct rg_outcome with = over(&subject, 5000000, 0, 0),
                            without = over(&subject, 5000000, 0, 1 << OPT_SHADOW);
    cr_assert_eq(without.round_trips, 2 * with.round_trips);
    near(without.ns - with.ns, STEPS * 10000000ull, 1000000, "as many round trips more");
    discard(&subject);
}

Test(simulate, bytes_take_their_time)
{
    struct subject subject;
    const uint64_t bulk = 10000000;
    make(&subject, 1, 1000, bulk);
    const struct rg_outcome slow = over(&subject, 0, 1000000000, 0);
    near(slow.ns, subject.trace.elapsed + STEPS * bulk, STEPS * 100000, "10 MB a step at 1 GB/s");
    cr_assert_geq(slow.sent, STEPS * bulk);
    discard(&subject);
}

Test(simulate, never_faster_over_a_worse_network)
{
    struct subject subject;
    make(&subject, 15, 20000, 100000);
    uint64_t last_rtt = 0;
    for (uint64_t oneway = 0; oneway <= 10000000; oneway = oneway * 2 + 1000) {
        uint64_t last = UINT64_MAX;
        for (uint64_t rate = 100000000; rate <= 12500000000; rate *= 5) {
            const uint64_t ns = over(&subject, oneway, rate, 0).ns;
            cr_assert_leq(ns, last, "more bandwidth makes it slower");
            last = ns;
        }
        cr_assert_geq(last, last_rtt, "a longer way makes it faster");
        last_rtt = last;
    }
    discard(&subject);
}
