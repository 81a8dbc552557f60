/* Tokens, whole and damaged. */
#include "client/credentials/token.h"

#include <criterion/criterion.h>

#define GOOD                                                                                                 \
    "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh_-_fz7-vn49_b19PPy8fDv" /* 00 01 … 1f, then fe fd … ef */

static struct rg_join_token token;
static char why[512];

Test(token, good)
{
    cr_assert_eq(rg_join_token_parse("rgpu1:" GOOD "@GPU-machine", &token, why, sizeof why), RG_OK, "%s",
                 why);
    for (int i = 0; i < 32; i++)
        cr_assert_eq(token.authority[i], i);
    for (int i = 0; i < 16; i++)
        cr_assert_eq(token.secret[i], 0xfe - i);
    cr_assert_str_eq(token.server, "gpu-machine:7600");
    cr_assert_eq(rg_join_token_parse("rgpu1:" GOOD "@[fd00::1]:9", &token, why, sizeof why), RG_OK, "%s",
                 why);
    cr_assert_str_eq(token.server, "[fd00::1]:9");
    cr_assert_str_eq(token.address.host, "fd00::1");
}

static void bad(const char *text, const char *words)
{
    cr_assert_eq(rg_join_token_parse(text, &token, why, sizeof why), RG_ERR_INVALID, "%s", text);
    cr_assert_not_null(strstr(why, words), "%s: %s", text, why);
}

Test(token, bad)
{
    bad("", "is no token");
    bad("gpu-machine:7600", "is no token");
    bad("rgpu2:" GOOD "@gpu", "later release");
    bad("rgpu1:", "damaged");
    bad("rgpu1:" GOOD, "damaged");
    bad("rgpu1:@gpu", "damaged");
    bad("rgpu1:A" GOOD "@gpu", "damaged");
    bad("rgpu1:" GOOD "@", "names no server");
    bad("rgpu1:" GOOD "@unix:/run/x", "names no server");
    bad("rgpu1:" GOOD "@gpu:port", "names no server");
    bad("rgpu1:" GOOD "@gpu:0", "names no server");
    char changed[] = "rgpu1:" GOOD "@gpu";
    for (unsigned i = 6; i < 6 + 64; i++) {
        for (const char *letter = "+/= \n@.:"; *letter; letter++) {
            const char before = changed[i];
            changed[i] = *letter;
            bad(changed, "damaged");
            changed[i] = before;
        }
    }
}
