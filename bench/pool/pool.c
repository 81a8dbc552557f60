/*
 * pool.c - simulates a pool: the scheduler itself decides about requests that have the shape of a published trace.
 *
 * Time is simulated, so months take minutes. Requests arrive at random (exponential gaps) at a rate that would keep the pool
 * busy to --load; whenever some arrived or ended, and some wait, the scheduler is called as a member of a pool would call
 * it, with the whole snapshot. What is measured is the processor time of that call alone. All that is granted is checked: no GPU is
 * given away twice, no request forgotten.
 *
 * What is not of a trace: the arrivals; that users are as active as Zipf's law says (the second half as often as the first);
 * that --limits per cent of the requests say a time limit, of one to five times of what they take.
 */
#include "bench/pool/figures.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAMPLE_EVERY (600 * SECOND) /* of simulated time: utilisation, fragmentation, fairness, charges */

struct simulation {
    const struct shape *shape;
    struct rg_pool_policy policy;
    uint32_t n_servers, n_jobs, users_of_project, limits;
    double load;
    uint64_t seed, step;
    bool json;
    struct cluster cluster;
    struct figures figures;
    uint32_t *ends; /* jobs that run, a heap by their end */
    uint32_t n_ends;
    uint64_t now, sampled;
};

static uint64_t end_of(const struct simulation *simulation, uint32_t job)
{
    return simulation->cluster.jobs[job].started + simulation->cluster.jobs[job].run_time;
}

static void swap(uint32_t *a, uint32_t *b)
{
    const uint32_t moved = *a;
    *a = *b;
    *b = moved;
}

static void push_end(struct simulation *simulation, uint32_t job)
{
    uint32_t *heap = simulation->ends, at = simulation->n_ends++;
    heap[at] = job;
    for (; at && end_of(simulation, heap[at]) < end_of(simulation, heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&heap[at], &heap[(at - 1) / 2]);
}

static uint32_t pop_end(struct simulation *simulation)
{
    uint32_t *heap = simulation->ends, first = heap[0], at = 0;
    heap[0] = heap[--simulation->n_ends];
    for (;;) {
        uint32_t least = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < simulation->n_ends; child++)
            if (end_of(simulation, heap[child]) < end_of(simulation, heap[least]))
                least = child;
        if (least == at)
            return first;
        swap(&heap[at], &heap[least]);
        at = least;
    }
}

/* Processor time of this thread: what else runs on the machine does not count. */
static double clock_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* A user by Zipf's law over all of them, whose order by activity is mixed over the projects. */
static uint32_t random_user(const struct cluster *cluster, uint64_t *state)
{
    const double total = log((double)cluster->n_users + 1);
    const uint32_t rank = (uint32_t)(exp(random_unit(state) * total) - 1) % cluster->n_users;
    const uint32_t of_project = cluster->n_users / cluster->n_projects;
    return rank % cluster->n_projects * of_project + rank / cluster->n_projects;
}

static void make_jobs(struct simulation *simulation)
{
    struct cluster *cluster = &simulation->cluster;
    uint64_t state = simulation->seed * 0x9e3779b97f4a7c15ull + 1;
    const double gpus = (double)cluster_size(cluster) / 1e6;
    const double gap =
        shape_mean_work(simulation->shape) / (gpus * simulation->load); /* seconds between arrivals */
    double at = 0;
    for (uint32_t j = 0; j < cluster->n_jobs; j++) {
        at += -log(1 - random_unit(&state)) * gap;
        const struct kind *kind = shape_kind(simulation->shape, &state);
        const double run_time = shape_run_time(kind, &state);
        const bool limited = random_unit(&state) * 100 < simulation->limits;
        const double limit = run_time * (1 + 4 * random_unit(&state));
        cluster->jobs[j] = (struct job){.kind = kind,
                                        .submitted = (uint64_t)(at * SECOND),
                                        .started = RG_POOL_UNKNOWN,
                                        .run_time = (uint64_t)(run_time * SECOND),
                                        .limit = limited ? (uint64_t)(limit * SECOND) : RG_POOL_UNKNOWN,
                                        .user = random_user(cluster, &state)};
    }
}

static void decide(struct simulation *simulation)
{
    struct cluster *cluster = &simulation->cluster;
    struct rg_pool_outcome outcome;
    char why[256] = "";
    const uint32_t n_requests = cluster->snapshot.n_requests;
    const double before = clock_seconds();
    const enum rg_status status =
        rg_pool_schedule(&cluster->snapshot, &simulation->policy, simulation->now, &outcome, why, sizeof why);
    series_add(&simulation->figures.decision, clock_seconds() - before);
    if (status != RG_OK) {
        fprintf(stderr, "pool: %s\n", why);
        exit(1);
    }
    series_add(&simulation->figures.queue, n_requests);
    simulation->figures.handled += n_requests;
    const uint32_t n_before = cluster->snapshot.n_leases;
    cluster_start(cluster, &outcome, simulation->now);
    for (uint32_t l = n_before; l < cluster->snapshot.n_leases; l++)
        push_end(simulation, cluster->job_of_lease[l]);
    rg_pool_outcome_clear(&outcome);
}

/* While the second half of the requests arrives (the first fills the pool): what is used, what is of no use, and how alike projects that want more are served. */
static void sample(struct simulation *simulation)
{
    struct cluster *cluster = &simulation->cluster;
    struct series held = {0};
    cluster_charge(cluster, simulation->now, simulation->policy.half_life);
    simulation->sampled = simulation->now;
    if (simulation->now > cluster->jobs[cluster->n_jobs - 1].submitted ||
        simulation->now < cluster->jobs[cluster->n_jobs / 2].submitted)
        return;
    series_add(&simulation->figures.utilised, (double)cluster_held(cluster) / (double)cluster_size(cluster));
    for (uint32_t p = 0; p < cluster->n_projects; p++)
        if (cluster->projects[p].waiting)
            series_add(&held, (double)cluster->projects[p].held);
    if (held.n > 1)
        series_add(&simulation->figures.shares, jain(&held));
    if (cluster->snapshot.n_requests)
        series_add(&simulation->figures.unfit, cluster_fragmentation(cluster, simulation->shape));
    series_free(&held);
}

static void run(struct simulation *simulation)
{
    struct cluster *cluster = &simulation->cluster;
    uint32_t arrived = 0;
    while (arrived < cluster->n_jobs || simulation->n_ends) {
        uint64_t next = simulation->n_ends ? end_of(simulation, simulation->ends[0]) : RG_POOL_UNKNOWN;
        if (arrived < cluster->n_jobs && cluster->jobs[arrived].submitted < next)
            next = cluster->jobs[arrived].submitted;
        while (simulation->sampled + SAMPLE_EVERY <= next) {
            simulation->now = simulation->sampled + SAMPLE_EVERY;
            sample(simulation);
        }
        /* What happens within a step is decided about together. */
        simulation->now = next - next % simulation->step + simulation->step;
        while (simulation->n_ends && end_of(simulation, simulation->ends[0]) <= simulation->now)
            cluster_end(cluster, pop_end(simulation));
        while (arrived < cluster->n_jobs && cluster->jobs[arrived].submitted <= simulation->now)
            cluster_submit(cluster, arrived++);
        if (cluster->snapshot.n_requests)
            decide(simulation);
    }
    if (cluster->snapshot.n_requests) {
        fprintf(stderr, "pool: %u requests have never been granted\n", cluster->snapshot.n_requests);
        exit(1);
    }
}

static const char usage[] =
    "usage: pool [OPTION…]\n"
    "Simulates a pool whose requests have the shape of a published trace.\n\n"
    "  --shape NAME         philly (default) or openb; bench/pool/shape.c says what was published where\n"
    "  --servers N          1000\n"
    "  --requests N         100000\n"
    "  --load FRACTION      of all GPUs, that the requests would keep busy: 0.95\n"
    "  --limits PERCENT     of the requests that say a time limit: 80\n"
    "  --reservations N     as the scheduler's default; 1 is EASY backfill\n"
    "  --fifo               by arrival instead of fair shares\n"
    "  --spread             spreading instead of packing\n"
    "  --step SECONDS       what happens within is decided about together: 1\n"
    "  --seed N             1\n"
    "  --json               one line for programs\n";

static double number(const char *text, double least, double most)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !(value >= least && value <= most)) {
        fprintf(stderr, "pool: '%s' is not a number from %g to %g\n", text, least, most);
        exit(2);
    }
    return value;
}

static void read_options(struct simulation *simulation, int argc, char **argv)
{
    static const struct option options[] = {
        {"shape", 1, NULL, 'p'}, {"servers", 1, NULL, 's'}, {"requests", 1, NULL, 'r'},
        {"load", 1, NULL, 'l'},  {"limits", 1, NULL, 't'},  {"reservations", 1, NULL, 'n'},
        {"fifo", 0, NULL, 'f'},  {"spread", 0, NULL, 'd'},  {"step", 1, NULL, 'e'},
        {"seed", 1, NULL, 'x'},  {"json", 0, NULL, 'j'},    {"help", 0, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'p':
            simulation->shape = shape_find(optarg);
            break;
        case 's':
            simulation->n_servers = (uint32_t)number(optarg, 1, 100000);
            break;
        case 'r':
            simulation->n_jobs = (uint32_t)number(optarg, 1, 10000000);
            break;
        case 'l':
            simulation->load = number(optarg, 0.01, 2);
            break;
        case 't':
            simulation->limits = (uint32_t)number(optarg, 0, 100);
            break;
        case 'n':
            simulation->policy.reservations = (uint32_t)number(optarg, 1, 1000000);
            break;
        case 'f':
            simulation->policy.patience = 0;
            break;
        case 'd':
            simulation->policy.strategy = RG_POOL_SPREAD;
            break;
        case 'e':
            simulation->step = (uint64_t)(number(optarg, 0.001, 86400) * SECOND);
            break;
        case 'x':
            simulation->seed = (uint64_t)number(optarg, 0, 1e15);
            break;
        case 'j':
            simulation->json = true;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            fputs(usage, stderr);
            exit(2);
        }
    }
    if (!simulation->shape || optind != argc) {
        fprintf(stderr, "pool: there are the shapes philly and openb, and no other arguments (--help)\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    struct simulation simulation = {.shape = shape_find("philly"),
                                    .n_servers = 1000,
                                    .n_jobs = 100000,
                                    .users_of_project = 20,
                                    .limits = 80,
                                    .load = 0.95,
                                    .seed = 1,
                                    .step = SECOND};
    rg_pool_policy_default(&simulation.policy);
    read_options(&simulation, argc, argv);
    cluster_init(&simulation.cluster, simulation.shape, simulation.n_servers, simulation.n_jobs,
                 simulation.users_of_project);
    simulation.ends = calloc(simulation.n_jobs, sizeof *simulation.ends);
    if (!simulation.ends)
        return 1;
    make_jobs(&simulation);
    run(&simulation);
    if (!simulation.json)
        printf("%s: %u servers, %u GPUs, %u requests over %.1f days\n", simulation.shape->source,
               simulation.n_servers, simulation.cluster.snapshot.n_devices, simulation.n_jobs,
               (double)simulation.now / SECOND / 86400);
    figures_print(&simulation.figures, &simulation.cluster, simulation.json);
    figures_free(&simulation.figures);
    cluster_fini(&simulation.cluster);
    free(simulation.ends);
    return 0;
}
