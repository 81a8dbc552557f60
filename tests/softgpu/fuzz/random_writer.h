/*
 * random_writer.h - what writes a random kernel: internal to the random_*.c files.
 */
#ifndef SG_TEST_RANDOM_WRITER_H
#define SG_TEST_RANDOM_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define R  10u /* registers of 32 bits, %r0… */
#define RD 6u
#define H  6u
#define F  6u
#define FD 4u
#define P  5u

struct writer {
    FILE *file;
    uint64_t state;
    uint32_t labels, depth, threads;
    bool uniform; /* all threads of the block are here */
    bool in_function;
    bool alone; /* of a kernel: threads never meet, there are no loops, and it is short */
};

static inline uint32_t random_next(struct writer *w, uint32_t below)
{
    w->state ^= w->state << 13;
    w->state ^= w->state >> 7;
    w->state ^= w->state << 17;
    return (uint32_t)((w->state >> 20) % below);
}

/* random_values.c: instructions, and the other statements that each thread carries out by itself */
/** A number; now and then one at which arithmetic changes its mind. */
uint32_t random_number(struct writer *w);
void random_instruction(struct writer *w);
void random_move_of_bits(struct writer *w);
void random_own_memory(struct writer *w);

/* random_meetings.c: statements to which all threads of the block come */
void random_shared_memory(struct writer *w);
void random_warp_operation(struct writer *w);

/* random_flow.c: what decides which statements a thread comes to, and how often */
void random_statements(struct writer *w, uint32_t count);
/** A branch by the thread's place. */
void random_test_of_place(struct writer *w);

#endif
