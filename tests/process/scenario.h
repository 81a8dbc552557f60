/*
 * scenario.h - programs that do to a process what applications do, with CUDA in it, and print what comes of it.
 *
 * A program has a table of scenarios; its argument names one. What is printed is the same on every driver.
 */
#ifndef TESTS_PROCESS_SCENARIO_H
#define TESTS_PROCESS_SCENARIO_H

#include <cuda.h>
#include <stddef.h>

struct scenario {
    const char *name;
    int (*run)(void); /* the exit status */
};

/** The program's; the last has no name. Its main, which is in scenario.c, runs the one that the command line names, or prints all names (`list`). */
extern const struct scenario scenarios[];

/** Prints a line at once, so that a fork or an abrupt end neither doubles nor loses it. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** Prints the call's text and its result; returns the result. */
#define TRY(call) try_said(#call, (int)(call))
int try_said(const char *text, int result);

/** cuInit, the primary context made current, a module with kernels: ends the program if that fails. */
void device_up(void);
extern CUcontext device_context;

/**
 * Copies to the device, runs a kernel, copies back and compares. 0, or the first error, or -1 where the data is wrong.
 * Any thread; it makes the context current.
 */
int device_work(unsigned seed);

/** The calls that a process makes which must not use CUDA; prints their results. */
void calls_without_device(void);

/** Waits for a child and prints how it ended. */
void say_child(const char *what, int pid);

/** The path of this program. */
extern const char *program_path;

#endif
