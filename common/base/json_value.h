/* json_value.h - what a member of a JSON object says that somebody else has written: it may be missing, or something else. */
#ifndef RG_COMMON_BASE_JSON_VALUE_H
#define RG_COMMON_BASE_JSON_VALUE_H

#include <jansson.h>
#include <stdint.h>

/** A member's text, as long as the object has it; "" if it has none. */
static inline const char *rg_json_get_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/** A member that is an integer from 0 on; `otherwise` if it has none. */
static inline uint64_t rg_json_get_number(const json_t *object, const char *name, uint64_t otherwise)
{
    const json_t *value = json_object_get(object, name);
    return json_is_integer(value) && json_integer_value(value) >= 0 ? (uint64_t)json_integer_value(value)
                                                                    : otherwise;
}

#endif
