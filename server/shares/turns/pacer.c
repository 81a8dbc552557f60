/*
 * pacer.c - chunks, what they are charged, and the turn of one session; how they go is said in pacer.h.
 *
 * Happy path: it is estimated how long a submission will take, it is admitted into a chunk (rg_pacer_admit), the device is found to be
 * done (rg_pacer_step), and what has passed is charged, learnt from, and the turn goes on or passes. Nothing fails: a submission that may not go now waits
 * for the next step, and a turn that was taken away is asked for again. Whichever thread has the caller's lock.
 */
#include "server/shares/turns/estimates.h"

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
        budget = rg_least(budget, RG_PACER_SHORT_NS);
    budget = rg_least(budget, rg_cap_pays(&pacer->cap));
    return rg_most(budget, RG_PACER_LEAST_NS);
}

/* What was used since `began` is charged; the chunk may go on from `until`. */
static void charge(struct rg_pacer *pacer, uint64_t until)
{
    if (until <= pacer->began)
        return;
    const uint64_t used = until - pacer->began;
    pacer->busy_ns += used;
    rg_cap_charge(&pacer->cap, used);
    if (pacer->holding)
        pacer->turn_used += used;
    else
        rg_turns_charge(pacer->turns, pacer->place, used);
    pacer->began = until;
}

/*
 * What a chunk that ended between `from` and `to` says of its length. It began at chunk_at, or when it was submitted, if the turn before
 * had ended early; if its own turn has passed early, what came after its expected end ran beside the work of the next one.
 */
static void learn(struct rg_pacer *pacer, uint64_t from, uint64_t to)
{
    const uint64_t planned = pacer->planned_all;
    uint64_t least = from > pacer->chunk_at ? from - pacer->chunk_at : 0;
    const uint64_t most = to > pacer->submitted_at ? to - pacer->submitted_at : 0;
    pacer->as_expected = false;
    if (pacer->behind) {
        /* Whose work it ran beside is not known; but one that is that far off had a turn too long. Guests plan less. */
        if (planned > RG_PACER_GUEST_NS && least > 8 * planned)
            rg_estimate_learn(pacer, 2 * planned, UINT64_MAX);
        return;
    }
    if (!pacer->holding && least > planned)
        least = planned + (least - planned) / 2;
    pacer->as_expected = !pacer->unknown && least <= planned + planned / 8 && most >= planned - planned / 8;
    if (most)
        rg_estimate_learn(pacer, least, most);
}

/* All is done. It was over between the last two looks: in the middle, for want of more. */
static void settle(struct rg_pacer *pacer, uint64_t now)
{
    const uint64_t before = rg_most(pacer->not_done_at, pacer->chunk_at);
    charge(pacer, now > before ? before + (now - before) / 2 : before);
    learn(pacer, pacer->not_done_at, now);
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
    const uint64_t since = rg_most(pacer->sampling ? pacer->sampled_at : pacer->began, pacer->turn_at);
    const bool busy = pacer->began && !seen->done, was_busy = pacer->sampling ? pacer->sampled_busy : busy;
    const uint64_t passed = now > since ? now - since : 0; /* not, if a turn passed early a moment ago */
    if (busy || was_busy)
        pacer->busy_ns += busy && was_busy ? passed : passed / 2;
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
        pacer->began = pacer->chunk_at = pacer->submitted_at = pacer->not_done_at = pacer->turn_at = now;
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
    pacer->behind |= pacer->began != 0;
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
static bool go(struct rg_pacer *pacer, uint64_t estimate, uint64_t now)
{
    if (pacer->waits_since && now > pacer->waits_since)
        pacer->throttled_ns += now - pacer->waits_since;
    pacer->waits_since = 0;
    pacer->admitted++;
    pacer->active_at = now;
    pacer->planned += estimate;
    pacer->planned_all += estimate;
    if (pacer->began == 0) {
        pacer->chunk_at = pacer->holding ? rg_turns_clear(pacer->turns, now, RG_PACER_EARLY_NS) : now;
        pacer->began = pacer->not_done_at = pacer->chunk_at;
        pacer->submitted_at = now;
    }
    pacer->go_on_at = rg_most(pacer->go_on_at, now + pacer->go_on + 2 * estimate);
    return true;
}

/* --- guests --------------------------------------------------------------------------------------------- */

/* Another has the turn, and this submission may go all the same. */
static bool may_be_guest(const struct rg_pacer *pacer, uint64_t estimate)
{
    return !pacer->holding && pacer->calm && !pacer->cap.millionths && pacer->others.any &&
           (pacer->high || !pacer->others.high) && estimate &&
           pacer->planned + estimate <= RG_PACER_GUEST_NS && (pacer->began == 0 || pacer->planned != 0) &&
           rg_turns_taken(pacer->turns, pacer->place) &&
           rg_turns_credit(pacer->turns, pacer->place) > pacer->planned;
}

static bool go_as_guest(struct rg_pacer *pacer, uint64_t estimate, uint64_t now)
{
    pacer->behind = true;
    return go(pacer, estimate, now);
}

/* --- a submission --------------------------------------------------------------------------------------- */

/*
 * Whether the chunk under way has no room for one more of `known` length (0: unknown). The last may go beyond the budget, so that a
 * turn is one chunk and its session owes the rest; but not where one of high priority would wait for two.
 */
static bool is_full(const struct rg_pacer *pacer, uint64_t known)
{
    const bool hurried = pacer->others.high && !pacer->high;
    return known == 0 || pacer->planned + (hurried ? known : 1) > pacer->budget;
}

bool rg_pacer_admit(struct rg_pacer *pacer, uint64_t key, uint64_t now)
{
    look(pacer, now);
    if (rg_pacer_alone(pacer))
        return have_turn(pacer, now) ? go(pacer, 0, now) : wait_on(pacer, now);
    const uint32_t slot = rg_estimate_slot(pacer, key);
    const uint64_t known = pacer->estimates[slot].ns;
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
    const uint64_t estimate = known ? known : pacer->budget;
    if (pacer->planned != 0 && is_full(pacer, known)) {
        pacer->closed = true;
        return wait_on(pacer, now);
    }
    pacer->unknown |= known == 0;
    rg_estimate_note(pacer, slot);
    return go(pacer, estimate, now);
}

/* In a turn it is a part of the chunk whose length nobody knows; else as what is left of an earlier turn. */
void rg_pacer_note(struct rg_pacer *pacer, uint64_t now)
{
    look(pacer, now);
    pacer->admitted++;
    pacer->active_at = now;
    if (pacer->began == 0)
        pacer->began = pacer->chunk_at = pacer->submitted_at = pacer->not_done_at = now;
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
    const uint64_t known = rg_least(RG_PACER_GO_ON_NS + 4 * pacer->planned, RG_PACER_PATIENCE_MAX_NS);
    const uint64_t all = pacer->unknown ? rg_most(known, RG_PACER_PATIENCE_NS) : known;
    return seen->blocked ? rg_least(all, RG_PACER_BLOCKED_NS) : all;
}

/*
 * How soon to look whether a chunk is done that has run for so long: so that looking adds little to it, and often about the time at
 * which it should be. Each look wakes a thread, which on few processors interrupts the device: where the last chunk took what was
 * expected, only the end is looked for. Where the session's program waits for its work, whoever answers it looks; what is looked here
 * is for the case that it does not wait this time.
 */
static uint64_t interval(const struct rg_pacer *pacer, uint64_t now)
{
    const uint64_t start = rg_most(pacer->began, pacer->turn_at), end = pacer->chunk_at + pacer->planned_all;
    if (pacer->calm)
        return pacer->holding ? RG_PACER_AWAITED_NS : RG_PACER_GUEST_LOOK_NS;
    /* The turn has passed early: once at the expected end, and once when that is over. */
    if (now + RG_PACER_EARLY_NS < pacer->began)
        return pacer->began - RG_PACER_EARLY_NS - now;
    if (now < pacer->began)
        return pacer->began - now;
    uint64_t rest = rg_least(now > start ? (now - start) / 16 : 0, RG_PACER_LOOK_MAX_NS);
    if (pacer->holding && !pacer->unknown) {
        const uint64_t near = now < end ? (end - now) / 2 : (now - end) / 2;
        rest = rg_least(near, pacer->as_expected && now < end ? RG_PACER_LOOK_END_NS : rest);
    }
    return rg_most(RG_PACER_LOOK_MIN_NS, rest);
}

/* The turn may pass, as what is under way fills it and is about to be done. */
static bool nearly_done(const struct rg_pacer *pacer, uint64_t now)
{
    return pacer->closed && !pacer->behind && !pacer->unknown && !pacer->others.high &&
           pacer->planned_all >= 8 * RG_PACER_EARLY_NS &&
           now + RG_PACER_EARLY_NS >= pacer->chunk_at + pacer->planned_all &&
           pacer->turn_used + pacer->planned_all + RG_TURN_LEAST_NS >=
               rg_turns_credit(pacer->turns, pacer->place);
}

/* What is left of the chunk and what comes next share the device, at worst for as long as that is done too soon. */
static void pass_early(struct rg_pacer *pacer, uint64_t now)
{
    const uint64_t end = rg_most(now, pacer->chunk_at + pacer->planned_all);
    charge(pacer, end);
    pacer->began = end + RG_PACER_EARLY_NS;
    rg_turns_clear_later(pacer->turns, end);
    pass(pacer, true, now);
}

static uint64_t step_under_way(struct rg_pacer *pacer, const struct rg_pacer_seen *seen)
{
    const uint64_t now = seen->now;
    pacer->not_done_at = now;
    if (!pacer->holding)
        return now + interval(pacer, now);
    const bool wanted = rg_turns_wanted(pacer->turns, pacer->place, now);
    const uint64_t start = pacer->behind ? pacer->turn_at : rg_most(pacer->began, pacer->turn_at);
    if (wanted && seen->pending && nearly_done(pacer, now)) {
        pass_early(pacer, now);
        return now + interval(pacer, now);
    }
    if (wanted && now > start + patience(pacer, seen)) {
        charge(pacer, now);
        pacer->behind = true;
        pacer->planned = 0;
        pass(pacer, seen->pending, now);
        return now + interval(pacer, now);
    }
    if (pacer->closed && seen->pending && now > pacer->go_on_at) {
        /* What is under way may need what comes next. */
        pacer->go_on = rg_least(pacer->go_on * 2, RG_PACER_PATIENCE_MAX_NS);
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
    const bool over = pacer->turn_used + RG_TURN_LEAST_NS >= rg_turns_credit(pacer->turns, pacer->place);
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
