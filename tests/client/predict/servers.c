/* servers.c - what made-up programs of two servers take over other links between these, of which that can be said by hand. */
#include "tests/client/predict/subject.h"

enum { STEPS = 10, KERNEL_NS = 200000 };

static void make(struct subject *subject, enum between between, uint64_t bytes)
{
    *subject = (struct subject){0};
    build_servers(&subject->built, STEPS, between, KERNEL_NS, bytes);
    read_built(subject);
}

static uint64_t over(const struct subject *subject, uint64_t oneway_ns, uint64_t rate)
{
    const struct rg_wire wire = {
        .buffer = 1 << 20, .between_oneway_ns = oneway_ns, .between_bytes_per_second = rate};
    struct rg_outcome outcome;
    cr_assert_eq(rg_simulate(&subject->model, &wire, 0, &outcome), RG_OK);
    return outcome.ns;
}

Test(servers, recorded_link_gives_recorded_time)
{
    for (enum between between = A_SUM; between <= A_FENCE; between++) {
        struct subject subject;
        make(&subject, between, 1000000);
        near(over(&subject, 0, 0), subject.trace.elapsed, subject.trace.elapsed / 50, "as recorded");
        discard(&subject);
    }
}

/* Each waits for the other one's stream, so what each has in the model is the exchange alone. */
Test(servers, waiting_for_the_other_is_no_part_of_an_exchange)
{
    for (enum between between = A_SUM; between <= A_COPY; between++) {
        struct subject subject;
        if (between == A_SUM_WITH_ANOTHER_PROCESS)
            continue;
        make(&subject, between, 1000000);
        cr_assert_eq(subject.model.n_exchanges, 1 + 2 * STEPS);
        for (size_t i = 1; i < subject.model.n_exchanges; i++)
            near(subject.model.exchanges[i].itself, BETWEEN_NS, 5000, "an exchange");
        discard(&subject);
    }
}

Test(servers, of_other_processes_the_quickest_is_the_exchange)
{
    struct subject subject;
    make(&subject, A_SUM_WITH_ANOTHER_PROCESS, 1000000);
    for (size_t i = 1; i < subject.model.n_exchanges; i++)
        near(subject.model.exchanges[i].itself, BETWEEN_NS, 5000, "an exchange");
    /* of 1 ms on the link each, 50 us are what it took already; waiting for the other stays */
    near(over(&subject, 0, 1000000000) - over(&subject, 0, 0), STEPS * (1000000 - BETWEEN_NS), 50000, "sums");
    discard(&subject);
}

Test(servers, bytes_take_their_time_on_the_link)
{
    for (enum between between = A_SUM; between <= A_COPY; between++) {
        struct subject subject;
        make(&subject, between, 1000000);
        const uint64_t recorded = over(&subject, 0, 0);
        near(over(&subject, 0, 1000000000) - recorded, STEPS * (1000000 - BETWEEN_NS), 50000,
             "1 MB at 1 GB/s");
        near(over(&subject, 0, 100000000000), recorded, 1000, "1 MB in 10 us, which went beside");
        discard(&subject);
    }
}

Test(servers, each_way_takes_its_time)
{
    struct subject subject;
    make(&subject, A_SUM, 1000);
    near(over(&subject, 1000000, 0) - over(&subject, 0, 0), STEPS * 2 * 1000000, 50000, "two ways a sum");
    discard(&subject);
    make(&subject, A_FENCE, 0);
    /* the first server's stream goes on with a kernel when the second one's signal has come */
    near(over(&subject, 1000000, 0) - over(&subject, 0, 0), STEPS * 1000000, 50000, "a way a fence");
    discard(&subject);
}

Test(servers, a_stream_waits_for_the_slower_one)
{
    struct subject subject;
    make(&subject, A_FENCE, 0);
    for (size_t i = 0; i < subject.model.n_records;
         i++) { /* the second server's kernels become ten times as long */
        struct rg_record_model *record = &subject.model.records[i];
        if (record->server == 1 && !record->exchange && record->use.act == RG_DEVICE_WORK)
            record->use.time += 18 * KERNEL_NS;
    }
    near(over(&subject, 0, 0) - subject.trace.elapsed, STEPS * 18ull * KERNEL_NS, STEPS * 10000, "kernels");
    discard(&subject);
}

Test(servers, never_faster_over_a_worse_link)
{
    for (enum between between = A_SUM; between <= A_FENCE; between++) {
        struct subject subject;
        uint64_t last_way = 0;
        make(&subject, between, 300000);
        for (uint64_t oneway = 0; oneway <= 10000000; oneway = oneway * 2 + 1000) {
            uint64_t last = UINT64_MAX;
            for (uint64_t rate = 100000000; rate <= 12500000000; rate *= 5) {
                const uint64_t ns = over(&subject, oneway, rate);
                cr_assert_leq(ns, last, "more bandwidth makes it slower");
                last = ns;
            }
            cr_assert_geq(last, last_way, "a longer way makes it faster");
            last_way = last;
        }
        discard(&subject);
    }
}
