/* run.c - one case: the sessions are started, watched for some windows, and ended. See verify.h. */
#include "client/cli/base/cli.h"
#include "client/cli/base/environment.h"
#include "client/cli/verify/verify.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_NS  60000000000ull
#define WARM_NS   3000000000ull /* until shares have settled: guesses, the first turns */
#define WINDOW_NS 1000000000ull
#define HOLD_NS   1000000000ull /* so long it is watched when a cap begins to hold */
#define POINT     3.0           /* above the cap */

struct running {
    char path[PATH_MAX]; /* of the board */
    struct rg_verify_board *board;
    pid_t children[RG_VERIFY_SESSIONS];
    unsigned n;
};

static bool make_board(struct running *running)
{
    const int file = rg_file_temporary("remote-gpu-verify", running->path, sizeof running->path);
    if (file < 0 || ftruncate(file, sizeof *running->board) != 0) {
        rg_error("no temporary file in $TMPDIR, or /tmp: %s", strerror(errno));
        if (file >= 0) {
            close(file);
            unlink(running->path);
        }
        return false;
    }
    running->board = mmap(NULL, sizeof *running->board, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (running->board == MAP_FAILED) {
        rg_error("cannot map %s: %s", running->path, strerror(errno));
        running->board = NULL;
        unlink(running->path);
        return false;
    }
    return true;
}

static _Noreturn void become(const struct rg_cli_settings *settings, const struct running *running,
                             unsigned i, const struct rg_verify_session *session)
{
    char load[PATH_MAX], number[16], ns[32], memory[32];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody would stop it */
    snprintf(memory, sizeof memory, "%llu", (unsigned long long)session->memory);
    if (rg_path_library("limits-load", load, sizeof load) != RG_OK ||
        rg_cli_set_environment(settings, settings->server.items[0]) != RG_OK ||
        (session->weight && setenv("REMOTE_GPU_WEIGHT", session->weight, 1) != 0) ||
        (session->compute && setenv("REMOTE_GPU_COMPUTE", session->compute, 1) != 0) ||
        (session->memory && setenv("REMOTE_GPU_MEMORY", memory, 1) != 0))
        _exit(RG_EXIT_FAILURE);
    snprintf(number, sizeof number, "%u", i);
    snprintf(ns, sizeof ns, "%llu", (unsigned long long)session->ns);
    dup2(2, 1);
    execl(load, load, running->path, number, session->work, ns, (char *)NULL);
    rg_error("cannot run %s: %s", load, strerror(errno));
    _exit(RG_EXIT_NOT_FOUND);
}

/* Waits until all are ready. */
static bool wait_for_start(struct running *running)
{
    for (const uint64_t until = rg_now_ns() + START_NS; rg_now_ns() < until; (void)usleep(5000)) {
        unsigned ready = 0;
        for (unsigned i = 0; i < running->n; i++) {
            int status;
            if (waitpid(running->children[i], &status, WNOHANG) == running->children[i]) {
                running->children[i] = 0;
                rg_error("a session for the measurement ended before it began; what it said stands above");
                return false;
            }
            ready += atomic_load(&running->board->sessions[i].state) == RG_VERIFY_READY;
        }
        if (ready == running->n)
            return true;
    }
    rg_error("the sessions for the measurement did not begin within a minute");
    return false;
}

static bool start(const struct rg_cli_settings *settings, const struct rg_verify_case *one,
                  struct running *running)
{
    if (!make_board(running))
        return false;
    for (unsigned i = 0; i < one->n; i++) {
        const pid_t child = fork();
        if (child == 0)
            become(settings, running, i, &one->sessions[i]);
        if (child < 0) {
            rg_error("cannot start a process: %s", strerror(errno));
            unlink(running->path);
            return false;
        }
        running->children[running->n++] = child;
    }
    const bool ready = wait_for_start(running);
    unlink(running->path); /* all have mapped it: nothing is left behind if the command is interrupted */
    return ready;
}

static void end(struct running *running)
{
    if (!running->board)
        return;
    atomic_store(&running->board->stop, 1);
    for (unsigned i = 0; i < running->n; i++) {
        int tries = 0, status;
        while (running->children[i] > 0 && waitpid(running->children[i], &status, WNOHANG) == 0)
            if (++tries > 500) {
                (void)kill(running->children[i], SIGKILL);
                (void)waitpid(running->children[i], &status, 0);
                break;
            } else {
                (void)usleep(10000);
            }
    }
    (void)munmap(running->board, sizeof *running->board);
}

static void read_units(const struct running *running, uint64_t *out)
{
    for (unsigned i = 0; i < running->n; i++)
        out[i] = atomic_load(&running->board->sessions[i].units);
}

/* What was counted by a moment. */
struct moment {
    uint64_t at;
    uint64_t units[RG_VERIFY_SESSIONS];
};

static void look(const struct running *running, struct moment *out)
{
    read_units(running, out->units);
    out->at = rg_now_ns();
}

/*
 * Units that were done by a moment, and of those that were counted together next the part that was: what the device works at for long
 * belongs to two windows. `unit_ns` 0: one after the other, as the session is alone. Not later than RG_VERIFY_TIMES counts after the
 * moment; where none came yet, nothing of it was done.
 */
static double done_by(const struct running *running, const struct moment *moment, unsigned i, double unit_ns)
{
    const uint64_t at_once = atomic_load(&running->board->sessions[i].at_once), units = moment->units[i];
    if (units == 0 || atomic_load(&running->board->sessions[i].units) == units)
        return (double)units;
    const _Atomic uint64_t *counted = running->board->counted_ns[i];
    const uint64_t next = atomic_load(&counted[units / at_once % RG_VERIFY_TIMES]),
                   before = atomic_load(&counted[(units / at_once - 1) % RG_VERIFY_TIMES]);
    const double took = unit_ns > 0 ? (double)at_once * unit_ns : (double)(next - before),
                 left = next > moment->at ? (double)(next - moment->at) : 0;
    return (double)units + (left < took ? (1 - left / took) * (double)at_once : 0);
}

/* Sleeps for a window, and looks. */
static void look_after(const struct running *running, uint64_t ns, struct moment *out)
{
    for (const uint64_t since = rg_now_ns(); rg_now_ns() < since + ns;)
        (void)usleep(500);
    look(running, out);
}

/* Counts what is done for each session in so many windows, one right after the other; of each its length. */
static void watch(const struct rg_verify_case *one, const struct running *running, const double *unit_ns,
                  unsigned windows, double *seconds, double (*units)[RG_VERIFY_SESSIONS])
{
    struct moment last, now, later;
    double had[RG_VERIFY_SESSIONS];
    look(running, &last);
    look_after(running, WINDOW_NS, &now);
    for (unsigned i = 0; i < one->n; i++)
        had[i] = done_by(running, &last, i, unit_ns ? unit_ns[i] : 0);
    for (unsigned w = 0; w < windows; w++) {
        look_after(running, WINDOW_NS, &later); /* when what was under way has been counted */
        seconds[w] = (double)(now.at - last.at) / 1e9;
        for (unsigned i = 0; i < one->n; i++) {
            const double has = done_by(running, &now, i, unit_ns ? unit_ns[i] : 0);
            units[w][i] = has - had[i];
            had[i] = has;
        }
        last = now;
        now = later;
    }
}

/*
 * Milliseconds from the first submission until what a capped session has had stays within the cap, and three points, of the time
 * that has passed. Looked at while the sessions warm up.
 */
static double watch_caps(const struct rg_verify_case *one, const struct running *running,
                         const double *unit_ns)
{
    double holds = NAN;
    for (const uint64_t until = rg_now_ns() + HOLD_NS; rg_now_ns() < until; (void)usleep(2000))
        for (unsigned i = 0; i < one->n; i++) {
            const uint64_t begun = atomic_load(&running->board->sessions[i].begun_ns), now = rg_now_ns();
            if (!one->sessions[i].compute || !begun || now <= begun)
                continue;
            const double passed = (double)(now - begun),
                         most = (atof(one->sessions[i].compute) + POINT) / 100;
            const double had = (double)atomic_load(&running->board->sessions[i].units) * unit_ns[i];
            if (isnan(holds))
                holds = 0;
            if (had > passed * most)
                holds = passed / 1e6;
        }
    return holds;
}

/* Sessions of a case of memory have taken what they could get when they are ready. */
static double memory_error(const struct rg_verify_case *one, const struct running *running)
{
    uint64_t got[RG_VERIFY_SESSIONS];
    double error = 0;
    read_units(running, got);
    for (unsigned i = 0; i < one->n; i++)
        error += fabs((double)got[i] - (double)one->sessions[i].memory);
    return error;
}

/* What this machine's processors had to do since it started, in ticks. */
struct ticks {
    unsigned long long idle, all;
};

static bool read_ticks(struct ticks *out)
{
    char line[256], *at = line;
    FILE *file = fopen("/proc/stat", "re");
    const bool good = file && fgets(line, sizeof line, file) && strncmp(line, "cpu ", 4) == 0;
    if (file)
        (void)fclose(file);
    *out = (struct ticks){0};
    at += 4;
    /* user, nice, system, idle, waiting for a disk, …; the last two are counted as user's already */
    for (unsigned i = 0; good && i < 8; i++) {
        const unsigned long long ticks = strtoull(at, &at, 10);
        out->all += ticks;
        out->idle += i == 3 || i == 4 ? ticks : 0;
    }
    return good;
}

/* Percent of the processors' time that nobody needed since `before`; NAN: not known. */
static double idle_since(const struct ticks *before)
{
    struct ticks after;
    if (!before->all || !read_ticks(&after) || after.all <= before->all)
        return NAN;
    return 100 * (double)(after.idle - before->idle) / (double)(after.all - before->all);
}

bool rg_verify_run(const struct rg_cli_settings *settings, const struct rg_verify_case *one,
                   const double *unit_ns, unsigned windows, struct rg_verify_result *out)
{
    struct running running = {.board = NULL};
    double units[RG_VERIFY_WINDOWS_MAX][RG_VERIFY_SESSIONS] = {{0}};
    double seconds[RG_VERIFY_WINDOWS_MAX] = {0};
    const double of_1_ns = 1;
    struct ticks ticks;
    *out = (struct rg_verify_result){.loss = NAN, .cap_holds_ms = NAN, .memory_error = NAN, .idle = NAN};
    if (!start(settings, one, &running)) {
        end(&running);
        return false;
    }
    if (one->sessions[0].memory) {
        out->error = out->error_p99 = NAN;
        out->memory_error = memory_error(one, &running);
        out->ran = true;
        end(&running);
        return true;
    }
    const uint64_t began = rg_now_ns();
    atomic_store(&running.board->go, 1);
    out->cap_holds_ms = watch_caps(one, &running, unit_ns);
    while (rg_now_ns() < began + WARM_NS)
        (void)usleep(1000);
    (void)read_ticks(&ticks);
    watch(one, &running, unit_ns, windows, seconds, units);
    out->idle = idle_since(&ticks);
    end(&running);
    rg_verify_judge(one, unit_ns ? unit_ns : &of_1_ns, windows, seconds, units, out);
    out->ran = true;
    return true;
}
