/* authority.c - see authority.h. */
#include "authority.h"

#include "tests/temporary.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *take_text(BIO *bio)
{
    char *data;
    const long size = BIO_get_mem_data(bio, &data);
    char *text = strndup(data, (size_t)size);
    CHECK(text);
    BIO_free(bio);
    return text;
}

static char *certificate_text(X509 *certificate)
{
    BIO *bio = BIO_new(BIO_s_mem());
    CHECK(bio && PEM_write_bio_X509(bio, certificate) == 1);
    return take_text(bio);
}

static char *key_text(EVP_PKEY *key)
{
    BIO *bio = BIO_new(BIO_s_mem());
    CHECK(bio && PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1);
    return take_text(bio);
}

static void add_extension(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    CHECK(extension && X509_add_ext(certificate, extension, -1) == 1);
    X509_EXTENSION_free(extension);
}

static X509 *begin(const char *name, EVP_PKEY *key, long serial, long starts_in, long ends_in)
{
    X509 *certificate = X509_new();
    CHECK(certificate && X509_set_version(certificate, 2) == 1);
    CHECK(ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial) == 1);
    CHECK(X509_gmtime_adj(X509_getm_notBefore(certificate), starts_in));
    CHECK(X509_gmtime_adj(X509_getm_notAfter(certificate), ends_in));
    CHECK(X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                                     (const unsigned char *)name, -1, -1, 0) == 1);
    CHECK(X509_set_pubkey(certificate, key) == 1);
    return certificate;
}

struct authority authority_create(const char *name)
{
    struct authority a = {.key = EVP_EC_gen("P-256")};
    CHECK(a.key);
    a.certificate = begin(name, a.key, 1, -3600, 86400L * 30);
    CHECK(X509_set_issuer_name(a.certificate, X509_get_subject_name(a.certificate)) == 1);
    add_extension(a.certificate, a.certificate, NID_basic_constraints, "critical,CA:TRUE");
    add_extension(a.certificate, a.certificate, NID_key_usage, "critical,keyCertSign,cRLSign");
    add_extension(a.certificate, a.certificate, NID_subject_key_identifier, "hash");
    CHECK(X509_sign(a.certificate, a.key, EVP_sha256()) > 0);
    a.pem = certificate_text(a.certificate);
    return a;
}

void authority_destroy(struct authority *authority)
{
    EVP_PKEY_free(authority->key);
    X509_free(authority->certificate);
    free(authority->pem);
    *authority = (struct authority){0};
}

struct issued authority_issue(const struct authority *authority, const struct request *r)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    CHECK(key);
    const bool whole = r->starts_in == 0 && r->ends_in == 0;
    X509 *certificate = begin(r->name ? r->name : "alice", key, r->serial ? r->serial : 4711,
                              whole ? -3600 : r->starts_in, whole ? 86400 : r->ends_in);
    CHECK(X509_set_issuer_name(certificate, X509_get_subject_name(authority->certificate)) == 1);
    add_extension(certificate, authority->certificate, NID_basic_constraints, "critical,CA:FALSE");
    add_extension(certificate, authority->certificate, NID_key_usage, "critical,digitalSignature");
    if (!r->usage || r->usage[0])
        add_extension(certificate, authority->certificate, NID_ext_key_usage,
                      r->usage ? r->usage : "clientAuth");
    if (r->alternative)
        add_extension(certificate, authority->certificate, NID_subject_alt_name, r->alternative);
    CHECK(X509_sign(certificate, authority->key, EVP_sha256()) > 0);
    struct issued issued = {certificate_text(certificate), key_text(key)};
    X509_free(certificate);
    EVP_PKEY_free(key);
    return issued;
}

void issued_free(struct issued *issued)
{
    free(issued->certificate);
    free(issued->key);
    *issued = (struct issued){0};
}

/* --- files --- */

const char *folder(void)
{
    return temporary_folder();
}

const char *write_file(const char *name, const char *text, unsigned mode)
{
    static char *paths[64]; /* of the program's few files */
    static size_t n_paths;
    char *path;
    CHECK(n_paths < sizeof paths / sizeof paths[0]);
    CHECK(asprintf(&paths[n_paths], "%s/%s", folder(), name) > 0);
    path = paths[n_paths++];
    FILE *file = fopen(path, "we");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
    CHECK(chmod(path, mode) == 0);
    return path;
}

struct rg_tls_server *server_of(const struct authority *believed, const struct issued *its)
{
    const struct rg_tls_pem pem = {.ca = believed->pem,
                                   .ca_size = strlen(believed->pem),
                                   .certificate = its->certificate,
                                   .certificate_size = strlen(its->certificate),
                                   .key = its->key,
                                   .key_size = strlen(its->key)};
    struct rg_tls_server *server = NULL;
    char why[512] = "";
    if (rg_tls_server_create(&pem, &server, why, sizeof why) != RG_OK)
        fprintf(stderr, "%s\n", why);
    CHECK(server);
    return server;
}

const struct world *world(void)
{
    static struct world the;
    if (the.server)
        return &the;
    the.authority = authority_create("the tests' authority");
    struct issued server = authority_issue(
        &the.authority,
        &(struct request){.name = "server",
                          .usage = "serverAuth",
                          .alternative = "DNS:localhost,DNS:gpu.example,IP:127.0.0.1,IP:::1"});
    struct issued client = authority_issue(&the.authority, &(struct request){0});
    the.server = server_of(&the.authority, &server);
    the.client = (struct rg_tls_client){.ca_file = write_file("ca.crt", the.authority.pem, 0644),
                                        .certificate_file = write_file("tls.crt", client.certificate, 0644),
                                        .key_file = write_file("tls.key", client.key, 0600)};
    issued_free(&server);
    issued_free(&client);
    return &the;
}
