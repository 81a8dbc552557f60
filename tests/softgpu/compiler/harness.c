/*
 * harness.c - see harness.h.
 */
#include "tests/softgpu/compiler/harness.h"
#include "softgpu/exec/exec.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define HEADER        ".version 8.7\n.target sm_90\n.address_size 64\n"
#define MAX_VARIABLES 64

static void *memory_of[MAX_VARIABLES];

/* What is tried is the compiler, not what it left behind. */
__attribute__((constructor)) static void without_cache(void)
{
    setenv("SOFTGPU_CACHE", "off", 1);
}

uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

uint64_t f64_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

struct sg_program *program_of(const char *text)
{
    struct sg_program *program = NULL;
    struct sg_text log = {0};
    char *whole = NULL;
    int size = asprintf(&whole, HEADER "%s", text);
    enum sg_compile_status status = sg_program_create(whole, (size_t)size, 120, &log, &program);
    cr_assert_eq(status, SG_COMPILE_OK, "status %d: %s", status, log.data == NULL ? "" : log.data);
    sg_text_fini(&log);
    free(whole);
    return program;
}

void place_variables(struct sg_program *program)
{
    struct sg_text log = {0};
    const struct sg_variable *variable;
    for (size_t i = 0; (variable = sg_program_variable(program, i)) != NULL && i < MAX_VARIABLES; i++) {
        memory_of[i] = aligned_alloc(256, (variable->size / 256 + 1) * 256);
        sg_program_place(program, i, memory_of[i]);
    }
    cr_assert_eq(sg_program_initialise(program, true, &log), SG_COMPILE_OK, "%s",
                 log.data == NULL ? "" : log.data);
    sg_text_fini(&log);
}

struct sg_program *program_of_file(const char *path)
{
    struct sg_program *program = NULL;
    struct sg_text log = {0};
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    char *text = malloc(1 << 22);
    size_t size = fread(text, 1, 1 << 22, file);
    fclose(file);
    cr_assert_eq(sg_program_create(text, size, 120, &log, &program), SG_COMPILE_OK, "%s", log.data);
    free(text);
    sg_text_fini(&log);
    place_variables(program);
    return program;
}

void *variable_address(struct sg_program *program, const char *name)
{
    const struct sg_variable *variable;
    for (size_t i = 0; (variable = sg_program_variable(program, i)) != NULL; i++)
        if (strcmp(variable->name, name) == 0)
            return memory_of[i];
    cr_assert_fail("no variable %s", name);
    return NULL;
}

void free_program(struct sg_program *program)
{
    for (size_t i = 0; i < MAX_VARIABLES; i++) {
        free(memory_of[i]);
        memory_of[i] = NULL;
    }
    sg_program_destroy(program);
}

static void *code_of(struct sg_program *program, size_t index)
{
    struct sg_text log = {0};
    void *code = NULL;
    enum sg_compile_status status = sg_program_code(program, index, &log, &code);
    cr_assert_eq(status, SG_COMPILE_OK, "%s: status %d: %s", sg_program_kernel(program, index)->name, status,
                 log.data == NULL ? "" : log.data);
    sg_text_fini(&log);
    return code;
}

void run_block(struct sg_program *program, uint32_t threads, const void *params)
{
    static _Alignas(1024) unsigned char shared[65536];
    struct sg_block block = {.ntid = {threads, 1, 1},
                             .nctaid = {1, 1, 1},
                             .n_threads = threads,
                             .shared = shared,
                             .shared_total = sizeof(shared),
                             .n_sm = 1};
    _Alignas(16) unsigned char copy[4096] = {0};
    const struct sg_kernel *kernel = sg_program_kernel(program, 0);
    cr_assert_eq(kernel->form, SG_CODE_BLOCK, "the kernel is not in block form");
    memcpy(copy, params, kernel->params_size);
    block.shared_static = kernel->shared_static;
    sg_block_code code;
    void *address = code_of(program, 0);
    memcpy(&code, &address, sizeof(code));
    code(&block, copy);
}

size_t kernel_index(struct sg_program *program, const char *name)
{
    const struct sg_kernel *kernel;
    for (size_t i = 0; (kernel = sg_program_kernel(program, i)) != NULL; i++)
        if (strcmp(kernel->name, name) == 0)
            return i;
    cr_assert_fail("no kernel %s", name);
    return SIZE_MAX;
}

int run_kernel(struct sg_program *program, size_t index, const uint32_t grid[3], const uint32_t block[3],
               const void *params, struct sg_fault_report *report)
{
    const struct sg_kernel *kernel = sg_program_kernel(program, index);
    struct sg_fault_report unread;
    struct sg_launch launch = {
        .kernel_name = kernel->name,
        .code = code_of(program, index),
        .form = kernel->form,
        .cooperative = kernel->cooperative,
        .grid = {grid[0], grid[1], grid[2]},
        .block = {block[0], block[1], block[2]},
        .params = params,
        .params_size = kernel->params_size,
        .shared_static = kernel->shared_static,
        .shared_dynamic = 1024,
        .stack_size = kernel->local_size,
    };
    return (int)sg_exec_run(&launch, report != NULL ? report : &unread);
}

int run_grid(struct sg_program *program, uint32_t blocks, uint32_t threads, const void *params)
{
    return run_kernel(program, 0, (uint32_t[3]){blocks, 1, 1}, (uint32_t[3]){threads, 1, 1}, params, NULL);
}

void run_block_of(const char *text, uint32_t threads, const void *params)
{
    struct sg_program *program = program_of(text);
    run_block(program, threads, params);
    free_program(program);
}

void run_grid_of(const char *text, uint32_t blocks, uint32_t threads, const void *params)
{
    struct sg_program *program = program_of(text);
    cr_assert_eq(run_grid(program, blocks, threads, params), 0, "%s", text);
    free_program(program);
}

struct results {
    uint64_t rd;
    uint64_t fd;
    uint32_t r, f;
    uint16_t h;
    uint16_t pad;
    uint32_t p;
};

static const char registers[] =
    ".reg .b64 %rd<10>, %a<4>;\n.reg .b32 %r<10>;\n.reg .f32 %f<10>;\n.reg .f64 %fd<10>;\n"
    ".reg .b16 %h<10>;\n.reg .pred %p<10>;\n";

static struct results run(const char *body, const uint64_t in[8])
{
    struct results results = {0};
    char *text = malloc(16384);
    int at = sprintf(text, ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n%s", registers);
    at += sprintf(text + at, "ld.param.u64 %%a1, [in];\nld.param.u64 %%a2, [out];\n");
    for (int i = 1; i <= 8; i++)
        at += sprintf(text + at,
                      "ld.global.b64 %%rd%d, [%%a1+%d];\nld.global.b32 %%r%d, [%%a1+%d];\nld.global.f32 "
                      "%%f%d, [%%a1+%d];\n"
                      "ld.global.f64 %%fd%d, [%%a1+%d];\nld.global.b16 %%h%d, [%%a1+%d];\nsetp.ne.b64 %%p%d, "
                      "%%rd%d, 0;\n",
                      i, i * 8 - 8, i, i * 8 - 8, i, i * 8 - 8, i, i * 8 - 8, i, i * 8 - 8, i, i);
    at += sprintf(text + at, "%s\n", body);
    sprintf(text + at,
            "st.global.b64 [%%a2], %%rd0;\nst.global.f64 [%%a2+8], %%fd0;\nst.global.b32 [%%a2+16], %%r0;\n"
            "st.global.f32 [%%a2+20], %%f0;\nst.global.b16 [%%a2+24], %%h0;\nselp.b32 %%r9, 1, 0, %%p0;\n"
            "st.global.b32 [%%a2+28], %%r9;\nret;\n}\n");
    run_block_of(text, 1, PARAMS(in, &results));
    free(text);
    return results;
}

uint64_t run_b64(const char *body, const uint64_t in[8])
{
    return run(body, in).rd;
}

uint32_t run_b32(const char *body, const uint64_t in[8])
{
    return run(body, in).r;
}

uint16_t run_b16(const char *body, const uint64_t in[8])
{
    return run(body, in).h;
}

uint32_t run_f32(const char *body, const uint64_t in[8])
{
    return run(body, in).f;
}

uint64_t run_f64(const char *body, const uint64_t in[8])
{
    return run(body, in).fd;
}

int run_pred(const char *body, const uint64_t in[8])
{
    return (int)run(body, in).p;
}

const char *log_of(const char *text, enum sg_compile_status expected)
{
    static char kept[4096];
    struct sg_program *program = NULL;
    struct sg_text log = {0};
    char *whole = NULL;
    int size = asprintf(&whole, HEADER "%s", text);
    enum sg_compile_status status = sg_program_create(whole, (size_t)size, 90, &log, &program);
    cr_assert_eq(status, expected, "status %d instead of %d: %s", status, expected,
                 log.data == NULL ? "" : log.data);
    snprintf(kept, sizeof(kept), "%s", log.data == NULL ? "" : log.data);
    sg_text_fini(&log);
    sg_program_destroy(program);
    free(whole);
    return kept;
}

const char *log_of_insn(const char *insn)
{
    char text[4096];
    snprintf(text, sizeof(text), ".entry k(.param .u64 in) {\n%s%s\nret;\n}\n", registers, insn);
    return log_of(text, SG_COMPILE_INVALID_PTX);
}

const char *log_of_unknown_insn(const char *insn)
{
    static char kept[4096];
    char text[4096];
    void *code = NULL;
    struct sg_text log = {0};
    snprintf(text, sizeof(text), ".entry k(.param .u64 in) {\n%s%s\nret;\n}\n", registers, insn);
    struct sg_program *program = program_of(text);
    cr_assert_eq(sg_program_code(program, 0, &log, &code), SG_COMPILE_UNKNOWN, "%s", insn);
    snprintf(kept, sizeof(kept), "%s", log.data == NULL ? "" : log.data);
    sg_text_fini(&log);
    free_program(program);
    return kept;
}
