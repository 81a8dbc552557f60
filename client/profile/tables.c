/*
 * tables.c - the profile's figures, once as JSON (rg_profile_end_text) and once for people (rg_profile_summary_text); see tables.h.
 *
 * Both add up what the threads have counted (rows, one a function of the API), then go through sessions, calls by the time waited, and
 * the call sites that waited longest. Names of lines, which take long to find, are looked up at the end alone.
 */
#include "client/profile/tables.h"

#include "client/core/session.h"
#include "client/core/stats.h"
#include "client/profile/sites.h"
#include "client/profile/symbols.h"
#include "client/profile/threads.h"
#include "common/base/clock.h"
#include "proto/gpu_path.h"
#include "transport/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SITES_IN_FILE    50
#define CALLS_IN_SUMMARY 10
#define SITES_IN_SUMMARY 5
#define FRAMES_SHOWN     4
#define RUNTIME_INSIDE                                                                                       \
    "libcudart_static_" /* functions of the linked-in runtime whose names are hashes: not in the summary */

/* One writer at a time, so that these need no stack. */
static struct rg_profile_sum rows[RG_API_COUNT + 1];
static struct rg_site sites[SITES_IN_FILE];

static const char *name_of(int api)
{
    return api == RG_PROFILE_OWN ? "remote-gpu" : rg_profile_names[api];
}

static struct rg_profile_sum total(void)
{
    struct rg_profile_sum sum = {0};
    for (int i = 0; i <= RG_API_COUNT; i++) {
        sum.calls += i < RG_API_COUNT ? rows[i].calls : 0;
        sum.round_trips += rows[i].round_trips;
        sum.sent += rows[i].sent;
        sum.received += rows[i].received;
        sum.inside += rows[i].inside;
        sum.waited += rows[i].waited;
        sum.before += rows[i].before;
    }
    return sum;
}

static void number(struct rg_json_text *text, const char *name, uint64_t value)
{
    rg_json_text_format(text, ",\"%s\":", name);
    rg_json_text_number(text, value);
}

static void time_us(struct rg_json_text *text, const char *name, uint64_t ns)
{
    rg_json_text_format(text, ",\"%s\":", name);
    rg_json_text_us(text, ns);
}

static void figures(struct rg_json_text *text, const struct rg_profile_sum *row)
{
    number(text, "count", row->calls);
    number(text, "round_trips", row->round_trips);
    number(text, "sent_bytes", row->sent);
    number(text, "received_bytes", row->received);
    time_us(text, "inside_us", row->inside);
    time_us(text, "waited_us", row->waited);
    time_us(text, "application_before_us", row->before);
}

static void frame_text(struct rg_json_text *text, const struct rg_symbol *symbol)
{
    rg_json_text_put(text, "{\"module\":");
    rg_json_text_string(text, symbol->module);
    rg_json_text_format(text, ",\"offset\":\"0x%llx\"", (unsigned long long)symbol->offset);
    if (*symbol->function) {
        rg_json_text_put(text, ",\"function\":");
        rg_json_text_string(text, symbol->function);
    }
    if (*symbol->file) {
        rg_json_text_put(text, ",\"file\":");
        rg_json_text_string(text, symbol->file);
        number(text, "line", (uint64_t)symbol->line);
    }
    rg_json_text_put(text, "}");
}

static void python_text(struct rg_json_text *text, const char *lines)
{
    rg_json_text_put(text, ",\"python\":[");
    for (const char *at = lines; *at;) {
        at += strspn(at, " ");
        const size_t size = strcspn(at, "\n");
        char line[1024];
        const size_t kept = size < sizeof line ? size : sizeof line - 1;
        memcpy(line, at, kept);
        line[kept] = 0;
        rg_json_text_string(text, line);
        at += size + (at[size] == '\n');
        if (*at)
            rg_json_text_put(text, ",");
    }
    rg_json_text_put(text, "]");
}

static void site_text(struct rg_json_text *text, const struct rg_site *site, bool lines)
{
    rg_json_text_put(text, "{\"call\":");
    rg_json_text_string(text, name_of(site->api));
    number(text, "waits", site->waits);
    number(text, "round_trips", site->round_trips);
    time_us(text, "waited_us", site->waited);
    rg_json_text_put(text, ",\"frames\":[");
    bool first = true;
    for (int i = 0; i < site->n; i++) {
        struct rg_symbol symbol;
        rg_symbol_find(site->frames[i], lines, &symbol);
        if (symbol.ours)
            continue;
        rg_json_text_put(text, first ? "" : ",");
        frame_text(text, &symbol);
        first = false;
    }
    rg_json_text_put(text, "]");
    if (site->python)
        python_text(text, site->python);
    rg_json_text_put(text, "}");
}

static void wire(uint64_t *sent, uint64_t *received)
{
    *sent = *received = 0;
    for (unsigned i = 0; i < rg_n_sessions; i++) {
        *sent += rg_sessions[i].stats.sent_bytes;
        *received += rg_sessions[i].stats.received_bytes;
    }
}

/* By which addresses bulk data went over TCP, and how much. */
static void rails_text(struct rg_json_text *text, const struct rg_session *session,
                       const struct rg_conn_statistics *way)
{
    const char *separator = "";
    rg_json_text_put(text, ",\"tcp_rails\":[");
    for (unsigned i = 0; i < RG_CONN_RAILS; i++) {
        if (!*session->stats.rails[i].address)
            continue;
        rg_json_text_put(text, separator);
        rg_json_text_put(text, "{\"address\":");
        rg_json_text_string(text, session->stats.rails[i].address);
        number(text, "sent", way->rail_sent[i]);
        number(text, "received", way->rail_received[i]);
        rg_json_text_put(text, "}");
        separator = ",";
    }
    rg_json_text_put(text, "]");
}

static void rails_summary(struct rg_json_text *text, const struct rg_session *session,
                          const struct rg_conn_statistics *way)
{
    for (unsigned i = 0; i < RG_CONN_RAILS; i++)
        if (*session->stats.rails[i].address)
            rg_json_text_format(text, "; by %s %llu MB sent, %llu MB received",
                                session->stats.rails[i].address,
                                (unsigned long long)way->rail_sent[i] / 1000000,
                                (unsigned long long)way->rail_received[i] / 1000000);
}

/* How each session's data travelled; of sessions that are over as of their end. */
static void sessions_text(struct rg_json_text *text)
{
    rg_json_text_put(text, ",\n\"sessions\":[");
    for (unsigned i = 0; i < rg_n_sessions; i++) {
        const struct rg_session *session = &rg_sessions[i];
        struct rg_conn_statistics way;
        rg_conn_get_statistics(session->conn, &way);
        rg_json_text_put(text, i ? ",\n{\"server\":" : "\n{\"server\":");
        rg_json_text_string(text, session->server);
        rg_json_text_put(text, ",\"transport\":");
        rg_json_text_string(text, rg_conn_transport(session->conn));
        struct rg_conn_security security;
        rg_conn_security(session->conn, &security);
        rg_json_text_format(text, ",\"encrypted\":%s,\"cipher\":", security.encrypted ? "true" : "false");
        rg_json_text_string(text, security.cipher);
        rg_json_text_put(text, ",\"identity\":");
        rg_json_text_string(text, session->credentials.name);
        number(text, "bulk_connections", way.channels);
        rg_json_text_format(text, ",\"rails\":%s", way.rails ? "true" : "false");
        rg_json_text_format(text, ",\"rails_used\":%s", way.striped ? "true" : "false");
        number(text, "rails_lost", way.lost_rails);
        number(text, "rails_returned", way.returned_rails);
        rails_text(text, session, &way);
        rg_json_text_put(text, ",\"gpu_memory\":{");
        bool first = true;
        for (unsigned k = 0; k < RG_DEVICES_MAX; k++) {
            const enum rg_gpu_path path = atomic_load(&session->gpu_paths[k]);
            if (path == RG_GPU_PATH_UNKNOWN)
                continue;
            rg_json_text_format(text, "%s\"%u\":\"%s\"", first ? "" : ",", k, rg_gpu_path_name(path));
            first = false;
        }
        rg_json_text_put(text, "}}");
    }
    rg_json_text_put(text, "]");
}

static void sessions_summary(struct rg_json_text *text)
{
    for (unsigned i = 0; i < rg_n_sessions; i++) {
        const struct rg_session *session = &rg_sessions[i];
        struct rg_conn_statistics way;
        rg_conn_get_statistics(session->conn, &way);
        rg_json_text_format(text, "  %s: over %s", session->server, rg_conn_transport(session->conn));
        if (way.rails)
            rg_json_text_format(text, ", %u rails, %s", way.channels,
                                way.striped ? "which carried large transfers to the server"
                                            : "of which large transfers did not need more than one");
        else if (way.channels)
            rg_json_text_format(text, ", %u more connections for bulk data", way.channels);
        struct rg_conn_security security;
        rg_conn_security(session->conn, &security);
        if (security.encrypted)
            rg_json_text_format(text, ", encrypted (%s), as %s", security.cipher, session->credentials.name);
        if (way.lost_rails)
            rg_json_text_format(text, " (%llu lost, %llu came back)", (unsigned long long)way.lost_rails,
                                (unsigned long long)way.returned_rails);
        rails_summary(text, session, &way);
        for (unsigned k = 0; k < RG_DEVICES_MAX; k++) {
            const enum rg_gpu_path path = atomic_load(&session->gpu_paths[k]);
            if (path != RG_GPU_PATH_UNKNOWN)
                rg_json_text_format(text, "; memory of GPU %u: %s", k, rg_gpu_path_name(path));
        }
        rg_json_text_put(text, "\n");
    }
}

void rg_profile_end_text(struct rg_json_text *text, uint64_t events, bool last)
{
    rg_profile_add_up(rows);
    rg_json_text_put(text, "\n],\n\"remoteGpu\":{\"program\":");
    rg_json_text_string(text, program_invocation_short_name);
    number(text, "pid", (uint64_t)getpid());
    time_us(text, "elapsed_us", rg_now_ns() - rg_profile_started());
    rg_json_text_format(text, ",\"complete\":%s", last ? "true" : "false");
    number(text, "events", events);
    number(text, "events_dropped", rg_profile_dropped());
    const struct rg_profile_sum all = total();
    rg_json_text_put(text, ",\n\"total\":{\"threads_us\":");
    rg_json_text_us(text, all.inside + all.before);
    figures(text, &all);
    if (last) {
        uint64_t sent, received;
        wire(&sent, &received);
        number(text, "wire_sent_bytes", sent);
        number(text, "wire_received_bytes", received);
    }
    rg_json_text_put(text, "}");
    if (last)
        sessions_text(text);
    rg_json_text_put(text, ",\n\"calls\":[");
    bool first = true;
    for (int i = 0; i <= RG_API_COUNT; i++) {
        if (!rows[i].calls && !rows[i].sent)
            continue;
        rg_json_text_format(text, "%s\n{\"name\":\"%s\",\"class\":\"%s\"", first ? "" : ",", name_of(i),
                            i == RG_PROFILE_OWN ? "own" : rg_profile_classes[i]);
        first = false;
        figures(text, &rows[i]);
        rg_json_text_put(text, "}");
    }
    size_t more;
    uint64_t unknown;
    const size_t n = rg_profile_sites_top(sites, SITES_IN_FILE, &more, &unknown);
    rg_json_text_put(text, "],\n\"sites\":[");
    for (size_t i = 0; i < n; i++) {
        rg_json_text_put(text, i ? ",\n" : "\n");
        site_text(text, &sites[i], last);
    }
    rg_json_text_put(text, "]");
    number(text, "sites_left_out", more);
    time_us(text, "sites_unknown_us", unknown);
    rg_json_text_put(text, "}}\n");
}

/* --- the summary -------------------------------------------------------------------------------------- */

static int by_waited(const void *a, const void *b)
{
    const struct rg_profile_sum *x = &rows[*(const int *)a], *y = &rows[*(const int *)b];
    if (x->waited != y->waited)
        return x->waited < y->waited ? 1 : -1;
    return x->inside < y->inside ? 1 : x->inside > y->inside ? -1 : 0;
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static double megabytes(uint64_t bytes)
{
    return (double)bytes / 1e6;
}

static void calls_summary(struct rg_json_text *text, const struct rg_profile_sum *all)
{
    int order[RG_API_COUNT + 1], n = 0;
    for (int i = 0; i <= RG_API_COUNT; i++)
        if (rows[i].calls)
            order[n++] = i;
    qsort(order, (size_t)n, sizeof *order, by_waited);
    rg_json_text_format(text, "  %-34s %-6s %9s %9s %11s %6s %11s %9s %9s\n", "call", "class", "count",
                        "trips", "waited ms", "share", "in call ms", "MB out", "MB in");
    for (int i = 0; i < n && i < CALLS_IN_SUMMARY; i++) {
        const struct rg_profile_sum *row = &rows[order[i]];
        rg_json_text_format(text, "  %-34s %-6s %9llu %9llu %11.3f %5.1f%% %11.3f %9.3f %9.3f\n",
                            name_of(order[i]),
                            order[i] == RG_PROFILE_OWN ? "own" : rg_profile_classes[order[i]],
                            (unsigned long long)row->calls, (unsigned long long)row->round_trips,
                            (double)row->waited / 1e6, share(row->waited, all->inside + all->before),
                            (double)row->inside / 1e6, megabytes(row->sent), megabytes(row->received));
    }
    if (n > CALLS_IN_SUMMARY)
        rg_json_text_format(text, "  and %d other functions\n", n - CALLS_IN_SUMMARY);
}

static void site_summary(struct rg_json_text *text, const struct rg_site *site)
{
    rg_json_text_format(text, "  %.3f ms, %llu wait%s in %s\n", (double)site->waited / 1e6,
                        (unsigned long long)site->waits, site->waits == 1 ? "" : "s", name_of(site->api));
    if (site->python) { /* says more than the interpreter's own frames */
        const char *at = site->python;
        for (int i = 0; i < FRAMES_SHOWN && *at; i++) {
            const int size = (int)strcspn(at, "\n");
            rg_json_text_format(text, "    %.*s\n", size - (int)strspn(at, " "), at + strspn(at, " "));
            at += size + (at[size] == '\n');
        }
        return;
    }
    int shown = 0;
    for (int i = 0; i < site->n && shown < FRAMES_SHOWN; i++) {
        struct rg_symbol symbol;
        rg_symbol_find(site->frames[i], true, &symbol);
        if (symbol.ours || strncmp(symbol.function, RUNTIME_INSIDE, sizeof RUNTIME_INSIDE - 1) == 0)
            continue;
        shown++;
        if (*symbol.file)
            rg_json_text_format(text, "    %s at %s:%d\n", symbol.function, symbol.file, symbol.line);
        else if (*symbol.function)
            rg_json_text_format(text, "    %s in %s\n", symbol.function, symbol.module);
        else
            rg_json_text_format(text, "    %s+0x%llx\n", symbol.module, (unsigned long long)symbol.offset);
    }
}

void rg_profile_summary_text(struct rg_json_text *text, const char *path)
{
    rg_profile_add_up(rows);
    const struct rg_profile_sum all = total();
    const uint64_t time = all.inside + all.before;
    uint64_t sent, received;
    wire(&sent, &received);
    rg_json_text_format(text,
                        "remote-gpu: profile of %s (%d): %.3f s, of its threads' time %.1f%% waited, %.1f%% "
                        "in calls otherwise, %.1f%% the application's own\n",
                        program_invocation_short_name, (int)getpid(),
                        (double)(rg_now_ns() - rg_profile_started()) / 1e9, share(all.waited, time),
                        share(all.inside - all.waited, time), share(all.before, time));
    rg_json_text_format(text, "  %llu calls, %llu round trips, %.3f MB sent, %.3f MB received\n",
                        (unsigned long long)all.calls, (unsigned long long)all.round_trips, megabytes(sent),
                        megabytes(received));
    sessions_summary(text);
    calls_summary(text, &all);
    size_t more;
    uint64_t unknown;
    const size_t n = rg_profile_sites_top(sites, SITES_IN_SUMMARY, &more, &unknown);
    if (n)
        rg_json_text_put(text, "  where it waits:\n");
    for (size_t i = 0; i < n; i++)
        site_summary(text, &sites[i]);
    if (rg_profile_dropped())
        rg_json_text_format(text,
                            "  the timeline ends early: it is full, and %llu later events are left out "
                            "(REMOTE_GPU_PROFILE_EVENTS sets the limit)\n",
                            (unsigned long long)rg_profile_dropped());
    rg_json_text_format(
        text, "  timeline and all figures: %s (ui.perfetto.dev or chrome://tracing open it)\n", path);
}
