/*
 * compiler.h - PTX text to machine code for the host.
 *
 * sg_program_create parses and checks a whole PTX module. An instruction that it does not know is an error of the kernels
 * that need it, which names instruction and line, when their code is asked for; nothing is skipped. Code is generated and
 * optimised a kernel at a time, when the kernel is first asked for. Thread-safe: any thread may ask for code.
 */
#ifndef SG_COMPILER_COMPILER_H
#define SG_COMPILER_COMPILER_H

#include "softgpu/compiler/base/status.h"
#include "softgpu/kernel_abi.h"

#include <stdbool.h>

struct sg_program;

struct sg_param {
    uint32_t offset, size, align;
};

struct sg_kernel {
    const char *name;
    uint32_t n_params;
    const struct sg_param *params;
    uint32_t params_size;
    uint32_t
        shared_static;    /* bytes of static .shared the kernel (and what it calls) uses; dynamic starts here,
                                 aligned to 16 */
    uint32_t local_size;  /* bytes of .local a thread needs, as far as known */
    uint32_t shared_used; /* of which variables take so much */
    uint32_t const_size;  /* bytes of the program's .const variables, which all its kernels see */
    uint32_t max_threads; /* .maxntid product, or 1024 */
    uint32_t required_ntid[3];    /* .reqntid, zeros if none */
    uint32_t required_cluster[3]; /* .reqnctapercluster, zeros if none */
    bool explicit_cluster;    /* .explicitcluster: a launch has to say the shape, unless the kernel does */
    bool blocks_are_clusters; /* .blocksareclusters: launches count clusters where others count blocks */
    enum sg_code_form form;   /* see kernel_abi.h */
    bool prints, allocates;   /* it, or what it calls, uses printf, or the heap */
    bool cooperative;         /* uses grid-wide synchronisation (reads %envreg1/2 or the grid workspace) */
};

/** A module-scope variable in .global or .const space that the driver must place in device memory. */
struct sg_variable {
    const char *name;
    uint64_t size;
    uint32_t align;
    bool constant;     /* .const */
    bool external;     /* .extern: no definition here */
    bool managed;      /* .attribute(.managed): the host addresses it too */
    uint8_t reference; /* enum sg_reference */
    bool visible;      /* .visible / .weak / .common: found by cuModuleGetGlobal */
};

/**
 * Parses and checks `ptx` (`size` bytes without the NUL). On failure `log` tells why ("ptx:LINE: …") and *out
 * is untouched. `capability` is the device's (120 for 12.0).
 */
enum sg_compile_status sg_program_create(const char *ptx, size_t size, uint32_t capability,
                                         struct sg_text *log, struct sg_program **out);
/** With its machine code: no kernel of it may run any more. What was to be compiled better is forgotten. NULL is fine. */
void sg_program_destroy(struct sg_program *program);

struct sg_source {
    const char *ptx;
    size_t size; /* without the NUL */
};
/**
 * The same for several modules that are linked into one program (cuLink, programs built with -rdc=true):
 * .extern names of one are satisfied by .visible and .weak definitions of the others; of several weak
 * definitions the first is taken. What stays .extern is reported as for a single module.
 */
enum sg_compile_status sg_program_link(const struct sg_source *sources, size_t count, uint32_t capability,
                                       struct sg_text *log, struct sg_program **out);

/**
 * The kernel that code knows by `address`, as device code takes it: index for sg_program_kernel and
 * sg_program_code, or SIZE_MAX. Reads only the program.
 */
size_t sg_program_find_kernel(const struct sg_program *program, const void *address);

/** Kernels (.entry) and variables, in order of the text; NULL past the end. Owned by the program. */
const struct sg_kernel *sg_program_kernel(const struct sg_program *program, size_t index);
const struct sg_variable *sg_program_variable(const struct sg_program *program, size_t index);

/**
 * Tells where variable `index` lives: `size` bytes at `address`, all writable by the host. Must be called for
 * every variable before sg_program_initialise and before any code is asked for.
 */
void sg_program_place(struct sg_program *program, size_t index, void *address);
/** Writes initial values (zeros where there are none, addresses resolved) to placed variables, those that are managed only if so told. */
enum sg_compile_status sg_program_initialise(struct sg_program *program, bool managed, struct sg_text *log);

/**
 * The machine code of kernel `index`: of the type that kernel->form says.
 * Compiles on first use. Valid until the program is destroyed.
 */
enum sg_compile_status sg_program_code(struct sg_program *program, size_t index, struct sg_text *log,
                                       void **code);
/** Whether that has been done. */
bool sg_program_has_code(struct sg_program *program, size_t index);
/** Waits until all code that was to take the place of quick code has done so. For tests. */
void sg_program_wait_better(struct sg_program *program);

#endif
