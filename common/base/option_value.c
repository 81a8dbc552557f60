/* option_value.c - see option_value.h. */
#include "common/base/option_value.h"

#include "common/base/parse.h"

#include <stdlib.h>
#include <string.h>

void rg_text_list_clear(struct rg_text_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct rg_text_list){0};
}

/* Appends the parts between commas, without the blanks around them; empty ones are dropped. */
static enum rg_status list_add(struct rg_text_list *list, const char *text)
{
    while (*text) {
        text += strspn(text, RG_OPTION_BLANKS);
        const size_t part = strcspn(text, ",");
        size_t size = part;
        while (size && strchr(RG_OPTION_BLANKS, text[size - 1]))
            size--;
        if (size) {
            char **items = realloc(list->items, (list->n + 1) * sizeof *items);
            if (!items)
                return RG_ERR_NO_MEMORY;
            list->items = items;
            items[list->n] = strndup(text, size);
            if (!items[list->n])
                return RG_ERR_NO_MEMORY;
            list->n++;
        }
        text += part + (text[part] == ',');
    }
    return RG_OK;
}

static bool is_choice(const char *choices, const char *text)
{
    size_t size = strlen(text);
    for (const char *at = choices; size && *at;) {
        size_t length = strcspn(at, "|");
        if (length == size && memcmp(at, text, size) == 0)
            return true;
        at += length + (at[length] == '|');
    }
    return false;
}

static enum rg_status parse_flag(const char *text, bool *out, char *why, size_t why_size)
{
    static const char *const yes[] = {"yes", "true", "on", "1"}, *const no[] = {"no", "false", "off", "0"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *out = strcasecmp(text, yes[i]) == 0;
            return RG_OK;
        }
    }
    return RG_FAILED(RG_ERR_INVALID, why, why_size, "'%s' is neither yes nor no", text);
}

static enum rg_status parse_seconds(const char *text, uint64_t *out, char *why, size_t why_size)
{
    int64_t seconds;
    if (rg_parse_integer(text, 0, 100000000, &seconds, NULL, 0) == RG_OK) {
        *out = (uint64_t)seconds * 1000000000u;
        return RG_OK;
    }
    if (rg_parse_duration(text, out, NULL, 0) == RG_OK)
        return RG_OK;
    return RG_FAILED(RG_ERR_INVALID, why, why_size,
                     "'%s' is not a time: a number of seconds, or like 30s, 10min, 12h or 7d", text);
}

static enum rg_status fail_choice(const char *text, const char *choices, char *why, size_t why_size)
{
    char list[128] = "";
    size_t used = 0;
    for (const char *at = choices; *at && used < sizeof list - 2; at++) {
        list[used++] = *at == '|' ? ',' : *at;
        if (*at == '|')
            list[used++] = ' ';
    }
    return RG_FAILED(RG_ERR_INVALID, why, why_size, "'%s' is not one of %.*s", text, (int)used, list);
}

static enum rg_status set_text(const struct rg_option *row, char **field, const char *text, char *why,
                               size_t why_size)
{
    if (row->type == RG_OPTION_CHOICE && !is_choice(row->argument, text))
        return fail_choice(text, row->argument, why, why_size);
    if (row->type == RG_OPTION_TEXT && !row->check && !*text)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "'' is no %s", row->argument);
    if (row->check && row->check(text, why, why_size) != RG_OK)
        return RG_ERR_INVALID;
    char *copy = strdup(text);
    if (!copy)
        return RG_ERR_NO_MEMORY;
    free(*field);
    *field = copy;
    return RG_OK;
}

enum rg_status rg_option_parse(const struct rg_option *row, void *field, bool first, const char *text,
                               char *why, size_t why_size)
{
    switch (row->type) {
    case RG_OPTION_FLAG:
        return parse_flag(text, field, why, why_size);
    case RG_OPTION_TEXT:
    case RG_OPTION_OPTIONAL_TEXT:
    case RG_OPTION_CHOICE:
        return set_text(row, field, text, why, why_size);
    case RG_OPTION_LIST:
        if (first)
            rg_text_list_clear(field);
        return list_add(field, text);
    case RG_OPTION_INTEGER:
        return rg_parse_integer(text, row->min, row->max, field, why, why_size);
    case RG_OPTION_SIZE:
        return rg_parse_size(text, field, why, why_size);
    case RG_OPTION_FRACTION:
        return rg_parse_fraction(text, field, why, why_size);
    case RG_OPTION_SECONDS:
        return parse_seconds(text, field, why, why_size);
    }
    return RG_ERR_INVALID;
}
