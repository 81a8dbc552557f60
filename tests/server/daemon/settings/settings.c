/* settings.c - settings of remote-gpud: which addresses are this machine's own, precedence, mistakes. */
#include "server/daemon/settings/settings.h"

#include "common/base/limits.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

static bool is_local(const char *address)
{
    bool local = false;
    char why[256] = "";
    cr_assert_eq(rg_daemon_address_is_local(address, &local, why, sizeof why), RG_OK, "%s: %s", address, why);
    return local;
}

Test(address, loopback_is_local)
{
    static const char *const local[] = {
        "127.0.0.1",   "127.0.0.1:0", "127.9.8.7:7600",    "[::1]:7600",          "[::1]",
        "unix:/run/x", "unix:@name",  "tcp://127.0.0.1:1", "[::ffff:127.0.0.1]:1"};
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++)
        cr_expect(is_local(local[i]), "%s", local[i]);
}

Test(address, all_others_are_not)
{
    static const char *const open[] = {
        "0.0.0.0",     "0.0.0.0:7600",        "*:7600",     "[::]:1", "10.0.0.1",
        "128.0.0.1:1", "[::ffff:10.0.0.1]:1", "[fe80::1]:1"};
    for (size_t i = 0; i < sizeof open / sizeof open[0]; i++)
        cr_expect_not(is_local(open[i]), "%s", open[i]);
}

Test(address, malformed)
{
    static const char *const bad[] = {"127.0.0.1:70000", "127.0.0.1:x", "mem:name", "[::1", ""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bool local;
        char why[256] = "";
        cr_expect_neq(rg_daemon_address_is_local(bad[i], &local, why, sizeof why), RG_OK, "%s", bad[i]);
        cr_expect_neq(why[0], 0, "%s", bad[i]);
    }
}

static enum rg_daemon_start load(struct rg_daemon_settings *settings, char *const *words, int n)
{
    char *argv[16] = {(char *)"remote-gpud", (char *)"--config", (char *)"/dev/null"};
    for (int i = 0; i < n; i++)
        argv[3 + i] = words[i];
    return rg_daemon_settings_load(settings, 3 + n, argv);
}

Test(settings, defaults)
{
    struct rg_daemon_settings settings;
    cr_assert_eq(load(&settings, NULL, 0), RG_DAEMON_SERVE);
    cr_expect_eq(settings.listen.n, 0);
    cr_expect_str_eq(settings.driver, "auto");
    cr_expect_eq(settings.max_sessions, 64);
    cr_expect_eq(settings.grace_ns, 30000000000ull);
    cr_expect_str_eq(settings.reconnect_grace, "auto");
    cr_expect_eq(settings.ready_fd, -1);
    cr_expect_not(settings.allow_unauthenticated);
    rg_daemon_settings_fini(&settings);
}

Test(settings, reconnect_grace)
{
    static const struct {
        const char *word;
        uint32_t seconds;
        bool automatic;
    } given[] = {{"--reconnect-grace=auto", RG_RECONNECT_S, true},
                 {"--reconnect-grace=0", 0, false},
                 {"--reconnect-grace=1500ms", 2, false},
                 {"--reconnect-grace=90", 90, false}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        struct rg_daemon_settings settings;
        char *words[] = {(char *)(uintptr_t)given[i].word};
        bool automatic;
        cr_assert_eq(load(&settings, words, 1), RG_DAEMON_SERVE);
        cr_expect_eq(rg_daemon_settings_reconnect(&settings, &automatic), given[i].seconds);
        cr_expect_eq(automatic, given[i].automatic);
        rg_daemon_settings_fini(&settings);
    }
}

Test(settings, several_addresses)
{
    struct rg_daemon_settings settings;
    char *words[] = {(char *)"--listen", (char *)"a:1,b:2", (char *)"--listen=c:3", (char *)"-ld:4"};
    cr_assert_eq(load(&settings, words, 4), RG_DAEMON_SERVE);
    cr_assert_eq(settings.listen.n, 4);
    cr_expect_str_eq(settings.listen.items[1], "b:2");
    cr_expect_str_eq(settings.listen.items[3], "d:4");
    rg_daemon_settings_fini(&settings);
}

Test(settings, wrong_values)
{
    static const char *const wrong[] = {"--listen=",
                                        "--listen=,",
                                        "--driver=",
                                        "--max-sessions=0",
                                        "--max-sessions=4097",
                                        "--grace=-1",
                                        "--grace=soon",
                                        "--wait=x",
                                        "--wait=",
                                        "--reconnect-grace=x",
                                        "--image-cache=",
                                        "--log=loud",
                                        "--image-cache-size=x",
                                        "--ready-fd=x",
                                        "--ready-file=",
                                        "--config=",
                                        "--worker=",
                                        "--state-dir=",
                                        "--tls-ca=",
                                        "--certificate-days=0",
                                        "--certificate-days=4000",
                                        "--foreground=x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct rg_daemon_settings settings;
        char *words[] = {(char *)(uintptr_t)wrong[i]};
        cr_expect_eq(load(&settings, words, 1), RG_DAEMON_EXIT_FAILURE, "%s", wrong[i]);
        rg_daemon_settings_fini(&settings);
    }
}

Test(settings, who_may_come)
{
    struct rg_daemon_settings settings;
    char *words[] = {(char *)"--state-dir=/s",
                     (char *)"--tls-ca=/ca",
                     (char *)"--tls-cert=/c",
                     (char *)"--tls-key=/k",
                     (char *)"--tls-name=a,::1",
                     (char *)"--tls-name=b",
                     (char *)"--tls-allow=spiffe://x/*",
                     (char *)"--certificate-days=7"};
    cr_assert_eq(load(&settings, words, 8), RG_DAEMON_SERVE);
    const struct rg_identity_settings identity = rg_daemon_settings_identity(&settings);
    cr_expect_str_eq(identity.state_dir, "/s");
    cr_expect_str_eq(identity.ca_file, "/ca");
    cr_expect_str_eq(identity.certificate_file, "/c");
    cr_expect_str_eq(identity.key_file, "/k");
    cr_assert_eq(identity.n_names, 3);
    cr_expect_str_eq(identity.names[1], "::1");
    cr_assert_eq(identity.n_allowed, 1);
    cr_expect_str_eq(identity.allowed[0], "spiffe://x/*");
    cr_expect_eq(identity.certificate_days, 7);
    rg_daemon_settings_fini(&settings);
    cr_assert_eq(load(&settings, NULL, 0), RG_DAEMON_SERVE);
    cr_expect_null(rg_daemon_settings_identity(&settings).ca_file);
    cr_expect_eq(rg_daemon_settings_identity(&settings).certificate_days, 90);
    rg_daemon_settings_fini(&settings);
}

Test(settings, flag_beats_file)
{
    char path[] = "/tmp/remote-gpud-settings-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    static const char text[] = "grace = 7\nmax-sessions = 3\nallow-unauthenticated = yes\nlisten = x:1\n";
    cr_assert_eq(write(fd, text, sizeof text - 1), (ssize_t)sizeof text - 1);
    close(fd);
    char *argv[] = {(char *)"remote-gpud", (char *)"--config", path,         (char *)"--grace",
                    (char *)"500ms",       (char *)"--listen", (char *)"y:2"};
    struct rg_daemon_settings settings;
    cr_assert_eq(rg_daemon_settings_load(&settings, 7, argv), RG_DAEMON_SERVE);
    cr_expect_eq(settings.grace_ns, 500000000ull);
    cr_expect_eq(settings.max_sessions, 3);
    cr_expect(settings.allow_unauthenticated);
    cr_expect_eq(settings.listen.n, 1);
    cr_expect_str_eq(settings.listen.items[0], "y:2");
    rg_daemon_settings_fini(&settings);
    unlink(path);
}
