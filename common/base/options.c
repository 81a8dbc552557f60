/* options.c - where options come from (options.h). Every source ends in set_value; what texts mean: option_value.c. */
#include "common/base/options.h"

#include "common/base/option_value.h"
#include "common/base/suggest.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4096

/* --- one option --------------------------------------------------------------------------------------------- */

static void *field_of(const struct rg_options *options, const struct rg_option *row)
{
    return (char *)options->object + row->offset;
}

static bool is_text(enum rg_option_type type)
{
    return type == RG_OPTION_TEXT || type == RG_OPTION_OPTIONAL_TEXT || type == RG_OPTION_CHOICE;
}

/* Sets one option unless a stronger source has. `origin` names it for messages: "--grace", "file:3: grace".
 */
static enum rg_status set_value(struct rg_options *options, const struct rg_option *row, const char *origin,
                                const char *text, char *why, size_t why_size)
{
    unsigned char *set_by = &options->set_by[row - options->table];
    if (*set_by != 0 && *set_by != options->load)
        return RG_OK;
    char phrase[256] = "";
    enum rg_status status =
        rg_option_parse(row, field_of(options, row), *set_by == 0, text, phrase, sizeof phrase);
    if (status != RG_OK)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "%s: %s", origin,
                         phrase[0] ? phrase : rg_status_string(status));
    *set_by = (unsigned char)options->load;
    return RG_OK;
}

void rg_options_init(struct rg_options *options, const struct rg_option *table, size_t n, void *object,
                     unsigned command)
{
    *options = (struct rg_options){.table = table, .n = n, .object = object, .command = command};
    if (n > RG_OPTIONS_MAX) {
        fprintf(stderr, "more than %d options\n", RG_OPTIONS_MAX);
        abort(); /* a mistake in the table */
    }
    for (size_t i = 0; i < n; i++) {
        char why[256];
        if (table[i].value && rg_option_parse(&table[i], field_of(options, &table[i]), true, table[i].value,
                                              why, sizeof why) != RG_OK) {
            fprintf(stderr, "default of --%s: %s\n", table[i].name, why);
            abort(); /* a mistake in the table */
        }
    }
}

unsigned rg_options_source(const struct rg_options *options, size_t offset)
{
    for (size_t i = 0; i < options->n; i++)
        if (options->table[i].offset == offset && options->set_by[i] != 0)
            return options->set_by[i];
    return 0;
}

bool rg_options_is_set(const struct rg_options *options, size_t offset)
{
    return rg_options_source(options, offset) != 0;
}

void rg_options_fini(struct rg_options *options)
{
    for (size_t i = 0; i < options->n; i++) {
        const struct rg_option *row = &options->table[i];
        void *field = field_of(options, row);
        if (is_text(row->type)) {
            free(*(char **)field);
            *(char **)field = NULL;
        } else if (row->type == RG_OPTION_LIST) {
            rg_text_list_clear(field);
        }
    }
}

/* --- sources ------------------------------------------------------------------------------------------------ */

static bool applies(const struct rg_options *options, const struct rg_option *row)
{
    return row->commands == 0 || options->command == 0 || (row->commands & options->command) != 0;
}

static bool is_called(const struct rg_option *row, const char *name, size_t size)
{
    return strncmp(row->name, name, size) == 0 && row->name[size] == 0;
}

/* Subcommands may have options of one name that mean different things: the first that can be meant here, else the first. */
static const struct rg_option *find(const struct rg_options *options, const char *name, size_t size,
                                    bool in_file)
{
    const struct rg_option *found = NULL;
    for (size_t i = 0; i < options->n; i++) {
        const struct rg_option *row = &options->table[i];
        if (!is_called(row, name, size))
            continue;
        if (in_file ? !row->not_in_file : applies(options, row))
            return row;
        found = found ? found : row;
    }
    return found;
}

/* Why `name` (without dashes) is unknown, with what was probably meant. */
static enum rg_status unknown(const struct rg_options *options, const char *origin, const char *name,
                              size_t size, bool in_file, char *why, size_t why_size)
{
    const char *names[RG_OPTIONS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < options->n; i++)
        if (in_file ? !options->table[i].not_in_file : applies(options, &options->table[i]))
            names[n++] = options->table[i].name;
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)(size < sizeof word ? size : sizeof word - 1), name);
    const char *meant = rg_suggest(word, names, n, sizeof names[0]);
    const char *dashes = in_file ? "" : "--";
    if (meant)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "%sunknown option '%s%s' (did you mean '%s%s'?)",
                         origin, dashes, word, dashes, meant);
    return RG_FAILED(RG_ERR_INVALID, why, why_size, "%sunknown option '%s%s'", origin, dashes, word);
}

static bool takes_argument(const struct rg_option *row)
{
    return row->type != RG_OPTION_FLAG && row->type != RG_OPTION_OPTIONAL_TEXT;
}

/* One "--name", "--name=value" or "--name value". */
static enum rg_status load_long(struct rg_options *options, int argc, char **argv, int *at, char *why,
                                size_t why_size)
{
    const char *name = argv[*at] + 2;
    size_t size = strcspn(name, "=");
    const char *value = name[size] == '=' ? name + size + 1 : NULL;
    const struct rg_option *row = find(options, name, size, false);
    if (!row || !applies(options, row))
        return unknown(options, "", name, size, false, why, why_size);
    char origin[80];
    snprintf(origin, sizeof origin, "--%s", row->name);
    if (!value && takes_argument(row)) {
        if (*at + 1 >= argc)
            return RG_FAILED(RG_ERR_INVALID, why, why_size, "%s needs %s", origin, row->argument);
        value = argv[++*at];
    }
    if (!value)
        value = row->type == RG_OPTION_FLAG ? "yes" : "";
    return set_value(options, row, origin, value, why, why_size);
}

/* "-s value", "-svalue", and flags together: "-ab". */
static enum rg_status load_short(struct rg_options *options, int argc, char **argv, int *at, char *why,
                                 size_t why_size)
{
    for (const char *letter = argv[*at] + 1; *letter; letter++) {
        const struct rg_option *row = NULL;
        for (size_t i = 0; i < options->n; i++)
            if ((options->table[i].letter == *letter || options->table[i].also == *letter) &&
                applies(options, &options->table[i]))
                row = &options->table[i];
        if (!row)
            return RG_FAILED(RG_ERR_INVALID, why, why_size, "unknown option '-%c'",
                             isprint((unsigned char)*letter) ? *letter : '?');
        char origin[4] = {'-', *letter, 0};
        const char *value = row->type == RG_OPTION_FLAG ? "yes" : "";
        if (takes_argument(row)) {
            value = letter[1] ? letter + 1 : *at + 1 < argc ? argv[++*at] : NULL;
            if (!value)
                return RG_FAILED(RG_ERR_INVALID, why, why_size, "%s needs %s", origin, row->argument);
        }
        enum rg_status status = set_value(options, row, origin, value, why, why_size);
        if (status != RG_OK || takes_argument(row))
            return status;
    }
    return RG_OK;
}

enum rg_status rg_options_load_arguments(struct rg_options *options, int argc, char **argv, int *next,
                                         char *why, size_t why_size)
{
    options->load++;
    int at = 1;
    for (; at < argc; at++) {
        const char *word = argv[at];
        if (word[0] != '-' || word[1] == 0)
            break;
        if (strcmp(word, "--") == 0) {
            at++;
            break;
        }
        RG_TRY(word[1] == '-' ? load_long(options, argc, argv, &at, why, why_size)
                              : load_short(options, argc, argv, &at, why, why_size));
    }
    *next = at;
    return RG_OK;
}

enum rg_status rg_options_load_environment(struct rg_options *options, char *why, size_t why_size)
{
    options->load++;
    for (size_t i = 0; i < options->n; i++) {
        const struct rg_option *row = &options->table[i];
        const char *value = row->environment ? getenv(row->environment) : NULL;
        if (!value || !*value)
            continue; /* empty is as good as unset */
        RG_TRY(set_value(options, row, row->environment, value, why, why_size));
    }
    return RG_OK;
}

/* The text without the white space around it; cut in place. */
static char *trim(char *text)
{
    text += strspn(text, RG_OPTION_BLANKS);
    size_t size = strlen(text);
    while (size && strchr(RG_OPTION_BLANKS, text[size - 1]))
        text[--size] = 0;
    return text;
}

static enum rg_status load_line(struct rg_options *options, const char *origin, char *line, char *why,
                                size_t why_size)
{
    char *key = trim(line);
    if (!*key || *key == '#')
        return RG_OK;
    char *equals = strchr(key, '=');
    if (!equals)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "%s'%s' is not of the form key = value", origin, key);
    *equals = 0;
    char *value = trim(equals + 1);
    key = trim(key);
    const struct rg_option *row = find(options, key, strlen(key), true);
    if (!row || row->not_in_file)
        return unknown(options, origin, key, strlen(key), true, why, why_size);
    char full[LINE_MAX_BYTES + 80];
    snprintf(full, sizeof full, "%s%s", origin, key);
    return set_value(options, row, full, value, why, why_size);
}

static void close_file(FILE **file)
{
    if (*file)
        fclose(*file);
}

enum rg_status rg_options_load_file(struct rg_options *options, const char *path, char *why, size_t why_size)
{
    options->load++;
    __attribute__((cleanup(close_file))) FILE *file = fopen(path, "re");
    if (!file) {
        enum rg_status status = errno == ENOENT || errno == ENOTDIR ? RG_ERR_NOT_FOUND : RG_ERR_INVALID;
        rg_explain(why, why_size, "%s: %s", path, strerror(errno));
        return status;
    }
    char line[LINE_MAX_BYTES], origin[LINE_MAX_BYTES];
    for (unsigned number = 1; fgets(line, sizeof line, file); number++) {
        snprintf(origin, sizeof origin, "%s:%u: ", path, number);
        if (!strchr(line, '\n') && !feof(file))
            return RG_FAILED(RG_ERR_INVALID, why, why_size, "%sthe line is too long", origin);
        RG_TRY(load_line(options, origin, line, why, why_size));
    }
    if (ferror(file))
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "%s: %s", path, strerror(errno));
    return RG_OK;
}

enum rg_status rg_options_load_credentials(struct rg_options *options, const char *folder, char *why,
                                           size_t why_size)
{
    options->load++;
    for (size_t i = 0; i < options->n; i++) {
        const struct rg_option *row = &options->table[i];
        char path[LINE_MAX_BYTES];
        if (!row->credential)
            continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, row->name) >= (int)sizeof path)
            return RG_FAILED(RG_ERR_INVALID, why, why_size,
                             "the folder of credentials has too long a name: %s", folder);
        if (access(path, F_OK) == 0)
            RG_TRY(set_value(options, row, path, path, why, why_size));
        else if (errno != ENOENT)
            return RG_FAILED(RG_ERR_INVALID, why, why_size, "credential %s: %s", path, strerror(errno));
    }
    return RG_OK;
}

/* --- help --------------------------------------------------------------------------------------------------- */

/* Prints `text` in lines of up to 100 columns, each behind `indent` blanks; the first continues at `column`.
 */
static void print_wrapped(FILE *out, const char *text, int column, int indent)
{
    if (column >= indent) {
        fputc('\n', out);
        column = 0;
    }
    fprintf(out, "%*s", indent - column, "");
    int at = indent;
    while (*text) {
        int size = (int)strcspn(text, " ");
        if (at > indent && at + 1 + size > 100) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", size, text);
        at += size;
        text += size + strspn(text + size, " ");
    }
    fputc('\n', out);
}

void rg_options_help(const struct rg_options *options, FILE *out)
{
    for (size_t i = 0; i < options->n; i++) {
        const struct rg_option *row = &options->table[i];
        if (!applies(options, row) || !row->help)
            continue;
        int column = row->letter ? fprintf(out, "  -%c, --%s", row->letter, row->name)
                                 : fprintf(out, "      --%s", row->name);
        if (row->argument)
            column += fprintf(out, row->type == RG_OPTION_OPTIONAL_TEXT ? "[=%s]" : " %s", row->argument);
        char text[1024];
        int size = snprintf(text, sizeof text, "%s", row->help);
        if (row->value && row->type != RG_OPTION_FLAG && row->value[0] != '-' && size < (int)sizeof text)
            size += snprintf(text + size, sizeof text - (size_t)size, " (default: %s)", row->value);
        if (row->environment && size < (int)sizeof text)
            snprintf(text + size, sizeof text - (size_t)size, " [%s]", row->environment);
        print_wrapped(out, text, column, 32);
    }
}
