/* MD2 by the vectors of RFC 1319, the HMAC against an independent computation, and the message that is signed. */
#include "common/cuda/integrity.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static void hex(const unsigned char *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        sprintf(out + 2 * i, "%02x", bytes[i]);
}

Test(md2, vectors_of_the_rfc)
{
    static const struct {
        const char *text, *digest;
    } vectors[] = {
        {"", "8350e5a3e24c153df2275c9f80692773"},
        {"a", "32ec01ec4a6dac72c0ab96fb34c0b5d1"},
        {"abc", "da853b0d3f88d99b30283a69e6ded6bb"},
        {"message digest", "ab4f496bfb2a530b219ff33031fe06b0"},
        {"abcdefghijklmnopqrstuvwxyz", "4e8ddff3650292ab5a4108c3aa47940b"},
        {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
         "da33def2a42df13975352846c30338cd"},
        {"12345678901234567890123456789012345678901234567890123456789012345678901234567890",
         "d5976f79d83d3a0dc9806c3c66f3efd8"},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        unsigned char digest[RG_MD2_SIZE];
        char text[33];
        rg_md2(vectors[i].text, strlen(vectors[i].text), digest);
        hex(digest, sizeof digest, text);
        cr_assert_str_eq(text, vectors[i].digest);
    }
}

Test(hmac, is_two_nested_hashes)
{
    unsigned char key[16], message[40], inner[16 + 40], outer[32], expected[16], mac[16];
    for (int i = 0; i < 16; i++)
        key[i] = (unsigned char)(i * 11);
    for (int i = 0; i < 40; i++)
        message[i] = (unsigned char)(200 - i);
    for (int i = 0; i < 16; i++) {
        inner[i] = key[i] ^ 0x36;
        outer[i] = key[i] ^ 0x5c;
    }
    memcpy(inner + 16, message, sizeof message);
    rg_md2(inner, sizeof inner, outer + 16);
    rg_md2(outer, sizeof outer, expected);
    rg_hmac_md2(key, sizeof key, message, sizeof message, mac);
    cr_assert_arr_eq(mac, expected, 16);
}

static const struct rg_integrity_device device = {
    .uuid = {1, 2, 3}, .pci_domain = 1, .pci_bus = 2, .pci_device = 3};

static struct rg_integrity_facts facts(void)
{
    return (struct rg_integrity_facts){.driver_version = 13000,
                                       .pid = 77,
                                       .thread = 0xdeadbeef,
                                       .runtime_table = (void *)0x1000,
                                       .integrity_table = (void *)0x2000,
                                       .integrity_function = (void *)0x3000,
                                       .devices = &device,
                                       .n_devices = 1};
}

Test(answer, is_fixed_for_two_kinds_of_version)
{
    struct rg_integrity_facts f = facts();
    uint64_t out[2];
    rg_integrity_answer(&f, 13000, 5, out);
    cr_assert(out[0] == 0x3341181C03CB675Cull && out[1] == 0x8ED383AA1F4CD1E8ull);
    rg_integrity_answer(&f, 13001, 5, out);
    cr_assert(out[0] == 0x1841181C03CB675Cull && out[1] == 0x8ED383AA1F4CD1E8ull);
}

Test(answer, signs_every_fact)
{
    struct rg_integrity_facts f = facts();
    uint64_t base[2], again[2], out[2];
    rg_integrity_answer(&f, 13002, 5, base);
    rg_integrity_answer(&f, 13002, 5, again);
    cr_assert_arr_eq(base, again, sizeof base);
    rg_integrity_answer(&f, 13002, 6, out);
    cr_assert_arr_neq(base, out, sizeof base);
    rg_integrity_answer(&f, 13003, 5, out);
    cr_assert_arr_neq(base, out, sizeof base);
    f.pid++;
    rg_integrity_answer(&f, 13002, 5, out);
    cr_assert_arr_neq(base, out, sizeof base);
    f = facts();
    f.integrity_function = (void *)0x3001;
    rg_integrity_answer(&f, 13002, 5, out);
    cr_assert_arr_neq(base, out, sizeof base);
    f = facts();
    f.n_devices = 0;
    rg_integrity_answer(&f, 13002, 5, out);
    cr_assert_arr_neq(base, out, sizeof base);
}
