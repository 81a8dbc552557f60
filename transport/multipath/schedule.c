/*
 * schedule.c - which channel carries which piece: faster ones get more, by rates that are measured as they
 * send.
 *
 * Nothing can fail. Threads: the fanout's lock is held.
 */
#include "transport/multipath/fanout.h"

enum {
    MEASURED_BYTES = 2 << 20, /* a channel, over which rates of channels are measured */
    SLOWEST = 16,             /* a channel counts as at least this part of the fastest */
};

/* Seconds that a piece takes by each channel. */
static void times(const struct rg_fanout *f, unsigned n, double *takes)
{
    double fastest = 1;
    for (unsigned i = 0; i < n; i++)
        if (!f->channels[i]->dropped && f->channels[i]->rate > fastest)
            fastest = f->channels[i]->rate;
    for (unsigned i = 0; i < n; i++) {
        const double rate = f->channels[i]->rate;
        takes[i] = RG_PIECE / (rate <= 0 ? fastest : rate < fastest / SLOWEST ? fastest / SLOWEST : rate);
    }
}

uint64_t rg_fanout_schedule(struct rg_fanout *f, uint64_t number, size_t size)
{
    const unsigned n_channels = atomic_load(&f->n_channels), active = atomic_load(&f->active);
    const unsigned n = active < n_channels ? active : n_channels;
    struct rg_channel *const *channels = f->channels;
    double takes[RG_FANOUT_CHANNELS], first = 1e9;
    uint64_t route = 0;
    times(f, n, takes);
    for (unsigned piece = 0; piece * (size_t)RG_PIECE < size; piece++) {
        unsigned best = (unsigned)(number % n);
        while (channels[best]->dropped)
            best = (best + 1) % n;
        for (unsigned i = 0; i < n; i++)
            if (!channels[i]->dropped && channels[i]->due + takes[i] < channels[best]->due + takes[best])
                best = i;
        channels[best]->due += takes[best];
        route |= (uint64_t)best << (4 * piece);
    }
    for (unsigned i = 0; i < n; i++)
        first = !channels[i]->dropped && channels[i]->due < first ? channels[i]->due : first;
    for (unsigned i = 0; i < n; i++) { /* none is held back for long by what it once was */
        channels[i]->due -= first;
        if (channels[i]->due > SLOWEST * takes[i])
            channels[i]->due = SLOWEST * takes[i];
    }
    return f->kind->arrange ? f->kind->arrange(route, number, size) : route;
}

/*
 * A channel that was done early counts as twice as fast at most: what a buffer takes at once says little
 * about the link.
 */
void rg_fanout_rate(struct rg_fanout *f, size_t size, uint64_t ns)
{
    const unsigned n = atomic_load(&f->n_channels);
    f->measured += size;
    f->measured_ns += ns;
    if (f->measured < n * (uint64_t)MEASURED_BYTES)
        return;
    for (unsigned i = 0; i < n; i++) {
        struct rg_channel *channel = f->channels[i];
        const uint64_t took = channel->ns > f->measured_ns / 2 ? channel->ns : f->measured_ns / 2;
        const double rate = (double)channel->sent * 1e9 / (double)(took ? took : 1);
        if (!channel->sent)
            channel->rate += channel->rate / 4; /* it is tried again in time */
        else
            channel->rate = channel->rate > 0 ? (channel->rate + rate) / 2 : rate;
        channel->sent = channel->ns = 0;
    }
    f->measured = f->measured_ns = 0;
}
