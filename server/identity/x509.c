/* x509.c - see x509.h. */
#include "server/identity/x509.h"

#include <limits.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void rg_x509_start(void)
{
    OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, NULL);
}

const char *rg_x509_error(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    ERR_clear_error();
    return reason ? reason : "out of memory";
}

/* Asked for a passphrase: there is nobody to ask. */
static int no_passphrase(char *text, int size, int writing, void *locked)
{
    (void)text, (void)size, (void)writing;
    *(bool *)locked = true;
    return -1;
}

X509 *rg_x509_read(const char *pem, size_t size)
{
    bool locked = false;
    BIO *bio = size > INT_MAX ? NULL : BIO_new_mem_buf(pem, (int)size);
    X509 *certificate = bio ? PEM_read_bio_X509(bio, NULL, no_passphrase, &locked) : NULL;
    BIO_free(bio);
    ERR_clear_error();
    return certificate;
}

EVP_PKEY *rg_x509_read_key(const char *pem, size_t size, bool *locked)
{
    *locked = false;
    BIO *bio = size > INT_MAX ? NULL : BIO_new_mem_buf(pem, (int)size);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, locked) : NULL;
    BIO_free(bio);
    ERR_clear_error();
    return key;
}

/* What was written, and forgets the rest; a key leaves nothing behind. */
static char *taken(BIO *bio, bool written, size_t *size)
{
    char *data, *copy = NULL;
    const long length = written ? BIO_get_mem_data(bio, &data) : 0;
    if (length > 0)
        copy = malloc((size_t)length + 1);
    if (copy) {
        memcpy(copy, data, (size_t)length);
        copy[length] = 0;
        *size = (size_t)length;
        OPENSSL_cleanse(data, (size_t)length);
    }
    BIO_free(bio);
    return copy;
}

char *rg_x509_write(const X509 *certificate, size_t *size)
{
    BIO *bio = BIO_new(BIO_s_mem());
    return bio ? taken(bio, PEM_write_bio_X509(bio, certificate) == 1, size) : NULL;
}

char *rg_x509_write_key(const EVP_PKEY *key, size_t *size)
{
    BIO *bio = BIO_new(BIO_s_secmem());
    return bio ? taken(bio, PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1, size) : NULL;
}

static bool seconds_of(const ASN1_TIME *time, int64_t *out)
{
    struct tm parts;
    if (!time || ASN1_TIME_to_tm(time, &parts) != 1)
        return false;
    *out = timegm(&parts);
    return true;
}

bool rg_x509_dates(const X509 *certificate, int64_t *not_before, int64_t *not_after)
{
    return seconds_of(X509_get0_notBefore(certificate), not_before) &&
           seconds_of(X509_get0_notAfter(certificate), not_after);
}

void rg_x509_date_text(int64_t time, char text[32])
{
    const time_t at = (time_t)time;
    struct tm parts;
    if (!gmtime_r(&at, &parts) || strftime(text, 32, "%Y-%m-%d %H:%M:%S UTC", &parts) == 0)
        strcpy(text, "an unknown time");
}

bool rg_x509_has_name(X509 *certificate, const char *name)
{
    if (X509_check_ip_asc(certificate, name, 0) == 1)
        return true;
    ERR_clear_error();
    const bool has = X509_check_host(certificate, name, 0, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) == 1;
    ERR_clear_error();
    return has;
}
