/*
 * figures.h - what is counted of a session, and how it is measured without believing its worker or the wall clock.
 *
 * Times are measured by the monotonic clock; the wall clock says only to which hour they belong, so one that jumps moves figures
 * to another hour and never makes them negative or larger. A worker writes its own counters and may lie: what it says is bounded by
 * what the monitor measured itself (busy by held time, memory by what was granted) or by what no machine can exceed. Pure
 * functions on what they are given; any thread.
 */
#ifndef RG_SERVER_ACCOUNTS_FIGURES_H
#define RG_SERVER_ACCOUNTS_FIGURES_H

#include <stdbool.h>
#include <stdint.h>

/** Of a session, or of a part of it. */
struct rg_figures {
    uint64_t held_ns;      /* time for which GPUs were held, times their number */
    uint64_t busy_ns;      /* time in which they worked for it, summed likewise; at most held_ns */
    uint64_t byte_seconds; /* memory that was granted, or, without a limit, used; times the time */
    uint64_t bytes_in;     /* moved from the client to GPUs */
    uint64_t bytes_out;    /* and back */
    uint64_t launches;     /* of kernels, and of graphs that the driver launches whole */
    uint64_t peak_bytes;   /* of memory used at once, on all its GPUs together */
};

/** What a worker says of itself, counted since its start; and what the monitor knows of the session. */
struct rg_figures_sample {
    uint64_t busy_ns, bytes_in, bytes_out, launches;
    uint64_t used_bytes, peak_bytes;
    uint32_t n_devices;      /* that it holds */
    uint64_t granted_bytes;  /* on all of them together; 0: without a limit */
    uint64_t capacity_bytes; /* of these devices: nothing can use more */
};

/** One session's measurement. Begins as RG_METER_INIT with the time when the session began. */
struct rg_usage_meter {
    uint64_t measured_ns;    /* until when, rg_now_ns() */
    struct rg_figures total; /* of the whole session */
    uint64_t byte_ns;        /* of the next byte-second: byte * ns below 10^9 */
    uint64_t began_ns;
};

#define RG_METER_INIT(now_ns) ((struct rg_usage_meter){.measured_ns = (now_ns), .began_ns = (now_ns)})

/* More than any machine does in a second: what exceeds it is a worker's invention. */
#define RG_FIGURES_BYTES_PER_S    (1ull << 42)
#define RG_FIGURES_LAUNCHES_PER_S 100000000ull

/** Hours since 1970. */
typedef int64_t rg_hour;

/** A part of a session that lies in one hour. */
struct rg_figures_slice {
    rg_hour hour;
    struct rg_figures figures;
};

/* A monitor that was stopped for longer has the rest in the first of them. */
enum { RG_SLICES_MAX = 25 };

/**
 * Measures what was added since the last time, cut at the hours of the wall clock, which says `wall_ns` since 1970 now. Returns how
 * many slices, in their order; the last is of the present hour. Times are divided in proportion, counts belong to the last slice.
 */
unsigned rg_meter_sample(struct rg_usage_meter *meter, const struct rg_figures_sample *sample,
                         uint64_t now_ns, uint64_t wall_ns, struct rg_figures_slice slices[RG_SLICES_MAX]);
/** Adds; sums stay at the largest number rather than begin anew, and a peak is the larger of both. */
void rg_figures_add(struct rg_figures *to, const struct rg_figures *more);

#endif
