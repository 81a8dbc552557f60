/*
 * acquire.c - asking a pool for GPUs and waiting for them, with one line that says where one stands; leases that are kept. See pool.h.
 *
 * Who waits may do so for hours, in which a connection can be lost and a server start anew: then it is asked again, for a minute.
 */
#include "client/cli/base/cli.h"
#include "client/cli/base/output.h"
#include "client/cli/pool/pool.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/base/poll.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ASKED_AGAIN_NS 60000000000ull /* after the last that was heard of the queue */
#define PAUSE_NS       1000000000ull

/* What a command that waits has shown and heard. */
struct waiting {
    bool shown;       /* a line on a terminal that is to be cleared */
    uint64_t last_ns; /* when it heard last that it waits; 0: never */
    bool lost;        /* it has been said that the connection was lost since then */
};

bool rg_pool_is_asked_for(const struct rg_cli_settings *settings)
{
    return settings->filters.n || settings->tolerations.n || settings->wait_for || settings->spread ||
           settings->lease;
}

bool rg_pool_is_asked_for_here(const struct rg_cli_settings *settings)
{
    static const size_t options[] = {
        offsetof(struct rg_cli_settings, filters), offsetof(struct rg_cli_settings, tolerations),
        offsetof(struct rg_cli_settings, wait_for), offsetof(struct rg_cli_settings, spread),
        offsetof(struct rg_cli_settings, lease)};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (rg_options_source(&settings->options, options[i]) == 1)
            return true;
    return false;
}

/* --- the wish ----------------------------------------------------------------------------------------------------- */

/* How long it is content to wait; false: it was said what is wrong. */
static bool take_wait(const struct rg_cli_settings *settings, struct rg_pool_wish *wish)
{
    const char *text = settings->wait_for;
    uint64_t ns = 0;
    int64_t seconds;
    char why[160] = "";
    wish->waits = text;
    wish->wait_seconds = RG_POOL_FOR_EVER;
    if (!text || !*text)
        return true;
    if (rg_parse_integer(text, 0, 1 << 30, &seconds, NULL, 0) == RG_OK) {
        wish->wait_seconds = (uint64_t)seconds;
        return true;
    }
    if (rg_parse_duration(text, &ns, why, sizeof why) != RG_OK) {
        rg_error("--wait-for: %s", why);
        return false;
    }
    wish->wait_seconds = (ns + 999999999u) / 1000000000u;
    return true;
}

/* One line: on a terminal it is written over, elsewhere there is a line for each change. */
static void show_waiting(void *data, int position, int of, int64_t since, const char *why)
{
    const long long now = (long long)time(NULL);
    const bool terminal = isatty(STDERR_FILENO);
    struct waiting *waiting = data;
    char place[64] = "", clock[16] = "";
    struct tm date;
    const time_t begin = (time_t)since;
    if (position)
        snprintf(place, sizeof place, "%d of %d in the queue", position, of);
    if (since)
        strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&begin, &date));
    fprintf(stderr, "%sremote-gpu: waiting since %s (%lld s): %s%s%s%s", terminal ? "\r\033[K" : "", clock,
            now > since ? now - since : 0, place, *place ? ", " : "", why, terminal ? "" : "\n");
    fflush(stderr);
    *waiting = (struct waiting){.shown = terminal, .last_ns = rg_now_ns()};
}

static void clear(struct waiting *waiting)
{
    if (waiting->shown)
        fprintf(stderr, "\r\033[K");
    waiting->shown = false;
}

static void end_now(int number)
{
    _exit(128 + number);
}

/* To the first process of a container no signal does anything that it has not asked for. */
static void end_when_told(void)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    const struct sigaction ends = {.sa_handler = end_now};
    struct sigaction before;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        if (getpid() == 1 && sigaction(signals[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            (void)sigaction(signals[i], &ends, NULL);
}

/* Whether to ask again what has failed, after a moment. */
static bool ask_again(const char *member, const struct rg_pool_failure *failure, uint64_t until_ns,
                      struct waiting *waiting)
{
    const bool unreachable =
        failure->status != RG_ERR_REFUSED || strcmp(failure->code, "pool-unreachable") == 0;
    const uint64_t now = rg_now_ns();
    if (!unreachable || !waiting->last_ns || now + PAUSE_NS >= until_ns)
        return false;
    if (!waiting->lost) {
        waiting->lost = true;
        waiting->last_ns = now; /* who waits hears nothing as long as nothing changes */
        rg_warn("lost the connection to %s; asking again, at another place of the queue", member);
    }
    if (now >= waiting->last_ns + ASKED_AGAIN_NS)
        return false;
    rg_pause(PAUSE_NS);
    return true;
}

bool rg_cli_pool_acquire(const struct rg_cli_settings *settings, const char *member, bool kept,
                         struct rg_pool_lease_of *out)
{
    struct rg_pool_failure failure;
    struct waiting waiting = {0};
    char machine[RG_CONTROL_TEXT];
    struct rg_pool_wish wish = {.gpus = (unsigned)settings->gpus,
                                .memory = settings->memory,
                                .fraction = settings->fraction,
                                .filters = (const char *const *)settings->filters.items,
                                .n_filters = settings->filters.n,
                                .devices = (const char *const *)settings->devices.items,
                                .n_devices = settings->devices.n,
                                .tolerations = (const char *const *)settings->tolerations.items,
                                .n_tolerations = settings->tolerations.n,
                                .spread = settings->spread,
                                .project = settings->project,
                                .user = settings->user,
                                .priority = settings->priority,
                                .job = settings->job,
                                .machine = rg_pool_machine(machine, sizeof machine),
                                .id = settings->lease_id,
                                .kept = kept,
                                .seconds = settings->keep_ns / 1000000000u,
                                .timeout_ns = settings->timeout_ns,
                                .waiting = show_waiting,
                                .data = &waiting};
    if (!take_wait(settings, &wish))
        return false;
    end_when_told();
    const bool ends = wish.wait_seconds != RG_POOL_FOR_EVER;
    const uint64_t until_ns = ends ? rg_now_ns() + wish.wait_seconds * 1000000000u : UINT64_MAX;
    bool good;
    while (!(good = rg_pool_request(member, &wish, out, &failure))) {
        clear(&waiting);
        if (!wish.waits || !ask_again(member, &failure, until_ns, &waiting))
            break;
        const uint64_t now = rg_now_ns();
        if (ends)
            wish.wait_seconds = until_ns > now ? (until_ns - now) / 1000000000u + 1 : 0;
    }
    clear(&waiting);
    if (!good)
        rg_error("%s", failure.why);
    return good;
}

bool rg_cli_pool_find(const struct rg_cli_settings *settings, const char *member, const char *id,
                      struct rg_pool_lease_of *out)
{
    struct rg_pool_failure failure;
    const bool good = rg_pool_find(member, id, settings->timeout_ns, out, &failure);
    if (!good)
        rg_error("%s", failure.why);
    return good;
}

bool rg_pool_set_environment(const struct rg_pool_lease_of *lease)
{
    return setenv("REMOTE_GPU_LEASE", lease->variable, 1) == 0;
}

/* --- remote-gpu request, renew, release ---------------------------------------------------------------------------- */

/* The server that is asked about the pool; NULL: it was said that it must be one. */
static const char *member_of(const struct rg_cli_settings *settings)
{
    if (settings->server.n == 1)
        return settings->server.items[0];
    rg_error("name one server of the pool with -s: any of them speaks for all");
    return NULL;
}

/* The lease that the command is about; NULL: it was said that it is missing. */
static const char *lease_of(const char *subcommand, int argc, char **argv)
{
    if (argc == 1)
        return argv[0];
    rg_error("which lease? remote-gpu list shows those that you have; see remote-gpu %s --help", subcommand);
    return NULL;
}

static int print_lease(const struct rg_cli_settings *settings, const char *member,
                       struct rg_pool_lease_of *lease)
{
    const long long seconds = lease->expires ? (long long)lease->expires - (long long)time(NULL) : 0;
    if (settings->json)
        return rg_cli_print_json(json_pack(
                   "{s:s, s:s, s:i, s:O, s:s, s:s, s:I, s:I}", "lease", lease->id, "user", lease->user,
                   "gpus", (int)lease->n_gpus, "devices", lease->gpus, "servers", lease->servers, "variable",
                   lease->variable, "seconds", (json_int_t)seconds, "expires", (json_int_t)lease->expires))
                   ? 0
                   : RG_EXIT_FAILURE;
    printf("lease %s: %u GPU%s on %s, for %lld s\n", lease->id, lease->n_gpus, lease->n_gpus == 1 ? "" : "s",
           lease->servers, seconds);
    if (settings->user)
        printf("next, as %s: ", lease->user);
    else
        printf("next: ");
    printf("remote-gpu run -s %s --lease %s -- COMMAND; remote-gpu release -s %s %s gives it back\n", member,
           lease->id, member, lease->id);
    return 0;
}

int rg_cli_request(const struct rg_cli_settings *settings, int argc, char **argv)
{
    struct rg_pool_lease_of lease;
    const char *member = member_of(settings);
    if (!rg_cli_no_words("request", argc, argv) || !member || !rg_cli_check_share(settings) ||
        !rg_cli_pool_acquire(settings, member, true, &lease))
        return RG_EXIT_FAILURE;
    const int status = print_lease(settings, member, &lease);
    rg_pool_lease_fini(&lease);
    return status;
}

int rg_cli_renew(const struct rg_cli_settings *settings, int argc, char **argv)
{
    const char *member = member_of(settings), *id = lease_of("renew", argc, argv);
    struct rg_pool_failure failure;
    int64_t expires = 0;
    if (!member || !id)
        return RG_EXIT_FAILURE;
    if (!rg_pool_renew(member, id, settings->keep_ns / 1000000000u, settings->timeout_ns, &expires,
                       &failure)) {
        rg_error("%s", failure.why);
        return RG_EXIT_FAILURE;
    }
    if (settings->json)
        return rg_cli_print_json(json_pack("{s:s, s:I}", "lease", id, "expires", (json_int_t)expires))
                   ? 0
                   : RG_EXIT_FAILURE;
    printf("lease %s is kept for %lld s\n", id, (long long)expires - (long long)time(NULL));
    return 0;
}

int rg_cli_release(const struct rg_cli_settings *settings, int argc, char **argv)
{
    const char *member = member_of(settings), *id = lease_of("release", argc, argv);
    struct rg_pool_failure failure;
    if (!member || !id)
        return RG_EXIT_FAILURE;
    if (!rg_pool_release(member, id, settings->timeout_ns, &failure)) {
        rg_error("%s", failure.why);
        return RG_EXIT_FAILURE;
    }
    printf("lease %s was given back\n", id);
    return 0;
}
