/* suggest.c - slips of the finger and beginnings of words find what was meant; what is far from everything finds nothing. */
#include "common/base/suggest.h"

#include <criterion/criterion.h>

Test(suggest, words)
{
    static const char *const names[] = {"run", "list", "smi", "version"};
    cr_expect_str_eq(rg_suggest("rnu", names, 4, sizeof names[0]), "run");
    cr_expect_str_eq(rg_suggest("lst", names, 4, sizeof names[0]), "list");
    cr_expect_str_eq(rg_suggest("vers", names, 4, sizeof names[0]), "version");
    cr_expect_null(rg_suggest("benchmark", names, 4, sizeof names[0]));
    cr_expect_null(rg_suggest("a-word-that-is-much-longer-than-all-of-the-names", names, 4, sizeof names[0]));
}
