/* gauges.c - see gauges.h. */
#include "server/daemon/sessions/gauges.h"

#include "common/base/clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static uint64_t sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Adds to `total` by how much a worker's counter has grown beyond what was counted of it, as far as it can be true. */
static void add(uint64_t *total, uint64_t *counted, const _Atomic uint64_t *counter, uint64_t most)
{
    const uint64_t said = atomic_load_explicit(counter, memory_order_relaxed);
    const uint64_t now = said < most ? said : most;
    if (now <= *counted)
        return;
    *total = sum(*total, now - *counted);
    *counted = now;
}

static void count(struct rg_sessions *sessions, struct rg_session_entry *entry)
{
    const uint64_t age = rg_now_ns() - entry->started_ns, seconds = age / 1000000000u + 1;
    const struct rg_share_grant *grant = &entry->share.grant;
    struct rg_gauges *gauges = &sessions->gauges;
    struct rg_gauge_counted *counted = &entry->counted;
    if (!entry->share.slot)
        return;
    const struct rg_share_usage *usage = &entry->share.slot->usage;
    add(&gauges->bytes_in, &counted->bytes_in, &usage->bytes_in, seconds * RG_FIGURES_BYTES_PER_S);
    add(&gauges->bytes_out, &counted->bytes_out, &usage->bytes_out, seconds * RG_FIGURES_BYTES_PER_S);
    for (uint32_t i = 0; i < grant->n_devices; i++) {
        struct rg_gauge_device *device = &gauges->devices[grant->devices[i].ordinal];
        const struct rg_share_usage_device *used = &usage->devices[i];
        add(&device->busy_ns, &counted->busy_ns[i], &used->busy_ns, age);
        add(&device->throttled_ns, &counted->throttled_ns[i], &used->throttled_ns, age);
        add(&device->memory_refusals, &counted->refusals[i], &used->refusals,
            seconds * RG_FIGURES_LAUNCHES_PER_S);
        add(&gauges->launches, &counted->launches[i], &used->launches, seconds * RG_FIGURES_LAUNCHES_PER_S);
    }
}

void rg_gauges_end(struct rg_sessions *sessions, struct rg_session_entry *entry, int end)
{
    const enum rg_gauge_end how = WIFSIGNALED(end)        ? RG_GAUGE_KILLED
                                  : WEXITSTATUS(end) != 0 ? RG_GAUGE_FAILED
                                                          : RG_GAUGE_ENDED;
    count(sessions, entry);
    sessions->gauges.ended[how]++;
}

void rg_gauges_refused(struct rg_sessions *sessions, const struct rg_monitor_refused *refused)
{
    for (uint32_t i = 0; i < RG_REFUSALS; i++)
        sessions->gauges.refused[i] = sum(sessions->gauges.refused[i], refused->n[i]);
}

static void look_at_devices(struct rg_sessions *sessions)
{
    const struct rg_shares *shares = &sessions->shares;
    for (uint32_t i = 0; i < shares->n_devices; i++) {
        const struct rg_share_device *device = &shares->devices[i].device;
        struct rg_gauge_device *gauge = &sessions->gauges.devices[i];
        const uint64_t held = rg_share_held_by_all(device), owed = rg_share_owed(device),
                       total = shares->devices[i].total;
        gauge->held = held < total ? held : total; /* whatever stands on the page */
        gauge->owed = owed < total ? owed : total;
        gauge->promised = shares->devices[i].promised;
    }
}

static void look_at_pool(const struct rg_pool_process *pool, struct rg_gauges *gauges)
{
    gauges->in_pool = pool->wanted;
    gauges->pool_until_ns = pool->valid_until_ns;
    gauges->pool_leases = pool->n_leases;
    gauges->pool_waiting = pool->queue.requests;
    gauges->pool_waiting_gpus = pool->queue.gpus;
    gauges->pool_longest_s = pool->queue.longest_s;
    snprintf(gauges->pool, sizeof gauges->pool, "%s", pool->settings.pool);
    snprintf(gauges->pool_why, sizeof gauges->pool_why, "%s",
             pool->wanted && pool->pid == 0 ? "its agent has ended" : pool->why);
}

void rg_gauges_look(struct rg_monitor *monitor)
{
    struct rg_sessions *sessions = &monitor->sessions;
    struct rg_gauges *gauges = &sessions->gauges;
    const struct rg_accounts *accounts = monitor->accountant.accounts;
    for (uint32_t i = 0; i < sessions->n; i++)
        count(sessions, sessions->entries[i]);
    look_at_devices(sessions);
    look_at_pool(&monitor->pool, gauges);
    gauges->waiting = monitor->n_admissions;
    gauges->stopping = monitor->draining;
    gauges->drained = monitor->drained;
    gauges->frontend_ready = monitor->frontend.pid && monitor->frontend.ready && !monitor->frontend.killed;
    gauges->accounts = !accounts ? RG_GAUGE_NO_ACCOUNTS
                       : rg_accounts_are_failing(accounts) || monitor->accountant.pid == 0
                           ? RG_GAUGE_ACCOUNTS_FAIL
                           : RG_GAUGE_ACCOUNTS;
    rg_board_begin(monitor->board);
    monitor->board->gauges = *gauges;
    rg_board_end(monitor->board);
}

static uint8_t percent(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : part >= whole ? 100 : (uint8_t)((double)part / (double)whole * 100 + 0.5);
}

static void add_point(struct rg_monitor *monitor, uint64_t passed_ns)
{
    const struct rg_shares *shares = &monitor->sessions.shares;
    struct rg_history *history = &monitor->board->history;
    for (uint32_t i = 0; i < shares->n_devices; i++) {
        const struct rg_gauge_device *gauge = &monitor->board->gauges.devices[i];
        history->devices[i][history->next] = (struct rg_history_point){
            .busy = percent(gauge->busy_ns - monitor->sampled.busy_ns[i], passed_ns),
            .memory = percent(gauge->held, shares->devices[i].total)};
    }
    history->next = (history->next + 1) % RG_HISTORY_POINTS;
    history->n += history->n < RG_HISTORY_POINTS;
}

uint64_t rg_gauges_sample(struct rg_monitor *monitor)
{
    struct rg_sampled *sampled = &monitor->sampled;
    const uint64_t now = rg_now_ns(), period = RG_HISTORY_PERIOD_S * 1000000000ull;
    if (!monitor->board || (!monitor->http.listener && !monitor->pool.wanted))
        return UINT64_MAX;
    if (sampled->at_ns && now - sampled->at_ns < period)
        return sampled->at_ns + period;
    rg_gauges_look(monitor);
    if (sampled->at_ns) {
        rg_board_begin(monitor->board);
        add_point(monitor, now - sampled->at_ns);
        rg_board_end(monitor->board);
    }
    sampled->at_ns = now;
    for (uint32_t i = 0; i < RG_DEVICES_MAX; i++)
        sampled->busy_ns[i] = monitor->board->gauges.devices[i].busy_ns;
    return now + period;
}
