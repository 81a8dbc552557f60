/* option.c - see option.h. */
#include "transport/filters/option.h"

#include <string.h>

bool rg_filter_option_next(const char **cursor, struct rg_filter_option *out, enum rg_status *status,
                           char *why, size_t why_size)
{
    *status = RG_OK;
    if (**cursor == '\0')
        return false;
    size_t length = strcspn(*cursor, ",");
    size_t key_length = strcspn(*cursor, "=,");
    size_t value_length = key_length < length ? length - key_length - 1 : 0;
    if (key_length == 0 || value_length == 0 || key_length >= sizeof out->key ||
        value_length >= sizeof out->value) {
        rg_explain(why, why_size, "'%.*s' is not an option (like key=value)", (int)length, *cursor);
        *status = RG_ERR_INVALID;
        return false;
    }
    memcpy(out->key, *cursor, key_length);
    out->key[key_length] = '\0';
    memcpy(out->value, *cursor + key_length + 1, value_length);
    out->value[value_length] = '\0';
    *cursor += length;
    if (**cursor == ',')
        (*cursor)++;
    return true;
}
