/*
 * identity.c - what says who may use a server: files of the state folder, the line that a user joins with, certificates.
 *
 * The input: u8 which, then the text, or, for certificates, DER.
 */
#include "client/credentials/token.h"
#include "server/identity/revoked.h"
#include "server/identity/tokens.h"
#include "server/identity/users.h"
#include "server/identity/x509.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzzer.h"

#include <openssl/evp.h>

enum { TEXT_MAX = 16 << 10 };

static struct rg_state state;
static char why[1024];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    char path[256];
    (void)argc, (void)argv;
    fuzz_folder_make();
    rg_x509_start();
    CHECK(rg_state_open(&state, fuzz_folder, true, why, sizeof why) == RG_OK);
    for (const char *const *name = (const char *const[]){"users", "tokens", NULL}; *name; name++) {
        snprintf(path, sizeof path, "%s/%s", fuzz_folder, *name);
        CHECK(mkdir(path, 0700) == 0 || access(path, W_OK) == 0);
    }
    return 0;
}

/* What was read is written so that the same is read again. */
static void token_file(const void *data, size_t size)
{
    struct rg_token token, again;
    fuzz_folder_write("tokens/abcd", data, size);
    if (rg_token_load(&state, "abcd", &token, why, sizeof why) != RG_OK)
        return;
    CHECK(token.uses_left <= token.uses && rg_user_check_name(token.user, why, sizeof why) == RG_OK);
    CHECK(rg_token_save(&state, &token, why, sizeof why) == RG_OK);
    CHECK(rg_token_load(&state, "abcd", &again, why, sizeof why) == RG_OK);
    CHECK(strcmp(token.user, again.user) == 0 && token.uses == again.uses &&
          token.uses_left == again.uses_left && token.created == again.created &&
          token.expires == again.expires);
}

static void user_file(const void *data, size_t size)
{
    struct rg_user user, again;
    fuzz_folder_write("users/alice", data, size);
    if (rg_user_load(&state, "alice", &user, why, sizeof why) != RG_OK)
        return;
    const size_t valid = rg_user_valid(&user, 0);
    if (user.n)
        CHECK(rg_user_find(&user, user.certificates[0].serial, user.certificates[0].serial_size));
    CHECK(rg_user_save(&state, &user, 0, why, sizeof why) == RG_OK);
    CHECK(rg_user_load(&state, "alice", &again, why, sizeof why) == RG_OK);
    CHECK(rg_user_valid(&again, 0) == valid);
    rg_user_fini(&user);
    rg_user_fini(&again);
}

static void revoked(const void *data, size_t size)
{
    const uint8_t serial[] = {0x4f, 0x0c};
    bool added;
    fuzz_folder_write("revoked", data, size);
    (void)!rg_revoked_check(&state, "alice", serial, sizeof serial, why, sizeof why);
    if (rg_revoked_add(&state, "alice", &added, why, sizeof why) == RG_OK)
        CHECK(rg_revoked_check(&state, "alice", serial, sizeof serial, why, sizeof why) == RG_ERR_REFUSED);
}

static void join_line(const char *text)
{
    struct rg_join_token token;
    if (rg_join_token_parse(text, &token, why, sizeof why) == RG_OK)
        CHECK(memchr(token.server, 0, sizeof token.server) && token.server[0]);
    else
        CHECK(memchr(why, 0, sizeof why));
}

static void serial(const char *text)
{
    uint8_t first[RG_IDENTITY_SERIAL], second[RG_IDENTITY_SERIAL], n, m;
    char written[2 * RG_IDENTITY_SERIAL + 1];
    if (!rg_serial_parse(text, first, &n))
        return;
    rg_serial_text(first, n, written);
    CHECK(rg_serial_parse(written, second, &m) && rg_serial_equal(first, n, second, m));
}

/* DER, as PEM with its lines. */
static void certificate(const unsigned char *data, size_t size)
{
    static const char begin[] = "-----BEGIN CERTIFICATE-----\n", end[] = "-----END CERTIFICATE-----\n";
    char *pem = malloc(sizeof begin + sizeof end + 2 * size + 80), *at = pem, text[32];
    CHECK(pem);
    at = stpcpy(at, begin);
    for (size_t i = 0; i < size; i += 48) {
        at += EVP_EncodeBlock((unsigned char *)at, data + i, (int)(size - i < 48 ? size - i : 48));
        *at++ = '\n';
    }
    at = stpcpy(at, end);
    X509 *read = rg_x509_read(pem, (size_t)(at - pem));
    if (read) {
        int64_t from, until;
        size_t written_size;
        if (rg_x509_dates(read, &from, &until)) {
            rg_x509_date_text(from, text);
            rg_x509_date_text(until, text);
        }
        (void)rg_x509_has_name(read, "gpu-machine");
        (void)rg_x509_has_name(read, "10.0.0.7");
        free(rg_x509_write(read, &written_size));
        X509_free(read);
    }
    free(pem);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > TEXT_MAX)
        return 0;
    char *text = malloc(size);
    CHECK(text);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    why[0] = '\0';
    switch (data[0] % 7) {
    case 0:
        token_file(text, size - 1);
        break;
    case 1:
        user_file(text, size - 1);
        break;
    case 2:
        revoked(text, size - 1);
        break;
    case 3:
        join_line(text);
        break;
    case 4:
        serial(text);
        break;
    case 5:
        certificate((unsigned char *)text, size - 1);
        break;
    default:
        (void)!rg_user_check_name(text, why, sizeof why);
    }
    free(text);
    return 0;
}

void fuzz_seeds(void)
{
    static const char *const texts[][2] = {
        {"token",
         "\1"
         "user alice\nuses 1 of 2\ncreated 1790000000\nexpires 1790086400\nmax-sessions 4\nmax-gpus 5\n"},
        {"user", "\1max-sessions 4\ncertificate 4f0c issued 1790000000 expires 1797776000\n"
                 "certificate 51ab issued 1790000000 expires 1797776000 revoked 1790003600\n"},
        {"revoked", "\2# no more\nspiffe://example.org/alice\nserial:4f:0c\n"},
        {"join", "\3rgpu1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4v@gpu-machine:7600"},
        {"serial", "\4"
                   "4f:0c:00"},
        {"name", "\6"
                 "alice@example.org"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char seed[512];
        snprintf(seed, sizeof seed, "%s", texts[i][1]);
        seed[0] = (char)(i == 0 ? 0 : texts[i][1][0]);
        fuzz_seed(texts[i][0], seed, 1 + strlen(texts[i][1] + 1));
    }
    /* A certificate that signs itself. */
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *made = X509_new();
    unsigned char *der = NULL, seed[2048] = {5};
    CHECK(key && made && X509_set_version(made, 2) && X509_set_pubkey(made, key));
    CHECK(X509_gmtime_adj(X509_getm_notBefore(made), 0) && X509_gmtime_adj(X509_getm_notAfter(made), 86400));
    CHECK(X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC,
                                     (const unsigned char *)"gpu-machine", -1, -1, 0));
    CHECK(X509_sign(made, key, EVP_sha256()));
    const int size = i2d_X509(made, &der);
    CHECK(size > 0 && size < (int)sizeof seed - 1);
    memcpy(seed + 1, der, (size_t)size);
    fuzz_seed("certificate", seed, 1 + (size_t)size);
    OPENSSL_free(der);
    X509_free(made);
    EVP_PKEY_free(key);
}
