/* option_value.h - internal to options.c: what the text of an option's value means, by the option's type. */
#ifndef RG_COMMON_BASE_OPTION_VALUE_H
#define RG_COMMON_BASE_OPTION_VALUE_H

#include "common/base/options.h"

#define RG_OPTION_BLANKS " \t\r\n" /* around values; variables that are filled from files end with a line */

/** Parses `text` into a row's field; lists begin anew with the `first`. `why` gets the phrase without the option's name. */
RG_MUST_CHECK enum rg_status rg_option_parse(const struct rg_option *row, void *field, bool first,
                                             const char *text, char *why, size_t why_size);

#endif
