/* exposition.c - see exposition.h. */
#include "server/http/exposition.h"

#include "common/base/printable.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_MAX 9007199254740992.0 /* 2^53: up to here every integer is a double */

static bool make_room(struct rg_exposition *out, size_t more)
{
    if (out->failed || out->capacity - out->size > more)
        return !out->failed;
    const size_t wanted = (out->size + more + 1) * 2;
    char *grown = realloc(out->text, wanted);
    out->failed = !grown;
    if (!grown)
        return false;
    out->text = grown;
    out->capacity = wanted;
    return true;
}

static void add_bytes(struct rg_exposition *out, const char *text, size_t size)
{
    if (!make_room(out, size))
        return;
    memcpy(out->text + out->size, text, size);
    out->size += size;
    out->text[out->size] = 0;
}

static void add(struct rg_exposition *out, const char *text)
{
    add_bytes(out, text, strlen(text));
}

/* Help and labels' values; quotation marks are escaped in the latter alone. */
static void add_escaped(struct rg_exposition *out, const char *text, bool quoted)
{
    const size_t size = strlen(text);
    for (size_t i = 0; i < size;) {
        const size_t n = rg_printable_character((const unsigned char *)text + i, size - i);
        if (n == 0)
            add(out, text[i] == '\n' ? "\\n" : "?");
        else if (text[i] == '\\' || (quoted && text[i] == '"'))
            add_bytes(out, (const char[]){'\\', text[i]}, 2);
        else
            add_bytes(out, text + i, n);
        i += n ? n : 1;
    }
}

static const char *suffix_of(const struct rg_exposition *out)
{
    return out->type == RG_METRIC_COUNTER ? "_total" : out->type == RG_METRIC_INFO ? "_info" : "";
}

void rg_exposition_family(struct rg_exposition *out, const char *name, enum rg_metric_type type,
                          const char *unit, const char *help)
{
    static const char *const types[] = {"gauge", "counter", "info", "unknown"};
    static const char *const older[] = {"gauge", "counter", "gauge", "untyped"};
    out->name = name;
    out->type = type;
    /* the older format calls a family as its samples */
    const char *suffix = out->openmetrics ? "" : suffix_of(out);
    const char *const parts[] = {"# TYPE ", name, suffix, " ", (out->openmetrics ? types : older)[type],
                                 "\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        add(out, parts[i]);
    if (out->openmetrics && *unit) {
        const char *const named[] = {"# UNIT ", name, " ", unit, "\n"};
        for (size_t i = 0; i < sizeof named / sizeof *named; i++)
            add(out, named[i]);
    }
    const char *const helps[] = {"# HELP ", name, suffix, " "};
    for (size_t i = 0; i < sizeof helps / sizeof *helps; i++)
        add(out, helps[i]);
    add_escaped(out, help, out->openmetrics);
    add(out, "\n");
}

void rg_exposition_sample(struct rg_exposition *out, const struct rg_label *labels, size_t n, double value)
{
    char number[40];
    add(out, out->name);
    add(out, suffix_of(out));
    for (size_t i = 0; i < n; i++) {
        add(out, i ? "," : "{");
        add(out, labels[i].name);
        add(out, "=\"");
        add_escaped(out, labels[i].value, true);
        add(out, "\"");
    }
    if (isfinite(value) && fabs(value) <= EXACT_MAX && floor(value) == value)
        snprintf(number, sizeof number, "%s %lld\n", n ? "}" : "", (long long)value);
    else
        snprintf(number, sizeof number, "%s %.17g\n", n ? "}" : "", value);
    add(out, number);
}

enum rg_status rg_exposition_end(struct rg_exposition *out)
{
    if (out->openmetrics)
        add(out, "# EOF\n");
    return out->failed ? RG_ERR_NO_MEMORY : RG_OK;
}
