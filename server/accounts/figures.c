/* figures.c - see figures.h. */
#include "server/accounts/figures.h"

#define SECOND 1000000000ull
#define HOUR   (3600 * SECOND)

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* a * b / c without an intermediate overflow, at most UINT64_MAX. */
static uint64_t scaled(uint64_t a, uint64_t b, uint64_t c)
{
    const unsigned __int128 result = (unsigned __int128)a * b / c;
    return result > UINT64_MAX ? UINT64_MAX : (uint64_t)result;
}

/* How much a counter that can only grow has grown beyond what is accounted, believing it up to `most`. */
static uint64_t grown(uint64_t said, uint64_t most, uint64_t accounted)
{
    const uint64_t believed = least(said, most);
    return believed > accounted ? believed - accounted : 0;
}

void rg_figures_add(struct rg_figures *to, const struct rg_figures *more)
{
    to->held_ns = sum(to->held_ns, more->held_ns);
    to->busy_ns = sum(to->busy_ns, more->busy_ns);
    to->byte_seconds = sum(to->byte_seconds, more->byte_seconds);
    to->bytes_in = sum(to->bytes_in, more->bytes_in);
    to->bytes_out = sum(to->bytes_out, more->bytes_out);
    to->launches = sum(to->launches, more->launches);
    if (more->peak_bytes > to->peak_bytes)
        to->peak_bytes = more->peak_bytes;
}

/* What was added in `elapsed` ns; the meter's total has it afterwards. */
static struct rg_figures measure(struct rg_usage_meter *meter, const struct rg_figures_sample *sample,
                                 uint64_t elapsed, uint64_t age)
{
    const struct rg_figures *total = &meter->total;
    const uint64_t used = least(sample->used_bytes, sample->capacity_bytes);
    const uint64_t memory = sample->granted_bytes ? sample->granted_bytes : used;
    const unsigned __int128 byte_ns = (unsigned __int128)memory * elapsed + meter->byte_ns;
    const unsigned __int128 byte_seconds = byte_ns / SECOND;
    struct rg_figures more = {0};
    more.held_ns = scaled(elapsed, sample->n_devices, 1);
    more.byte_seconds = byte_seconds > UINT64_MAX ? UINT64_MAX : (uint64_t)byte_seconds;
    meter->byte_ns = (uint64_t)(byte_ns % SECOND);
    more.busy_ns = grown(sample->busy_ns, sum(total->held_ns, more.held_ns), total->busy_ns);
    /* a session that ends at once has moved bytes all the same: a second more than its age */
    const uint64_t bytes = scaled(sum(age, SECOND), RG_FIGURES_BYTES_PER_S, SECOND);
    more.bytes_in = grown(sample->bytes_in, bytes, total->bytes_in);
    more.bytes_out = grown(sample->bytes_out, bytes, total->bytes_out);
    more.launches =
        grown(sample->launches, scaled(sum(age, SECOND), RG_FIGURES_LAUNCHES_PER_S, SECOND), total->launches);
    const uint64_t peak = sample->peak_bytes > sample->used_bytes ? sample->peak_bytes : sample->used_bytes;
    more.peak_bytes = least(peak, sample->capacity_bytes);
    rg_figures_add(&meter->total, &more);
    return more;
}

/* Takes part/whole of the times out of `rest`. */
static struct rg_figures cut(struct rg_figures *rest, uint64_t part, uint64_t whole)
{
    struct rg_figures first = {.held_ns = scaled(rest->held_ns, part, whole),
                               .busy_ns = scaled(rest->busy_ns, part, whole),
                               .byte_seconds = scaled(rest->byte_seconds, part, whole)};
    rest->held_ns -= first.held_ns;
    rest->busy_ns -= first.busy_ns;
    rest->byte_seconds -= first.byte_seconds;
    return first;
}

unsigned rg_meter_sample(struct rg_usage_meter *meter, const struct rg_figures_sample *sample,
                         uint64_t now_ns, uint64_t wall_ns, struct rg_figures_slice slices[RG_SLICES_MAX])
{
    const uint64_t elapsed = now_ns > meter->measured_ns ? now_ns - meter->measured_ns : 0;
    const uint64_t age = now_ns > meter->began_ns ? now_ns - meter->began_ns : 0;
    struct rg_figures rest = measure(meter, sample, elapsed, age);
    uint64_t left = elapsed, hours = wall_ns / HOUR - (wall_ns - least(elapsed, wall_ns)) / HOUR;
    unsigned n = 0;
    if (hours >= RG_SLICES_MAX)
        hours = RG_SLICES_MAX - 1;
    for (; hours > 0; hours--) {
        /* until the next full hour; what follows is `behind` long */
        const uint64_t behind = wall_ns - (wall_ns / HOUR - hours + 1) * HOUR;
        slices[n].hour = (rg_hour)(wall_ns / HOUR - hours);
        slices[n++].figures = cut(&rest, left - behind, left);
        left = behind; /* 0 only behind the last */
    }
    slices[n].hour = (rg_hour)(wall_ns / HOUR);
    slices[n++].figures = rest;
    if (now_ns > meter->measured_ns)
        meter->measured_ns = now_ns;
    return n;
}
