/* printable.h - text that came from elsewhere, before it is shown or written into a format of others. */
#ifndef RG_COMMON_BASE_PRINTABLE_H
#define RG_COMMON_BASE_PRINTABLE_H

#include <stddef.h>

/**
 * Bytes of the UTF-8 character at `text` (of at most `size` bytes, at least 1); 0: it is none that may be shown, because it
 * is no UTF-8, controls a terminal, or changes the order of what is around it.
 */
size_t rg_printable_character(const unsigned char *text, size_t size);
/** Puts '?' in the place of each byte that is part of no such character: what is left is UTF-8. */
void rg_printable_clean(char *text);
/** The same in `size` bytes of lines: their ends and tabulators stay, zeros do not. */
void rg_printable_clean_lines(char *text, size_t size);

#endif
