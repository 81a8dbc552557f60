/* join.c - tokens, certificates of users, renewal, revocation, and that the running server learns of it. */
#include "common/base/clock.h"
#include "server/identity/identity.h"
#include "server/identity/users.h"
#include "server/identity/watch.h"
#include "tests/server/identity/folder.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct rg_identity_store *store;
static struct rg_identity_grant grant;
static uint8_t secret[RG_IDENTITY_SECRET], point[RG_IDENTITY_PUBLIC_KEY];
static char why[512];

static void expect_why(const char *words)
{
    cr_expect_not_null(strstr(why, words), "'%s' does not say '%s'", why, words);
}

static enum rg_status join(void)
{
    why[0] = 0;
    return rg_identity_join(store, secret, point, &grant, why, sizeof why);
}

static enum rg_status check(const char *name)
{
    struct rg_identity_limits limits;
    why[0] = 0;
    return rg_identity_check(store, name, grant.serial, grant.serial_size, &limits, NULL, why, sizeof why);
}

/* A store in which alice has joined. */
static void joined(void)
{
    store = open_at(NOW);
    make_point(point);
    make_token("alice", 1, NOW + DAY, NULL, secret);
    cr_assert_eq(join(), RG_OK, "%s", why);
}

Test(join, a_certificate_for_the_user)
{
    store = open_at(0);
    make_point(point);
    make_token("alice@example.org", 1, 99999999999ll, &(struct rg_identity_limits){.max_sessions = 4},
               secret);
    cr_assert_eq(join(), RG_OK, "%s", why);
    cr_expect_str_eq(grant.user, "alice@example.org");
    write_file("alice.crt", grant.certificate, 0600);
    write_file("authority.crt", grant.authority, 0600);
    output_of("cmp %s %s", below("authority.crt"), below("ca.crt"));
    output_of("openssl verify -x509_strict -purpose sslclient -CAfile %s %s", below("ca.crt"),
              below("alice.crt"));
    output_of("! openssl verify -purpose sslserver -CAfile %s %s", below("ca.crt"), below("alice.crt"));
    const char *text = output_of("openssl x509 -noout -text -in %s", below("alice.crt"));
    cr_expect_not_null(strstr(text, "Subject: CN = alice@example.org\n"), "%s", text);
    cr_expect_not_null(strstr(text, "CA:FALSE"), "%s", text);
    cr_expect_not_null(strstr(text, "TLS Web Client Authentication\n"), "%s", text);
    cr_expect_null(strstr(text, "Server Authentication"), "%s", text);
    output_of("openssl x509 -noout -checkend %lld -in %s", 89 * DAY, below("alice.crt"));
    output_of("! openssl x509 -noout -checkend %lld -in %s", 91 * DAY, below("alice.crt"));
    /* the serial and the key are those that we say */
    char serial[2 * RG_IDENTITY_SERIAL + 1], wanted[80], hex[2 * RG_IDENTITY_PUBLIC_KEY + 1];
    for (int i = 0; i < grant.serial_size; i++)
        snprintf(serial + 2 * i, 3, "%02X", grant.serial[i]);
    snprintf(wanted, sizeof wanted, "serial=%s\n", serial);
    cr_expect_str_eq(output_of("openssl x509 -noout -serial -in %s", below("alice.crt")), wanted);
    for (int i = 0; i < RG_IDENTITY_PUBLIC_KEY; i++)
        snprintf(hex + 2 * i, 3, "%02x", point[i]);
    cr_expect_not_null(strstr(
        output_of("openssl x509 -noout -pubkey -in %s | openssl pkey -pubin -outform DER | od -An -v -tx1 "
                  "| tr -d ' \\n'",
                  below("alice.crt")),
        hex));
    struct rg_identity_limits limits;
    cr_expect_eq(
        rg_identity_check(store, grant.user, grant.serial, grant.serial_size, &limits, NULL, why, sizeof why),
        RG_OK, "%s", why);
    cr_expect_eq(limits.max_sessions, 4);
    cr_expect_eq(limits.max_gpus, 0);
    rg_identity_close(store);
}

Test(join, days_are_configured)
{
    const struct rg_identity_settings settings = {
        .state_dir = test_folder(), .certificate_days = 7, .now = NOW};
    cr_assert_eq(rg_identity_open(&settings, &store, why, sizeof why), RG_OK);
    make_point(point);
    make_token("alice", 1, NOW + DAY, NULL, secret);
    cr_assert_eq(join(), RG_OK);
    cr_expect_eq(grant.not_after, NOW + 7 * DAY);
    rg_identity_close(store);
}

Test(join, not_beyond_the_authority)
{
    rg_identity_close(open_at(NOW));
    store = open_at(NOW + 3640 * DAY);
    make_point(point);
    make_token("alice", 1, NOW + 4000 * DAY, NULL, secret);
    cr_assert_eq(join(), RG_OK, "%s", why);
    cr_expect_eq(grant.not_after, NOW + 3652 * DAY);
    rg_identity_close(store);
}

Test(join, used_up)
{
    joined();
    cr_expect_eq(join(), RG_ERR_REFUSED);
    expect_why("this token has been used 1 time, as often as it can be");
    cr_expect_eq(grant.certificate[0], 0);
    make_token("alice", 3, NOW + DAY, NULL, secret);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(join(), RG_OK, "%d: %s", i, why);
    cr_expect_eq(join(), RG_ERR_REFUSED);
    expect_why("used 3 times");
    rg_identity_close(store);
}

Test(join, expired)
{
    rg_identity_close(open_at(NOW));
    make_point(point);
    make_token("alice", 1, NOW + DAY, NULL, secret);
    store = open_at(NOW + DAY);
    cr_expect_eq(join(), RG_ERR_REFUSED);
    expect_why("this token was valid until 2027-01-16 08:00:00 UTC, and it is 2027-01-16 08:00:00 UTC on the "
               "server");
    rg_identity_close(store);
    store = open_at(NOW + DAY - 1);
    cr_expect_eq(join(), RG_OK);
    rg_identity_close(store);
}

Test(join, unknown)
{
    store = open_at(NOW);
    make_point(point);
    cr_expect_eq(join(), RG_ERR_REFUSED);
    expect_why("this server does not know this token");
    make_token("alice", 1, NOW + DAY, NULL, secret);
    secret[15] ^= 1;
    cr_expect_eq(join(), RG_ERR_REFUSED);
    secret[15] ^= 1;
    cr_expect_eq(join(), RG_OK);
    rg_identity_close(store);
}

/* A command that was stopped while it holds the lock keeps strangers from nothing, and others not for long. */
Test(join, strangers_do_not_wait_for_the_lock)
{
    store = open_at(NOW);
    make_point(point);
    make_token("alice", 1, NOW + DAY, NULL, secret);
    const int lock = open(below("lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_eq(flock(lock, LOCK_EX), 0);
    cr_expect_eq(join(), RG_ERR_TIMEOUT);
    expect_why("is being changed by another process");
    secret[0] ^= 1;
    cr_expect_eq(join(), RG_ERR_REFUSED);
    expect_why("does not know this token");
    secret[0] ^= 1;
    close(lock);
    cr_expect_eq(join(), RG_OK, "%s", why);
    rg_identity_close(store);
}

Test(join, points_that_are_none)
{
    store = open_at(NOW);
    make_token("alice", 1, NOW + DAY, NULL, secret);
    make_point(point);
    uint8_t good[RG_IDENTITY_PUBLIC_KEY];
    memcpy(good, point, sizeof good);
    for (int i = 0; i < RG_IDENTITY_PUBLIC_KEY;
         i++) { /* another bit anywhere is another curve's point, or none */
        memcpy(point, good, sizeof good);
        point[i] ^= 1;
        cr_expect_eq(join(), RG_ERR_REFUSED, "%d", i);
        expect_why("not one of the curve P-256");
    }
    memset(point, 0, sizeof point); /* infinity */
    cr_expect_eq(join(), RG_ERR_REFUSED);
    point[0] = 4;
    cr_expect_eq(join(), RG_ERR_REFUSED);
    memset(point + 1, 0xff, 64); /* not of the field */
    cr_expect_eq(join(), RG_ERR_REFUSED);
    memcpy(point, good, sizeof good);
    point[0] = (uint8_t)(6 + (good[64] & 1)); /* hybrid */
    cr_expect_eq(join(), RG_ERR_REFUSED);
    memcpy(point, good, sizeof good);
    cr_expect_eq(join(), RG_OK, "the token was not used: %s", why);
    rg_identity_close(store);
}

Test(join, damaged_token)
{
    static const char *const bad[] = {"",
                                      "user alice\n",
                                      "user alice\nuses 2 of 1\nexpires 1900000000\n",
                                      "user ../ca.key\nuses 1 of 1\nexpires 1900000000\n",
                                      "user alice\nuses 1 of 1\nexpires 19000000",
                                      "user alice\nuses 1 of 1\nexpi"};
    store = open_at(NOW);
    make_point(point);
    make_token("alice", 1, NOW + DAY, NULL, secret);
    char **names, path[128];
    size_t n;
    struct rg_state state;
    cr_assert_eq(rg_state_open(&state, test_folder(), false, why, sizeof why), RG_OK);
    cr_assert_eq(rg_state_list(&state, "tokens", &names, &n, why, sizeof why), RG_OK);
    cr_assert_eq(n, 1);
    snprintf(path, sizeof path, "tokens/%s", names[0]);
    rg_state_list_free(names, n);
    rg_state_close(&state);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_file(path, bad[i], 0600);
        cr_expect_neq(join(), RG_OK, "%s", bad[i]);
        cr_expect_eq(count_files("users"), 0);
    }
    rg_identity_close(store);
}

/* What a full disk does in the middle: nobody has a certificate, and the token is as good as before. */
Test(join, no_space)
{
    store = open_at(NOW);
    make_point(point);
    make_token("alice", 1, NOW + DAY, NULL, secret);
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
    cr_expect_eq(join(), RG_ERR_IO);
    expect_why("users/alice cannot be written");
    const struct rlimit all = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &all), 0);
    cr_expect_eq(count_files("users"), 0);
    cr_expect_eq(join(), RG_OK, "%s", why);
    rg_identity_close(store);
}

Test(join, a_token_that_cannot_be_counted_gives_nothing)
{
    store = open_at(NOW);
    make_point(point);
    make_token("alice", 1, NOW + DAY, NULL, secret);
    /* the folder of tokens cannot be changed, that of users can */
    char command[700];
    snprintf(command, sizeof command, "chattr +i %s 2>/dev/null", below("tokens"));
    if (system(command) != 0) {
        rg_identity_close(store);
        cr_skip("this file system has no files that cannot be changed");
    }
    cr_expect_eq(join(), RG_ERR_IO);
    expect_why("cannot be written");
    cr_expect_eq(count_files("users"), 0, "the entry is taken back");
    snprintf(command, sizeof command, "chattr -i %s", below("tokens"));
    cr_assert_eq(system(command), 0);
    cr_expect_eq(join(), RG_OK, "%s", why);
    rg_identity_close(store);
}

Test(join, two_processes_and_one_use)
{
    rg_identity_close(open_at(NOW));
    make_point(point);
    make_token("alice", 1, NOW + DAY, NULL, secret);
    const pid_t child = fork();
    store = open_at(NOW);
    const int good = join() == RG_OK;
    rg_identity_close(store);
    if (child == 0)
        _exit(good);
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status));
    cr_expect_eq(good + WEXITSTATUS(status), 1, "one of the two");
}

Test(join, limits_of_a_later_token_count)
{
    struct rg_identity_limits limits;
    store = open_at(NOW);
    make_point(point);
    make_token("alice", 1, NOW + DAY, &(struct rg_identity_limits){.max_sessions = 4, .max_gpus = 2}, secret);
    cr_assert_eq(join(), RG_OK);
    make_token("alice", 1, NOW + DAY, &(struct rg_identity_limits){.max_sessions = 1}, secret);
    cr_assert_eq(join(), RG_OK);
    cr_assert_eq(
        rg_identity_check(store, "alice", grant.serial, grant.serial_size, &limits, NULL, why, sizeof why),
        RG_OK);
    cr_expect_eq(limits.max_sessions, 1);
    cr_expect_eq(limits.max_gpus, 2);
    rg_identity_close(store);
}

Test(check, only_what_this_server_has_given)
{
    joined();
    cr_expect_eq(check("alice"), RG_OK);
    cr_expect_eq(check("bob"), RG_ERR_REFUSED);
    expect_why("does not know this certificate of 'bob'");
    cr_expect_eq(check("../ca"), RG_ERR_REFUSED);
    cr_expect_eq(check(""), RG_ERR_REFUSED);
    grant.serial[3] ^= 1;
    cr_expect_eq(check("alice"), RG_ERR_REFUSED);
    grant.serial[3] ^= 1;
    grant.serial_size = 0;
    cr_expect_eq(check("alice"), RG_ERR_REFUSED);
    rg_identity_close(store);
}

Test(check, a_file_that_cannot_be_read_is_no_refusal)
{
    joined();
    char *text = read_file("users/alice");
    write_file("users/alice", "certificate 01", 0600);
    cr_expect_eq(check("alice"), RG_ERR_INVALID);
    expect_why("users/alice, line 1");
    write_file("users/alice", text, 0600);
    cr_expect_eq(check("alice"), RG_OK);
    free(text);
    rg_identity_close(store);
}

Test(renew, for_the_same_name)
{
    joined();
    uint8_t serial[RG_IDENTITY_SERIAL], size = grant.serial_size;
    memcpy(serial, grant.serial, size);
    rg_identity_close(store);
    store = open_at(NOW + 60 * DAY);
    make_point(point);
    cr_assert_eq(rg_identity_renew(store, "alice", serial, size, point, &grant, why, sizeof why), RG_OK, "%s",
                 why);
    cr_expect_str_eq(grant.user, "alice");
    cr_expect_eq(grant.not_after, NOW + 150 * DAY);
    cr_expect_arr_neq(grant.serial, serial, size);
    cr_expect_eq(check("alice"), RG_OK);
    memcpy(grant.serial, serial, size);
    cr_expect_eq(check("alice"), RG_OK, "the old one is good until it expires");
    cr_expect_eq(rg_identity_renew(store, "bob", serial, size, point, &grant, why, sizeof why),
                 RG_ERR_REFUSED);
    point[5] ^= 1;
    cr_expect_eq(rg_identity_renew(store, "alice", serial, size, point, &grant, why, sizeof why),
                 RG_ERR_REFUSED);
    rg_identity_close(store);
}

Test(renew, not_without_end)
{
    joined();
    struct rg_state state;
    struct rg_text text = {0};
    for (unsigned i = 0; i < RG_IDENTITY_CERTIFICATES_MAX - 1; i++)
        rg_text_add(&text, "certificate %08x issued 1 expires 1900000000\n", 0x10000000 + i);
    char *before = read_file("users/alice");
    rg_text_add(&text, "%s", before);
    free(before);
    cr_assert_eq(rg_state_open(&state, test_folder(), false, why, sizeof why), RG_OK);
    cr_assert_eq(rg_state_write(&state, "users/alice", text.data, text.size, why, sizeof why), RG_OK);
    rg_state_close(&state);
    rg_text_fini(&text);
    const struct rg_identity_grant mine = grant;
    cr_expect_eq(
        rg_identity_renew(store, "alice", mine.serial, mine.serial_size, point, &grant, why, sizeof why),
        RG_ERR_REFUSED);
    expect_why("has 1024 certificates that have not expired, as many as a user can have");
    rg_identity_close(store);
}

Test(renew, not_at_any_pace)
{
    joined();
    const struct rg_identity_grant mine = grant;
    for (unsigned i = 1; i < RG_IDENTITY_RENEWALS_MAX; i++)
        cr_expect_eq(
            rg_identity_renew(store, "alice", mine.serial, mine.serial_size, point, &grant, why, sizeof why),
            RG_OK);
    cr_expect_eq(
        rg_identity_renew(store, "alice", mine.serial, mine.serial_size, point, &grant, why, sizeof why),
        RG_ERR_REFUSED);
    expect_why("'alice' has got 16 certificates within a minute; try again later");
    make_token("alice", 1, NOW + DAY, NULL, secret);
    cr_expect_eq(join(), RG_OK, "whoever has a token need not wait: %s", why);
    rg_identity_close(store);
    store = open_at(NOW + 61);
    cr_expect_eq(
        rg_identity_renew(store, "alice", mine.serial, mine.serial_size, point, &grant, why, sizeof why),
        RG_OK);
    rg_identity_close(store);
}

/* Certificates of a day, renewed without end: the file must stay one that can be read, or nobody could be revoked. */
Test(renew, short_lives_do_not_fill_the_file)
{
    joined();
    struct rg_state state;
    struct rg_text text = {0};
    for (unsigned i = 0; i < 2000; i++)
        rg_text_add(&text,
                    "certificate 4100000000000000000000000000%04x issued 1799990000 expires 1799999000 "
                    "revoked 1799998000\n",
                    i);
    char *before = read_file("users/alice");
    rg_text_add(&text, "%s", before);
    free(before);
    cr_assert_eq(rg_state_open(&state, test_folder(), false, why, sizeof why), RG_OK);
    cr_assert_eq(rg_state_write(&state, "users/alice", text.data, text.size, why, sizeof why), RG_OK, "%s",
                 why);
    rg_state_close(&state);
    rg_text_fini(&text);
    const struct rg_identity_grant mine = grant;
    cr_assert_eq(
        rg_identity_renew(store, "alice", mine.serial, mine.serial_size, point, &grant, why, sizeof why),
        RG_OK);
    struct stat is;
    cr_assert_eq(stat(below("users/alice"), &is), 0);
    cr_expect_lt(is.st_size, 1000);
    cr_expect_eq(check("alice"), RG_OK);
    rg_identity_close(store);
}

Test(join, not_by_a_name_that_is_refused)
{
    store = open_at(NOW);
    make_point(point);
    make_token("alice", 1, NOW + DAY, NULL, secret);
    write_file("revoked", "alice\n", 0600);
    cr_expect_eq(join(), RG_ERR_REFUSED);
    expect_why("'alice' has been revoked");
    cr_assert_eq(unlink(below("revoked")), 0);
    cr_expect_eq(join(), RG_OK, "the token was not used");
    rg_identity_close(store);
}

static bool readable(int timeout_ms)
{
    struct pollfd fd = {.fd = rg_identity_watch_fd(store), .events = POLLIN};
    return poll(&fd, 1, timeout_ms) == 1;
}

/* Revokes all of alice's certificates as remote-gpud revoke does. */
static void revoke_alice(void)
{
    struct rg_state state;
    struct rg_user user;
    cr_assert_eq(rg_state_open(&state, test_folder(), false, why, sizeof why), RG_OK);
    cr_assert_eq(rg_state_lock(&state, why, sizeof why), RG_OK);
    cr_assert_eq(rg_user_load(&state, "alice", &user, why, sizeof why), RG_OK);
    for (size_t i = 0; i < user.n; i++)
        user.certificates[i].revoked = NOW;
    cr_assert_eq(rg_user_save(&state, &user, NOW, why, sizeof why), RG_OK);
    rg_user_fini(&user);
    rg_state_close(&state);
}

Test(revoke, the_running_server_learns_of_it)
{
    joined();
    while (readable(100))
        (void)rg_identity_changed(store);
    revoke_alice();
    cr_assert(readable(5000));
    cr_expect(rg_identity_changed(store));
    cr_expect_eq(check("alice"), RG_ERR_REFUSED);
    expect_why(
        "this certificate of 'alice' was revoked on 2027-01-15 08:00:00 UTC; ask the server's operator");
    cr_expect_eq(rg_identity_renew(store, "alice", grant.serial, grant.serial_size, point,
                                   &(struct rg_identity_grant){0}, why, sizeof why),
                 RG_ERR_REFUSED);
    rg_identity_close(store);
}

Test(revoke, by_the_list)
{
    joined();
    while (readable(100))
        (void)rg_identity_changed(store);
    write_file("revoked", "alice\n", 0644); /* as an editor writes it */
    cr_assert(readable(5000));
    cr_expect(rg_identity_changed(store));
    cr_expect_eq(check("alice"), RG_ERR_REFUSED);
    expect_why("'alice' has been revoked");
    cr_assert_eq(unlink(below("revoked")), 0);
    cr_assert(readable(5000));
    cr_expect_eq(check("alice"), RG_OK);
    rg_identity_close(store);
}

Test(revoke, a_folder_in_the_place_of_another)
{
    joined();
    while (readable(100))
        (void)rg_identity_changed(store);
    output_of("mv %s %s && mkdir -m 0700 %s && cp -p %s/alice %s", below("users"), below("old"),
              below("users"), below("old"), below("users"));
    cr_assert(readable(5000));
    cr_expect(rg_identity_changed(store));
    while (readable(100))
        (void)rg_identity_changed(store);
    revoke_alice();
    cr_assert(readable(5000), "the new folder is watched");
    cr_expect(rg_identity_changed(store));
    cr_expect_eq(check("alice"), RG_ERR_REFUSED);
    rg_identity_close(store);
}

/* Where nothing can be watched, a timer says every second that something may have changed. */
Test(revoke, without_inotify)
{
    struct rg_watch watch;
    cr_assert(rg_watch_open(&watch, below("not-there")));
    struct pollfd fd = {.fd = watch.fd, .events = POLLIN};
    for (int i = 0; i < 2; i++) {
        cr_expect_not(rg_watch_changed(&watch));
        cr_assert_eq(poll(&fd, 1, 5000), 1);
        cr_expect(rg_watch_changed(&watch));
    }
    rg_watch_close(&watch);
}
