/* cases.c - what is run, what it should give, and what was made of it. See verify.h. */
#include "client/cli/verify/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define US 1000ull
#define MS 1000000ull

#define ONE(weight, work, ns)                                                                                \
    {                                                                                                        \
        weight, NULL, work, ns, 0                                                                            \
    }
#define CAP(compute, work, ns)                                                                               \
    {                                                                                                        \
        NULL, compute, work, ns, 0                                                                           \
    }

#define MEMORY(bytes)                                                                                        \
    {                                                                                                        \
        NULL, NULL, "memory", MS, bytes                                                                      \
    }
#define MIB 1048576ull

static const struct rg_verify_case cases[] = {
    /* the first ones are those of --quick */
    {"2 equal, kernels of 1 ms", 2, {ONE("100", "kernels", MS), ONE("100", "kernels", MS)}},
    {"weights 1:3, kernels of 1 ms", 2, {ONE("100", "kernels", MS), ONE("300", "kernels", MS)}},
    {"a cap of 25 %, kernels of 1 ms", 1, {CAP("25%", "kernels", MS)}},
    {"memory: limits of 64, 100, 96.5 and 128 MiB",
     4,
     {MEMORY(64 * MIB), MEMORY(100 * MIB), MEMORY(193 * MIB / 2), MEMORY(128 * MIB)}},
    {"4 equal: kernels, graphs, copies, cooperative launches",
     4,
     {ONE("100", "kernels", MS), ONE("100", "graphs", 100 * US), ONE("100", "copies", 200 * US),
      ONE("100", "cooperative", MS)}},
    {"2 equal, kernels of 10 us", 2, {ONE("100", "kernels", 10 * US), ONE("100", "kernels", 10 * US)}},
    {"2 equal, kernels of 100 us and 10 ms",
     2,
     {ONE("100", "kernels", 100 * US), ONE("100", "kernels", 10 * MS)}},
    {"2 equal, kernels of 1 and 100 ms", 2, {ONE("100", "kernels", MS), ONE("100", "kernels", 100 * MS)}},
    {"4 weights 1:2:3:4, kernels of 1 ms",
     4,
     {ONE("100", "kernels", MS), ONE("200", "kernels", MS), ONE("300", "kernels", MS),
      ONE("400", "kernels", MS)}},
    {"4 equal, four streams each",
     4,
     {ONE("100", "streams", MS), ONE("100", "streams", MS), ONE("100", "streams", MS),
      ONE("100", "streams", MS)}},
    {"4 equal, fills and copies",
     4,
     {ONE("100", "fills", MS), ONE("100", "copies", MS), ONE("100", "fills", MS), ONE("100", "copies", MS)}},
    {"2 caps, 20 % and 50 %", 2, {CAP("20%", "kernels", MS), CAP("50%", "kernels", 100 * US)}},
    {"a cap of 10 % beside two without",
     3,
     {CAP("10%", "kernels", MS), ONE("100", "kernels", MS), ONE("100", "kernels", MS)}},
    {"8 equal, kernels of 100 us",
     8,
     {ONE("100", "kernels", 100 * US), ONE("100", "kernels", 100 * US), ONE("100", "kernels", 100 * US),
      ONE("100", "kernels", 100 * US), ONE("100", "kernels", 100 * US), ONE("100", "kernels", 100 * US),
      ONE("100", "kernels", 100 * US), ONE("100", "kernels", 100 * US)}},
    {"8 weights 1 to 8, kernels of 1 ms",
     8,
     {ONE("100", "kernels", MS), ONE("200", "kernels", MS), ONE("300", "kernels", MS),
      ONE("400", "kernels", MS), ONE("500", "kernels", MS), ONE("600", "kernels", MS),
      ONE("700", "kernels", MS), ONE("800", "kernels", MS)}},
};

enum { QUICK = 4 };

const struct rg_verify_case *rg_verify_cases(bool quick, unsigned *n)
{
    *n = quick ? QUICK : sizeof cases / sizeof *cases;
    return cases;
}

static double cap_of(const struct rg_verify_session *session)
{
    return session->compute ? atof(session->compute) : 100;
}

static double weight_of(const struct rg_verify_session *session)
{
    return session->weight ? atof(session->weight) : 100;
}

/* By weight; what a cap leaves goes to those that have not come to theirs. */
void rg_verify_expect(const struct rg_verify_case *one, double *expected)
{
    bool capped[RG_VERIFY_SESSIONS] = {false};
    for (bool again = true; again;) {
        double left = 100, weights = 0;
        again = false;
        for (unsigned i = 0; i < one->n; i++)
            if (capped[i])
                left -= cap_of(&one->sessions[i]);
            else
                weights += weight_of(&one->sessions[i]);
        for (unsigned i = 0; i < one->n; i++) {
            expected[i] =
                capped[i] ? cap_of(&one->sessions[i]) : left * weight_of(&one->sessions[i]) / weights;
            if (!capped[i] && expected[i] > cap_of(&one->sessions[i]))
                capped[i] = again = true;
        }
    }
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void rg_verify_judge(const struct rg_verify_case *one, const double *unit_ns, unsigned windows,
                     const double *seconds, double (*units)[RG_VERIFY_SESSIONS], struct rg_verify_result *out)
{
    double errors[RG_VERIFY_WINDOWS_MAX * RG_VERIFY_SESSIONS], all = 0, of_session[RG_VERIFY_SESSIONS] = {0},
                                                               expected_all = 0, time = 0;
    unsigned n = 0;
    rg_verify_expect(one, out->expected);
    for (unsigned i = 0; i < one->n; i++)
        expected_all += out->expected[i];
    const bool full = expected_all > 99.9;
    for (unsigned w = 0; w < windows; w++) {
        double work[RG_VERIFY_SESSIONS], total = 0;
        for (unsigned i = 0; i < one->n; i++) {
            work[i] = units[w][i] * unit_ns[i] / 1e9;
            of_session[i] += work[i];
            total += work[i];
        }
        /* A share is of what the GPU did; where caps leave it idle, of its time. */
        for (unsigned i = 0; i < one->n; i++) {
            const double whole = full ? total : seconds[w];
            out->parts[w][i] = whole > 0 ? 100 * work[i] / whole : 0;
            errors[n++] = fabs(out->parts[w][i] - out->expected[i]);
        }
        all += total;
        time += seconds[w];
    }
    qsort(errors, n, sizeof *errors, by_size);
    out->error = 0;
    for (unsigned i = 0; i < n; i++)
        out->error += errors[i] / n;
    out->error_p99 = n ? errors[(n * 99 + 99) / 100 - 1] : 0;
    for (unsigned i = 0; i < one->n; i++)
        out->part[i] = full ? (all > 0 ? 100 * of_session[i] / all : 0) : 100 * of_session[i] / time;
    out->loss = full ? 100 - 100 * all / time : NAN;
    out->memory_error = NAN;
    out->n_windows = windows;
}

bool rg_verify_good(const struct rg_verify_result *result)
{
    if (!isnan(result->memory_error))
        return result->ran && result->memory_error == 0;
    return result->ran && result->error <= 3 && result->error_p99 <= 5 &&
           (isnan(result->loss) || result->loss <= 3) &&
           (isnan(result->cap_holds_ms) || result->cap_holds_ms <= 50);
}
