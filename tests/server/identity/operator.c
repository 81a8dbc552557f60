/* operator.c - an authority of the operator's own, made with the openssl command, and everything that can be wrong with its files. */
#include "server/identity/identity.h"
#include "tests/server/identity/folder.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char ca[512], certificate[512], key[512];
static struct rg_identity_settings settings;
static struct rg_identity_store *store;
static char why[512];

/* ca.pem, and a server's pair NAME.pem and NAME.key signed by it. */
static void make_files(void)
{
    test_folder();
    snprintf(ca, sizeof ca, "%s/../ca.pem", test_folder());
    snprintf(certificate, sizeof certificate, "%s/../server.pem", test_folder());
    snprintf(key, sizeof key, "%s/../server.key", test_folder());
    output_of(
        "cd %s/.. 2>/dev/null || cd $(dirname %s); "
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=company -days 365 "
        "2>&1 && "
        "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -keyout server.key -out server.csr "
        "-subj /CN=gpu 2>&1 && "
        "printf 'subjectAltName=DNS:gpu.example.org\\nextendedKeyUsage=serverAuth' > ext && "
        "openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile ext "
        "-out server.pem 2>&1 && chmod 600 server.key",
        test_folder(), test_folder());
    cr_assert_eq(mkdir(test_folder(), 0700), 0);
    settings = (struct rg_identity_settings){
        .state_dir = test_folder(), .ca_file = ca, .certificate_file = certificate, .key_file = key};
}

static void open_store(void)
{
    cr_assert_eq(rg_identity_open(&settings, &store, why, sizeof why), RG_OK, "%s", why);
}

Test(operator, files_are_taken_as_they_are)
{
    make_files();
    open_store();
    cr_expect_not(rg_identity_is_own(store));
    cr_expect_not(rg_identity_is_new(store));
    struct rg_identity_material material;
    rg_identity_material(store, &material);
    char *text = read_file("../server.pem");
    cr_expect_str_eq(material.certificate, text);
    free(text);
    text = read_file("../ca.pem");
    cr_expect_str_eq(material.authority, text);
    cr_expect_eq(material.authority_size, strlen(text));
    free(text);
    cr_expect_neq(access(below("ca.key"), F_OK), 0, "no authority of ours is made");
    struct rg_identity_grant grant;
    uint8_t secret[RG_IDENTITY_SECRET] = {0}, point[RG_IDENTITY_PUBLIC_KEY];
    make_point(point);
    cr_expect_eq(rg_identity_join(store, secret, point, &grant, why, sizeof why), RG_ERR_REFUSED);
    cr_expect_not_null(strstr(why, "gives no certificates itself"), "%s", why);
    rg_identity_close(store);
}

Test(operator, who_is_allowed)
{
    static const char *const patterns[] = {"spiffe://example.org/ns/gpu/*", "alice"};
    static const struct {
        const char *name;
        enum rg_status status;
    } cases[] = {{"alice", RG_OK},
                 {"alicex", RG_ERR_REFUSED},
                 {"spiffe://example.org/ns/gpu/sa/train", RG_OK},
                 {"spiffe://example.org/ns/web/sa/x", RG_ERR_REFUSED},
                 {"spiffe://example.org/ns/gpu/bad", RG_ERR_REFUSED}};
    struct rg_identity_limits limits;
    make_files();
    settings.allowed = patterns;
    settings.n_allowed = 2;
    open_store();
    write_file("revoked", "spiffe://example.org/ns/gpu/bad\nserial:0f\n", 0600);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_expect_eq(rg_identity_check(store, cases[i].name, (const uint8_t *)"\x01", 1, &limits, NULL, why,
                                       sizeof why),
                     cases[i].status, "%s: %s", cases[i].name, why);
    cr_expect_eq(
        rg_identity_check(store, "alice", (const uint8_t *)"\x0f", 1, &limits, NULL, why, sizeof why),
        RG_ERR_REFUSED);
    rg_identity_close(store);
}

Test(operator, read_again)
{
    make_files();
    open_store();
    bool changed;
    cr_assert_eq(rg_identity_reload(store, &changed, why, sizeof why), RG_OK);
    cr_expect_not(changed);
    output_of("cd %s/.. && openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days "
              "60 -extfile ext "
              "-out server.pem 2>&1",
              test_folder());
    cr_assert_eq(rg_identity_reload(store, &changed, why, sizeof why), RG_OK);
    cr_expect(changed);
    struct rg_identity_material before, after;
    rg_identity_material(store, &before);
    write_file("../server.pem", "half", 0600);
    cr_expect_eq(rg_identity_reload(store, &changed, why, sizeof why), RG_ERR_INVALID);
    cr_expect_not(changed);
    rg_identity_material(store, &after);
    cr_expect_eq(before.certificate, after.certificate);
    rg_identity_close(store);
}

/* What TLS would not take afterwards does not take the place of what it has. */
Test(operator, weak_certificates_are_not_taken)
{
    static const struct {
        const char *key, *digest, *why;
    } cases[] = {
        {"rsa:1024", "-sha256", "server.pem (--tls-cert) cannot be used: its key is too short"},
        {"rsa:2048", "-sha1", "server.pem (--tls-cert) cannot be used: it is signed by way of a digest"},
        {"rsa:2048", "-sha256", NULL}};
    struct rg_identity_material before, after;
    bool changed;
    make_files();
    open_store();
    rg_identity_material(store, &before);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        output_of("cd %s/.. && openssl req -newkey %s -nodes -keyout server.key -out server.csr -subj "
                  "/CN=gpu 2>&1 && "
                  "openssl x509 -req %s -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 "
                  "-extfile ext "
                  "-out server.pem 2>&1 && chmod 600 server.key",
                  test_folder(), cases[i].key, cases[i].digest);
        const enum rg_status status = rg_identity_reload(store, &changed, why, sizeof why);
        cr_expect_eq(status, cases[i].why ? RG_ERR_INVALID : RG_OK, "%s %s", cases[i].key, cases[i].digest);
        cr_expect(!cases[i].why || strstr(why, cases[i].why), "%s", why);
        rg_identity_material(store, &after);
        cr_expect_eq(before.certificate == after.certificate, cases[i].why != NULL);
    }
    rg_identity_close(store);
}

Test(operator, links_as_in_a_kubernetes_secret)
{
    make_files();
    output_of("cd %s/.. && mkdir ..data && mv server.key ..data/ && ln -s ..data/server.key server.key && "
              "chmod 0440 "
              "..data/server.key",
              test_folder());
    open_store();
    rg_identity_close(store);
}

Test(operator, bad_files)
{
    make_files();
    settings.key_file = NULL;
    open_fails(&settings, "--tls-ca, --tls-cert and --tls-key belong together");
    settings.key_file = key;
    cr_assert_eq(chmod(key, 0644), 0);
    open_fails(&settings, "server.key (--tls-key) is open to other users (mode 0644)");
    cr_assert_eq(chmod(key, 0600), 0);
    settings.key_file = certificate;
    cr_assert_eq(chmod(certificate, 0600), 0);
    open_fails(&settings, "server.pem (--tls-key) has no private key (PEM)");
    settings.key_file = key;
    settings.certificate_file = key;
    open_fails(&settings, "server.key (--tls-cert) has no certificate (PEM)");
    settings.certificate_file = ca;
    open_fails(&settings, "server.key (--tls-key) is not the key of");
    settings.certificate_file = certificate;
    settings.ca_file = certificate;
    open_fails(&settings, "server.pem (--tls-ca) is not the certificate of an authority");
    settings.ca_file = "/nowhere/ca.pem";
    open_fails(&settings, "/nowhere/ca.pem (--tls-ca) cannot be opened: No such file or directory");
    settings.ca_file = test_folder();
    open_fails(&settings, "(--tls-ca) is no file of a certificate or key");
    settings.ca_file = ca;
    settings.now = 1;
    open_fails(&settings, "is not valid before");
    settings.now = 99999999999ll;
    open_fails(&settings, "renew it, then send SIGHUP");
    settings.now = 0;
    output_of("cd %s/.. && openssl pkey -aes256 -passout pass:x -in server.key -out locked.key && chmod 600 "
              "locked.key",
              test_folder());
    static char locked[512];
    snprintf(locked, sizeof locked, "%s/../locked.key", test_folder());
    settings.key_file = locked;
    open_fails(&settings, "locked.key (--tls-key) is locked by a passphrase");
    settings.key_file = key;
    output_of("cd %s/.. && printf 'extendedKeyUsage=clientAuth' > ext && openssl x509 -req -in server.csr "
              "-CA ca.pem -CAkey "
              "ca.key -CAcreateserial -days 60 -extfile ext -out server.pem 2>&1",
              test_folder());
    open_fails(&settings, "is not for servers: its extended key usage lacks serverAuth");
}
