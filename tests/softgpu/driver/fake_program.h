/*
 * fake_program.h - stands in for the compiler in tests of the driver: kernels are written in C.
 *
 * The "PTX" it takes is the outer shape of a module: `.visible .entry NAME(` with `.param .u64 …` lines, and
 * `.visible .global .align A .b8 NAME[SIZE];`. A kernel runs the C function registered under its name. An
 * unknown directive `.bad` makes the text invalid.
 */
#ifndef TESTS_SOFTGPU_DRIVER_FAKE_PROGRAM_H
#define TESTS_SOFTGPU_DRIVER_FAKE_PROGRAM_H

#include "softgpu/compiler/compiler.h"

struct fake_kernel {
    const char *name;
    sg_block_code code;
};
/** Ended by a NULL name; defined by the test. */
extern const struct fake_kernel fake_kernels[];

/** The address a variable of the program that was placed last got, or 0. */
uint64_t fake_variable_address(const char *name);

#endif
