/*
 * harness.h - runs pieces of PTX through the compiler, one thread or a block at a time, without an engine.
 */
#ifndef SG_TEST_COMPILER_HARNESS_H
#define SG_TEST_COMPILER_HARNESS_H

#include "softgpu/compiler/compiler.h"

#include <string.h>

#define IN(...) ((uint64_t[8]){__VA_ARGS__})

/**
 * Runs `body` in a kernel of one thread. Before it, in[0..7] are in %rd1…8 (64 bits), %r1…8, %f1…8, %h1…8
 * (their low bits) and %fd1…8; %p1…8 say whether they are not zero. After it %rd0, %r0, %f0, %h0, %fd0 and
 * %p0 (as 0 or 1) are stored, and what the caller wants is picked by the suffix. Fails the test with the
 * compiler's log if `body` does not compile.
 */
uint64_t run_b64(const char *body, const uint64_t in[8]);
uint32_t run_b32(const char *body, const uint64_t in[8]);
uint16_t run_b16(const char *body, const uint64_t in[8]);
uint32_t run_f32(const char *body, const uint64_t in[8]); /* bits */
uint64_t run_f64(const char *body, const uint64_t in[8]); /* bits */
int run_pred(const char *body, const uint64_t in[8]);

/** A program out of PTX text without its header, which is added; fails the test if it does not compile. */
struct sg_program *program_of(const char *text);
/** A program out of a file of PTX, with memory for its variables; fails the test if it does not compile. */
struct sg_program *program_of_file(const char *path);
/** Gives every variable memory, initialises. */
void place_variables(struct sg_program *program);
void *variable_address(struct sg_program *program, const char *name);
/** Runs kernel 0 in block form, `threads` threads in x, on `params`. */
void run_block(struct sg_program *program, uint32_t threads, const void *params);
struct sg_fault_report;
/** Of a name; fails the test if there is none. */
size_t kernel_index(struct sg_program *program, const char *name);
/** Runs a kernel through the engine, whatever its form: the fault, 0 for none. `report` may be NULL. */
int run_kernel(struct sg_program *program, size_t index, const uint32_t grid[3], const uint32_t block[3],
               const void *params, struct sg_fault_report *report);
/** The same of kernel 0, in one dimension. */
int run_grid(struct sg_program *program, uint32_t blocks, uint32_t threads, const void *params);
/** The same of text, as program_of takes it: in block form, or without a fault. */
void run_block_of(const char *text, uint32_t threads, const void *params);
void run_grid_of(const char *text, uint32_t blocks, uint32_t threads, const void *params);
#define PARAMS(...) ((const void *[]){__VA_ARGS__}) /* of a kernel whose parameters are pointers */
void free_program(struct sg_program *program);

/** The log of text that must not compile (header added: the text's first line is line 4). */
const char *log_of(const char *text, enum sg_compile_status expected);
/** The same for one instruction in a kernel that declares the registers above, on line 11. */
const char *log_of_insn(const char *insn);
/** The same for one that is not known, with which the module loads, and the kernel alone is refused. */
const char *log_of_unknown_insn(const char *insn);

uint32_t f32_bits(float value);
uint64_t f64_bits(double value);

#endif
