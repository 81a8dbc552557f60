/*
 * main.c - ptxas for the software device: what takes the place of machine code is the PTX itself, in a file that carries
 * it (common/cuda/ptx_carrier.h). For programs that run ptxas by themselves and can be told which one (Triton).
 *
 *   ptxas [-c] [-arch sm_NN] [-o OUTPUT] INPUT
 *   ptxas [-c] [-arch sm_NN] [-o OUTPUT] --input-as-string PTX
 *
 * Options that say how to optimise mean nothing here and are passed over. Whether the PTX is right is found when it is
 * loaded; only a version that is yet to come is refused, in NVIDIA's words, by which programs ask for the newest one (JAX's Mosaic).
 * Exit status: 0, or 1 with a line on standard error.
 */
#include "common/base/cleanup.h"
#include "common/cuda/ptx_carrier.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX  ((size_t)256 << 20) /* pages that are not used cost nothing */
#define PTX_MAJOR 9                   /* of the PTX ISA of the toolkit that this ptxas says it belongs to */
#define PTX_NAME  "9.0"

struct arguments {
    const char *input, *output;
    unsigned architecture;
    bool relocatable, version;
    bool is_text; /* the input is PTX itself, not a file's name */
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
        } else if ((value = value_of(argv, argc, &i, "--input-as-string")) != NULL ||
                   (value = value_of(argv, argc, &i, "-ias")) != NULL) {
            out->input = value;
            out->is_text = true;
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

/* Whether the PTX is of an ISA of today; it was said if it is not. */
static bool is_known(const char *text, size_t size, const char *name)
{
    const char *version = memmem(text, size, ".version", 8);
    char number[16] = "";
    unsigned major;
    if (version == NULL || text[0] == 0x7f) {
        fail("%s is no PTX", name);
        return false;
    }
    version += 8;
    const size_t left = (size_t)(text + size - version);
    memcpy(number, version, left < sizeof number ? left : sizeof number - 1);
    if (sscanf(number, "%3u", &major) == 1 && major <= PTX_MAJOR)
        return true;
    const char *word = number + strspn(number, " \t\r\n");
    fprintf(stderr, "ptxas %s; fatal   : Unsupported .version %.*s; current version is '" PTX_NAME "'\n",
            name, (int)strcspn(word, " \t\r\n"), word);
    return false;
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
    RG_CLEANUP_FREE char *text =
        arguments.is_text ? strdup(arguments.input) : read_text(arguments.input, &size);
    if (text == NULL)
        return fail("cannot read %s: %s", arguments.is_text ? "the input" : arguments.input, strerror(errno));
    if (arguments.is_text)
        size = strlen(text);
    if (!is_known(text, size, arguments.is_text ? "application ptx input" : arguments.input))
        return 1;
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
