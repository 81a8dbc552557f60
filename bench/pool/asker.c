/*
 * asker.c - clients of a pool, as many as bench/grants wants: each asks for GPUs by a connection of its own, as `remote-gpu run`
 * does, and holds what it was granted by staying connected.
 *
 *     pool_asker ETCD SERVER…
 *
 * Commands on stdin, a line each; what came of one is a line on stdout for each kind of sample ("NAME ns SAMPLE SAMPLE …"), then "done":
 *
 *     ask N RATE      N requests, at random moments, RATE of them a second in the mean, to the servers in turn: `grant`, the times
 *                     from when a client begins to connect until it knows its GPUs; `etcd`, those of a transaction like a grant's,
 *                     made meanwhile by the same means by which servers make theirs
 *     pass N RATE     the same, but each is given back as soon as it is granted
 *     keep N RATE     likewise, of leases that are kept: `kept` in place of `grant`
 *
 * Every eighth asks for two GPUs on one server, the others for one; always for a sixteenth of its memory. At the end of stdin all is given
 * back. A request that is refused ends the program with status 1.
 */
#include "client/pool/pool.h"
#include "common/base/clock.h"
#include "pool/etcd/etcd.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 64, MOST = 1 << 14, FRACTION = 1000000 / 16, PAUSE_MS = 50, KEPT_S = 600 };

static const char *const *servers;
static unsigned n_servers;
static struct rg_pool_lease_of leases[MOST];
static unsigned n_asked; /* of `leases`: some of them are held */

/* One command `ask`. */
static struct {
    uint64_t due_ns[MOST], took_ns[MOST]; /* by the number of the lease */
    atomic_uint next;
    unsigned end;
    bool held, kept;
} round_;

static void sleep_until(uint64_t ns)
{
    for (uint64_t now; (now = rg_now_ns()) < ns;) {
        const struct timespec left = {.tv_sec = (time_t)((ns - now) / 1000000000u),
                                      .tv_nsec = (long)((ns - now) % 1000000000u)};
        nanosleep(&left, NULL);
    }
}

static void *ask(void *unused)
{
    (void)unused;
    for (unsigned i; (i = atomic_fetch_add(&round_.next, 1)) < round_.end;) {
        const struct rg_pool_wish wish = {.gpus = i % 8 == 7 ? 2 : 1,
                                          .fraction = FRACTION,
                                          .waits = true,
                                          .wait_seconds = RG_POOL_FOR_EVER,
                                          .kept = round_.kept,
                                          .seconds = KEPT_S,
                                          .timeout_ns = 60000000000u};
        struct rg_pool_failure failure;
        sleep_until(round_.due_ns[i]);
        const uint64_t began = rg_now_ns();
        if (!rg_pool_request(servers[i % n_servers], &wish, &leases[i], &failure)) {
            fprintf(stderr, "pool_asker: request %u: %s\n", i, failure.why);
            exit(1);
        }
        round_.took_ns[i] = rg_now_ns() - began;
        if (round_.kept &&
            !rg_pool_release(servers[i % n_servers], leases[i].id, wish.timeout_ns, &failure)) {
            fprintf(stderr, "pool_asker: lease %u: %s\n", i, failure.why);
            exit(1);
        }
        if (!round_.held)
            rg_pool_lease_fini(&leases[i]);
    }
    return NULL;
}

/* --- etcd's own time ------------------------------------------------------------------------------------------------ */

static struct {
    struct rg_etcd *etcd;
    uint64_t took_ns[MOST];
    unsigned n;
    atomic_bool end;
} own;

static void answered(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    bool *done = data;
    *done = true;
    if (status == RG_OK && json_is_true(json_object_get(reply, "succeeded")))
        return;
    fprintf(stderr, "pool_asker: etcd: %s\n", *why ? why : "the transaction failed");
    exit(1);
}

/* As a grant's: three comparisons, two values written, a key removed; of keys that no pool has. */
static json_t *transaction(void)
{
    static const char *const keys[] = {"/remote-gpu-bench/gpu", "/remote-gpu-bench/lease",
                                       "/remote-gpu-bench/request"};
    char value[400];
    json_t *compare = json_array(), *changes = json_array();
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    for (int i = 0; i < 3; i++)
        json_array_append_new(compare,
                              json_pack("{s:o, s:s, s:s, s:s}", "key", rg_etcd_bytes("/remote-gpu-bench/no"),
                                        "result", "EQUAL", "target", "MOD", "mod_revision", "0"));
    for (int i = 0; i < 2; i++)
        json_array_append_new(changes, json_pack("{s:{s:o, s:o}}", "request_put", "key",
                                                 rg_etcd_bytes(keys[i]), "value", rg_etcd_bytes(value)));
    json_array_append_new(changes,
                          json_pack("{s:{s:o}}", "request_delete_range", "key", rg_etcd_bytes(keys[2])));
    return json_pack("{s:o, s:o}", "compare", compare, "success", changes);
}

static void *ask_etcd(void *unused)
{
    (void)unused;
    while (!atomic_load(&own.end) && own.n < MOST) {
        bool done = false;
        const uint64_t began = rg_now_ns();
        rg_etcd_call(own.etcd, "/v3/kv/txn", transaction(), answered, &done);
        while (!done)
            rg_etcd_poll(own.etcd, NULL, 0, 1000);
        own.took_ns[own.n++] = rg_now_ns() - began;
        sleep_until(rg_now_ns() + PAUSE_MS * 1000000u);
    }
    return NULL;
}

/* --- commands --------------------------------------------------------------------------------------------------------- */

static void print_samples(const char *name, const uint64_t *samples, unsigned n)
{
    printf("%s ns", name);
    for (unsigned i = 0; i < n; i++)
        printf(" %llu", (unsigned long long)samples[i]);
    printf("\n");
}

static bool ask_many(unsigned n, double rate, bool held, bool kept)
{
    pthread_t threads[THREADS], prober;
    uint64_t due = rg_now_ns();
    const unsigned first = n_asked;
    if (!n || n > MOST - first || !(rate > 0))
        return false;
    for (unsigned i = first; i < first + n; i++) {
        round_.due_ns[i] = due;
        due += (uint64_t)(-log(1 - drand48()) / rate * 1e9);
    }
    atomic_store(&round_.next, first);
    round_.end = n_asked = first + n;
    round_.held = held;
    round_.kept = kept;
    own.n = 0;
    atomic_store(&own.end, false);
    if (pthread_create(&prober, NULL, ask_etcd, NULL) != 0)
        return false;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, ask, NULL) != 0)
            return false;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&own.end, true);
    pthread_join(prober, NULL);
    print_samples(kept ? "kept" : "grant", &round_.took_ns[first], n);
    print_samples("etcd", own.took_ns, own.n);
    return true;
}

int main(int argc, char **argv)
{
    char line[128], why[RG_ETCD_WHY] = "";
    if (argc < 3) {
        fprintf(stderr, "usage: pool_asker ETCD SERVER...\n");
        return 2;
    }
    servers = (const char *const *)&argv[2];
    n_servers = (unsigned)argc - 2;
    const struct rg_etcd_settings settings = {.endpoints = (const char *const *)&argv[1], .n_endpoints = 1};
    signal(SIGPIPE, SIG_IGN);
    own.etcd = rg_etcd_create(&settings, why, sizeof why);
    if (!own.etcd) {
        fprintf(stderr, "pool_asker: %s\n", why);
        return 1;
    }
    while (fgets(line, sizeof line, stdin)) {
        unsigned n = 0;
        double rate = 0;
        if (!(sscanf(line, "ask %u %lf", &n, &rate) == 2 && ask_many(n, rate, true, false)) &&
            !(sscanf(line, "pass %u %lf", &n, &rate) == 2 && ask_many(n, rate, false, false)) &&
            !(sscanf(line, "keep %u %lf", &n, &rate) == 2 && ask_many(n, rate, false, true))) {
            fprintf(stderr, "pool_asker: what is to be done? %s", line);
            return 2;
        }
        printf("done\n");
        fflush(stdout);
    }
    for (unsigned i = 0; i < n_asked; i++)
        rg_pool_lease_fini(&leases[i]);
    rg_etcd_destroy(own.etcd);
    return 0;
}
