/*
 * compile_forms.c - says of each line of standard input, an instruction, whether the software device's
 * compiler takes it: "ok", or the first line of its log. argv: the target (sm_120), its compute capability
 * (120), declarations of a module and those of a kernel. Instructions that are taken are compiled to code as
 * well, many in one kernel.
 */
#include "softgpu/compiler/compiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOGETHER 48u

struct form {
    char *text;
    char *log; /* NULL: taken */
};

static const char *target, *of_module, *of_kernel;
static uint32_t capability;

static char *log_line(struct sg_text *log)
{
    char *line = strdup(log->data != NULL && log->data[0] != '\0' ? log->data : "no reason given");
    line[strcspn(line, "\n")] = '\0';
    sg_text_fini(log);
    return line;
}

/* Compiles a kernel of these instructions, to code if asked; the log's first line, or NULL. */
static char *compile(const struct form *forms, size_t count, bool code)
{
    size_t size = 1024 + strlen(of_module) + strlen(of_kernel);
    for (size_t i = 0; i < count; i++)
        size += strlen(forms[i].text) + 2;
    char *text = malloc(size);
    int at = sprintf(
        text, ".version 9.0\n.target %s\n.address_size 64\n%s\n.visible .entry k(.param .u64 p) {\n%s\n",
        target, of_module, of_kernel);
    for (size_t i = 0; i < count; i++)
        if (forms[i].log == NULL)
            at += sprintf(text + at, "%s\n", forms[i].text);
    sprintf(text + at, "ret;\n}\n");
    struct sg_text log = {0};
    struct sg_program *program = NULL;
    bool good = sg_program_create(text, strlen(text), capability, &log, &program) == SG_COMPILE_OK;
    static unsigned char memory[1 << 16] __attribute__((aligned(256)));
    for (size_t i = 0; good && sg_program_variable(program, i) != NULL; i++)
        sg_program_place(program, i, memory);
    void *entry;
    if (good && code)
        good = sg_program_code(program, 0, &log, &entry) == SG_COMPILE_OK;
    if (program != NULL)
        sg_program_destroy(program);
    free(text);
    if (good) {
        sg_text_fini(&log);
        return NULL;
    }
    return log_line(&log);
}

int main(int argc, char **argv)
{
    struct form *forms = NULL;
    size_t count = 0, capacity = 0;
    char line[1024];
    if (argc != 5)
        return 2;
    target = argv[1];
    capability = (uint32_t)strtoul(argv[2], NULL, 10);
    of_module = argv[3];
    of_kernel = argv[4];
    setenv("SOFTGPU_CACHE", "off", 1);
    setenv("SOFTGPU_OPT", "-llvm", 1);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (count == capacity)
            forms = realloc(forms, (capacity = capacity * 2 + 64) * sizeof(*forms));
        forms[count] = (struct form){.text = strdup(line)};
        forms[count].log = compile(&forms[count], 1, false);
        count++;
    }
    for (size_t first = 0; first < count; first += TOGETHER) {
        size_t part = count - first < TOGETHER ? count - first : TOGETHER;
        char *log = compile(forms + first, part, true);
        if (log == NULL)
            continue;
        free(log);
        for (size_t i = first; i < first + part; i++)
            if (forms[i].log == NULL)
                forms[i].log = compile(&forms[i], 1, true);
    }
    for (size_t i = 0; i < count; i++) {
        puts(forms[i].log == NULL ? "ok" : forms[i].log);
        free(forms[i].log);
        free(forms[i].text);
    }
    free(forms);
    return 0;
}
