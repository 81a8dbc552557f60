/* verify.c - remote-gpu verify-limits: the loads alone, the cases, and the table. See verify.h. */
#include "client/cli/verify/verify.h"

#include "client/cli/base/cli.h"
#include "client/cli/base/output.h"
#include "common/base/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LOADS_MAX = 32, WINDOWS_QUICK = 2, ALONE_WINDOWS = 2, SHARES = 100 };

/* Loads that were measured alone. */
struct alone {
    const char *work;
    uint64_t ns;
    double unit_ns, idle;
};

static struct alone measured[LOADS_MAX];
static unsigned n_measured;

/* Nanoseconds of a unit of a load, where one session has the GPU to itself; 0: it could not be measured. */
static double unit_of(const struct rg_cli_settings *settings, const struct rg_verify_session *session)
{
    for (unsigned i = 0; i < n_measured; i++)
        if (measured[i].ns == session->ns && strcmp(measured[i].work, session->work) == 0)
            return measured[i].unit_ns;
    const struct rg_verify_case one = {"alone", 1, {{NULL, NULL, session->work, session->ns, 0}}};
    struct rg_verify_result result;
    rg_info("measuring %s of %llu ns in one session", session->work, (unsigned long long)session->ns);
    if (n_measured == LOADS_MAX || !rg_verify_run(settings, &one, NULL, ALONE_WINDOWS, &result))
        return 0;
    /* With units of 1 ns, what is missing to the whole is all but the units. */
    const double per_second = (100 - result.loss) / 100 * 1e9;
    if (!(per_second > 0)) {
        rg_error("the GPU did nothing in %d s; is it busy with other sessions?", ALONE_WINDOWS);
        return 0;
    }
    measured[n_measured++] = (struct alone){session->work, session->ns, 1e9 / per_second, result.idle};
    return 1e9 / per_second;
}

static json_t *numbers(const double *values, unsigned n)
{
    json_t *all = json_array();
    for (unsigned i = 0; i < n; i++)
        rg_cli_json_add(&all, json_real(values[i]));
    return all;
}

static json_t *number_or_null(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *parts(const struct rg_verify_case *one, const struct rg_verify_result *result)
{
    json_t *all = json_array();
    for (unsigned w = 0; w < result->n_windows; w++)
        rg_cli_json_add(&all, numbers(result->parts[w], one->n));
    return all;
}

static json_t *to_json(const struct rg_verify_case *one, const struct rg_verify_result *result)
{
    const bool time = isnan(result->memory_error);
    return json_pack("{s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "case", one->name,
                     "sessions", (int)one->n, "windows", (int)result->n_windows, "expected",
                     numbers(result->expected, time ? one->n : 0), "part",
                     numbers(result->part, time ? one->n : 0), "parts", parts(one, result), "idle",
                     number_or_null(result->idle), "error", number_or_null(result->error), "error_p99",
                     number_or_null(result->error_p99), "loss", number_or_null(result->loss), "cap_holds_ms",
                     number_or_null(result->cap_holds_ms), "memory_error_bytes",
                     number_or_null(result->memory_error), "good", rg_verify_good(result));
}

static bool print_json(const struct rg_cli_settings *settings, json_t *cases)
{
    json_t *alone = json_array();
    for (unsigned i = 0; i < n_measured; i++)
        rg_cli_json_add(&alone, json_pack("{s:s, s:I, s:f, s:o}", "work", measured[i].work, "nanoseconds",
                                          (json_int_t)measured[i].ns, "unit_ns", measured[i].unit_ns, "idle",
                                          number_or_null(measured[i].idle)));
    return rg_cli_print_json(
        json_pack("{s:s, s:o, s:o}", "server", settings->server.items[0], "alone", alone, "cases", cases));
}

static void print_number(double value)
{
    if (isnan(value))
        printf("  %8s", "-");
    else
        printf("  %8.2f", value);
}

static void print_row(const struct rg_verify_case *one, const struct rg_verify_result *result)
{
    printf("%-56s", one->name);
    print_number(result->error);
    print_number(result->error_p99);
    print_number(result->loss);
    print_number(result->cap_holds_ms);
    print_number(result->idle);
    if (isnan(result->memory_error))
        printf("  %8s", "-");
    else
        printf("  %8.0f", result->memory_error);
    printf("  %s\n", rg_verify_good(result) ? "ok" : "MISSED");
    for (unsigned i = 0; isnan(result->memory_error) && i < one->n; i++)
        printf("  session %u: %.2f of %.2f\n", i + 1, result->part[i], result->expected[i]);
    (void)fflush(stdout);
}

/* So many that what 99 of 100 shares are below is something else than the worst of them. */
static unsigned windows_of(const struct rg_verify_case *one)
{
    return (SHARES + one->n - 1) / one->n;
}

static bool run_case(const struct rg_cli_settings *settings, const struct rg_verify_case *one,
                     struct rg_verify_result *out)
{
    double unit_ns[RG_VERIFY_SESSIONS] = {0};
    for (unsigned i = 0; !one->sessions[0].memory && i < one->n; i++) {
        unit_ns[i] = unit_of(settings, &one->sessions[i]);
        if (unit_ns[i] <= 0)
            return false;
    }
    rg_info("%s", one->name);
    return rg_verify_run(settings, one, unit_ns, settings->quick ? WINDOWS_QUICK : windows_of(one), out);
}

/* Whether a case is to be run: its name holds one of the words, or there are none. */
static bool wanted(const struct rg_verify_case *one, int n_words, char **words)
{
    for (int i = 0; i < n_words; i++)
        if (strstr(one->name, words[i]))
            return true;
    return n_words == 0;
}

/* Whether each word is of a case; if not it is said. */
static bool check_words(const struct rg_verify_case *cases, unsigned n, int n_words, char **words)
{
    for (int i = 0; i < n_words; i++) {
        unsigned found = 0;
        for (unsigned k = 0; k < n; k++)
            found += wanted(&cases[k], 1, &words[i]);
        if (found)
            continue;
        rg_error("no case is named like '%s'; there are:", words[i]);
        for (unsigned k = 0; k < n; k++)
            rg_error("  %s", cases[k].name);
        return false;
    }
    return true;
}

int rg_cli_verify_limits(const struct rg_cli_settings *settings, int argc, char **argv)
{
    if (settings->server.n != 1) {
        rg_error("verify-limits measures one server: name it with -s");
        return RG_EXIT_FAILURE;
    }
    unsigned n, n_run = 0, missed = 0;
    const struct rg_verify_case *cases = rg_verify_cases(settings->quick, &n);
    if (!check_words(cases, n, argc, argv))
        return RG_EXIT_FAILURE;
    json_t *all = settings->json ? json_array() : NULL;
    if (!settings->json)
        printf("%-56s  %8s  %8s  %8s  %8s  %8s  %8s\n", "case", "error", "p99", "loss %", "cap ms", "idle %",
               "bytes");
    for (unsigned i = 0; i < n; i++) {
        struct rg_verify_result result;
        if (!wanted(&cases[i], argc, argv))
            continue;
        n_run++;
        if (!run_case(settings, &cases[i], &result)) {
            json_decref(all);
            return RG_EXIT_FAILURE;
        }
        missed += !rg_verify_good(&result);
        if (settings->json)
            rg_cli_json_add(&all, to_json(&cases[i], &result));
        else
            print_row(&cases[i], &result);
    }
    if (settings->json && !print_json(settings, all))
        return RG_EXIT_FAILURE;
    if (!settings->json)
        printf(missed ? "%u of %u cases missed a goal: 3 points (99 of 100 windows: 5), 3 %% of throughput, "
                        "50 ms, 0 bytes\n"
                      : "all cases reach their goals\n",
               missed, n_run);
    return missed ? 1 : 0;
}
