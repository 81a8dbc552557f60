/* turns.c - the turn of a GPU, and who is next. See turns.h. */
#include "server/shares/turns/turns.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000ull
/* from the greatest debt */
#define ROUNDS_MAX ((RG_TURN_DEBT_MAX_NS + RG_TURN_LEAST_NS) / (RG_TURN_NS / RG_TURN_WEIGHTS) + 1)

#define TRIES_MAX 16 /* sessions that leave at the moment at which they are given the turn */

#define HOLDER(word) ((uint32_t)((word)&0xffff))

static uint64_t next_word(uint64_t word, uint32_t holder)
{
    return ((word >> 16) + 1) << 16 | holder;
}

/* --- what is on the page, as far as it is believed ------------------------------------------------------ */

static uint32_t n_used(struct rg_turns *turns)
{
    const uint32_t n = atomic_load(&turns->n_used);
    return n < RG_TURN_PLACES ? n : RG_TURN_PLACES;
}

static int64_t weight_of(struct rg_turns *turns, uint32_t place)
{
    const uint32_t weight = atomic_load(&turns->places[place].weight);
    return weight < 1 ? 1 : weight < RG_TURN_WEIGHTS ? weight : RG_TURN_WEIGHTS;
}

static int64_t clamp_balance(int64_t balance)
{
    const int64_t most = RG_TURN_NS + RG_TURN_LEAST_NS;
    return balance < -RG_TURN_DEBT_MAX_NS ? -RG_TURN_DEBT_MAX_NS : balance > most ? most : balance;
}

static int64_t balance_of(struct rg_turns *turns, uint32_t place)
{
    return clamp_balance(atomic_load(&turns->places[place].balance));
}

/* Up to `most`. Who gives credit and who charges a session for what it has left over from its turns may be two. */
static void change_balance(struct rg_turns *turns, uint32_t place, int64_t by, int64_t most)
{
    _Atomic int64_t *balance = &turns->places[place].balance;
    int64_t seen = atomic_load(balance), changed;
    do {
        changed = clamp_balance(seen) + by;
        changed = clamp_balance(changed < most ? changed : most);
    } while (!atomic_compare_exchange_weak(balance, &seen, changed));
}

static bool can_go_on(struct rg_turns *turns, uint32_t place, uint64_t now)
{
    return atomic_load(&turns->places[place].state) == RG_TURN_WAITING &&
           atomic_load(&turns->places[place].not_before) <= now;
}

/* --- who is next ---------------------------------------------------------------------------------------- */

/* The first of those with credit by priority and then by place, after `last`; RG_TURN_PLACES: none has any. */
static uint32_t first_with_credit(struct rg_turns *turns, uint32_t n, uint32_t last, uint64_t now)
{
    uint32_t best = RG_TURN_PLACES, best_priority = 0;
    for (uint32_t i = 1; i <= n; i++) {
        const uint32_t place = (last + i) % n;
        if (!can_go_on(turns, place, now) || balance_of(turns, place) <= RG_TURN_LEAST_NS)
            continue;
        const uint32_t priority = atomic_load(&turns->places[place].priority);
        if (best == RG_TURN_PLACES || priority > best_priority) {
            best = place;
            best_priority = priority;
        }
    }
    return best;
}

/* What a round brings: in proportion to the weight, so that the greatest of those that wait gets a whole turn. */
static int64_t credit_of(struct rg_turns *turns, uint32_t place, int64_t greatest)
{
    const int64_t weight = weight_of(turns, place);
    return RG_TURN_NS * (weight < greatest ? weight : greatest) / greatest;
}

/* As many rounds at once as it takes until one that waits has credit. False: nobody waits. */
static bool give_credit(struct rg_turns *turns, uint32_t n, uint64_t now)
{
    int64_t greatest = 0, rounds = ROUNDS_MAX;
    for (uint32_t place = 0; place < n; place++)
        if (can_go_on(turns, place, now) && weight_of(turns, place) > greatest)
            greatest = weight_of(turns, place);
    if (greatest == 0)
        return false;
    for (uint32_t place = 0; place < n; place++) {
        const int64_t credit = credit_of(turns, place, greatest), balance = balance_of(turns, place);
        const int64_t missing = RG_TURN_LEAST_NS - balance, needed = missing > 0 ? missing / credit + 1 : 1;
        if (can_go_on(turns, place, now) && needed < rounds)
            rounds = needed;
    }
    for (uint32_t place = 0; place < n; place++) {
        const int64_t credit = credit_of(turns, place, greatest);
        if (atomic_load(&turns->places[place].state) != RG_TURN_NONE)
            change_balance(turns, place, rounds * credit, credit + RG_TURN_LEAST_NS);
    }
    return true;
}

static uint32_t choose(struct rg_turns *turns, uint32_t last, uint64_t now)
{
    const uint32_t n = n_used(turns);
    if (n == 0)
        return RG_TURN_PLACES;
    uint32_t next = first_with_credit(turns, n, last, now);
    if (next == RG_TURN_PLACES && give_credit(turns, n, now))
        next = first_with_credit(turns, n, last, now);
    return next;
}

/* Rings for all that could go on now: the turn is nobody's. */
static void ring_all(struct rg_turns *turns, uint32_t last, uint64_t now)
{
    const uint32_t n = n_used(turns);
    for (uint32_t place = 0; place < n; place++)
        if (place != last && can_go_on(turns, place, now))
            rg_turns_ring(turns, place);
}

/* Nobody waits for what the session has used, so it owes nobody anything. */
static void forgive(struct rg_turns *turns, uint32_t place)
{
    int64_t balance = atomic_load(&turns->places[place].balance);
    while (balance < 0 && !atomic_compare_exchange_weak(&turns->places[place].balance, &balance, 0))
        ;
}

/*
 * Whoever has the turn `word` hands it to the next one; false: somebody has taken it away. A session that asks or leaves meanwhile
 * writes its state before it reads the turn, which here is written before the states are read again: one of the two sees the other.
 */
static bool hand_over(struct rg_turns *turns, uint64_t word, uint32_t last, uint64_t now, uint32_t *next)
{
    for (uint32_t tries = 0; tries < TRIES_MAX; tries++) {
        *next = choose(turns, last, now);
        const uint32_t holder = *next < RG_TURN_PLACES ? *next + 1 : 0;
        const uint64_t given = next_word(word, holder);
        if (!atomic_compare_exchange_strong(&turns->turn, &word, given))
            return false;
        if (holder && atomic_load(&turns->places[*next].state) == RG_TURN_NONE) {
            word = given; /* it has left, and may not have seen that the turn is its own */
            continue;
        }
        if (!holder) {
            forgive(turns, last);
            ring_all(turns, last, now); /* somebody may have asked while nobody could see it */
        } else if (*next != last)
            rg_turns_ring(turns, *next);
        return true;
    }
    return true; /* who waits takes it away */
}

/* --- the bell ------------------------------------------------------------------------------------------- */

void rg_turns_ring(struct rg_turns *turns, uint32_t place)
{
    if (place >= RG_TURN_PLACES)
        return;
    atomic_fetch_add(&turns->places[place].bell, 1);
    (void)syscall(SYS_futex, &turns->places[place].bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void rg_turns_sleep(struct rg_turns *turns, uint32_t place, uint32_t seen, uint64_t ns)
{
    const struct timespec time = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    (void)syscall(SYS_futex, &turns->places[place].bell, FUTEX_WAIT, seen, &time, NULL, 0);
}

uint32_t rg_turns_bell(struct rg_turns *turns, uint32_t place)
{
    return atomic_load(&turns->places[place].bell);
}

/* --- coming and going ----------------------------------------------------------------------------------- */

void rg_turns_join(struct rg_turns *turns, uint32_t place, uint32_t weight, enum rg_turn_priority priority)
{
    if (place >= RG_TURN_PLACES)
        return;
    struct rg_turn_place *at = &turns->places[place];
    uint32_t n = atomic_load(&turns->n_used);
    while (n < place + 1 && !atomic_compare_exchange_weak(&turns->n_used, &n, place + 1))
        ;
    atomic_store(&at->weight, weight);
    atomic_store(&at->priority, (uint32_t)priority);
    if (atomic_load(&at->state) == RG_TURN_NONE) {
        atomic_store(&at->not_before, 0);
        atomic_store(&at->balance, 0);
        atomic_store(&at->charged, 0);
        atomic_store(&at->state, RG_TURN_IDLE);
    }
    atomic_fetch_add(&turns->changes, 1);
    /* Who had the device alone is to look up. */
    const uint32_t holder = HOLDER(atomic_load(&turns->turn));
    if (holder && holder != place + 1)
        rg_turns_ring(turns, holder - 1);
}

void rg_turns_leave(struct rg_turns *turns, uint32_t place, uint64_t now)
{
    if (place >= RG_TURN_PLACES)
        return;
    atomic_store(&turns->places[place].state, RG_TURN_NONE);
    atomic_fetch_add(&turns->changes, 1);
    const uint64_t word = atomic_load(&turns->turn);
    uint32_t next;
    if (HOLDER(word) == place + 1)
        (void)hand_over(turns, word, place, now, &next);
}

void rg_turns_look(struct rg_turns *turns, uint32_t place, struct rg_turn_others *others)
{
    const uint32_t changes = atomic_load(&turns->changes);
    if (changes == others->changes)
        return;
    *others = (struct rg_turn_others){.changes = changes};
    const uint32_t n = n_used(turns);
    for (uint32_t i = 0; i < n; i++) {
        if (i == place || atomic_load(&turns->places[i].state) == RG_TURN_NONE)
            continue;
        others->any = true;
        others->high |= atomic_load(&turns->places[i].priority) >= RG_TURN_HIGH;
    }
}

/* --- the turn ------------------------------------------------------------------------------------------- */

bool rg_turns_mine(struct rg_turns *turns, uint32_t place)
{
    return HOLDER(atomic_load(&turns->turn)) == place + 1;
}

bool rg_turns_taken(struct rg_turns *turns, uint32_t place)
{
    const uint32_t holder = HOLDER(atomic_load(&turns->turn));
    return holder != 0 && holder != place + 1;
}

bool rg_turns_wanted(struct rg_turns *turns, uint32_t place, uint64_t now)
{
    const uint32_t n = n_used(turns);
    for (uint32_t i = 0; i < n; i++)
        if (i != place && can_go_on(turns, i, now))
            return true;
    return false;
}

bool rg_turns_preempted(struct rg_turns *turns, uint32_t place, uint64_t now)
{
    const uint32_t n = n_used(turns), priority = atomic_load(&turns->places[place].priority);
    for (uint32_t i = 0; i < n; i++)
        if (i != place && can_go_on(turns, i, now) && balance_of(turns, i) > RG_TURN_LEAST_NS &&
            atomic_load(&turns->places[i].priority) > priority)
            return true;
    return false;
}

bool rg_turns_ask(struct rg_turns *turns, uint32_t place, uint64_t not_before, struct rg_turn_wait *wait,
                  uint64_t now)
{
    struct rg_turn_place *at = &turns->places[place];
    uint64_t word = atomic_load(&turns->turn);
    if (HOLDER(word) == place + 1)
        return true;
    atomic_store(&at->not_before, not_before);
    const bool fresh = atomic_exchange(&at->state, RG_TURN_WAITING) != RG_TURN_WAITING;
    if (not_before > now)
        return false;
    word = atomic_load(&turns->turn);
    if (word != wait->seen || wait->since == 0)
        *wait = (struct rg_turn_wait){.seen = word, .since = now};
    const bool stuck = now - wait->since > RG_TURN_HELD_MAX_NS || HOLDER(word) > RG_TURN_PLACES;
    if (HOLDER(word) != 0 && !stuck) {
        if (fresh)
            rg_turns_ring(turns, HOLDER(word) - 1);
        return HOLDER(word) == place + 1;
    }
    /* Nobody's, or of one that does not move: who takes it decides, as others may have waited for longer. */
    const uint64_t taken = next_word(word, place + 1);
    const uint32_t loser = HOLDER(word);
    uint32_t next;
    if (!atomic_compare_exchange_strong(&turns->turn, &word, taken))
        return HOLDER(word) == place + 1;
    if (loser && loser <= RG_TURN_PLACES)
        atomic_store(&turns->places[loser - 1].state, RG_TURN_IDLE); /* until it asks again */
    return hand_over(turns, taken, place, now, &next) && next == place;
}

void rg_turns_unask(struct rg_turns *turns, uint32_t place)
{
    uint32_t waiting = RG_TURN_WAITING;
    (void)atomic_compare_exchange_strong(&turns->places[place].state, &waiting, RG_TURN_IDLE);
}

void rg_turns_charge(struct rg_turns *turns, uint32_t place, uint64_t used)
{
    change_balance(turns, place, used < (uint64_t)RG_TURN_DEBT_MAX_NS ? -(int64_t)used : -RG_TURN_DEBT_MAX_NS,
                   RG_TURN_NS + RG_TURN_LEAST_NS);
    atomic_fetch_add(&turns->places[place].charged, used);
}

bool rg_turns_pass(struct rg_turns *turns, uint32_t place, uint64_t used, bool again, uint64_t not_before,
                   uint64_t now)
{
    struct rg_turn_place *at = &turns->places[place];
    rg_turns_charge(turns, place, used);
    atomic_store(&at->not_before, not_before);
    if (atomic_load(&at->state) != RG_TURN_NONE)
        atomic_store(&at->state, again ? RG_TURN_WAITING : RG_TURN_IDLE);
    const uint64_t word = atomic_load(&turns->turn);
    uint32_t next;
    return HOLDER(word) == place + 1 && hand_over(turns, word, place, now, &next) && next == place;
}

void rg_turns_clear_later(struct rg_turns *turns, uint64_t at)
{
    atomic_store(&turns->clear_at, at);
}

uint64_t rg_turns_clear(struct rg_turns *turns, uint64_t now, uint64_t most)
{
    const uint64_t at = atomic_load(&turns->clear_at);
    return at > now && at - now <= most ? at : now;
}

uint64_t rg_turns_credit(struct rg_turns *turns, uint32_t place)
{
    const int64_t balance = balance_of(turns, place);
    return balance > 0 ? (uint64_t)balance : 0;
}
