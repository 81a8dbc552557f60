/* ledger.c - see ledger.h. */
#include "server/shares/ledger.h"

#include "common/base/clock.h"

#include <sched.h>

/* A turn is a few hundred loads; who has it for longer is not running, or not to be trusted. */
#define TURN_PATIENCE_NS 20000000ull

static uint64_t sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t owed_to(const struct rg_share_place *place)
{
    const uint64_t guaranteed = atomic_load(&place->guaranteed), held = atomic_load(&place->held);
    return held > guaranteed ? held : guaranteed;
}

uint64_t rg_share_owed(const struct rg_share_device *device)
{
    uint64_t owed = 0;
    uint32_t n = atomic_load(&device->page->n_used);
    if (n > device->n_places)
        n = device->n_places;
    for (uint32_t i = 0; i < n; i++)
        owed = sum(owed, owed_to(&device->page->places[i]));
    return owed;
}

uint64_t rg_share_held_by_all(const struct rg_share_device *device)
{
    uint64_t held = 0;
    uint32_t n = atomic_load(&device->page->n_used);
    for (uint32_t i = 0; i < n && i < device->n_places; i++)
        held = sum(held, atomic_load(&device->page->places[i].held));
    return held;
}

static bool fits(const struct rg_share_device *device)
{
    return rg_share_owed(device) <= atomic_load(&device->page->capacity);
}

static struct rg_share_place *place_of(const struct rg_share_account *account)
{
    return &account->device.page->places[account->place];
}

/* --- a worker's ------------------------------------------------------------------------------------------- */

static bool begin_turn(const struct rg_share_account *account)
{
    const uint64_t end = rg_now_ns() + TURN_PATIENCE_NS;
    uint64_t nobody = 0;
    while (!atomic_compare_exchange_weak(&account->device.page->charging, &nobody, account->session)) {
        if (rg_now_ns() > end)
            return false;
        nobody = 0;
        sched_yield();
    }
    return true;
}

static void end_turn(const struct rg_share_account *account)
{
    uint64_t ours = account->session;
    (void)atomic_compare_exchange_strong(&account->device.page->charging, &ours, 0);
}

/* Adds to what is held, if that stays within `most`. */
static bool add(struct rg_share_place *place, uint64_t bytes, uint64_t most)
{
    uint64_t held = atomic_load(&place->held);
    do {
        if (bytes > most || held > most - bytes)
            return false;
    } while (!atomic_compare_exchange_weak(&place->held, &held, held + bytes));
    return true;
}

bool rg_share_charge(struct rg_share_account *account, uint64_t bytes)
{
    struct rg_share_place *place = place_of(account);
    const uint64_t limit = account->limit ? account->limit : UINT64_MAX;
    const uint64_t guaranteed = atomic_load(&place->guaranteed);
    if (add(place, bytes, guaranteed < limit ? guaranteed : limit))
        return true;
    const bool turn = begin_turn(account);
    bool charged = add(place, bytes, limit);
    if (charged && !fits(&account->device)) {
        rg_share_refund(account, bytes); /* which cannot wrap, whatever stands on the page by now */
        charged = false;
    }
    if (turn)
        end_turn(account);
    return charged;
}

void rg_share_charge_anyway(struct rg_share_account *account, uint64_t bytes)
{
    struct rg_share_place *place = place_of(account);
    if (!add(place, bytes, UINT64_MAX))
        atomic_store(&place->held, UINT64_MAX);
}

void rg_share_refund(struct rg_share_account *account, uint64_t bytes)
{
    struct rg_share_place *place = place_of(account);
    uint64_t held = atomic_load(&place->held);
    while (!atomic_compare_exchange_weak(&place->held, &held, held > bytes ? held - bytes : 0))
        ;
}

uint64_t rg_share_held(const struct rg_share_account *account)
{
    return atomic_load(&place_of(account)->held);
}

uint64_t rg_share_left(const struct rg_share_account *account)
{
    const struct rg_share_place *place = place_of(account);
    const uint64_t held = atomic_load(&place->held), guaranteed = atomic_load(&place->guaranteed);
    const uint64_t capacity = atomic_load(&account->device.page->capacity);
    const uint64_t owed = rg_share_owed(&account->device);
    const uint64_t free_for_all = capacity > owed ? capacity - owed : 0;
    uint64_t left = sum(guaranteed > held ? guaranteed - held : 0, free_for_all);
    if (account->limit) {
        const uint64_t own = account->limit > held ? account->limit - held : 0;
        left = own < left ? own : left;
    }
    return left;
}

/* --- guarantees -------------------------------------------------------------------------------------------- */

/* Whether there would be enough if the guarantee were so much: what the place holds is a part of it. */
static bool fits_with(const struct rg_share_device *device, uint32_t place, uint64_t guaranteed)
{
    const struct rg_share_place *at = &device->page->places[place];
    const uint64_t owed = rg_share_owed(device), now = owed_to(at), held = atomic_load(&at->held);
    const uint64_t others = owed > now ? owed - now : 0;
    return sum(others, held > guaranteed ? held : guaranteed) <= atomic_load(&device->page->capacity);
}

bool rg_share_guarantee(struct rg_share_device *device, uint32_t place, uint64_t bytes)
{
    if (place >= device->n_places)
        return false;
    _Atomic uint64_t *guaranteed = &device->page->places[place].guaranteed;
    const uint64_t before = atomic_load(guaranteed);
    /* first without writing: nobody is to be refused for the sake of a guarantee that is not given */
    if (bytes > before && !fits_with(device, place, bytes))
        return false;
    atomic_store(guaranteed, bytes);
    if (bytes <= before || fits(device))
        return true;
    atomic_store(guaranteed, before);
    return false;
}
