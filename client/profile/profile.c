/* profile.c - the life of a profile or a trace in its process. See profile.h. */
#include "client/profile/profile.h"

#include "client/core/api_table.h"
#include "client/core/probe.h"
#include "client/profile/report.h"
#include "client/profile/server_times.h"
#include "client/profile/sites.h"
#include "client/profile/threads.h"
#include "client/profile/trace_writer.h"
#include "common/base/log.h"
#include "common/base/parse.h"
#include "proto/control/control.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static const struct rg_probe profile_probe = {
    .bytes = rg_profile_count_bytes,
    .post = rg_profile_count_record,
    .waited = rg_profile_count_wait,
};

static const struct rg_probe trace_probe = {
    .capabilities = RG_CONTROL_CAP_TIMES,
    .bytes = rg_profile_count_bytes,
    .post = rg_profile_count_record,
    .waited = rg_profile_count_wait,
    .saved = rg_profile_count_saved,
    .polled = rg_profile_count_polled,
    .exchanged = rg_profile_count_exchange,
    .sessions_begun = rg_trace_writer_sessions,
    .times_notice = rg_times_notice,
};

static pid_t owner;

/* The child of a fork has no sessions (client/core/session.c), and the profile is its parent's. */
static void after_fork_in_child(void)
{
    rg_probe = NULL;
}

static int64_t limit_of(const char *name, int64_t usual)
{
    const char *text = secure_getenv(name);
    int64_t events = usual;
    char why[160];
    if (text && *text && rg_parse_integer(text, 0, INT64_MAX, &events, why, sizeof why) != RG_OK)
        rg_warn("%s: %s; %lld events are kept", name, why, (long long)usual);
    return events;
}

static void start(void)
{
    const char *path = secure_getenv("REMOTE_GPU_PROFILE"), *trace_path = secure_getenv("REMOTE_GPU_RECORD");
    const bool profile = path && *path, trace = trace_path && *trace_path && !profile;
    if (!profile && !trace)
        return;
    if (profile && trace_path && *trace_path)
        rg_warn("REMOTE_GPU_RECORD is ignored: a profile and a trace would measure each other");
    owner = getpid();
    const int64_t max_events = trace ? limit_of("REMOTE_GPU_RECORD_EVENTS", RG_TRACE_EVENTS)
                                     : limit_of("REMOTE_GPU_PROFILE_EVENTS", RG_PROFILE_EVENTS);
    if (!rg_profile_threads_start(max_events, trace) ||
        pthread_atfork(NULL, NULL, after_fork_in_child) != 0) {
        rg_warn("cannot profile this process: out of resources");
        return;
    }
    if (profile)
        rg_profile_sites_start();
    if (trace ? !rg_trace_writer_start(trace_path) : !rg_profile_report_start(path))
        return;
    rg_api_table = rg_profile_api;
    rg_probe = trace ? &trace_probe : &profile_probe;
}

void rg_profile_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
}

/* At exit, after main and the application's own handlers. */
__attribute__((destructor(101))) static void finish(void)
{
    if (!rg_probe || getpid() != owner)
        return;
    if (rg_probe == &trace_probe)
        rg_trace_writer_finish();
    else
        rg_profile_report_finish();
}
