/* figures.c - percentiles, fairness, and the report. */
#include "bench/pool/figures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void series_add(struct series *series, double value)
{
    if (series->n == series->room) {
        series->room = series->room ? 2 * series->room : 1024;
        series->values = realloc(series->values, series->room * sizeof *series->values);
        if (!series->values) {
            fprintf(stderr, "pool: no memory\n");
            exit(1);
        }
    }
    series->values[series->n++] = value;
}

void series_free(struct series *series)
{
    free(series->values);
    memset(series, 0, sizeof *series);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value that so many per cent are not above; sorts the series. */
static double percentile(struct series *series, double percent)
{
    if (!series->n)
        return 0;
    qsort(series->values, series->n, sizeof *series->values, compare);
    const size_t at = (size_t)((double)series->n * percent / 100);
    return series->values[at < series->n ? at : series->n - 1];
}

static double series_sum(const struct series *series)
{
    double sum = 0;
    for (size_t i = 0; i < series->n; i++)
        sum += series->values[i];
    return sum;
}

static double mean(const struct series *series)
{
    return series->n ? series_sum(series) / (double)series->n : 0;
}

double jain(const struct series *series)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < series->n; i++) {
        sum += series->values[i];
        squares += series->values[i] * series->values[i];
    }
    return squares > 0 ? sum * sum / ((double)series->n * squares) : 1;
}

void figures_free(struct figures *figures)
{
    series_free(&figures->decision);
    series_free(&figures->queue);
    series_free(&figures->utilised);
    series_free(&figures->unfit);
    series_free(&figures->shares);
}

/* Seconds waited by all requests for this many GPUs (0: all). */
static void waits(const struct cluster *cluster, uint32_t n, struct series *out)
{
    for (uint32_t j = 0; j < cluster->n_jobs; j++)
        if (!n || cluster->jobs[j].kind->n == n)
            series_add(out, (double)(cluster->jobs[j].started - cluster->jobs[j].submitted) / SECOND);
}

/* How many times longer than alone the requests of each user took, at least 10 min each: one mean a user. */
static double slowdown_fairness(const struct cluster *cluster)
{
    struct series means = {0};
    double *sums = calloc(cluster->n_users + 1, sizeof *sums);
    uint32_t *counts = calloc(cluster->n_users + 1, sizeof *counts);
    if (!sums || !counts)
        exit(1);
    for (uint32_t j = 0; j < cluster->n_jobs; j++) {
        const struct job *job = &cluster->jobs[j];
        const double run = (double)job->run_time / SECOND, floor = run > 600 ? run : 600;
        const double took = (double)(job->started - job->submitted) / SECOND + run;
        sums[job->user] += took > floor ? took / floor : 1;
        counts[job->user]++;
    }
    for (uint32_t u = 0; u < cluster->n_users; u++)
        if (counts[u])
            series_add(&means, sums[u] / counts[u]);
    const double index = jain(&means);
    series_free(&means);
    free(sums);
    free(counts);
    return index;
}

static void print_waits(const struct cluster *cluster, bool json)
{
    static const uint32_t sizes[] = {0, 1, 2, 4, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct series series = {0};
        waits(cluster, sizes[i], &series);
        const double p50 = percentile(&series, 50), p90 = percentile(&series, 90);
        const double p99 = percentile(&series, 99), most = percentile(&series, 100);
        if (json)
            printf(",\"wait_s_%u\":{\"n\":%zu,\"p50\":%.0f,\"p90\":%.0f,\"p99\":%.0f,\"max\":%.0f,\"mean\":%."
                   "1f}",
                   sizes[i], series.n, p50, p90, p99, most, mean(&series));
        else if (series.n)
            printf("waited, %s%.0u: p50 %.0f s, p90 %.0f s, p99 %.0f s, longest %.0f s, mean %.0f s (%zu "
                   "requests)\n",
                   sizes[i] ? "GPUs asked for: " : "all", sizes[i], p50, p90, p99, most, mean(&series),
                   series.n);
        series_free(&series);
    }
}

void figures_print(struct figures *figures, const struct cluster *cluster, bool json)
{
    const double spent = series_sum(&figures->decision), calls = (double)figures->decision.n;
    const double p50 = percentile(&figures->decision, 50) * 1e3;
    const double p99 = percentile(&figures->decision, 99) * 1e3;
    const double queue = mean(&figures->queue), longest = percentile(&figures->queue, 100);
    const double utilised = mean(&figures->utilised), unfit = mean(&figures->unfit);
    const double shares = mean(&figures->shares), slow = slowdown_fairness(cluster);
    if (json)
        printf("{\"calls\":%.0f,\"seconds\":%.2f,\"calls_per_s\":%.0f,\"grants_per_s\":%.0f,\"requests_per_"
               "s\":%.0f,"
               "\"call_ms\":{\"p50\":%.3f,\"p99\":%.3f},\"queue\":{\"mean\":%.1f,\"max\":%.0f},"
               "\"utilisation\":%.4f,"
               "\"fragmentation\":%.4f,\"jain_gpus\":%.4f,\"jain_slowdown\":%.4f",
               calls, spent, calls / spent, cluster->n_jobs / spent, (double)figures->handled / spent, p50,
               p99, queue, longest, utilised, unfit, shares, slow);
    else
        printf("decisions: %.0f calls in %.1f s of processor time: %.0f a second (%.0f grants, %.0f requests "
               "looked at a second); one takes "
               "%.2f ms (p50), %.2f ms (p99)\nqueue: %.0f requests on average, %.0f at most\nutilisation "
               "%.1f %%, "
               "fragmentation %.1f %% of what is free, Jain's index of GPUs %.3f, of slowdowns %.3f\n",
               calls, spent, calls / spent, cluster->n_jobs / spent, (double)figures->handled / spent, p50,
               p99, queue, longest, utilised * 100, unfit * 100, shares, slow);
    print_waits(cluster, json);
    if (json)
        printf("}\n");
}
