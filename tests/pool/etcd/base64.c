/* base64.c - the vectors of RFC 4648, all lengths both ways, and what is none. */
#include "pool/etcd/base64.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void check(const char *plain, const char *encoded)
{
    size_t size = 99;
    char *out = rg_base64_encode(plain, strlen(plain));
    cr_assert_str_eq(out, encoded);
    char *back = rg_base64_decode(encoded, &size);
    cr_assert_not_null(back, "%s", encoded);
    cr_assert_eq(size, strlen(plain));
    cr_assert_str_eq(back, plain);
    free(out);
    free(back);
}

Test(pool_base64, vectors)
{
    check("", "");
    check("f", "Zg==");
    check("fo", "Zm8=");
    check("foo", "Zm9v");
    check("foob", "Zm9vYg==");
    check("fooba", "Zm9vYmE=");
    check("foobar", "Zm9vYmFy");
}

Test(pool_base64, every_byte)
{
    unsigned char bytes[256];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(255 - i);
    for (size_t n = 0; n <= sizeof bytes; n++) {
        size_t size = 0;
        char *text = rg_base64_encode(bytes, n);
        char *back = rg_base64_decode(text, &size);
        cr_assert(back && size == n && memcmp(back, bytes, n) == 0 && back[n] == '\0', "%zu bytes", n);
        free(text);
        free(back);
    }
}

Test(pool_base64, what_is_none)
{
    static const char *const wrong[] = {
        "Z", "Zg", "Zg=", "Zg=a", "Z===", "Zm9v!m8=", "=Zg=", "Zm8=Zm8=", "Zm 9"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t size = 0;
        char *out = rg_base64_decode(wrong[i], &size);
        cr_assert_null(out, "%s", wrong[i]);
        free(out);
    }
}
