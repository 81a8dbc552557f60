/*
 * main.c - ptxas for the software device: what takes the place of machine code is the PTX itself, in a file that carries
 * it (common/cuda/ptx_carrier.h). For programs that run ptxas by themselves and can be told which one (Triton).
 *
 *   ptxas [-c] [-arch sm_NN] [-o OUTPUT] INPUT
 *
 * Options that say how to optimise mean nothing here and are passed over. Whether the PTX is right is found when it is
 * loaded. Exit status: 0, or 1 with a line on standard error.
 */
#include "common/base/cleanup.h"
#include "common/cuda/ptx_carrier.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX ((size_t)256 << 20) /* pages that are not used cost nothing */

struct arguments {
    const char *input, *output;
    unsigned architecture;
    bool relocatable, version;
};

static int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int fail(const char *format, ...)
{
    va_list arguments;
    fputs("ptxas fatal   : ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return 1;
}

/* The value of an option, as --name=value or --name value; NULL if this is another option. */
static const char *value_of(char **argv, int argc, int *at, const char *name)
{
    const char *word = argv[*at];
    const size_t length = strlen(name);
    if (strncmp(word, name, length) != 0)
        return NULL;
    if (word[length] == '=')
        return word + length + 1;
    return word[length] == '\0' && *at + 1 < argc ? argv[++*at] : NULL;
}

/* Options with a value as a word of its own that has no meaning here. */
static bool has_ignored_value(const char *word)
{
    static const char *const names[] = {"-O", "--opt-level",        "-maxrregcount", "--maxrregcount",
                                        "-m", "--regAllocOptLevel", "-opt-level",    "--machine"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(word, names[i]) == 0)
            return true;
    return false;
}

static int read_arguments(int argc, char **argv, struct arguments *out)
{
    *out = (struct arguments){.output = "elf.o", .architecture = 75};
    for (int i = 1; i < argc; i++) {
        const char *value;
        if ((value = value_of(argv, argc, &i, "--gpu-name")) != NULL ||
            (value = value_of(argv, argc, &i, "-arch")) != NULL) {
            if (sscanf(value, "sm_%3u", &out->architecture) != 1 || out->architecture > 255)
                return fail("'%s' is no architecture", value);
        } else if ((value = value_of(argv, argc, &i, "--output-file")) != NULL ||
                   (value = value_of(argv, argc, &i, "-o")) != NULL) {
            out->output = value;
        } else if (strcmp(argv[i], "-c") == 0 || strcmp(argv[i], "--compile-only") == 0) {
            out->relocatable = true;
        } else if (strcmp(argv[i], "--version") == 0 || strcmp(argv[i], "-V") == 0) {
            out->version = true;
        } else if (has_ignored_value(argv[i])) {
            i++;
        } else if (argv[i][0] != '-') {
            if (out->input != NULL)
                return fail("one input file at a time: %s, %s", out->input, argv[i]);
            out->input = argv[i];
        }
    }
    return out->input != NULL || out->version ? 0 : fail("no input file");
}

static char *read_text(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rbe");
    char *text = file != NULL ? malloc(TEXT_MAX) : NULL;
    bool good = false;
    if (text != NULL) {
        *size = fread(text, 1, TEXT_MAX, file);
        good = !ferror(file) && feof(file);
    }
    if (file != NULL)
        fclose(file);
    if (good)
        return text;
    free(text);
    return NULL;
}

int main(int argc, char **argv)
{
    struct arguments arguments;
    if (read_arguments(argc, argv, &arguments) != 0)
        return 1;
    if (arguments.version) {
        printf("ptxas of remote-gpu's software device\nCuda compilation tools, release 13.0, V13.0.0\n");
        return 0;
    }
    size_t size, carrier_size;
    RG_CLEANUP_FREE char *text = read_text(arguments.input, &size);
    if (text == NULL)
        return fail("cannot read %s: %s", arguments.input, strerror(errno));
    if (memmem(text, size, ".version", 8) == NULL || memchr(text, 0x7f, size) == text)
        return fail("%s is no PTX", arguments.input);
    RG_CLEANUP_FREE void *carrier = rg_ptx_carrier_make(text, strnlen(text, size), arguments.architecture,
                                                        arguments.relocatable, &carrier_size);
    FILE *file = carrier != NULL ? fopen(arguments.output, "wbe") : NULL;
    if (file == NULL)
        return fail("cannot write %s: %s", arguments.output, strerror(errno));
    const bool written = fwrite(carrier, 1, carrier_size, file) == carrier_size;
    if (fclose(file) != 0 || !written)
        return fail("cannot write %s: %s", arguments.output, strerror(errno));
    return 0;
}
