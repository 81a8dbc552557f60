/*
 * ptx.c - the PTX front end of the software device: parser, checks and analyses of a whole module, which take or
 * refuse it. What is taken has kernels and variables that can be asked about, and initial values that can be written.
 * Code is not generated
 * (tests/softgpu/fuzz does that now and then).
 */
#include "softgpu/compiler/base/support.h"
#include "softgpu/compiler/compiler.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/softgpu/fuzz/random_ptx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLACES_MAX (1u << 20) /* bytes of variables that are placed */

/* Where variables are: at its end, so that what is written behind the last one is found. Made once, as that takes long. */
static unsigned char *places;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    setenv("SOFTGPU_CACHE", "off", 1);
    places = malloc(PLACES_MAX);
    CHECK(places);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sg_text log = {0};
    struct sg_program *program;
    const enum sg_compile_status status = sg_program_create((const char *)data, size, 120, &log, &program);
    if (status != SG_COMPILE_OK) {
        CHECK(log.size > 0);
        sg_text_fini(&log);
        return 0;
    }
    uint64_t bytes = 0;
    const struct sg_variable *variable;
    for (size_t i = 0; (variable = sg_program_variable(program, i)); i++) {
        CHECK(variable->name && variable->align && (variable->align & (variable->align - 1)) == 0);
        bytes = variable->size < PLACES_MAX ? bytes + variable->size + variable->align : PLACES_MAX + 1;
        if (bytes > PLACES_MAX)
            break;
    }
    if (bytes <= PLACES_MAX) {
        unsigned char *at = places + PLACES_MAX - bytes, *end = places + PLACES_MAX;
        bool placed = true;
        for (size_t i = 0; (variable = sg_program_variable(program, i)); i++) {
            at += -(uintptr_t)at & (variable->align - 1);
            placed = placed && variable->size <= (size_t)(end - at);
            if (!placed)
                break;
            sg_program_place(program, i, at);
            at += variable->size;
        }
        if (placed)
            (void)sg_program_initialise(program, true, &log);
    }
    const struct sg_kernel *kernel;
    for (size_t i = 0; (kernel = sg_program_kernel(program, i)); i++)
        for (uint32_t k = 0; k < kernel->n_params; k++)
            CHECK(kernel->params[k].offset + kernel->params[k].size <= kernel->params_size);
    sg_program_destroy(program);
    sg_text_fini(&log);
    return 0;
}

/* --- seeds ------------------------------------------------------------------------------------------------- */

#define HEAD ".version 8.7\n.target sm_90\n.address_size 64\n"

static const char *const texts[] = {
    HEAD ".global .align 8 .u64 table[4] = {generic(first), first+4, 0xff(first), f};\n"
         ".global .align 4 .u32 first = 077U;\n"
         ".visible .const .align 4 .f32 numbers[3] = {0f3F800000, 1.5e3, -0d3FF0000000000000};\n"
         ".weak .global .attribute(.managed) .b8 managed[16];\n"
         ".common .global .v4 .f32 four;\n"
         ".extern .shared .align 16 .b8 dynamic[];\n"
         ".visible .func f(.reg .u32 x) { ret; }\n",
    HEAD
    ".func (.param .align 8 .b8 result[16]) g(.param .b64 x, .reg .f32 y) { ret; }\n"
    ".visible .entry k(.param .u64 .ptr .global .align 8 x, .param .b8 y[8]) .maxntid 32, 2 .minnctapersm 1\n"
    "{\n.reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .f32 %f<4>; .reg .pred %p<2>;\n"
    ".loc 1 3 4\nld.param.u64 %rd1, [x]; cvta.to.global.u64 %rd2, %rd1;\n"
    "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 5; @%p1 bra L1;\n"
    "ld.global.v2.f32 {%f1, %f2}, [%rd2+8]; fma.rn.f32 %f3, %f1, %f2, 0f3F800000;\n"
    "st.global.f32 [%rd2], %f3; atom.global.add.u32 %r2, [%rd2+4], 1;\n"
    "L1: bar.sync 0; shfl.sync.idx.b32 %r3|%p1, %r1, 0, 31, -1; vote.sync.ballot.b32 %r4, %p1, -1;\n"
    "{ .param .b64 a; st.param.b64 [a], %rd1; .param .align 8 .b8 r[16]; call.uni (r), g, (a, %f1); }\n"
    "ts: .branchtargets L2, L3;\nbrx.idx %r1, ts;\nL2: L3: ret;\n}\n",
    HEAD
    ".global .texref t;\n.global .samplerref s;\n.global .surfref u;\n.visible .entry k() {\n"
    ".reg .b64 %rd<2>; .reg .f32 %f<6>; .reg .b32 %r<6>;\n"
    "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [t, {%f0, %f1}];\n"
    "suld.b.1d.b32.trap {%r1}, [u, {%r2}];\ntxq.width.b32 %r3, [t];\n"
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, "
    "{%f0,%f1,%f2,%f3};\nvadd4.s32.s32.s32.sat %r0, %r1, %r2, %r3;\nret;\n}\n",
};

void fuzz_seeds(void)
{
    char name[32];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        snprintf(name, sizeof name, "text-%zu", i);
        fuzz_seed(name, texts[i], strlen(texts[i]));
    }
    for (unsigned i = 0; i < 6; i += 5) {
        char *text = random_ptx(i, 64);
        snprintf(name, sizeof name, "random-%u", i);
        fuzz_seed(name, text, strlen(text));
        free(text);
    }
}
