/*
 * text.c - what people write: option files, command lines, sizes and times, addresses, chains of filters, lists of
 * servers.
 *
 * The input: u8 which, then the text.
 */
#include "client/query/servers.h"
#include "common/base/options.h"
#include "common/base/parse.h"
#include "common/base/printable.h"
#include "proto/control/control.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"
#include "transport/address.h"
#include "transport/connect/connect.h"
#include "transport/multipath/multipath.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    bool flag;
    char *text, *optional, *choice;
    struct rg_text_list list;
    int64_t integer;
    uint64_t size, seconds;
    uint32_t fraction;
};

static const struct rg_option table[] = {
    {.name = "flag", .letter = 'f', .type = RG_OPTION_FLAG, .offset = offsetof(struct settings, flag)},
    {.name = "text",
     .letter = 't',
     .type = RG_OPTION_TEXT,
     .offset = offsetof(struct settings, text),
     .argument = "TEXT"},
    {.name = "optional",
     .type = RG_OPTION_OPTIONAL_TEXT,
     .offset = offsetof(struct settings, optional),
     .argument = "TEXT"},
    {.name = "choice",
     .type = RG_OPTION_CHOICE,
     .offset = offsetof(struct settings, choice),
     .argument = "one|two"},
    {.name = "list",
     .letter = 'l',
     .type = RG_OPTION_LIST,
     .offset = offsetof(struct settings, list),
     .argument = "A"},
    {.name = "integer",
     .type = RG_OPTION_INTEGER,
     .offset = offsetof(struct settings, integer),
     .argument = "N",
     .max = 99},
    {.name = "size", .type = RG_OPTION_SIZE, .offset = offsetof(struct settings, size), .argument = "SIZE"},
    {.name = "seconds",
     .type = RG_OPTION_SECONDS,
     .offset = offsetof(struct settings, seconds),
     .argument = "S"},
    {.name = "fraction",
     .type = RG_OPTION_FRACTION,
     .offset = offsetof(struct settings, fraction),
     .argument = "F"},
};

/* --- a file of options ------------------------------------------------------------------------------------------------ */

#define OPTIONS_FILE "/of/the/fuzzer/options"

static struct {
    const char *text;
    size_t size;
} options_file;

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

/* That file is in memory: to make one, and to open it, takes longer than to read it. */
FILE *__wrap_fopen(const char *path, const char *mode)
{
    if (strcmp(path, OPTIONS_FILE) != 0)
        return __real_fopen(path, mode);
    return fmemopen((void *)(uintptr_t)options_file.text, options_file.size, "r");
}

/* --- what is read ------------------------------------------------------------------------------------------------------- */

static void load(const char *text, size_t size, bool file)
{
    char why[256] = "", *words[34] = {(char *)(uintptr_t) "program"};
    struct settings settings = {0};
    struct rg_options options;
    rg_options_init(&options, table, sizeof table / sizeof *table, &settings, 0);
    enum rg_status status;
    char *copy = NULL;
    if (file) {
        options_file.text = text;
        options_file.size = size;
        status = rg_options_load_file(&options, OPTIONS_FILE, why, sizeof why);
    } else {
        int n = 1, next;
        char *rest = copy = strdup(text);
        for (char *word; n < 32 && (word = strsep(&rest, "\n"));)
            words[n++] = word;
        status = rg_options_load_arguments(&options, n, words, &next, why, sizeof why);
        CHECK(status != RG_OK || (next >= 1 && next <= n));
    }
    CHECK((status == RG_OK) == (why[0] == '\0'));
    rg_options_fini(&options);
    free(copy);
}

static void numbers(const char *text)
{
    char why[256];
    uint64_t wide, again;
    uint32_t millionths;
    int64_t integer;
    if (rg_parse_fraction(text, &millionths, why, sizeof why) == RG_OK)
        CHECK(millionths >= 1 && millionths <= 1000000);
    if (rg_parse_bandwidth(text, &wide, why, sizeof why) == RG_OK)
        CHECK(wide >= 1);
    if (rg_parse_integer(text, -5, 1000, &integer, why, sizeof why) == RG_OK)
        CHECK(integer >= -5 && integer <= 1000);
    if (rg_parse_duration(text, &wide, why, sizeof why) == RG_OK)
        CHECK(rg_parse_duration(text, &again, why, sizeof why) == RG_OK && wide == again);
    if (rg_parse_size(text, &wide, why, sizeof why) == RG_OK)
        CHECK(rg_parse_size(text, &again, why, sizeof why) == RG_OK && wide == again);
}

/* What was understood is written so that it is understood again, in the same way. */
static void address(const char *text)
{
    struct rg_address first = {0}, second = {0};
    char why[256], written[700], twice[700];
    if (rg_address_parse(text, &first, why, sizeof why) != RG_OK)
        return;
    rg_address_format(&first, written, sizeof written);
    CHECK(rg_address_parse(written, &second, why, sizeof why) == RG_OK);
    rg_address_format(&second, twice, sizeof twice);
    CHECK(strcmp(written, twice) == 0);
}

static void servers(const char *text)
{
    struct rg_servers list;
    char described[256];
    if (!rg_servers_read(&list, text))
        return;
    for (unsigned i = 0; i < list.n; i++) {
        char *rest = list.items[i], *one;
        while ((one = rg_servers_next(&rest)))
            rg_servers_describe(one, described, sizeof described);
    }
    rg_servers_free(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[256], field[32];
    unsigned channels;
    bool adaptive;
    if (size == 0)
        return 0;
    char *text = malloc(size);
    CHECK(text);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 8) {
    case 0:
        load(text, size - 1, true);
        break;
    case 1:
        load(text, size - 1, false);
        break;
    case 2:
        numbers(text);
        break;
    case 3:
        address(text);
        break;
    case 4:
        (void)!rg_transport_check_filters(text, why, sizeof why);
        break;
    case 5:
        servers(text);
        break;
    case 6:
        (void)!rg_multipath_channels_parse(text, &channels, &adaptive, why, sizeof why);
        break;
    default:
        rg_control_text(field, 1 + size % sizeof field, text, size - 1);
        CHECK(strlen(field) < 1 + size % sizeof field);
    }
    free(text);
    return 0;
}

void fuzz_seeds(void)
{
    static const char *const texts[][2] = {
        {"file",
         "\0text = some\n# comment\nlist = a, b\nsize = 1.5G\nseconds=500ms\nfraction = 50%\nflag = yes\n"},
        {"words", "\1--text=some\n-f\n-lx,y\n--integer\n7\n--choice=two\n--optional\n--\nrest"},
        {"number", "\2"
                   "1.5GiB"},
        {"duration", "\2"
                     "10min"},
        {"bandwidth", "\2"
                      "10Gb/s"},
        {"address", "\3tcp://[::1%lo]:7600"},
        {"socket", "\3unix:/run/some.sock"},
        {"rdma", "\3rdma:10.0.0.1:99"},
        {"filters", "\4"
                    "delay:oneway=5ms,bandwidth=10Gb;fault:at=5"},
        {"servers", "\5"
                    "gpu1:7600|gpu2, unix:/a,[::1]:9"},
        {"channels", "\6"
                     "auto"},
        {"field", "\7"
                  "caf\xc3\xa9 \xe2\x82\xac\x01"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        fuzz_seed(texts[i][0], texts[i][1], 1 + strlen(texts[i][1] + 1));
}
