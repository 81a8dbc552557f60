/* fake_program.c - see fake_program.h. */
#include "tests/softgpu/driver/fake_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX 16

struct sg_program {
    struct sg_kernel kernels[MAX];
    struct sg_variable variables[MAX];
    struct sg_param params[MAX][MAX];
    char names[2 * MAX][128];
    void *addresses[MAX];
    size_t n_kernels, n_variables, n_names;
};

static struct sg_program *last_placed;

void sg_text_fini(struct sg_text *text)
{
    free(text->data);
    *text = (struct sg_text){0};
}

static void say(struct sg_text *log, unsigned line, const char *what)
{
    char *text = NULL;
    if (asprintf(&text, "ptx:%u: %s", line, what) < 0)
        return;
    sg_text_fini(log);
    log->data = text;
    log->size = strlen(text);
}

static uint32_t type_size(const char *type)
{
    return strncmp(type, "u64", 3) == 0 || strncmp(type, "f64", 3) == 0 ? 8 : 4;
}

static void parse_line(struct sg_program *program, const char *line)
{
    char *name = program->names[program->n_names];
    char type[8];
    unsigned align, size;
    if (sscanf(line, " .visible .entry %127[^(]", name) == 1) {
        struct sg_kernel *k = &program->kernels[program->n_kernels++];
        *k = (struct sg_kernel){
            .name = name, .max_threads = 1024, .params = program->params[program->n_kernels - 1]};
        program->n_names++;
    } else if (sscanf(line, " .param .%7s", type) == 1 && program->n_kernels > 0) {
        struct sg_kernel *k = &program->kernels[program->n_kernels - 1];
        uint32_t n = type_size(type), at = (k->params_size + n - 1) / n * n;
        program->params[program->n_kernels - 1][k->n_params++] = (struct sg_param){at, n, n};
        k->params_size = at + n;
    } else if (sscanf(line, " .maxntid %u", &size) == 1 && program->n_kernels > 0) {
        program->kernels[program->n_kernels - 1].max_threads = size;
    } else if (sscanf(line, " .reqntid %u", &size) == 1 && program->n_kernels > 0) {
        program->kernels[program->n_kernels - 1].required_ntid[0] = size;
    } else if (sscanf(line, " .visible .global .align %u .b8 %127[^[][%u];", &align, name, &size) == 3) {
        program->variables[program->n_variables++] =
            (struct sg_variable){.name = name, .size = size, .align = align, .visible = true};
        program->n_names++;
    }
}

enum sg_compile_status sg_program_create(const char *ptx, size_t size, uint32_t capability,
                                         struct sg_text *log, struct sg_program **out)
{
    (void)capability;
    struct sg_program *program = calloc(1, sizeof *program);
    char *copy = strndup(ptx, size), *rest = copy;
    unsigned number = 0;
    enum sg_compile_status status = SG_COMPILE_OK;
    for (char *line; status == SG_COMPILE_OK && (line = strsep(&rest, "\n")) != NULL;) {
        number++;
        if (strstr(line, ".bad") != NULL) {
            say(log, number, "unknown directive .bad");
            status = SG_COMPILE_INVALID_PTX;
        } else {
            parse_line(program, line);
        }
    }
    free(copy);
    if (status == SG_COMPILE_OK)
        *out = program;
    else
        free(program);
    return status;
}

enum sg_compile_status sg_program_link(const struct sg_source *sources, size_t count, uint32_t capability,
                                       struct sg_text *log, struct sg_program **out)
{
    char *all = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&all, &size);
    for (size_t i = 0; i < count; i++)
        fprintf(f, "%.*s\n", (int)sources[i].size, sources[i].ptx);
    fclose(f);
    enum sg_compile_status status = sg_program_create(all, size, capability, log, out);
    free(all);
    return status;
}

void sg_program_destroy(struct sg_program *program)
{
    if (last_placed == program)
        last_placed = NULL;
    free(program);
}

size_t sg_program_find_kernel(const struct sg_program *program, const void *address)
{
    (void)program;
    (void)address;
    return SIZE_MAX; /* no kernel of these programs launches another */
}

const struct sg_kernel *sg_program_kernel(const struct sg_program *program, size_t index)
{
    return index < program->n_kernels ? &program->kernels[index] : NULL;
}

const struct sg_variable *sg_program_variable(const struct sg_program *program, size_t index)
{
    return index < program->n_variables ? &program->variables[index] : NULL;
}

void sg_program_place(struct sg_program *program, size_t index, void *address)
{
    program->addresses[index] = address;
    last_placed = program;
}

enum sg_compile_status sg_program_initialise(struct sg_program *program, bool managed, struct sg_text *log)
{
    (void)log;
    for (size_t i = 0; i < program->n_variables; i++)
        if (managed || !program->variables[i].managed)
            memset(program->addresses[i], 0, program->variables[i].size);
    return SG_COMPILE_OK;
}

bool sg_program_has_code(struct sg_program *program, size_t index)
{
    return index < program->n_kernels;
}

enum sg_compile_status sg_program_code(struct sg_program *program, size_t index, struct sg_text *log,
                                       void **code)
{
    for (const struct fake_kernel *k = fake_kernels; k->name != NULL; k++)
        if (strcmp(k->name, program->kernels[index].name) == 0) {
            *code = (void *)k->code;
            return SG_COMPILE_OK;
        }
    say(log, 0, "no C function for this kernel");
    return SG_COMPILE_UNRESOLVED;
}

uint64_t fake_variable_address(const char *name)
{
    for (size_t i = 0; last_placed != NULL && i < last_placed->n_variables; i++)
        if (strcmp(last_placed->variables[i].name, name) == 0)
            return (uintptr_t)last_placed->addresses[i];
    return 0;
}
