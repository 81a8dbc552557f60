/* json_text.h - a growing text, and what JSON needs. After memory ran out, `failed` is set and nothing is
 * added any more. */
#ifndef RG_CLIENT_PROFILE_JSON_TEXT_H
#define RG_CLIENT_PROFILE_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rg_json_text {
    char *data;
    size_t used, capacity;
    bool failed;
};

/** Both add words as they are, unquoted; without memory `failed` is set and the text stays as it was. */
void rg_json_text_put(struct rg_json_text *text, const char *words);
void rg_json_text_format(struct rg_json_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** Many of these are written, which is what they are made for. */
void rg_json_text_number(struct rg_json_text *text, uint64_t number);
/** Nanoseconds as microseconds with three decimals. */
void rg_json_text_us(struct rg_json_text *text, uint64_t ns);
/** A JSON string with its quotes; bytes that are no UTF-8 text become '?'. */
void rg_json_text_string(struct rg_json_text *text, const char *string);

#endif
