/*
 * measure.h - clocks and samples of the benchmark's programs.
 *
 * A measurement is a series of samples, printed as one line "NAME UNIT SAMPLE SAMPLE …" on stdout; bench/run
 * reads the lines of several rounds and makes medians of them. Units: ns (less is better), B/s and 1/s (more
 * is better).
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SAMPLES_MAX = 100000, IDLE_NS = 500000 /* of computing before a message on an idle wire */ };

struct samples {
    double value[SAMPLES_MAX];
    size_t n;
};

/** Nanoseconds of a clock that never goes back. */
uint64_t now_ns(void);
/** Nanoseconds of processor time that the calling thread has had. */
uint64_t thread_cpu_ns(void);
/** What two calls of now_ns, one right after the other, differ by: the median of many. */
double clock_cost_ns(void);

/** Ends the program where there is no memory. */
void samples_add(struct samples *samples, double value);
/** Prints the line of `name` and forgets the samples. */
void samples_print(struct samples *samples, const char *name, const char *unit);

/** Fills memory with bytes that do not compress and are the same for the same seed. */
void fill_random(void *memory, size_t size, uint64_t seed);
/** Memory whose pages are there; ends the program if there is none. */
void *memory_of_pages(size_t size);

/** When something last came in at another process of the same run. */
struct arrival {
    _Atomic uint64_t count;
    _Atomic uint64_t time_ns; /* of the last one, by now_ns */
};
/** In the file that BENCH_ARRIVAL names, which is made if it is not there; NULL if the variable is not set. */
struct arrival *shared_arrival(void);
/** Called at once by who receives. */
void arrival_note(struct arrival *arrival);
/** Computes, without any call, until something has come in after `count` others; returns when it did. */
uint64_t arrival_await(const struct arrival *arrival, uint64_t count);
/** Computes for so long. */
void compute_for(uint64_t ns);

/** Says "ready" on stdout and waits until stdin ends: for others to look at this process meanwhile. */
void wait_for_end_of_input(void);

/** Receives `size` bytes. False: the other end has closed the connection. */
bool receive(int fd, void *to, size_t size);

/** Says what is wrong on stderr and ends the program with status 1. */
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
