/* filter_parse.c - filters from text. The table of keys is all there is to know about one. */
#include "common/base/parse.h"
#include "pool/schedule/filter_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct key {
    const char *name;
    enum rg_pool_filter_key key;
    enum rg_pool_filter_kind kind;
};

static const struct key keys[] = {
    {"server.addr", RG_POOL_SERVER_ADDR, RG_POOL_TEXT},
    {"server.hostname", RG_POOL_SERVER_HOSTNAME, RG_POOL_TEXT},
    {"server.has-rdma", RG_POOL_SERVER_HAS_RDMA, RG_POOL_FLAG},
    {"server.cuda-version", RG_POOL_SERVER_CUDA_VERSION, RG_POOL_VERSION},
    {"server.driver-version", RG_POOL_SERVER_DRIVER_VERSION, RG_POOL_VERSION},
    {"device.index", RG_POOL_DEVICE_INDEX, RG_POOL_INDEX},
    {"device.id", RG_POOL_DEVICE_ID, RG_POOL_TEXT},
    {"device.name", RG_POOL_DEVICE_NAME, RG_POOL_TEXT},
    {"device.memory", RG_POOL_DEVICE_MEMORY, RG_POOL_SIZE},
    {"device.phy-memory", RG_POOL_DEVICE_MEMORY, RG_POOL_SIZE}, /* Bitfusion's name */
};
#define N_KEYS (sizeof keys / sizeof *keys)

/* Longer ones first: "<" begins "<=". */
static const struct {
    const char *text;
    enum rg_pool_filter_operator op;
} operators[] = {
    {"!=", RG_POOL_UNEQUAL}, {"<=", RG_POOL_AT_MOST}, {">=", RG_POOL_AT_LEAST},
    {"=", RG_POOL_EQUAL},    {"<", RG_POOL_LESS},     {">", RG_POOL_MORE},
};
#define N_OPERATORS (sizeof operators / sizeof *operators)

/* The keys, as a sentence lists them; static storage. */
static const char *filter_keys(void)
{
    return "server.addr, server.hostname, server.has-rdma, server.cuda-version, server.driver-version, "
           "device.index, device.id, device.name, device.memory, labels.NAME";
}

enum rg_pool_filter_kind rg_pool_filter_kind_of(enum rg_pool_filter_key key)
{
    for (size_t i = 0; i < N_KEYS; i++)
        if (keys[i].key == key)
            return keys[i].kind;
    return RG_POOL_TEXT;
}

/* Copies text[0..n) without the spaces around it; false if it does not fit. */
static bool trimmed(char out[RG_POOL_FILTER_TEXT], const char *text, size_t n)
{
    for (; n && isspace((unsigned char)*text); n--)
        text++;
    while (n && isspace((unsigned char)text[n - 1]))
        n--;
    if (n >= RG_POOL_FILTER_TEXT)
        return false;
    memcpy(out, text, n);
    return true;
}

static bool printable(const char *text)
{
    for (; *text; text++)
        if (iscntrl((unsigned char)*text))
            return false;
    return true;
}

/* Splits "KEY OP VALUE": into `name` and out->op, ->value, ->text. */
static enum rg_status split(const char *text, char name[RG_POOL_FILTER_TEXT], struct rg_pool_filter *out,
                            char *why, size_t why_size)
{
    if (strlen(text) >= RG_POOL_FILTER_TEXT || !printable(text))
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "a filter has at most %d characters, all printable",
                         RG_POOL_FILTER_TEXT - 1);
    const char *at = text + strcspn(text, "=<>!");
    size_t i = 0;
    while (i < N_OPERATORS && strncmp(at, operators[i].text, strlen(operators[i].text)) != 0)
        i++;
    if (i == N_OPERATORS)
        return RG_FAILED(
            RG_ERR_INVALID, why, why_size,
            "'%s' is not a filter: write KEY OPERATOR VALUE, like device.memory>=40G, with one of "
            "= != < <= > >=",
            text);
    const char *value = at + strlen(operators[i].text);
    if (*value == '=' && operators[i].op == RG_POOL_EQUAL) /* == is a habit from elsewhere */
        value++;
    out->op = operators[i].op;
    if (!trimmed(name, text, (size_t)(at - text)) || !trimmed(out->value, value, strlen(value)) ||
        !trimmed(out->text, text, strlen(text)))
        return RG_ERR_INVALID; /* cannot be: the whole was short enough */
    if (!*out->value)
        return RG_FAILED(RG_ERR_INVALID, why, why_size,
                         "'%s' compares %s with nothing: write a value after the %s", text, name,
                         operators[i].text);
    return RG_OK;
}

static enum rg_status find_key(const char *name, struct rg_pool_filter *out, char *why, size_t why_size)
{
    for (size_t i = 0; i < N_KEYS; i++) {
        if (strcasecmp(keys[i].name, name) == 0) {
            out->key = keys[i].key;
            return RG_OK;
        }
    }
    if (strncasecmp(name, "labels.", 7) == 0 && name[7]) {
        out->key = RG_POOL_LABEL;
        memcpy(out->label, name + 7, strlen(name + 7));
        return RG_OK;
    }
    return RG_FAILED(RG_ERR_INVALID, why, why_size, "'%s' is no key of a filter; there are %s", name,
                     filter_keys());
}

static enum rg_status flag_value(struct rg_pool_filter *out, char *why, size_t why_size)
{
    static const char *const yes[] = {"true", "yes", "1"}, *const no[] = {"false", "no", "0"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        if (strcasecmp(out->value, yes[i]) == 0 || strcasecmp(out->value, no[i]) == 0) {
            out->number = strcasecmp(out->value, yes[i]) == 0;
            return RG_OK;
        }
    }
    return RG_FAILED(RG_ERR_INVALID, why, why_size, "'%s': '%s' is neither true nor false", out->text,
                     out->value);
}

static enum rg_status number_value(enum rg_pool_filter_kind kind, struct rg_pool_filter *out, char *why,
                                   size_t why_size)
{
    char reason[RG_POOL_FILTER_TEXT + 64];
    int64_t index = 0;
    const enum rg_status status =
        kind == RG_POOL_SIZE ? rg_parse_size(out->value, &out->number, reason, sizeof reason)
                             : rg_parse_integer(out->value, 0, UINT32_MAX, &index, reason, sizeof reason);
    if (status != RG_OK) {
        rg_explain(why, why_size, "'%s': %s", out->text, reason);
        return status;
    }
    if (kind == RG_POOL_INDEX)
        out->number = (uint64_t)index;
    return RG_OK;
}

static enum rg_status parse_value(struct rg_pool_filter *out, char *why, size_t why_size)
{
    const enum rg_pool_filter_kind kind = rg_pool_filter_kind_of(out->key);
    const bool ordered = out->op != RG_POOL_EQUAL && out->op != RG_POOL_UNEQUAL;
    if (ordered && (kind == RG_POOL_TEXT || kind == RG_POOL_FLAG) && out->key != RG_POOL_LABEL)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "'%s': only = and != can be asked of this key",
                         out->text);
    switch (kind) {
    case RG_POOL_FLAG:
        return flag_value(out, why, why_size);
    case RG_POOL_VERSION:
        if (rg_pool_version_parse(out->value, out->version))
            return RG_OK;
        return RG_FAILED(RG_ERR_INVALID, why, why_size,
                         "'%s': '%s' is not a version (like 12.8 or 570.86.15)", out->text, out->value);
    case RG_POOL_INDEX:
    case RG_POOL_SIZE:
        return number_value(kind, out, why, why_size);
    case RG_POOL_TEXT:
        if (!ordered || rg_pool_decimal_parse(out->value, &out->decimal))
            return RG_OK;
        return RG_FAILED(RG_ERR_INVALID, why, why_size,
                         "'%s': '%s' is not a number, and only numbers are above or below each other",
                         out->text, out->value);
    }
    return RG_ERR_INVALID;
}

enum rg_status rg_pool_filter_parse(const char *text, struct rg_pool_filter *out, char *why, size_t why_size)
{
    struct rg_pool_filter filter;
    memset(&filter, 0, sizeof filter); /* padding too: equal filters have equal bytes */
    char name[RG_POOL_FILTER_TEXT] = {0};
    RG_TRY(split(text, name, &filter, why, why_size));
    RG_TRY(find_key(name, &filter, why, why_size));
    RG_TRY(parse_value(&filter, why, why_size));
    memcpy(out, &filter, sizeof filter);
    return RG_OK;
}

enum rg_status rg_pool_filters_parse(const char *const *texts, uint32_t n, struct rg_pool_filter *out,
                                     char *why, size_t why_size)
{
    for (uint32_t i = 0; i < n; i++)
        RG_TRY(rg_pool_filter_parse(texts[i], &out[i], why, why_size));
    return rg_pool_filters_check(out, n, why, why_size);
}
