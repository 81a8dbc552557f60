/*
 * verify.h - remote-gpu verify-limits: whether a server's sessions get the time of a GPU that they are to get.
 *
 * Each case runs sessions with weights and caps that keep the GPU busy (lib/remote-gpu/limits-load), and counts what the GPU has
 * done for each in windows of a second. A unit of work is what one session alone does: the same load is measured unshared first.
 * So `part` is of the GPU's whole throughput, and what is missing to 100 points is what sharing costs. A unit that is under way when a
 * window ends belongs to both, by parts.
 *
 * A case of memory is another thing: each session takes all that it can get, and that is compared with its limit.
 */
#ifndef RG_CLIENT_CLI_VERIFY_VERIFY_H
#define RG_CLIENT_CLI_VERIFY_VERIFY_H

#include "client/cli/base/settings.h"
#include "client/cli/verify/board.h"

#include <stdbool.h>

enum { RG_VERIFY_WINDOWS_MAX = 100 };

struct rg_verify_session {
    const char *weight, *compute; /* as `run` takes them; NULL: not said */
    const char *work;             /* as limits-load takes it */
    uint64_t ns;
    uint64_t memory; /* its limit, bytes; 0: not said. Not 0 in a case of memory alone */
};

struct rg_verify_case {
    const char *name;
    unsigned n;
    struct rg_verify_session sessions[RG_VERIFY_SESSIONS];
};

/** What came of a case. Errors in points: of a hundred of the GPU's time. */
struct rg_verify_result {
    bool ran;
    unsigned n_windows;
    double expected[RG_VERIFY_SESSIONS], part[RG_VERIFY_SESSIONS]; /* of 100; of all windows together */
    double parts[RG_VERIFY_WINDOWS_MAX][RG_VERIFY_SESSIONS];       /* of each window */
    double idle;             /* of 100: this machine's processors in the windows; NAN: not known */
    double error, error_p99; /* of a session in a window: the mean, and what 99 of 100 are below */
    double loss;         /* of the throughput that one session has alone; NAN where caps leave some unused */
    double cap_holds_ms; /* since the first submission; NAN: no session has a cap */
    double
        memory_error; /* bytes by which sessions got more or less than their limits, together; NAN: no case of memory */
};

/**
 * Goals: an error of 3 points, 5 for the 99th of a hundred, 3 % of throughput, 50 ms until a cap holds, no byte of memory too much or
 * too little.
 */
bool rg_verify_good(const struct rg_verify_result *result);

/** The cases; `quick`: some of them. */
const struct rg_verify_case *rg_verify_cases(bool quick, unsigned *n);

/**
 * Runs one. `unit_ns`: how long a unit of each session's load takes alone; NULL: one session is alone, and its units are taken to be
 * of 1 ns. False: it was said what is wrong.
 */
bool rg_verify_run(const struct rg_cli_settings *settings, const struct rg_verify_case *one,
                   const double *unit_ns, unsigned windows, struct rg_verify_result *out);

/** What the sessions of a case are to get of the device, in points. Pure. */
void rg_verify_expect(const struct rg_verify_case *one, double *expected);
/** From units in windows (by window, then session) to errors and loss. Pure. */
void rg_verify_judge(const struct rg_verify_case *one, const double *unit_ns, unsigned windows,
                     const double *seconds, double (*units)[RG_VERIFY_SESSIONS],
                     struct rg_verify_result *out);

#endif
