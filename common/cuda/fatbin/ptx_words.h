/*
 * ptx_words.h - PTX as words: for those who look for a few declarations in it and do not parse the rest.
 *
 * Nothing outside of the text is read, whatever it says. No NUL ends it. Any thread.
 */
#ifndef RG_COMMON_CUDA_FATBIN_PTX_WORDS_H
#define RG_COMMON_CUDA_FATBIN_PTX_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** What is still to be read. */
struct rg_ptx_text {
    const char *at, *end;
};

struct rg_ptx_word {
    const char *at;
    size_t length;
};

#define RG_PTX_UNSIZED UINT64_MAX /* a number that is not said, or not in a way that is understood */

/** Whether the word is exactly `text`. */
bool rg_ptx_is(const struct rg_ptx_word *word, const char *text);
bool rg_ptx_is_digit(char c);
/**
 * The next word (a name, number or directive) or single character; false at the end. Spaces, comments and strings are
 * passed over.
 */
bool rg_ptx_next(struct rg_ptx_text *text, struct rg_ptx_word *word);
/** Behind an opening bracket: to behind the one that closes it. Says whether `wanted` (or NULL) was in between. */
bool rg_ptx_skip_brackets(struct rg_ptx_text *text, char open, char close, const char *wanted);
/** The number in "64]", behind the opening bracket: to behind the closing one. Or RG_PTX_UNSIZED. */
uint64_t rg_ptx_dimension(struct rg_ptx_text *text);
/** Bytes of an element, of ".f32" and the like; 0: it is no type. */
uint64_t rg_ptx_width(const struct rg_ptx_word *type);

#endif
