/* sites.c - see sites.h. */
#include "client/profile/sites.h"

#include "client/profile/python.h"
#include "common/base/clock.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SHARE       100   /* unwinding takes at most one part in this of the time waited */
#define COST_FIRST  2000  /* ns, before it was measured */
#define COST_MOST   50000 /* the first time in a library takes much longer, but it is once */
#define PYTHON_TEXT 4096

static int (*unwind)(void **frames, int max) = backtrace;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_hash_table sites;
static uint64_t unknown_waited;

static __thread uint64_t debt_waited, debt_waits, debt_round_trips, due;
static __thread uint64_t cost = COST_FIRST;
static __thread uint32_t random_state;

void rg_profile_sites_start(void)
{
    void *library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    void *function = library ? dlsym(library, "unw_backtrace") : NULL;
    if (function)
        memcpy(&unwind, &function, sizeof function);
    rg_profile_python_start();
}

/* The next sample's distance, half to one and a half times the mean, so that no pattern of calls escapes. */
static uint64_t next_due(void)
{
    random_state = random_state * 1664525u + 1013904223u + (uint32_t)(uintptr_t)&random_state;
    const uint64_t mean = cost * SHARE;
    return mean / 2 + mean * (random_state >> 16) / 65536;
}

static uint64_t hash_of(const struct rg_site *site)
{
    uint64_t hash = rg_hash_bytes(RG_HASH_EMPTY, &site->api, sizeof site->api);
    hash = rg_hash_bytes(hash, site->frames, (size_t)site->n * sizeof *site->frames);
    return site->python ? rg_hash_bytes(hash, site->python, strlen(site->python)) : hash;
}

static bool same(const struct rg_site *a, const struct rg_site *b)
{
    return a->api == b->api && a->n == b->n &&
           memcmp(a->frames, b->frames, (size_t)a->n * sizeof *a->frames) == 0 &&
           (a->python && b->python ? strcmp(a->python, b->python) == 0 : a->python == b->python);
}

/* The kept site like `key`, made if there is none; NULL: no room. The lock is held. */
static struct rg_site *find(const struct rg_site *key)
{
    const uint64_t hash = hash_of(key);
    struct rg_hash_link *at = rg_hash_table_first(&sites, hash);
    while (at && !same((struct rg_site *)at, key))
        at = rg_hash_table_next(at);
    struct rg_site *site = (struct rg_site *)at;
    if (site || sites.n == RG_SITES_MAX || !(site = malloc(sizeof *site)))
        return site;
    *site = *key;
    if (key->python && !(site->python = strdup(key->python))) {
        free(site);
        return NULL;
    }
    rg_hash_table_add(&sites, &site->link, hash);
    return site;
}

static void take_sample(int api, uint64_t waited, uint64_t waits, uint64_t round_trips)
{
    const uint64_t start = rg_now_ns();
    struct rg_site key = {.api = api};
    char text[PYTHON_TEXT];
    int n = unwind(key.frames, RG_SITE_FRAMES);
    key.n = n > 0 ? n : 0;
    key.python = rg_profile_python_stack(text, sizeof text) ? text : NULL;
    pthread_mutex_lock(&lock);
    struct rg_site *site = find(&key);
    if (site) {
        site->waited += waited;
        site->waits += waits;
        site->round_trips += round_trips;
    } else {
        unknown_waited += waited;
    }
    pthread_mutex_unlock(&lock);
    uint64_t took = rg_now_ns() - start;
    if (took > COST_MOST)
        took = COST_MOST;
    cost = took < cost ? took : cost + (took - cost) / 8;
}

void rg_profile_sites_wait(int api, uint64_t waited, unsigned round_trips)
{
    if (waited >= cost * SHARE) {
        take_sample(api, waited, 1, round_trips);
        return;
    }
    debt_waited += waited;
    debt_waits++;
    debt_round_trips += round_trips;
    if (debt_waited < due)
        return;
    take_sample(api, debt_waited, debt_waits, debt_round_trips);
    debt_waited = debt_waits = debt_round_trips = 0;
    due = next_due();
}

static int by_waited(const void *a, const void *b)
{
    const struct rg_site *x = a, *y = b;
    return x->waited < y->waited ? 1 : x->waited > y->waited ? -1 : 0;
}

size_t rg_profile_sites_top(struct rg_site *top, size_t max, size_t *more, uint64_t *unknown)
{
    *more = 0;
    pthread_mutex_lock(&lock);
    *unknown = unknown_waited;
    size_t n = 0;
    struct rg_site *all = malloc((sites.n + 1) * sizeof *all);
    struct rg_hash_link *at = NULL;
    while (all && (at = rg_hash_table_after(&sites, at)))
        all[n++] = *(struct rg_site *)at;
    pthread_mutex_unlock(&lock);
    if (!all)
        return 0;
    qsort(all, n, sizeof *all, by_waited);
    if (n > max) {
        *more = n - max;
        n = max;
    }
    memcpy(top, all, n * sizeof *all);
    free(all);
    return n;
}
