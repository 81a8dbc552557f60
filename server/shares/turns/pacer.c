/*
 * pacer.c - chunks, what they are charged, and the turn of one session; how they go is said in pacer.h.
 *
 * Happy path: a submission is guessed for and admitted into a chunk (rg_pacer_admit), the device is found to be done (rg_pacer_step),
 * and what has passed is charged, learnt from, and the turn goes on or passes. Nothing fails: a submission that may not go now waits
 * for the next step, and a turn that was taken away is asked for again. Whichever thread has the caller's lock.
 */
#include "server/shares/turns/pacer.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* --- guesses -------------------------------------------------------------------------------------------- */

/* The place of a kind: one that collides takes it over. */
static uint32_t guess_of(struct rg_pacer *pacer, uint64_t key)
{
    const uint32_t slot = (uint32_t)((key * 0x9e3779b97f4a7c15ull) >> 40) % RG_PACER_KEYS;
    if (pacer->guesses[slot].key != key)
        pacer->guesses[slot] = (struct rg_pacer_guess){.key = key};
    return slot;
}

static void note_kind(struct rg_pacer *pacer, uint32_t slot)
{
    for (uint32_t i = 0; i < pacer->n_kinds; i++)
        if (pacer->kinds[i].slot == slot) {
            pacer->kinds[i].n++;
            return;
        }
    if (pacer->n_kinds < RG_PACER_CHUNK_KINDS) {
        pacer->kinds[pacer->n_kinds].slot = slot;
        pacer->kinds[pacer->n_kinds++].n = 1;
    }
}

/*
 * A chunk has taken so long: who took more than was guessed is believed at once, who took less step by step. Of several kinds
 * nobody knows which took how much, so all change by the same factor.
 */
static void learn(struct rg_pacer *pacer, uint64_t took)
{
    for (uint32_t i = 0; i < pacer->n_kinds; i++) {
        struct rg_pacer_guess *guess = &pacer->guesses[pacer->kinds[i].slot];
        uint64_t now = took;
        if (guess->ns)
            now = (uint64_t)((unsigned __int128)guess->ns * took / pacer->planned_all);
        else if (pacer->n_kinds == 1)
            now = took / pacer->kinds[i].n;
        if (now > 100 * (guess->ns ? guess->ns : now))
            now = 100 * guess->ns; /* the rest of the chunk may have done it */
        guess->ns = most(1, now >= guess->ns ? now : guess->ns - (guess->ns - now) / 4);
    }
}

bool rg_pacer_alone(const struct rg_pacer *pacer)
{
    return !pacer->others.any && !pacer->cap.millionths;
}

/* --- chunks --------------------------------------------------------------------------------------------- */

static void forget_chunk(struct rg_pacer *pacer)
{
    pacer->began = pacer->planned = pacer->planned_all = pacer->budget = 0;
    pacer->n_kinds = 0;
    pacer->closed = pacer->behind = pacer->unknown = false;
    pacer->go_on = RG_PACER_GO_ON_NS;
}

static uint64_t budget_of(struct rg_pacer *pacer, uint64_t now)
{
    uint64_t budget = RG_PACER_LONG_NS;
    if (rg_turns_wanted(pacer->turns, pacer->place, now)) {
        const uint64_t credit = rg_turns_credit(pacer->turns, pacer->place);
        budget = credit > pacer->turn_used ? credit - pacer->turn_used : 0;
    }
    if (pacer->others.high && !pacer->high)
        budget = least(budget, RG_PACER_SHORT_NS);
    if (pacer->cap.millionths)
        budget = least(budget, pacer->cap.bucket > 0 ? (uint64_t)pacer->cap.bucket : 0);
    return most(budget, RG_PACER_LEAST_NS);
}

/* What was used since `began` is charged; the chunk may go on from `until`. */
static void charge(struct rg_pacer *pacer, uint64_t until)
{
    const uint64_t used = until > pacer->began ? until - pacer->began : 0;
    pacer->busy_ns += used;
    rg_cap_charge(&pacer->cap, used);
    if (pacer->holding)
        pacer->turn_used += used;
    else
        rg_turns_charge(pacer->turns, pacer->place, used);
    pacer->began = until;
}

/* All is done. It was over between the last two looks: in the middle, for want of more. */
static void settle(struct rg_pacer *pacer, uint64_t now)
{
    const uint64_t before = most(pacer->not_done_at, pacer->began), end = before + (now - before) / 2;
    const uint64_t took = end > pacer->began ? end - pacer->began : 0;
    charge(pacer, end);
    if (!pacer->behind)
        learn(pacer, took);
    forget_chunk(pacer);
}

/*
 * Who has the device alone is not to be slowed down by being measured: the device is looked at now and then. That is right on
 * average, whatever the lengths of what it does. The first look after a rest is made because of the work that it sees, which began
 * when it was submitted.
 */
static uint64_t sample(struct rg_pacer *pacer, const struct rg_pacer_seen *seen)
{
    const uint64_t now = seen->now;
    const uint64_t since = most(pacer->sampling ? pacer->sampled_at : pacer->began, pacer->turn_at);
    const bool busy = pacer->began && !seen->done, was_busy = pacer->sampling ? pacer->sampled_busy : busy;
    if (busy || was_busy)
        pacer->busy_ns += busy && was_busy ? now - since : (now - since) / 2;
    pacer->sampled_at = now;
    pacer->sampled_busy = busy;
    pacer->sampling = busy || now - pacer->active_at < RG_PACER_ACTIVE_NS;
    if (!busy)
        forget_chunk(pacer);
    if (!pacer->sampling)
        return UINT64_MAX;
    /* At irregular times: what is sampled may be regular. */
    pacer->random = pacer->random * 6364136223846793005ull + 1442695040888963407ull;
    return now + RG_PACER_SAMPLE_NS / 2 + (pacer->random >> 33) % RG_PACER_SAMPLE_NS;
}

/* Looks who else is there. With the first one, what is under way becomes a chunk of unknown length. */
static void look(struct rg_pacer *pacer, uint64_t now)
{
    const bool alone = rg_pacer_alone(pacer);
    rg_turns_look(pacer->turns, pacer->place, &pacer->others);
    if (alone && !rg_pacer_alone(pacer) && pacer->began) {
        pacer->began = pacer->not_done_at = pacer->turn_at = now;
        pacer->unknown = true;
        pacer->closed = true;
        pacer->go_on_at = now + pacer->go_on;
    }
}

/* --- the turn ------------------------------------------------------------------------------------------- */

static void begin_turn(struct rg_pacer *pacer, uint64_t now)
{
    pacer->holding = true;
    pacer->turn_at = now;
    pacer->turn_used = 0;
    pacer->wait = (struct rg_turn_wait){0};
    pacer->closed = pacer->behind; /* first what is left: else there would always be some */
}

static bool have_turn(struct rg_pacer *pacer, uint64_t now)
{
    if (pacer->holding && !rg_turns_mine(pacer->turns, pacer->place)) {
        /* It was taken away, as this process stood still. */
        pacer->holding = false;
        rg_turns_charge(pacer->turns, pacer->place, pacer->turn_used);
    }
    if (!pacer->holding &&
        rg_turns_ask(pacer->turns, pacer->place, rg_cap_until(&pacer->cap, now), &pacer->wait, now))
        begin_turn(pacer, now);
    return pacer->holding;
}

static void pass(struct rg_pacer *pacer, bool again, uint64_t now)
{
    pacer->holding = false;
    if (rg_turns_pass(pacer->turns, pacer->place, pacer->turn_used, again, rg_cap_until(&pacer->cap, now),
                      now))
        begin_turn(pacer, now);
}

static bool wait_on(struct rg_pacer *pacer, uint64_t now)
{
    if (pacer->waits_since == 0)
        pacer->waits_since = now;
    return false;
}

/* One submission more: it opens a chunk if there is none. */
static bool go(struct rg_pacer *pacer, uint64_t guess, uint64_t now)
{
    if (pacer->waits_since && now > pacer->waits_since)
        pacer->throttled_ns += now - pacer->waits_since;
    pacer->waits_since = 0;
    pacer->admitted++;
    pacer->active_at = now;
    pacer->planned += guess;
    pacer->planned_all += guess;
    if (pacer->began == 0)
        pacer->began = pacer->not_done_at = now;
    pacer->go_on_at = most(pacer->go_on_at, now + pacer->go_on + 2 * guess);
    return true;
}

/* --- guests --------------------------------------------------------------------------------------------- */

/* Another has the turn, and this submission may go all the same. */
static bool may_be_guest(const struct rg_pacer *pacer, uint64_t guess)
{
    return !pacer->holding && pacer->calm && !pacer->cap.millionths && pacer->others.any &&
           (pacer->high || !pacer->others.high) && guess && pacer->planned + guess <= RG_PACER_GUEST_NS &&
           (pacer->began == 0 || pacer->planned != 0) && rg_turns_taken(pacer->turns, pacer->place) &&
           rg_turns_credit(pacer->turns, pacer->place) > pacer->planned;
}

static bool go_as_guest(struct rg_pacer *pacer, uint64_t guess, uint64_t now)
{
    pacer->behind = true;
    return go(pacer, guess, now);
}

/* --- a submission --------------------------------------------------------------------------------------- */

bool rg_pacer_admit(struct rg_pacer *pacer, uint64_t key, uint64_t now)
{
    look(pacer, now);
    if (rg_pacer_alone(pacer))
        return have_turn(pacer, now) ? go(pacer, 0, now) : wait_on(pacer, now);
    const uint32_t slot = guess_of(pacer, key);
    const uint64_t known = pacer->guesses[slot].ns;
    if (may_be_guest(pacer, known))
        return go_as_guest(pacer, known, now);
    if (!have_turn(pacer, now))
        return wait_on(pacer, now);
    if (pacer->closed)
        return wait_on(pacer, now);
    if (pacer->planned == 0) {
        rg_cap_fill(&pacer->cap, now);
        if (rg_cap_is_spent(&pacer->cap) && pacer->began == 0) {
            pass(pacer, true, now);
            return wait_on(pacer, now);
        }
        pacer->budget = budget_of(pacer, now);
    }
    const uint64_t guess = known ? known : pacer->budget;
    if (pacer->planned != 0 && pacer->planned + guess > pacer->budget) {
        pacer->closed = true;
        return wait_on(pacer, now);
    }
    pacer->unknown |= known == 0;
    note_kind(pacer, slot);
    return go(pacer, guess, now);
}

/* In a turn it is a part of the chunk whose length nobody knows; else as what is left of an earlier turn. */
void rg_pacer_note(struct rg_pacer *pacer, uint64_t now)
{
    look(pacer, now);
    pacer->admitted++;
    pacer->active_at = now;
    if (pacer->began == 0)
        pacer->began = pacer->not_done_at = now;
    pacer->n_kinds = 0; /* how long the others take is not learnt from this chunk */
    pacer->unknown = true;
    pacer->behind |= !pacer->holding;
}

/* --- step ----------------------------------------------------------------------------------------------- */

/* How long others wait for a chunk under way. */
static uint64_t patience(const struct rg_pacer *pacer, const struct rg_pacer_seen *seen)
{
    if (pacer->behind)
        return RG_TURN_NS;
    const uint64_t known = least(RG_PACER_GO_ON_NS + 4 * pacer->planned, RG_PACER_PATIENCE_MAX_NS);
    const uint64_t all = pacer->unknown ? most(known, RG_PACER_PATIENCE_NS) : known;
    return seen->blocked ? least(all, RG_PACER_BLOCKED_NS) : all;
}

/*
 * How soon to look whether a chunk is done that has run for so long: so that looking adds little to it. Where the session's program
 * waits for its work, whoever answers it looks; what is looked here is for the case that it does not wait this time.
 */
static uint64_t interval(const struct rg_pacer *pacer, uint64_t now)
{
    const uint64_t share = (now - most(pacer->began, pacer->turn_at)) / 16;
    if (pacer->calm)
        return pacer->holding ? RG_PACER_AWAITED_NS : RG_PACER_GUEST_LOOK_NS;
    return most(10000, least(share, pacer->others.any ? 100000 : 500000));
}

static uint64_t step_under_way(struct rg_pacer *pacer, const struct rg_pacer_seen *seen)
{
    const uint64_t now = seen->now;
    pacer->not_done_at = now;
    if (!pacer->holding)
        return now + interval(pacer, now);
    const bool wanted = rg_turns_wanted(pacer->turns, pacer->place, now);
    const uint64_t start = pacer->behind ? pacer->turn_at : most(pacer->began, pacer->turn_at);
    if (wanted && now - start > patience(pacer, seen)) {
        charge(pacer, now);
        pacer->behind = true;
        pacer->planned = 0;
        pass(pacer, seen->pending, now);
        return now + interval(pacer, now);
    }
    if (pacer->closed && seen->pending && now > pacer->go_on_at) {
        /* What is under way may need what comes next. */
        pacer->go_on = least(pacer->go_on * 2, RG_PACER_PATIENCE_MAX_NS);
        pacer->go_on_at = now + pacer->go_on;
        pacer->planned = 0;
        pacer->closed = false;
        return now; /* which the caller tries */
    }
    return now + interval(pacer, now);
}

/* Nothing is under way: the turn goes on, is renewed, or passes. */
static void step_turn(struct rg_pacer *pacer, const struct rg_pacer_seen *seen)
{
    rg_cap_fill(&pacer->cap, seen->now);
    const bool over = pacer->turn_used >= rg_turns_credit(pacer->turns, pacer->place);
    if (!seen->pending || rg_cap_is_spent(&pacer->cap) || over ||
        rg_turns_preempted(pacer->turns, pacer->place, seen->now))
        pass(pacer, seen->pending, seen->now);
}

uint64_t rg_pacer_step(struct rg_pacer *pacer, const struct rg_pacer_seen *seen)
{
    const uint64_t now = seen->now;
    look(pacer, now);
    if (rg_pacer_alone(pacer) && pacer->holding)
        return sample(pacer, seen);
    pacer->sampling = false;
    if (pacer->began && !seen->done)
        return step_under_way(pacer, seen);
    if (pacer->began) {
        settle(pacer, now);
        pacer->calm = !seen->pending;
    }
    if (pacer->holding)
        step_turn(pacer, seen);
    if (!seen->pending) {
        rg_turns_unask(pacer->turns, pacer->place);
        if (rg_turns_mine(pacer->turns, pacer->place))
            pass(pacer, false, now); /* it came too late */
        return UINT64_MAX;
    }
    if (have_turn(pacer, now))
        return now;
    const uint64_t until = rg_cap_until(&pacer->cap, now);
    return until ? until : now + RG_PACER_GO_ON_NS;
}

void rg_pacer_init(struct rg_pacer *pacer, struct rg_turns *turns, uint32_t place)
{
    pacer->turns = turns;
    pacer->place = place;
    forget_chunk(pacer);
}

void rg_pacer_set(struct rg_pacer *pacer, uint32_t cap_millionths, uint32_t weight,
                  enum rg_turn_priority priority, uint64_t now)
{
    rg_cap_set(&pacer->cap, cap_millionths, now);
    pacer->high = priority >= RG_TURN_HIGH;
    rg_turns_join(pacer->turns, pacer->place, weight, priority);
}

void rg_pacer_leave(struct rg_pacer *pacer, uint64_t now)
{
    pacer->holding = false;
    rg_turns_leave(pacer->turns, pacer->place, now);
}
