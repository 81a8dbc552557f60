/*
 * rounds.h - PTX like that of hash kernels: unrolled rounds, thousands of instructions without a branch.
 */
#ifndef SG_TEST_COMPILER_ROUNDS_H
#define SG_TEST_COMPILER_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>

/** Threads that the kernel is for. */
#define ROUNDS_THREADS 64
/** Words that each thread writes: its integers, and the bits of its floats. */
#define ROUNDS_WORDS 8

/**
 * The text, without its header, of a kernel `k(.param .u64 out)` with some 25 instructions a round; out has ROUNDS_WORDS words a
 * thread. `meets`: threads exchange words through shared memory now and then, at barriers. To be freed.
 */
char *rounds_text(unsigned rounds, bool meets);
/** What it writes to the first four words of a thread, if threads do not meet. */
void rounds_expected(unsigned rounds, uint32_t thread, uint32_t out[4]);

#endif
