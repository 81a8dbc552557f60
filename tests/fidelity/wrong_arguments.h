/* wrong_arguments.h - what the calls of wrong_arguments.c get, and their groups (wrong_memory.c, wrong_objects.c). */
#ifndef TESTS_FIDELITY_WRONG_ARGUMENTS_H
#define TESTS_FIDELITY_WRONG_ARGUMENTS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { SIZE = 1 << 16 };

/* Of context A, where they do not say otherwise. Made once: what calls make ends at once. */
extern struct objects {
    CUcontext a, b;
    CUstream stream, ended_stream, stream_of_b;
    CUevent event, untimed, fresh, ended_event, event_of_b;
    CUdeviceptr memory, pitched, managed, memory_of_b;
    void *locked, *registered, *pageable;
    CUmodule module, module_of_b;
    CUfunction function, function_of_b;
    CUlibrary loaded;
    CUkernel kernel;
    CUarray array, level, ended_array;
    CUmipmappedArray mipmap;
    CUmemoryPool pool;
} of;

/** A number below `n`. */
uint32_t choose(uint32_t n);
/** Whether something of the next call's is to be wrong, with that probability. */
bool wrongly(uint32_t one_in);
/** Adds to what is said of the next call's arguments. */
void say(const char *what);
void tell(const char *call, CUresult result);

CUstream a_stream(void);
CUevent an_event(void);
CUdeviceptr an_address(void);
void *a_host_address(void);
size_t a_size(void);
size_t a_copied_size(void);
unsigned flags(void);
int a_number(void);
void *or_null(void *place);
CUfunction a_function(void);
CUarray an_array(void);
CUcontext a_context(void);
CUmodule a_module(void);
const char *a_name(void);

/** Each makes one call. */
void wrong_memory_call(void);
void wrong_copy(void);
void wrong_stream_call(void);
void wrong_event_call(void);
void wrong_context_call(void);
void wrong_module_call(void);
void wrong_launch(void);
void wrong_array_call(void);
void wrong_graph_call(void);

enum { N_WRONG_GROUPS = 9 };
static void (*const wrong_calls[N_WRONG_GROUPS])(void) = {
    wrong_memory_call, wrong_copy,   wrong_stream_call, wrong_event_call, wrong_context_call,
    wrong_module_call, wrong_launch, wrong_array_call,  wrong_graph_call};

#define TELL(call, ...) tell(#call, call(__VA_ARGS__))

#endif
