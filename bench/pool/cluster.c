/* cluster.c - the simulated pool. */
#include "bench/pool/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY (80ull << 30) /* of each GPU */

static void *array(size_t n, size_t size)
{
    void *memory = calloc(n + 1, size);
    if (!memory) {
        fprintf(stderr, "pool: no memory\n");
        exit(1);
    }
    return memory;
}

static void wrong(const char *what)
{
    fprintf(stderr, "pool: the scheduler %s\n", what);
    exit(1);
}

static void make_servers(struct cluster *cluster, const struct shape *shape, uint32_t n)
{
    cluster->servers = array(n, sizeof *cluster->servers);
    cluster->devices = array((size_t)n * 8, sizeof *cluster->devices);
    uint32_t n_devices = 0;
    for (uint32_t s = 0; s < n; s++) {
        cluster->servers[s] = (struct rg_pool_server){.address = "server"};
        const uint32_t gpus = shape_server(shape, s, n);
        for (uint32_t i = 0; i < gpus; i++)
            cluster->devices[n_devices++] =
                (struct rg_pool_device){.server = s,
                                        .index = i,
                                        .memory = MEMORY,
                                        .numa_node = (int32_t)(i / 4),
                                        .nvlink_group = gpus == 8 ? (int32_t)(i / 4) : -1,
                                        .pcie_group = (int32_t)(i / 2)};
    }
    cluster->snapshot.n_servers = n;
    cluster->snapshot.n_devices = n_devices;
    cluster->taken = array(n_devices, sizeof *cluster->taken);
}

static void make_accounts(struct cluster *cluster, uint32_t n_projects, uint32_t users_of_project)
{
    cluster->n_projects = n_projects;
    cluster->n_users = n_projects * users_of_project;
    cluster->users = array(cluster->n_users, sizeof *cluster->users);
    cluster->projects = array(n_projects, sizeof *cluster->projects);
    cluster->accounts = array((size_t)cluster->n_users + n_projects, sizeof *cluster->accounts);
    for (uint32_t u = 0; u < cluster->n_users; u++) {
        snprintf(cluster->users[u].name, sizeof cluster->users[u].name, "user%u", u);
        cluster->accounts[u] =
            (struct rg_pool_account){.name = cluster->users[u].name, .weight = RG_POOL_WEIGHT_DEFAULT};
    }
    for (uint32_t p = 0; p < n_projects; p++) {
        snprintf(cluster->projects[p].name, sizeof cluster->projects[p].name, "project%u", p);
        cluster->accounts[cluster->n_users + p] = (struct rg_pool_account){
            .name = cluster->projects[p].name, .project = true, .weight = RG_POOL_WEIGHT_DEFAULT};
    }
    cluster->snapshot.n_accounts = cluster->n_users + n_projects;
}

void cluster_init(struct cluster *cluster, const struct shape *shape, uint32_t n_servers, uint32_t n_jobs,
                  uint32_t users_of_project)
{
    memset(cluster, 0, sizeof *cluster);
    make_servers(cluster, shape, n_servers);
    make_accounts(cluster, shape->projects, users_of_project);
    cluster->n_jobs = n_jobs;
    cluster->jobs = array(n_jobs, sizeof *cluster->jobs);
    cluster->leases = array(n_jobs, sizeof *cluster->leases);
    cluster->requests = array(n_jobs, sizeof *cluster->requests);
    cluster->job_of_lease = array(n_jobs, sizeof *cluster->job_of_lease);
    cluster->job_of_request = array(n_jobs, sizeof *cluster->job_of_request);
    cluster->snapshot.servers = cluster->servers;
    cluster->snapshot.devices = cluster->devices;
    cluster->snapshot.leases = cluster->leases;
    cluster->snapshot.requests = cluster->requests;
    cluster->snapshot.accounts = cluster->accounts;
}

void cluster_fini(struct cluster *cluster)
{
    free(cluster->servers);
    free(cluster->devices);
    free(cluster->leases);
    free(cluster->requests);
    free(cluster->accounts);
    free(cluster->taken);
    free(cluster->job_of_lease);
    free(cluster->job_of_request);
    free(cluster->jobs);
    free(cluster->users);
    free(cluster->projects);
}

static uint32_t project_of(const struct cluster *cluster, uint32_t user)
{
    return user / (cluster->n_users / cluster->n_projects);
}

static uint64_t millionths(const struct kind *kind)
{
    return (uint64_t)kind->n * (kind->fraction ? kind->fraction : 1000000);
}

void cluster_submit(struct cluster *cluster, uint32_t j)
{
    struct job *job = &cluster->jobs[j];
    const uint32_t r = cluster->snapshot.n_requests++, project = project_of(cluster, job->user);
    snprintf(job->id, sizeof job->id, "%010u", j);
    cluster->requests[r] = (struct rg_pool_request){.id = job->id,
                                                    .user = cluster->users[job->user].name,
                                                    .project = cluster->projects[project].name,
                                                    .n = job->kind->n,
                                                    .fraction = job->kind->fraction,
                                                    .submitted = job->submitted,
                                                    .time_limit = job->limit};
    cluster->job_of_request[r] = j;
    cluster->users[job->user].waiting++;
    cluster->projects[project].waiting++;
}

static void hold(struct cluster *cluster, const struct job *job, bool begin)
{
    const uint64_t much = millionths(job->kind);
    struct owner *user = &cluster->users[job->user];
    struct owner *project = &cluster->projects[project_of(cluster, job->user)];
    user->held += begin ? much : -much;
    project->held += begin ? much : -much;
}

void cluster_start(struct cluster *cluster, const struct rg_pool_outcome *outcome, uint64_t now)
{
    for (uint32_t i = 0; i < outcome->n_grants; i++) {
        const struct rg_pool_grant *grant = &outcome->grants[i];
        const struct rg_pool_request *request = &cluster->requests[grant->request];
        const uint32_t j = cluster->job_of_request[grant->request], l = cluster->snapshot.n_leases++;
        struct job *job = &cluster->jobs[j];
        if (grant->n != job->kind->n || job->started != RG_POOL_UNKNOWN)
            wrong("granted something else than was asked for");
        for (uint32_t p = 0; p < grant->n; p++) {
            job->parts[p] = outcome->parts[grant->first + p];
            uint64_t *taken = &cluster->taken[job->parts[p].device];
            *taken += job->parts[p].memory;
            if (*taken > MEMORY || !job->parts[p].memory)
                wrong("gave a GPU away twice");
        }
        job->started = now;
        job->lease = l;
        cluster->job_of_lease[l] = j;
        cluster->leases[l] = (struct rg_pool_lease){.id = job->id,
                                                    .user = request->user,
                                                    .project = request->project,
                                                    .parts = job->parts,
                                                    .n = grant->n,
                                                    .started = now,
                                                    .ends = job->limit == RG_POOL_UNKNOWN ? RG_POOL_UNKNOWN
                                                                                          : now + job->limit};
        cluster->users[job->user].waiting--;
        cluster->projects[project_of(cluster, job->user)].waiting--;
        hold(cluster, job, true);
    }
    uint32_t kept = 0;
    for (uint32_t r = 0; r < cluster->snapshot.n_requests; r++) {
        if (cluster->jobs[cluster->job_of_request[r]].started != RG_POOL_UNKNOWN)
            continue;
        cluster->requests[kept] = cluster->requests[r];
        cluster->job_of_request[kept++] = cluster->job_of_request[r];
    }
    if (outcome->n_waiting != kept)
        wrong("forgot a request");
    cluster->snapshot.n_requests = kept;
}

void cluster_end(struct cluster *cluster, uint32_t j)
{
    const struct job *job = &cluster->jobs[j];
    for (uint32_t p = 0; p < job->kind->n; p++)
        cluster->taken[job->parts[p].device] -= job->parts[p].memory;
    const uint32_t last = --cluster->snapshot.n_leases;
    cluster->leases[job->lease] = cluster->leases[last];
    cluster->job_of_lease[job->lease] = cluster->job_of_lease[last];
    cluster->jobs[cluster->job_of_lease[job->lease]].lease = job->lease;
    hold(cluster, job, false);
}

void cluster_charge(struct cluster *cluster, uint64_t now, uint64_t half_life)
{
    const uint64_t since = now - cluster->charged_at;
    for (uint32_t u = 0; u < cluster->n_users; u++)
        rg_pool_account_charge(&cluster->accounts[u], cluster->users[u].held, since, now, half_life);
    for (uint32_t p = 0; p < cluster->n_projects; p++)
        rg_pool_account_charge(&cluster->accounts[cluster->n_users + p], cluster->projects[p].held, since,
                               now, half_life);
    cluster->charged_at = now;
}

uint64_t cluster_held(const struct cluster *cluster)
{
    uint64_t sum = 0;
    for (uint32_t p = 0; p < cluster->n_projects; p++)
        sum += cluster->projects[p].held;
    return sum;
}

uint64_t cluster_size(const struct cluster *cluster)
{
    return (uint64_t)cluster->snapshot.n_devices * 1000000;
}

/* Of what is free of a server, what a request of this kind could not use (GPUs). */
static double useless(const struct cluster *cluster, uint32_t first, uint32_t end, const struct kind *kind)
{
    double useful = 0, all = 0;
    uint32_t n = 0;
    for (uint32_t d = first; d < end; d++) {
        const double left = 1 - (double)cluster->taken[d] / MEMORY;
        const double need = kind->fraction ? kind->fraction / 1e6 : 1;
        all += left;
        if (left + 1e-9 >= need) {
            useful += left;
            n++;
        }
    }
    return n >= kind->n ? all - useful : all;
}

double cluster_fragmentation(const struct cluster *cluster, const struct shape *shape)
{
    double lost = 0, weights = 0, all = 0;
    for (uint32_t k = 0; k < shape->n_kinds; k++)
        weights += shape->kinds[k].weight;
    for (uint32_t d = 0; d < cluster->snapshot.n_devices; d++)
        all += 1 - (double)cluster->taken[d] / MEMORY;
    for (uint32_t first = 0, end; first < cluster->snapshot.n_devices; first = end) {
        end = first + 1;
        while (end < cluster->snapshot.n_devices &&
               cluster->devices[end].server == cluster->devices[first].server)
            end++;
        for (uint32_t k = 0; k < shape->n_kinds; k++)
            lost += useless(cluster, first, end, &shape->kinds[k]) * shape->kinds[k].weight / weights;
    }
    return all > 1e-9 ? lost / all : 0;
}
