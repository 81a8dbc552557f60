/* cases.c - what sessions are to get of a GPU, and what is made of what they got. */
#include "client/cli/verify/verify.h"

#include <criterion/criterion.h>

#include <math.h>

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-6;
}

/* Every case asks for all of the GPU, or has a cap on each session. */
Test(verify, cases_add_up)
{
    unsigned n, quick;
    const struct rg_verify_case *cases = rg_verify_cases(false, &n);
    (void)rg_verify_cases(true, &quick);
    cr_assert(quick > 0 && quick < n);
    for (unsigned i = 0; i < n; i++) {
        double expected[RG_VERIFY_SESSIONS], sum = 0;
        bool all_capped = true;
        cr_assert(cases[i].n > 0 && cases[i].n <= RG_VERIFY_SESSIONS, "%s", cases[i].name);
        if (cases[i].sessions[0].memory)
            continue;
        rg_verify_expect(&cases[i], expected);
        for (unsigned s = 0; s < cases[i].n; s++) {
            sum += expected[s];
            all_capped &= cases[i].sessions[s].compute != NULL;
        }
        cr_expect(near(sum, 100) || (all_capped && sum < 100), "%s: %f", cases[i].name, sum);
    }
}

Test(verify, shares_by_weight_and_cap)
{
    double expected[RG_VERIFY_SESSIONS];
    const struct rg_verify_case weights = {.n = 2, .sessions = {{.weight = "100"}, {.weight = "300"}}};
    rg_verify_expect(&weights, expected);
    cr_expect(near(expected[0], 25) && near(expected[1], 75));
    /* what a cap leaves goes to the others, by their weights */
    const struct rg_verify_case capped = {
        .n = 3, .sessions = {{.compute = "10%"}, {.weight = "100"}, {.weight = "200"}}};
    rg_verify_expect(&capped, expected);
    cr_expect(near(expected[0], 10) && near(expected[1], 30) && near(expected[2], 60));
    /* a cap above what the session would get anyway changes nothing */
    const struct rg_verify_case wide = {.n = 2, .sessions = {{.compute = "80%"}, {.weight = "100"}}};
    rg_verify_expect(&wide, expected);
    cr_expect(near(expected[0], 50) && near(expected[1], 50));
}

Test(verify, memory_is_exact_or_not)
{
    struct rg_verify_result result = {
        .ran = true, .error = NAN, .error_p99 = NAN, .loss = NAN, .cap_holds_ms = NAN};
    cr_expect(rg_verify_good(&result));
    result.memory_error = 1;
    cr_expect_not(rg_verify_good(&result), "a byte too much");
}

Test(verify, judged_by_windows)
{
    const struct rg_verify_case equal = {.n = 2, .sessions = {{.weight = "100"}, {.weight = "100"}}};
    const double unit_ns[2] = {1e6, 2e6}, seconds[2] = {1, 1};
    struct rg_verify_result result = {.ran = true, .cap_holds_ms = NAN};
    double fair[2][RG_VERIFY_SESSIONS] = {{500, 250}, {490, 245}};
    rg_verify_judge(&equal, unit_ns, 2, seconds, fair, &result);
    cr_expect(near(result.error, 0) && near(result.part[0], 50));
    cr_expect(near(result.loss, 1), "of two seconds 1.98 were work");
    cr_expect(rg_verify_good(&result));
    double unfair[2][RG_VERIFY_SESSIONS] = {{500, 250}, {700, 150}}; /* 70 of 100 in one window */
    rg_verify_judge(&equal, unit_ns, 2, seconds, unfair, &result);
    cr_expect(near(result.error, 10) && near(result.error_p99, 20) && near(result.part[0], 60));
    cr_expect_not(rg_verify_good(&result));
    const struct rg_verify_case half = {.n = 1, .sessions = {{.compute = "50%"}}};
    double units[2][RG_VERIFY_SESSIONS] = {{500}, {480}};
    rg_verify_judge(&half, unit_ns, 2, seconds, units, &result);
    cr_expect(near(result.error, 1) && isnan(result.loss),
              "of the time, of which the cap leaves some unused");
    cr_expect(rg_verify_good(&result));
    result.cap_holds_ms = 51;
    cr_expect_not(rg_verify_good(&result));
    result.cap_holds_ms = NAN;
    result.ran = false;
    cr_expect_not(rg_verify_good(&result));
}
