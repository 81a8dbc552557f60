/* printable.c - text from elsewhere: what is left of it, and that nothing of it controls a terminal. */
#include "common/base/printable.h"

#include <criterion/criterion.h>
#include <string.h>

Test(printable, a_line_has_no_ends_of_lines)
{
    char text[] = "a\tb\nc\x1b[2Jd \xc3\xa4 \xc2\x9b \xe2\x80\xae \xff";
    rg_printable_clean(text);
    cr_assert_str_eq(text, "a?b?c?[2Jd \xc3\xa4 ?? ??? ?");
}

Test(printable, lines_keep_their_ends_and_nothing_that_controls_a_terminal)
{
    char text[] = "a\tb\nc\r\x1b[2J\0d \xc3\xa4 \xc2\x9b\n\xc3";
    rg_printable_clean_lines(text, sizeof text - 1);
    static const char left[] = "a\tb\nc??[2J?d \xc3\xa4 ??\n?";
    cr_assert_arr_eq(text, left, sizeof left);
}
