/* fields.c - lines of words, serials, and names of users; lists of what was revoked. */
#include "server/identity/fields.h"
#include "server/identity/revoked.h"
#include "server/identity/users.h"
#include "tests/server/identity/folder.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

Test(fields, lines)
{
    char text[] = "# a comment\n\n  key  value \r\nlast 1 2 3 4 5 6 7 8 9";
    struct rg_fields fields = {.file = "f", .at = text};
    cr_assert(rg_fields_next(&fields));
    cr_expect(rg_fields_is(&fields, "key", 2));
    cr_expect_str_eq(fields.words[1], "value");
    cr_assert(rg_fields_next(&fields));
    cr_expect_eq(fields.n, 10);
    cr_expect_not(rg_fields_is(&fields, "last", 2));
    char why[256];
    cr_expect_eq(rg_fields_bad(&fields, why, sizeof why), RG_ERR_INVALID);
    cr_expect_not_null(strstr(why, "f, line 4:"), "%s", why);
    cr_expect_not(rg_fields_next(&fields));
}

Test(fields, numbers)
{
    uint64_t out;
    cr_expect(rg_field_number("18446744073709551615", UINT64_MAX, &out) && out == UINT64_MAX);
    static const char *const bad[] = {"", "-1", "+1", " 1", "1x", "0x1", "18446744073709551616"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_expect_not(rg_field_number(bad[i], UINT64_MAX, &out), "%s", bad[i]);
    cr_expect_not(rg_field_number("5", 4, &out));
}

Test(serial, forms)
{
    uint8_t a[RG_IDENTITY_SERIAL], b[RG_IDENTITY_SERIAL], n, m;
    char text[2 * RG_IDENTITY_SERIAL + 1];
    cr_assert(rg_serial_parse("00:4F:0a:ff", a, &n));
    cr_expect_eq(n, 3);
    rg_serial_text(a, n, text);
    cr_expect_str_eq(text, "4f0aff");
    cr_assert(rg_serial_parse("4f0aff", b, &m));
    cr_expect(rg_serial_equal(a, n, b, m));
    cr_expect(rg_serial_equal((const uint8_t *)"\0\0\x4f\x0a\xff", 5, b, m));
    cr_expect_not(rg_serial_equal(a, 2, b, m));
    static const char *const bad[] = {
        "", "0", "4f0", "xy", "4f:", ":4f", "00", "4f 0a", "0102030405060708090a0b0c0d0e0f101112131415"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_expect_not(rg_serial_parse(bad[i], a, &n), "%s", bad[i]);
}

Test(users, names)
{
    static const char *const good[] = {"a", "alice", "alice@example.org", "team-7_x.y+z", "0", "deadbeef"};
    static const char *const bad[] = {"",
                                      ".",
                                      "..",
                                      ".x",
                                      "-x",
                                      "a/b",
                                      "a b",
                                      "a\n",
                                      "ä",
                                      "a\"b",
                                      "../ca.key",
                                      "0123456789abcdef",
                                      "12345678901234567890123456789012345678901234567890123456789012345"};
    char why[256];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        cr_expect_eq(rg_user_check_name(good[i], why, sizeof why), RG_OK, "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_expect_eq(rg_user_check_name(bad[i], why, sizeof why), RG_ERR_INVALID, "%s", bad[i]);
}

Test(users, damaged_files_are_refused)
{
    static const char *const bad[] = {
        "certificate 4f0a issued 1 expires",
        "certificate 4f0a issued 1 expires 2 revoked",
        "certificate 4f0a issued 1 expires 2 revoked 0",
        "certificate 4f0 issued 1 expires 2",
        "certificate 4f0a issued 1 expires -2",
        "max-sessions -1",
        "max-sessions 4294967296",
        "max-of-something-new 1",
        "certificate 4f0a issued 1 expi", /* half of it */
    };
    struct rg_state state;
    struct rg_user user;
    char why[512];
    cr_assert_eq(rg_state_open(&state, test_folder(), true, why, sizeof why), RG_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_file("users/alice", bad[i], 0600);
        why[0] = 0;
        cr_expect_eq(rg_user_load(&state, "alice", &user, why, sizeof why), RG_ERR_INVALID, "%s", bad[i]);
        cr_expect_not_null(strstr(why, "users/alice, line 1"), "%s: %s", bad[i], why);
    }
    write_file("users/alice", "# nothing\n", 0600);
    cr_expect_eq(rg_user_load(&state, "alice", &user, why, sizeof why), RG_OK);
    cr_expect_eq(user.n, 0);
    rg_user_fini(&user);
    rg_state_close(&state);
}

Test(users, what_has_long_expired_is_forgotten)
{
    struct rg_state state;
    struct rg_user user;
    char why[512];
    cr_assert_eq(rg_state_open(&state, test_folder(), true, why, sizeof why), RG_OK);
    write_file("users/alice",
               "max-sessions 3\nmax-gpus 2\n"
               "certificate 0101 issued 1 expires 1790000000 revoked 5\n"
               "certificate 0202 issued 1 expires 1799000000\n"
               "certificate 0303 issued 1 expires 1801000000 revoked 1799999999\n",
               0600);
    cr_assert_eq(rg_user_load(&state, "alice", &user, why, sizeof why), RG_OK, "%s", why);
    cr_expect_eq(user.n, 3);
    cr_expect_eq(user.limits.max_sessions, 3);
    cr_expect_eq(user.limits.max_gpus, 2);
    cr_expect_eq(rg_user_valid(&user, NOW), 0);
    cr_assert_eq(rg_state_lock(&state, why, sizeof why), RG_OK);
    cr_assert_eq(rg_user_save(&state, &user, NOW, why, sizeof why), RG_OK);
    rg_user_fini(&user);
    char *text = read_file("users/alice");
    cr_expect_null(strstr(text, "certificate 0101"), "%s", text);
    cr_expect_not_null(strstr(text, "certificate 0202 issued 1 expires 1799000000\n"), "%s", text);
    cr_expect_not_null(strstr(text, "revoked 1799999999"), "%s", text);
    cr_expect_not_null(strstr(text, "max-gpus 2\n"), "%s", text);
    free(text);
    rg_state_close(&state);
}

Test(revoked, lines)
{
    struct rg_state state;
    char why[512] = "";
    bool added;
    const uint8_t serial[] = {0x4f, 0x0a};
    cr_assert_eq(rg_state_open(&state, test_folder(), true, why, sizeof why), RG_OK);
    cr_expect_eq(rg_revoked_check(&state, "alice", serial, 2, why, sizeof why), RG_OK);
    write_file("revoked", "# by hand\nspiffe://example.org/bob  \n serial:00:4F:0B", 0644);
    cr_expect_eq(rg_revoked_check(&state, "alice", serial, 2, why, sizeof why), RG_OK);
    cr_expect_eq(rg_revoked_check(&state, "spiffe://example.org/bob", serial, 2, why, sizeof why),
                 RG_ERR_REFUSED);
    cr_expect_eq(rg_revoked_check(&state, "spiffe://example.org/bo", serial, 2, why, sizeof why), RG_OK);
    cr_assert_eq(rg_state_lock(&state, why, sizeof why), RG_OK);
    cr_expect_eq(rg_revoked_add(&state, "alice", &added, why, sizeof why), RG_OK);
    cr_expect(added);
    cr_expect_eq(rg_revoked_add(&state, "alice", &added, why, sizeof why), RG_OK);
    cr_expect_not(added);
    cr_expect_eq(rg_revoked_check(&state, "alice", serial, 2, why, sizeof why), RG_ERR_REFUSED);
    cr_expect_eq(rg_revoked_check(&state, "carol", (const uint8_t *)"\0\x4f\x0b", 3, why, sizeof why),
                 RG_ERR_REFUSED);
    char *text = read_file("revoked");
    cr_expect_str_eq(text, "# by hand\nspiffe://example.org/bob  \n serial:00:4F:0B\nalice\n");
    free(text);
    write_file("revoked", "alice", 0666);
    cr_expect_eq(rg_revoked_check(&state, "carol", serial, 2, why, sizeof why), RG_ERR_INVALID);
    rg_state_close(&state);
}
