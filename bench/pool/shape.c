/*
 * shape.c - the published figures.
 *
 * philly: Microsoft's Philly clusters, 117,325 jobs of August to December 2017 (Jeon et al., "Analysis of Large-Scale
 *   Multi-Tenant GPU Clusters for DNN Training Workloads", ATC 2019; github.com/msr-fiddle/philly-traces).
 *   - Run times by number of GPUs: read off the curves of "Job Runtimes (Figure 2)" in that repository's analysis/Philly
 *     Trace Analysis.ipynb at commit 29a1b87f, whose axis ends at 10,000 minutes; so do these. The picture gives about two
 *     digits.
 *   - GPUs of a request: 70 % ask for 1, 10 % for 2, 15 % for 4, 5 % for 8, as Gavel (OSDI 2020) draws them after this trace
 *     (github.com/stanford-futuredata/gavel, scheduler/utils.py, lines 18 to 27, at commit c4fa4009).
 *   - Projects: the 15 virtual clusters that the notebook plots.
 *   - Servers: 8 GPUs each, which is not of the trace.
 *
 * openb: a cluster of Alibaba with GPU sharing, 7,064 pods with GPUs on 1,213 servers with 6,212 of them (Weng et al.,
 *   "Beware of Fragmentation", ATC 2023; github.com/alibaba/clusterdata, cluster-trace-gpu-v2023/csv, at commit 7a6c496e).
 *   - GPUs and share of a GPU: counted in openb_pod_list_default.csv (shares of fewer than 40 pods are with their
 *     neighbours).
 *   - Run times, from being scheduled to being deleted: quantiles of the same file, of pods with a share, with one GPU, with
 *     several; cut at the 99th percentile, behind which are services that ran for months.
 *   - Servers by number of GPUs: counted in openb_node_list_gpu_node.csv.
 *   - Projects: none in the trace; 20 here.
 */
#include "bench/pool/shape.h"

#include <math.h>
#include <string.h>

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

static const struct quantile philly_1[] = {
    {0, 6},      {1, 14},     {5, 40},      {10, 56},     {20, 74},      {25, 115},
    {30, 221},   {40, 621},   {50, 1153},   {60, 1865},   {70, 2630},    {80, 5412},
    {90, 14663}, {95, 41112}, {98, 127794}, {99, 358320}, {100, 600000},
};
static const struct quantile philly_4[] = {
    {0, 6},      {5, 14},     {10, 18},    {20, 36},     {30, 174},    {40, 790},     {50, 1741},
    {60, 13226}, {70, 38381}, {80, 90627}, {90, 213988}, {95, 425498}, {100, 600000},
};
static const struct quantile philly_8[] = {
    {0, 6},      {5, 37},     {10, 85},     {20, 472},    {30, 1193},   {40, 3972},    {50, 12348},
    {60, 27219}, {70, 78987}, {80, 168233}, {90, 358320}, {95, 560145}, {100, 600000},
};
static const struct kind philly_kinds[] = {
    {70, 1, 0, philly_1},
    {10, 2, 0, philly_4},
    {15, 4, 0, philly_4},
    {5, 8, 0, philly_8},
};
static const struct sort philly_sorts[] = {{1, 8}};

static const struct quantile openb_share[] = {
    {0, 4},    {5, 35},    {10, 55},   {20, 103},  {30, 173},   {40, 289},   {50, 539},
    {60, 928}, {70, 1286}, {80, 2879}, {90, 9235}, {95, 20410}, {98, 49516}, {100, 77910},
};
static const struct quantile openb_whole[] = {
    {0, 5},     {5, 55},    {10, 80},   {20, 177},  {30, 251},   {40, 459},   {50, 758},
    {60, 1210}, {70, 1974}, {80, 3536}, {90, 6030}, {95, 13278}, {98, 57462}, {100, 243803},
};
static const struct quantile openb_several[] = {
    {0, 22},    {5, 36},    {10, 40},    {20, 140},   {30, 259},    {40, 497},    {50, 739},
    {60, 1707}, {70, 3599}, {80, 17759}, {90, 68494}, {95, 209987}, {98, 977323}, {100, 1332357},
};
static const struct kind openb_kinds[] = {
    {3911, 1, 0, openb_whole},     {1078, 1, 810000, openb_share}, {773, 1, 470000, openb_share},
    {344, 1, 320000, openb_share}, {253, 1, 650000, openb_share},  {172, 1, 230000, openb_share},
    {128, 1, 460000, openb_share}, {75, 1, 590000, openb_share},   {106, 1, 160000, openb_share},
    {72, 1, 550000, openb_share},  {77, 1, 220000, openb_share},   {16, 2, 0, openb_several},
    {15, 4, 0, openb_several},     {44, 8, 0, openb_several},
};
static const struct sort openb_sorts[] = {{617, 8}, {54, 4}, {518, 2}, {24, 1}};

static const struct shape shapes[] = {
    {"philly", "Microsoft Philly, 2017", philly_kinds, COUNT(philly_kinds), philly_sorts, COUNT(philly_sorts),
     15},
    {"openb", "Alibaba, GPU sharing, 2023", openb_kinds, COUNT(openb_kinds), openb_sorts, COUNT(openb_sorts),
     20},
};

const struct shape *shape_find(const char *name)
{
    for (uint32_t i = 0; i < COUNT(shapes); i++)
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    return NULL;
}

uint64_t random_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dull;
}

double random_unit(uint64_t *state)
{
    return (double)(random_next(state) >> 11) / 9007199254740992.0;
}

const struct kind *shape_kind(const struct shape *shape, uint64_t *state)
{
    double all = 0;
    for (uint32_t i = 0; i < shape->n_kinds; i++)
        all += shape->kinds[i].weight;
    double at = random_unit(state) * all;
    for (uint32_t i = 0; i + 1 < shape->n_kinds; i++)
        if ((at -= shape->kinds[i].weight) < 0)
            return &shape->kinds[i];
    return &shape->kinds[shape->n_kinds - 1];
}

double shape_run_time(const struct kind *kind, uint64_t *state)
{
    const double percent = random_unit(state) * 100;
    const struct quantile *below = kind->run_time;
    while (below[1].percent <= percent)
        below++;
    const double part = (percent - below[0].percent) / (below[1].percent - below[0].percent);
    return exp(log(below[0].value) + part * (log(below[1].value) - log(below[0].value)));
}

double shape_mean_work(const struct shape *shape)
{
    enum { SAMPLES = 1000000 };
    uint64_t state = 12345;
    double sum = 0;
    for (int i = 0; i < SAMPLES; i++) {
        const struct kind *kind = shape_kind(shape, &state);
        const double share = kind->fraction ? kind->fraction / 1e6 : 1;
        sum += kind->n * share * shape_run_time(kind, &state);
    }
    return sum / SAMPLES;
}

uint32_t shape_server(const struct shape *shape, uint32_t i, uint32_t n)
{
    double all = 0, at = 0;
    for (uint32_t s = 0; s < shape->n_sorts; s++)
        all += shape->sorts[s].weight;
    for (uint32_t s = 0; s < shape->n_sorts; s++)
        if ((at += shape->sorts[s].weight) / all * n > i)
            return shape->sorts[s].n;
    return shape->sorts[shape->n_sorts - 1].n;
}
