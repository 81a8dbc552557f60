/* trace.c - whole traces are read as they are; cut, damaged and hostile ones are refused or harmless. */
#include "client/predict/simulate.h"
#include "tests/client/predict/build_trace.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static enum rg_status parse(const struct built *built, struct rg_trace *trace, char why[200])
{
    *why = 0;
    return rg_trace_parse(built->data, built->size, trace, why, 200);
}

Test(trace, is_read)
{
    struct built built = {0};
    struct rg_trace trace;
    char why[200];
    build_steps(&built, 3, 10, 50000, 1 << 20);
    cr_assert_eq(parse(&built, &trace, why), RG_OK, "%s", why);
    cr_assert_str_eq(trace.program, "program");
    cr_assert_eq(trace.n_threads, 1);
    cr_assert_eq(trace.threads[0].number, 77);
    cr_assert_eq(trace.n_servers, 1);
    cr_assert_eq(trace.servers[0].n_times, 3 * 12);
    cr_assert_eq(trace.round_trips, 3);
    cr_assert(trace.servers[0].timed);
    size_t waits = 0;
    for (size_t i = 0; i < trace.threads[0].n; i++)
        waits += trace.threads[0].items[i].kind == RG_TRACE_WAIT && trace.threads[0].items[i].code == 1;
    cr_assert_eq(waits, 3);
    rg_trace_free(&trace);
    free_built(&built);
}

Test(trace, cut_anywhere_is_refused)
{
    struct built built = {0};
    char why[200];
    build_steps(&built, 2, 3, 50000, 0);
    const size_t whole = built.size;
    for (built.size = 0; built.size < whole; built.size++) {
        struct rg_trace trace;
        cr_assert_neq(parse(&built, &trace, why), RG_OK, "cut at %zu of %zu", built.size, whole);
        cr_assert(*why, "nothing said of a cut at %zu", built.size);
        rg_trace_free(&trace);
    }
    free_built(&built);
}

Test(trace, any_changed_byte_is_noticed)
{
    struct built built = {0};
    char why[200];
    build_steps(&built, 2, 3, 50000, 0);
    for (size_t i = 0; i < built.size; i++) {
        struct rg_trace trace;
        if (i >= 12 && i < 16)
            continue; /* reserved */
        built.data[i] ^= 0x41;
        cr_assert_neq(parse(&built, &trace, why), RG_OK, "byte %zu", i);
        cr_assert(*why);
        rg_trace_free(&trace);
        built.data[i] ^= 0x41;
    }
    free_built(&built);
}

Test(trace, says_what_it_is_not)
{
    struct built built = {0};
    struct rg_trace trace;
    char why[200];
    put_bytes(&built, "{\"traceEvents\":[]}      ", 24);
    cr_assert_neq(parse(&built, &trace, why), RG_OK);
    cr_assert(strstr(why, "not a trace"), "%s", why);
    built.size = 0;
    build_steps(&built, 1, 1, 1000, 0);
    built.data[8] = 9;
    cr_assert_neq(parse(&built, &trace, why), RG_OK);
    cr_assert(strstr(why, "version 9"), "%s", why);
    rg_trace_free(&trace);
    free_built(&built);
}

Test(trace, of_several_servers_is_read)
{
    struct built built = {0};
    struct rg_trace trace;
    char why[200];
    size_t exchanges = 0;
    build_servers(&built, 3, A_COPY, 50000, 12345);
    cr_assert_eq(parse(&built, &trace, why), RG_OK, "%s", why);
    cr_assert_eq(trace.n_servers, 2);
    cr_assert_str_eq(trace.servers[1].name, "other:1");
    cr_assert_eq(trace.servers[0].n_times, 3 * 4);
    cr_assert_eq(trace.servers[1].n_times, 3 * 3);
    for (size_t i = 0; i < trace.threads[0].n; i++) {
        const struct rg_trace_item *item = &trace.threads[0].items[i];
        exchanges += item->kind == RG_TRACE_EXCHANGE && item->seq && item->code == 2 &&
                     item->sent + item->received == 12345;
    }
    cr_assert_eq(exchanges, 6);
    rg_trace_free(&trace);
    free_built(&built);
}

/* Records of a server that the file does not name. */
Test(trace, without_its_servers_is_refused)
{
    struct built built = {0};
    struct rg_trace trace;
    char why[200];
    begin_trace(&built, 0);
    begin_block(&built, RG_TRACE_THREAD);
    put_number(&built, 77);
    put_number(&built, 0);
    end_block(&built);
    end_trace(&built, 0, 0, 1, 0);
    cr_assert_neq(parse(&built, &trace, why), RG_OK);
    cr_assert(strstr(why, "servers"), "%s", why);
    rg_trace_free(&trace);
    free_built(&built);
}

static void build_one(struct built *built)
{
    build_steps(built, 4, 6, 50000, 5000);
}

static void build_two(struct built *built)
{
    build_servers(built, 6, A_SUM, 50000, 5000);
}

/* Numbers that lie, with right checksums: refused, or a model that can be simulated to its end. */
static void try_hostile_numbers(void (*build)(struct built *built))
{
    struct built built = {0};
    uint64_t random = 12345;
    unsigned taken = 0;
    build(&built);
    unsigned char *original = malloc(built.size);
    memcpy(original, built.data, built.size);
    for (unsigned round = 0; round < 20000; round++) {
        struct rg_trace trace;
        struct rg_model model = {0};
        char why[200];
        memcpy(built.data, original, built.size);
        for (unsigned i = 0; i <= round % 4; i++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            built.data[16 + (random >> 33) % (built.size - 16)] = (unsigned char)(random >> 25);
        }
        mend_checksums(&built);
        if (parse(&built, &trace, why) == RG_OK) {
            const struct rg_wire wire = {.oneway_ns = 1000000,
                                         .bytes_per_second = 125000000,
                                         .buffer = 1 << 20,
                                         .between_oneway_ns = 100000,
                                         .between_bytes_per_second = 1000000};
            struct rg_outcome outcome;
            taken++;
            cr_assert_eq(rg_model_make(&trace, &model), RG_OK);
            for (uint64_t off = 0; off < 8; off += 7)
                cr_assert_eq(rg_simulate(&model, &wire, off, &outcome), RG_OK);
        } else {
            cr_assert(*why);
        }
        rg_model_free(&model);
        rg_trace_free(&trace);
    }
    cr_assert_gt(taken, 1000, "only %u traces were read: this tests nothing", taken);
    free(original);
    free_built(&built);
}

Test(trace, hostile_numbers_are_harmless, .timeout = 120)
{
    try_hostile_numbers(build_one);
}

Test(trace, hostile_numbers_of_several_servers_are_harmless, .timeout = 120)
{
    try_hostile_numbers(build_two);
}
