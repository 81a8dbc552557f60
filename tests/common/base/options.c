/* options.c - common/options: every type from every source, precedence, suggestions, what must be
 * refused. */
#include "common/base/options.h"

#include <criterion/criterion.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct values {
    bool flag;
    char *text, *optional, *choice, *checked;
    struct rg_text_list list;
    int64_t number;
    uint64_t size;
    uint32_t fraction;
    uint64_t seconds;
};

static enum rg_status check_even(const char *text, char *why, size_t why_size)
{
    if (strlen(text) % 2 == 0)
        return RG_OK;
    rg_explain(why, why_size, "'%s' is odd", text);
    return RG_ERR_INVALID;
}

#define AT(field) offsetof(struct values, field)
static const struct rg_option table[] = {
    {.name = "flag", .letter = 'f', .type = RG_OPTION_FLAG, .offset = AT(flag), .help = "a flag"},
    {.name = "text",
     .letter = 't',
     .also = 'T',
     .type = RG_OPTION_TEXT,
     .offset = AT(text),
     .argument = "TEXT",
     .value = "default",
     .environment = "RG_OPTIONS_TEST_TEXT",
     .help = "some text"},
    {.name = "optional",
     .type = RG_OPTION_OPTIONAL_TEXT,
     .offset = AT(optional),
     .argument = "FILE",
     .help = "perhaps"},
    {.name = "choice",
     .type = RG_OPTION_CHOICE,
     .offset = AT(choice),
     .argument = "one|two|three",
     .value = "one",
     .help = "one of some"},
    {.name = "list",
     .letter = 'l',
     .type = RG_OPTION_LIST,
     .offset = AT(list),
     .argument = "A,B",
     .environment = "RG_OPTIONS_TEST_LIST",
     .help = "a list"},
    {.name = "number",
     .letter = 'n',
     .type = RG_OPTION_INTEGER,
     .offset = AT(number),
     .argument = "N",
     .min = 1,
     .max = 10,
     .help = "a number"},
    {.name = "size", .type = RG_OPTION_SIZE, .offset = AT(size), .argument = "SIZE", .help = "a size"},
    {.name = "fraction",
     .type = RG_OPTION_FRACTION,
     .offset = AT(fraction),
     .argument = "F",
     .help = "a part"},
    {.name = "seconds", .type = RG_OPTION_SECONDS, .offset = AT(seconds), .argument = "S", .help = "a time"},
    {.name = "checked",
     .type = RG_OPTION_TEXT,
     .offset = AT(checked),
     .argument = "EVEN",
     .environment = "RG_OPTIONS_TEST_CHECKED",
     .check = check_even,
     .help = "an even number of characters"},
    {.name = "only-two",
     .type = RG_OPTION_FLAG,
     .offset = AT(flag),
     .commands = 2,
     .not_in_file = true,
     .help = "x"},
};

static struct values values;
static struct rg_options options;
static char why[512];

static void start(unsigned command)
{
    memset(&values, 0, sizeof values);
    why[0] = 0;
    rg_options_init(&options, table, sizeof table / sizeof table[0], &values, command);
}

static void finish(void)
{
    rg_options_fini(&options);
}

/* Loads words; the index of the first one behind the options, or -1. */
static int load(const char *const *words, int n)
{
    char *argv[20] = {(char *)"program"};
    for (int i = 0; i < n; i++)
        argv[1 + i] = (char *)(uintptr_t)words[i];
    int next = -1;
    return rg_options_load_arguments(&options, n + 1, argv, &next, why, sizeof why) == RG_OK ? next : -1;
}
#define LOAD(...)                                                                                            \
    load((const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static enum rg_status load_file(const char *text)
{
    char path[] = "/tmp/rg-options-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    enum rg_status status = rg_options_load_file(&options, path, why, sizeof why);
    unlink(path);
    return status;
}

Test(options, defaults, .fini = finish)
{
    start(0);
    cr_expect_str_eq(values.text, "default");
    cr_expect_str_eq(values.choice, "one");
    cr_expect_null(values.optional);
    cr_expect_not(rg_options_is_set(&options, AT(text)));
}

Test(options, every_type, .fini = finish)
{
    start(0);
    cr_assert_eq(LOAD("-f", "-tx", "--optional", "--choice=two", "-l", "a , b\r\n", "-n", "7", "--size",
                      "2GiB", "--fraction", "50%", "--seconds", "3"),
                 15);
    cr_expect(values.flag);
    cr_expect_str_eq(values.text, "x");
    cr_expect_str_eq(values.optional, "");
    cr_expect_str_eq(values.choice, "two");
    cr_assert_eq(values.list.n, 2);
    cr_expect_str_eq(values.list.items[0], "a");
    cr_expect_str_eq(values.list.items[1], "b");
    cr_expect_eq(values.number, 7);
    cr_expect_eq(values.size, 2ull << 30);
    cr_expect_eq(values.fraction, 500000);
    cr_expect_eq(values.seconds, 3000000000ull);
    cr_expect(rg_options_is_set(&options, AT(text)));
}

Test(options, stop_at_the_first_word, .fini = finish)
{
    start(0);
    cr_expect_eq(LOAD("-f", "word", "-n", "3"), 2);
    cr_expect_eq(values.number, 0);
    finish();
    start(0);
    cr_expect_eq(LOAD("-f", "--", "-n", "3"), 3);
    finish();
    start(0);
    cr_expect_eq(LOAD("-f", "-"), 2);
}

Test(options, letters, .fini = finish)
{
    start(0);
    cr_expect_eq(LOAD("-ft", "x"), 3);
    cr_expect(values.flag);
    cr_expect_str_eq(values.text, "x");
    finish();
    start(0);
    cr_expect_eq(LOAD("-Ty"), 2);
    cr_expect_str_eq(values.text, "y");
}

Test(options, optional_takes_no_next_word, .fini = finish)
{
    start(0);
    cr_expect_eq(LOAD("--optional", "word"), 2);
    cr_expect_str_eq(values.optional, "");
    finish();
    start(0);
    cr_expect_eq(LOAD("--optional=word"), 2);
    cr_expect_str_eq(values.optional, "word");
}

Test(options, mistakes, .fini = finish)
{
    static const struct {
        const char *word, *expected;
    } cases[] = {
        {"--txet=1", "did you mean '--text'"},
        {"--zzzzzzzz", "unknown option '--zzzzzzzz'"},
        {"-z", "unknown option '-z'"},
        {"--number=0", "--number"},
        {"--number=11", "--number"},
        {"--number=x", "'x'"},
        {"--number=", "--number"},
        {"--choice=four", "'four' is not one of one, two, three"},
        {"--choice=one|two", "is not one of"},
        {"--choice=", "is not one of"},
        {"--size=12Q", "--size"},
        {"--fraction=2", "--fraction"},
        {"--seconds=-1", "--seconds"},
        {"--text", "--text needs TEXT"},
        {"--text=", "--text: '' is no TEXT"},
        {"--checked=odd", "--checked: 'odd' is odd"},
        {"-t", "-t needs TEXT"},
        {"--flag=perhaps", "neither yes nor no"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        start(0);
        cr_expect_eq(LOAD(cases[i].word), -1, "%s", cases[i].word);
        cr_expect_not_null(strstr(why, cases[i].expected), "%s: %s", cases[i].word, why);
        finish();
    }
    start(0);
}

Test(options, checked_from_every_source, .fini = finish)
{
    start(0);
    cr_expect_eq(LOAD("--checked="), 2); /* what is empty is for the check to judge, too */
    cr_expect_str_eq(values.checked, "");
    finish();
    start(0);
    setenv("RG_OPTIONS_TEST_CHECKED", "odd", 1);
    cr_expect_eq(rg_options_load_environment(&options, why, sizeof why), RG_ERR_INVALID);
    cr_expect_str_eq(why, "RG_OPTIONS_TEST_CHECKED: 'odd' is odd");
    setenv("RG_OPTIONS_TEST_CHECKED", "even", 1);
    cr_expect_eq(rg_options_load_environment(&options, why, sizeof why), RG_OK, "%s", why);
    cr_expect_str_eq(values.checked, "even");
    unsetenv("RG_OPTIONS_TEST_CHECKED");
}

Test(options, rows_of_other_subcommands, .fini = finish)
{
    start(1);
    cr_expect_eq(LOAD("--only-two"), -1);
    finish();
    start(2);
    cr_expect_eq(LOAD("--only-two"), 2);
}

Test(options, the_first_source_wins, .fini = finish)
{
    setenv("RG_OPTIONS_TEST_TEXT", "environment", 1);
    setenv("RG_OPTIONS_TEST_LIST", "e1,e2", 1);
    start(0);
    cr_assert_eq(LOAD("--list", "a", "--list", "b"), 5);
    cr_assert_eq(rg_options_load_environment(&options, why, sizeof why), RG_OK);
    cr_assert_eq(load_file("text = file\nlist = f\nnumber = 4\n"), RG_OK);
    cr_assert_eq(load_file("number = 5\nchoice = three\n"), RG_OK);
    cr_expect_str_eq(values.text, "environment");
    cr_assert_eq(values.list.n, 2);
    cr_expect_str_eq(values.list.items[0], "a");
    cr_expect_eq(values.number, 4);
    cr_expect_str_eq(values.choice, "three");
    cr_expect_eq(rg_options_source(&options, AT(list)), 1);
    cr_expect_eq(rg_options_source(&options, AT(text)), 2);
    cr_expect_eq(rg_options_source(&options, AT(number)), 3);
    cr_expect_eq(rg_options_source(&options, AT(choice)), 4);
    cr_expect_eq(rg_options_source(&options, AT(size)), 0);
}

Test(options, an_empty_variable_is_none, .fini = finish)
{
    setenv("RG_OPTIONS_TEST_TEXT", "", 1);
    start(0);
    cr_assert_eq(rg_options_load_environment(&options, why, sizeof why), RG_OK);
    cr_expect_str_eq(values.text, "default");
}

Test(options, files, .fini = finish)
{
    start(0);
    cr_assert_eq(load_file("# comment\n\n  text =  with blanks and = signs \t\nflag=yes"), RG_OK);
    cr_expect_str_eq(values.text, "with blanks and = signs");
    cr_expect(values.flag);
    cr_expect_eq(rg_options_load_file(&options, "/nonexistent/file", why, sizeof why), RG_ERR_NOT_FOUND);
    cr_expect_eq(rg_options_load_file(&options, "/tmp", why, sizeof why), RG_ERR_INVALID);
}

Test(options, mistakes_in_files, .fini = finish)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"text\n", ":1: 'text' is not of the form key = value"},
        {"\nnumbr = 1\n", ":2: unknown option 'numbr' (did you mean 'number'?)"},
        {"number = 100\n", ":1: number"},
        {"only-two = yes\n", "unknown option"},
        {"= x\n", "unknown option"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        start(0);
        cr_expect_eq(load_file(cases[i].text), RG_ERR_INVALID, "%s", cases[i].text);
        cr_expect_not_null(strstr(why, cases[i].expected), "%s: %s", cases[i].text, why);
        finish();
    }
    start(0);
    char *line = malloc(10001);
    memset(line, 'x', 10000);
    line[10000] = 0;
    cr_expect_eq(load_file(line), RG_ERR_INVALID);
    cr_expect_not_null(strstr(why, "too long"));
    free(line);
}

Test(options, help_names_everything, .fini = finish)
{
    start(1);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    rg_options_help(&options, out);
    fclose(out);
    cr_expect_not_null(strstr(text, "-t, --text TEXT"));
    cr_expect_not_null(strstr(text, "(default: default)"));
    cr_expect_not_null(strstr(text, "[RG_OPTIONS_TEST_TEXT]"));
    cr_expect_not_null(strstr(text, "--optional[=FILE]"));
    cr_expect_null(strstr(text, "only-two"));
    free(text);
}
