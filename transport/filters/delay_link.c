/* delay_link.c - see delay_link.h. */
#include "transport/filters/delay_link.h"

#include "common/base/clock.h"
#include "common/base/parse.h"
#include "common/sync/scoped_lock.h"
#include "transport/filters/option.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    FRAME_BYTES = 16,
    /* what a socket takes beyond what has left: so many bytes, but on slow links only what leaves in so many ns */
    UNSENT_BYTES = 1 << 20,
    UNSENT_NS = 1000000,
    SPARSE_BYTES = 16 << 10, /* messages that overtake the data of other connections */
};

/* What all connections of this process with the same options share; there is one where they have a bandwidth. */
struct rg_delay_link {
    struct rg_delay_link *next;
    char *options;
    unsigned users;
    uint64_t free_ns[2]; /* when the last byte so far has left, out and in */
};

static pthread_mutex_t links_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_delay_link *links; /* links_lock, with all that is in them */

enum rg_status rg_delay_options_read(const char *text, struct rg_delay_options *out, char *why,
                                     size_t why_size)
{
    struct rg_delay_options options = {0};
    struct rg_filter_option option;
    enum rg_status status;
    for (const char *cur = text; rg_filter_option_next(&cur, &option, &status, why, why_size);) {
        if (strcmp(option.key, "oneway") == 0) {
            status = rg_parse_duration(option.value, &options.oneway_ns, why, why_size);
        } else if (strcmp(option.key, "bandwidth") == 0) {
            status = rg_parse_bandwidth(option.value, &options.bytes_per_second, why, why_size);
        } else if (strcmp(option.key, "flow") == 0) {
            status = rg_parse_bandwidth(option.value, &options.flow_per_second, why, why_size);
        } else {
            rg_explain(why, why_size, "there is no option '%s' (oneway, bandwidth, flow)", option.key);
            status = RG_ERR_INVALID;
        }
        if (status != RG_OK)
            return status;
    }
    if (status == RG_OK && options.oneway_ns > 60ull * 1000000000u) {
        rg_explain(why, why_size, "oneway is more than a minute");
        status = RG_ERR_INVALID;
    }
    if (status == RG_OK)
        *out = options;
    return status;
}

static struct rg_delay_link *find_link(const char *options)
{
    for (struct rg_delay_link *link = links; link; link = link->next)
        if (strcmp(link->options, options) == 0)
            return link;
    return NULL;
}

struct rg_delay_link *rg_delay_link_join(const char *options)
{
    RG_SCOPED_LOCK(&links_lock);
    struct rg_delay_link *link = find_link(options);
    if (!link && (link = calloc(1, sizeof *link))) {
        link->options = strdup(options);
        link->next = links;
        if (link->options)
            links = link;
        else
            free(link), link = NULL;
    }
    if (link)
        link->users++;
    return link;
}

void rg_delay_link_leave(struct rg_delay_link *link)
{
    if (!link)
        return;
    RG_SCOPED_LOCK(&links_lock);
    if (--link->users == 0) {
        struct rg_delay_link **at = &links;
        while (*at != link)
            at = &(*at)->next;
        *at = link->next;
        free(link->options);
        free(link);
    }
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t time_for(uint64_t size, uint64_t bytes_per_second)
{
    return bytes_per_second ? (uint64_t)((unsigned __int128)size * 1000000000u / bytes_per_second) : 0;
}

/* How far a send may be ahead of the link. */
static uint64_t unsent_time(uint64_t bytes_per_second)
{
    const uint64_t most = time_for(UNSENT_BYTES, bytes_per_second),
                   least = time_for(RG_DELAY_UNSENT_LEAST, bytes_per_second);
    return most < UNSENT_NS ? most : later(least, UNSENT_NS);
}

uint64_t rg_delay_departure(struct rg_delay_link *link, struct rg_delay_flow *flow,
                            const struct rg_delay_options *options, enum rg_delay_direction direction,
                            uint64_t size, uint64_t *go_on)
{
    const uint64_t now = rg_now_ns();
    size += FRAME_BYTES;
    const bool sparse = flow->free_ns <= now && size <= SPARSE_BYTES;
    uint64_t left = later(flow->free_ns, now) + time_for(size, options->flow_per_second);
    uint64_t slack = options->flow_per_second ? unsent_time(options->flow_per_second) : UINT64_MAX;
    if (link) {
        const uint64_t cost = time_for(size, options->bytes_per_second);
        pthread_mutex_lock(&links_lock);
        uint64_t *free_ns = &link->free_ns[direction];
        *free_ns = later(*free_ns, now) + cost;
        left = later(left, sparse ? now + cost : *free_ns);
        pthread_mutex_unlock(&links_lock);
        const uint64_t link_slack = unsent_time(options->bytes_per_second);
        slack = link_slack < slack ? link_slack : slack;
    }
    flow->free_ns = later(flow->free_ns, left);
    *go_on = left > slack ? left - slack : 0;
    return left;
}
