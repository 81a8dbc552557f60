/* explain.c - what a request waits for, in one sentence. */
#include "pool/schedule.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define GIB    (1ull << 30)
#define MIB    (1ull << 20)
#define SECOND 1000000000ull

struct text {
    char *at;
    size_t left;
};

static void say(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(text->at, text->left, format, arguments);
    va_end(arguments);
    const size_t used = n < 0 ? 0 : (size_t)n < text->left ? (size_t)n : text->left ? text->left - 1 : 0;
    text->at += used;
    text->left -= used;
}

static void say_size(struct text *text, uint64_t bytes)
{
    if (bytes % GIB == 0)
        say(text, "%" PRIu64 " GiB", (uint64_t)(bytes / GIB));
    else if (bytes >= 10 * GIB)
        say(text, "%.1f GiB", (double)bytes / (double)GIB);
    else
        say(text, "%" PRIu64 " MiB", (uint64_t)(bytes / MIB));
}

static void say_time(struct text *text, uint64_t ns)
{
    const uint64_t seconds = ns / SECOND;
    if (seconds < 60)
        say(text, "less than a minute");
    else if (seconds < 2 * 3600)
        say(text, "about %" PRIu64 " min", (seconds + 30) / 60);
    else if (seconds < 2 * 86400)
        say(text, "about %" PRIu64 " h", (seconds + 1800) / 3600);
    else
        say(text, "about %" PRIu64 " days", (seconds + 43200) / 86400);
}

/* "4 GPUs with 20 GiB each on one server" */
static void say_wish(struct text *text, const struct rg_pool_request *request)
{
    const char *each = request->n > 1 ? " each" : "";
    if (request->memory || request->fraction)
        say(text, "%" PRIu32 " GPU%s with ", request->n, request->n > 1 ? "s" : "");
    else
        say(text, "%" PRIu32 " whole GPU%s", request->n, request->n > 1 ? "s" : "");
    if (request->memory) {
        say_size(text, request->memory);
        say(text, "%s free", each);
    } else if (request->fraction) {
        say(text, "%.4g%% of the memory free", request->fraction / 10000.0);
    }
    if (request->n > 1)
        say(text, "%s", request->several_servers ? " on few servers" : " on one server");
    if (request->n_filters)
        say(text, " that match%s its filters", request->n > 1 ? "" : "es");
    if (request->n_devices)
        say(text, " of those that it names");
}

static const char *server_name(const struct rg_pool_snapshot *snapshot, uint32_t server)
{
    const struct rg_pool_server *at = &snapshot->servers[server];
    return at->hostname ? at->hostname : at->address ? at->address : "a server";
}

static void say_start(struct text *text, const struct rg_pool_snapshot *snapshot,
                      const struct rg_pool_waiting *waiting, uint64_t now)
{
    if (waiting->start == RG_POOL_UNKNOWN)
        return;
    say(text, ", expected on %s in ", server_name(snapshot, waiting->server));
    say_time(text, waiting->start > now ? waiting->start - now : 0);
}

static void say_gpus(struct text *text, const struct rg_pool_snapshot *snapshot,
                     const struct rg_pool_waiting *waiting, uint64_t now)
{
    const struct rg_pool_request *request = &snapshot->requests[waiting->request];
    say(text, "waits for ");
    say_wish(text, request);
    if (waiting->have && request->several_servers)
        say(text, ": %" PRIu32 " %s free now", waiting->have, waiting->have > 1 ? "are" : "is");
    else if (waiting->have)
        say(text, ": no server has more than %" PRIu32 " now", waiting->have);
    else
        say(text, ": %s", request->n > 1 ? "none is free now" : "it is not free now");
    say_start(text, snapshot, waiting, now);
}

static void say_turn(struct text *text, const struct rg_pool_snapshot *snapshot,
                     const struct rg_pool_waiting *waiting)
{
    say(text, "waits for its turn: what is free is kept for ");
    if (waiting->behind == RG_POOL_NONE) {
        say(text, "requests before it");
        return;
    }
    const struct rg_pool_request *behind = &snapshot->requests[waiting->behind];
    say(text, "a request of %s for %" PRIu32 " GPU%s, which comes first", behind->user, behind->n,
        behind->n > 1 ? "s" : "");
}

static void say_too_many(struct text *text, const struct rg_pool_request *request, uint32_t most)
{
    say(text, "never fits: it asks for ");
    say_wish(text, request);
    say(text, ", and there are at most %" PRIu32 "; ask for fewer", most);
    if (!request->several_servers)
        say(text, ", or let it lie on several servers (--spread)");
}

static void say_filters(struct text *text, const struct rg_pool_snapshot *snapshot,
                        const struct rg_pool_waiting *waiting)
{
    const struct rg_pool_request *request = &snapshot->requests[waiting->request];
    say(text, "never fits: no GPU of the pool matches '%s'", request->filters[waiting->filter].text);
    if (waiting->filter)
        say(text, " of the %" PRIu32 " that the filters before it leave", waiting->left);
    say(text, "; remove or widen that filter");
}

void rg_pool_explain(const struct rg_pool_snapshot *snapshot, const struct rg_pool_outcome *outcome,
                     uint32_t i, uint64_t now, char *text, size_t size)
{
    const struct rg_pool_waiting *waiting = &outcome->waiting[i];
    const struct rg_pool_request *request = &snapshot->requests[waiting->request];
    struct text out = {text, size};
    if (size)
        *text = 0;
    switch (waiting->reason) {
    case RG_POOL_WAITS_FOR_GPUS:
        say_gpus(&out, snapshot, waiting, now);
        return;
    case RG_POOL_WAITS_FOR_TURN:
        say_turn(&out, snapshot, waiting);
        say_start(&out, snapshot, waiting, now);
        return;
    case RG_POOL_WAITS_FOR_SUSPENSION:
        say(&out, "waits until sessions of lower priority on %s have been suspended",
            server_name(snapshot, waiting->server));
        return;
    case RG_POOL_WAITS_FOR_DRAINED:
        say(&out, "waits for a server that drains: only such servers have ");
        say_wish(&out, request);
        return;
    case RG_POOL_NEVER_TOO_MANY:
        say_too_many(&out, request, waiting->have);
        return;
    case RG_POOL_NEVER_MEMORY:
        say(&out, "never fits: it asks for ");
        say_size(&out, request->memory);
        say(&out, " of a GPU, and the largest that matches has ");
        say_size(&out, waiting->most);
        say(&out, "; ask for less memory, or more GPUs");
        return;
    case RG_POOL_NEVER_FILTERS:
        say_filters(&out, snapshot, waiting);
        return;
    case RG_POOL_NEVER_TAINTS:
        say(&out,
            "never fits: all servers that match keep out whoever does not tolerate their taints; --tolerate "
            "says that you do, and remote-gpu list shows them");
        return;
    case RG_POOL_NEVER_EMPTY:
        say(&out,
            "never fits: the pool has no GPU; start remote-gpud on a GPU machine with this pool's name");
        return;
    }
}
