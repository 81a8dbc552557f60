/* simulation.c - see simulation.h. */
#include "tests/server/shares/turns/simulation.h"

#include <stdlib.h>

struct sim *sim_create(void)
{
    struct sim *sim = calloc(1, sizeof *sim);
    if (!sim)
        abort();
    sim->now = 1000000000;
    return sim;
}

struct sim_session *sim_add(struct sim *sim, uint64_t length, uint32_t weight, uint32_t cap_millionths,
                            enum rg_turn_priority priority)
{
    uint32_t place = 0;
    while (sim->sessions[place].used)
        place++;
    struct sim_session *session = &sim->sessions[place];
    session->used = true;
    session->lengths[0] = length;
    session->n_lengths = 1;
    rg_pacer_init(&session->pacer, &sim->turns, place);
    rg_pacer_set(&session->pacer, cap_millionths, weight, priority, sim->now);
    return session;
}

static bool stuck_now(const struct sim_session *session)
{
    return session->stuck && session->first == 0 && session->end < 1 + session->releases;
}

static void run_device(struct sim *sim)
{
    unsigned n = 0;
    for (unsigned i = 0; i < SIM_SESSIONS; i++)
        n += sim->sessions[i].used && sim->sessions[i].first < sim->sessions[i].end;
    sim->idle_ns += n ? 0 : SIM_TICK_NS;
    sim->rests += n == 0 && !sim->idle;
    sim->idle = n == 0;
    for (unsigned i = 0; i < SIM_SESSIONS && n; i++) {
        struct sim_session *session = &sim->sessions[i];
        uint64_t left = SIM_TICK_NS / n;
        while (session->used && left && session->first < session->end) {
            uint64_t *head = &session->queue[session->first % SIM_QUEUE];
            const uint64_t part = *head < left ? *head : left;
            session->work_ns += part;
            left -= part;
            if (stuck_now(session) || *head == SIM_FOREVER)
                break;
            *head -= part;
            if (*head)
                break;
            session->first++;
            session->finished++;
            session->ready_at = sim->now + session->pause;
        }
    }
}

static bool wants(const struct sim *sim, const struct sim_session *session)
{
    if ((session->most && session->submitted >= session->most) || session->end - session->first >= SIM_QUEUE)
        return false;
    return session->pause ? session->first == session->end && sim->now >= session->ready_at : true;
}

static bool submit(struct sim *sim, struct sim_session *session)
{
    if (session->pending_since == 0)
        session->pending_since = sim->now;
    if (!rg_pacer_admit(&session->pacer, session->next_length + 1, sim->now))
        return false;
    const uint64_t waited = sim->now - session->pending_since;
    if (waited > session->waited_max_ns)
        session->waited_max_ns = waited;
    session->pending_since = 0;
    session->queue[session->end++ % SIM_QUEUE] = session->lengths[session->next_length];
    session->next_length = (session->next_length + 1) % session->n_lengths;
    session->submitted++;
    if (!rg_pacer_alone(&session->pacer) || session->step_at == UINT64_MAX)
        session->step_at = sim->now + SIM_TICK_NS;
    return true;
}

static void run_session(struct sim *sim, struct sim_session *session)
{
    while (wants(sim, session) && submit(sim, session))
        ;
    const uint32_t bell = rg_turns_bell(&sim->turns, session->pacer.place);
    if (sim->now < session->step_at && bell == session->bell)
        return;
    session->bell = bell;
    const struct rg_pacer_seen seen = {
        .now = sim->now, .done = session->first == session->end, .pending = session->pending_since != 0};
    session->step_at = rg_pacer_step(&session->pacer, &seen);
    sim->looks++;
}

void sim_run(struct sim *sim, uint64_t ns)
{
    for (const uint64_t until = sim->now + ns; sim->now < until; sim->now += SIM_TICK_NS) {
        run_device(sim);
        for (unsigned i = 0; i < SIM_SESSIONS; i++)
            if (sim->sessions[i].used && !sim->sessions[i].dead)
                run_session(sim, &sim->sessions[i]);
    }
}
