/* suggest.h - what a word that is not known was probably meant to be. Any thread. */
#ifndef RG_COMMON_BASE_SUGGEST_H
#define RG_COMMON_BASE_SUGGEST_H

#include <stddef.h>

/** The one of `n` names that `text` was probably meant to be, or NULL. `stride`: bytes from one name to the next. */
const char *rg_suggest(const char *text, const char *const *names, size_t n, size_t stride);

#endif
