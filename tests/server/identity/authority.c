/*
 * authority.c - what the first start makes, as the openssl command sees it, and what happens to files that are damaged, open, missing, of
 * another time.
 */
#include "server/identity/identity.h"
#include "tests/server/identity/folder.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct rg_identity_settings *settings_at(int64_t now)
{
    static struct rg_identity_settings settings;
    settings = (struct rg_identity_settings){.state_dir = test_folder(), .now = now};
    return &settings;
}

static void expect_text(const char *text, const char *words)
{
    cr_expect_not_null(strstr(text, words), "'%s' is not in: %s", words, text);
}

Test(authority, first_start)
{
    struct rg_identity_store *store = open_at(0);
    cr_expect(rg_identity_is_new(store));
    cr_expect(rg_identity_is_own(store));
    static const char *const files[] = {"ca.crt", "ca.key", "tls.crt", "tls.key"};
    for (int i = 0; i < 4; i++)
        cr_expect_eq(mode_of(files[i]), 0600, "%s", files[i]);
    expect_text(output_of("openssl verify -x509_strict -CAfile %s -purpose sslserver %s", below("ca.crt"),
                          below("tls.crt")),
                "OK");

    const char *ca = output_of("openssl x509 -noout -text -in %s", below("ca.crt"));
    expect_text(ca, "Public-Key: (256 bit)");
    expect_text(ca, "ASN1 OID: prime256v1");
    expect_text(ca, "Version: 3 (0x2)");
    expect_text(ca, "X509v3 Basic Constraints: critical\n                CA:TRUE, pathlen:0");
    expect_text(ca, "X509v3 Key Usage: critical\n                Certificate Sign, CRL Sign");
    expect_text(ca, "Signature Algorithm: ecdsa-with-SHA256");

    char host[65] = "", words[80];
    gethostname(host, sizeof host - 1);
    const char *server = output_of("openssl x509 -noout -text -in %s", below("tls.crt"));
    expect_text(server, "CA:FALSE");
    expect_text(server, "X509v3 Key Usage: critical\n                Digital Signature\n");
    expect_text(server, "TLS Web Server Authentication\n");
    expect_text(server, "DNS:localhost");
    expect_text(server, "IP Address:127.0.0.1");
    expect_text(server, "IP Address:0:0:0:0:0:0:0:1");
    snprintf(words, sizeof words, "DNS:%s", host);
    expect_text(server, words);
    /* ten years and one */
    output_of("openssl x509 -noout -checkend %lld -in %s", 3650 * DAY, below("ca.crt"));
    output_of("! openssl x509 -noout -checkend %lld -in %s", 3654 * DAY, below("ca.crt"));
    output_of("openssl x509 -noout -checkend %lld -in %s", 364 * DAY, below("tls.crt"));
    output_of("! openssl x509 -noout -checkend %lld -in %s", 366 * DAY, below("tls.crt"));
    /* the key belongs to the certificate */
    char *key = strdup(output_of("openssl pkey -pubout -in %s", below("tls.key")));
    cr_expect_str_eq(output_of("openssl x509 -noout -pubkey -in %s", below("tls.crt")), key);
    free(key);

    struct rg_identity_material material;
    rg_identity_material(store, &material);
    char *certificate = read_file("tls.crt");
    cr_expect_str_eq(material.certificate, certificate);
    cr_expect_eq(material.certificate_size, strlen(certificate));
    cr_expect_not_null(strstr(material.key, "BEGIN PRIVATE KEY"));
    cr_expect_not_null(strstr(material.authority, "BEGIN CERTIFICATE"));
    free(certificate);
    rg_identity_close(store);

    char *before = read_file("ca.crt"), *pair = read_file("tls.crt");
    store = open_at(0);
    cr_expect_not(rg_identity_is_new(store));
    rg_identity_close(store);
    char *after = read_file("ca.crt"), *pair_after = read_file("tls.crt");
    cr_expect_str_eq(before, after);
    cr_expect_str_eq(pair, pair_after, "a good certificate stays");
    free(before), free(after), free(pair), free(pair_after);
}

Test(authority, two_first_starts_at_once)
{
    const pid_t child = fork();
    struct rg_identity_store *store = open_at(NOW);
    struct rg_identity_material material;
    rg_identity_material(store, &material);
    char *ca = read_file("ca.crt");
    const bool same = strcmp(ca, material.authority) == 0;
    free(ca);
    rg_identity_close(store);
    if (child == 0)
        _exit(same ? 0 : 1);
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(same && status == 0, "both use the one authority");
}

Test(authority, more_names_make_a_new_certificate)
{
    rg_identity_close(open_at(0));
    char *before = read_file("tls.crt");
    const char *const names[] = {"gpu.example.org", "10.1.2.3", "2001:db8::7"};
    struct rg_identity_settings settings = {.state_dir = test_folder(), .names = names, .n_names = 3};
    struct rg_identity_store *store;
    char why[512] = "";
    cr_assert_eq(rg_identity_open(&settings, &store, why, sizeof why), RG_OK, "%s", why);
    const char *server = output_of("openssl x509 -noout -text -in %s", below("tls.crt"));
    expect_text(server, "DNS:gpu.example.org");
    expect_text(server, "IP Address:10.1.2.3");
    expect_text(server, "IP Address:2001:DB8:0:0:0:0:0:7");
    rg_identity_close(store);
    char *with = read_file("tls.crt");
    cr_expect_str_neq(before, with);
    rg_identity_close(open_at(0));
    char *after = read_file("tls.crt");
    cr_expect_str_eq(after, with, "a name that is no longer needed does no harm");
    free(before), free(with), free(after);
    const char *const bad[] = {"not a name"};
    settings.names = bad;
    settings.n_names = 1;
    open_fails(&settings, "'not a name' is neither the name of a host nor an address");
}

Test(authority, server_is_renewed_at_two_thirds)
{
    rg_identity_close(open_at(NOW));
    struct rg_identity_store *store = open_at(NOW + 240 * DAY);
    bool changed;
    char why[512] = "";
    char *before = read_file("tls.crt");
    cr_assert_eq(rg_identity_reload(store, &changed, why, sizeof why), RG_OK);
    cr_expect_not(changed);
    rg_identity_close(store);
    store = open_at(NOW + 245 * DAY);
    char *after = read_file("tls.crt");
    cr_expect_str_neq(before, after);
    /* what a reload must take: another pair in the folder, here by another process */
    rg_identity_close(open_at(NOW + 600 * DAY));
    cr_assert_eq(rg_identity_reload(store, &changed, why, sizeof why), RG_OK, "%s", why);
    cr_expect(changed, "a certificate of the future is none");
    rg_identity_close(store);
    free(before), free(after);
}

Test(authority, damaged_server_files_are_made_again)
{
    static const char *const names[] = {"tls.crt", "tls.key"};
    rg_identity_close(open_at(NOW));
    for (int i = 0; i < 2; i++) {
        write_file(names[i], "-----BEGIN CERT", 0600); /* half of it */
        rg_identity_close(open_at(NOW));
        output_of("openssl verify -no_check_time -CAfile %s %s", below("ca.crt"), below("tls.crt"));
        cr_assert_eq(unlink(below(names[i])), 0);
        rg_identity_close(open_at(NOW));
        cr_assert_eq(chmod(below(names[i]), 0666), 0);
        rg_identity_close(open_at(NOW));
        cr_expect_eq(mode_of(names[i]), 0600);
        char *key = strdup(output_of("openssl pkey -pubout -in %s", below("tls.key")));
        cr_expect_str_eq(output_of("openssl x509 -noout -pubkey -in %s", below("tls.crt")), key);
        free(key);
    }
}

Test(authority, a_first_start_that_was_cut_short)
{
    rg_identity_close(open_at(NOW));
    char *key = read_file("ca.key");
    cr_assert_eq(unlink(below("ca.crt")), 0);
    cr_assert_eq(unlink(below("tls.crt")), 0);
    rg_identity_close(open_at(NOW));
    char *after = read_file("ca.key");
    cr_expect_str_eq(key, after);
    output_of("openssl verify -no_check_time -CAfile %s %s", below("ca.crt"), below("tls.crt"));
    free(key), free(after);
}

Test(authority, bad_files)
{
    rg_identity_close(open_at(NOW));
    char *ca = read_file("ca.crt"), *key = read_file("ca.key");
    cr_assert_eq(chmod(below("ca.key"), 0644), 0);
    open_fails(settings_at(NOW), "ca.key is open to other users (mode 0644, must be 0600)");
    cr_assert_eq(unlink(below("ca.key")), 0);
    open_fails(settings_at(NOW), "has ca.crt, but ca.key is missing: restore it");
    write_file("ca.key", "-----BEGIN PRIVATE KEY-----\nMIGHAgEA", 0600);
    open_fails(settings_at(NOW), "ca.key is damaged: restore it");
    write_file("ca.key", "", 0600);
    open_fails(settings_at(NOW), "ca.key is damaged");
    write_file("ca.key", key, 0600);
    write_file("ca.crt", "junk", 0600);
    open_fails(settings_at(NOW), "ca.crt is damaged");
    char *other = strdup(
        output_of("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /dev/null "
                  "-subj /CN=other -days 9999 2>/dev/null"));
    write_file("ca.crt", other, 0600);
    open_fails(settings_at(NOW), "ca.crt is not the certificate of ca.key");
    write_file("ca.crt", ca, 0666);
    open_fails(settings_at(NOW), "ca.crt can be written by other users");
    write_file("ca.crt", ca, 0600);
    rg_identity_close(open_at(NOW));
    free(ca), free(key), free(other);
}

Test(authority, wrong_clocks)
{
    open_fails(settings_at(1), "clock cannot be right, it says 1970-01-01 00:00:01 UTC");
    cr_expect_neq(access(below("ca.key"), F_OK), 0, "nothing was made");
    open_fails(settings_at(253370764800ll), "clock cannot be right, it says 9999-01-01");
    rg_identity_close(open_at(NOW));
    open_fails(settings_at(NOW - DAY),
               "ca.crt is valid from 2027-01-15 07:50:00 UTC, but it is 2027-01-14 08:00:00 UTC "
               "here: is this machine's clock wrong?");
    open_fails(settings_at(NOW + 3653 * DAY), "ca.crt was valid until");
    rg_identity_close(open_at(NOW + 3651 * DAY));
}

Test(authority, reload_keeps_what_there_is_if_the_files_are_bad)
{
    struct rg_identity_store *store = open_at(NOW);
    struct rg_identity_material before, after;
    bool changed;
    char why[512] = "";
    rg_identity_material(store, &before);
    write_file("ca.key", "junk", 0600);
    cr_expect_eq(rg_identity_reload(store, &changed, why, sizeof why), RG_ERR_INVALID);
    expect_text(why, "ca.key is damaged");
    rg_identity_material(store, &after);
    cr_expect_eq(before.key, after.key);
    cr_assert_eq(unlink(below("ca.key")), 0);
    cr_assert_eq(unlink(below("ca.crt")), 0);
    cr_expect_neq(rg_identity_reload(store, &changed, why, sizeof why), RG_OK);
    expect_text(why, "the authority is no longer in");
    cr_expect_neq(access(below("ca.key"), F_OK), 0, "no other authority is made under a running server");
    rg_identity_close(store);
}

Test(folder, default_places)
{
    char path[256], why[256];
    setenv("STATE_DIRECTORY", "/var/lib/x:/var/lib/y", 1);
    cr_expect_eq(rg_identity_state_dir(path, sizeof path, why, sizeof why), RG_OK);
    cr_expect_str_eq(path, "/var/lib/x");
    unsetenv("STATE_DIRECTORY");
    if (geteuid() == 0) {
        cr_expect_eq(rg_identity_state_dir(path, sizeof path, why, sizeof why), RG_OK);
        cr_expect_str_eq(path, "/var/lib/remote-gpu");
        cr_assert_eq(seteuid(4711), 0);
    }
    setenv("HOME", "/home/x", 1);
    unsetenv("XDG_STATE_HOME");
    cr_expect_eq(rg_identity_state_dir(path, sizeof path, why, sizeof why), RG_OK);
    cr_expect_str_eq(path, "/home/x/.local/state/remote-gpu");
    setenv("XDG_STATE_HOME", "/s", 1);
    cr_expect_eq(rg_identity_state_dir(path, sizeof path, why, sizeof why), RG_OK);
    cr_expect_str_eq(path, "/s/remote-gpu");
    unsetenv("XDG_STATE_HOME");
    unsetenv("HOME");
    cr_expect_eq(rg_identity_state_dir(path, sizeof path, why, sizeof why), RG_ERR_NOT_FOUND);
    expect_text(why, "--state-dir");
}
