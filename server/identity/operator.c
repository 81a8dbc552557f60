/* operator.c - see operator.h. */
#include "server/identity/operator.h"

#include "common/base/cleanup.h"
#include "common/base/file.h"
#include "common/base/limits.h"
#include "server/identity/x509.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SECURITY_BITS 112

enum rg_status rg_operator_check_settings(const struct rg_identity_settings *settings, char *why,
                                          size_t why_size)
{
    const int n =
        (settings->ca_file != NULL) + (settings->certificate_file != NULL) + (settings->key_file != NULL);
    if (n == 0 || n == 3)
        return RG_OK;
    return RG_FAILED(
        RG_ERR_INVALID, why, why_size,
        "--tls-ca, --tls-cert and --tls-key belong together: give all three for an authority of your "
        "own, or none for the server's");
}

static enum rg_status read_file(const char *path, const char *option, bool secret, char **text, size_t *size,
                                char *why, size_t why_size)
{
    struct stat is;
    RG_CLEANUP_FD const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &is) != 0)
        return RG_FAILED(RG_ERR_IO, why, why_size, "%s (%s) cannot be opened: %s", path, option,
                         strerror(errno));
    if (!S_ISREG(is.st_mode) || is.st_size > RG_IDENTITY_FILE_MAX)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "%s (%s) is no file of a certificate or key", path,
                         option);
    if (secret && (is.st_mode & (S_IRWXO | S_IWGRP)))
        return RG_FAILED(
            RG_ERR_INVALID, why, why_size,
            "%s (%s) is open to other users (mode %04o): chmod 600 it; of a secret in Kubernetes, set "
            "defaultMode: 0440",
            path, option, (unsigned)is.st_mode & 07777);
    char *memory = malloc((size_t)is.st_size + 1);
    if (!memory)
        return RG_ERR_NO_MEMORY;
    if (!rg_file_read(fd, memory, (size_t)is.st_size)) {
        rg_explain(why, why_size, "%s (%s) cannot be read: %s", path, option, strerror(errno));
        rg_state_wipe(memory, (size_t)is.st_size);
        return RG_ERR_IO;
    }
    memory[is.st_size] = 0;
    *text = memory;
    *size = (size_t)is.st_size;
    return RG_OK;
}

static enum rg_status check_dates(const char *path, X509 *certificate, int64_t now, char *why,
                                  size_t why_size)
{
    int64_t from, until;
    char date[32], here[32];
    if (rg_x509_dates(certificate, &from, &until) && now >= from && now < until)
        return RG_OK;
    rg_x509_date_text(now < from ? from : until, date);
    rg_x509_date_text(now, here);
    return RG_FAILED(RG_ERR_INVALID, why, why_size,
                     now < from
                         ? "%s is not valid before %s, and it is %s here: is this machine's clock wrong?"
                         : "%s was valid until %s, and it is %s here: renew it, then send SIGHUP",
                     path, date, here);
}

static enum rg_status check_ca(const struct rg_identity_settings *settings, const char *ca, size_t size,
                               char *why, size_t why_size)
{
    X509 *certificate = rg_x509_read(ca, size);
    const bool is_ca = certificate && X509_check_ca(certificate) != 0;
    const bool read = certificate != NULL;
    X509_free(certificate);
    if (is_ca)
        return RG_OK;
    return RG_FAILED(RG_ERR_INVALID, why, why_size,
                     read ? "%s (--tls-ca) is not the certificate of an authority"
                          : "%s (--tls-ca) has no certificate (PEM)",
                     settings->ca_file);
}

/* TLS here takes nothing weaker (OpenSSL's security level 2): what is, is refused while another one is still in use. */
static bool is_strong(X509 *certificate, const EVP_PKEY *key, const char **what)
{
    int bits = 0;
    *what = "its key is too short: take one of RSA with at least 2048 bits, or of an elliptic curve";
    if (EVP_PKEY_get_security_bits(key) < SECURITY_BITS)
        return false;
    *what = "it is signed by way of a digest that is too weak: have it signed by SHA-256";
    /* nobody looks at how one was signed that is its own authority */
    return X509_self_signed(certificate, 0) == 1 ||
           X509_get_signature_info(certificate, NULL, NULL, &bits, NULL) != 1 || bits >= SECURITY_BITS;
}

static enum rg_status check_pair(const struct rg_identity_settings *settings, const struct rg_key_pair *pair,
                                 int64_t now, char *why, size_t why_size)
{
    bool locked = false;
    const char *weakness = "";
    enum rg_status status = RG_ERR_INVALID;
    X509 *certificate = rg_x509_read(pair->certificate, pair->certificate_size);
    EVP_PKEY *key = rg_x509_read_key(pair->key, pair->key_size, &locked);
    if (!certificate)
        rg_explain(why, why_size, "%s (--tls-cert) has no certificate (PEM)", settings->certificate_file);
    else if (!key)
        rg_explain(why, why_size,
                   locked ? "%s (--tls-key) is locked by a passphrase, and there is nobody to enter it: "
                            "openssl pkey unlocks it"
                          : "%s (--tls-key) has no private key (PEM)",
                   settings->key_file);
    else if (X509_check_private_key(certificate, key) != 1)
        rg_explain(why, why_size, "%s (--tls-key) is not the key of %s (--tls-cert)", settings->key_file,
                   settings->certificate_file);
    else if (EVP_PKEY_get_size(key) > RG_IDENTITY_SIGNATURE)
        rg_explain(why, why_size,
                   "%s (--tls-key) is longer than TLS needs: take one of RSA with at most 8192 bits",
                   settings->key_file);
    else if (X509_check_purpose(certificate, X509_PURPOSE_SSL_SERVER, 0) != 1)
        rg_explain(why, why_size,
                   "%s (--tls-cert) is not for servers: its extended key usage lacks serverAuth",
                   settings->certificate_file);
    else if (!is_strong(certificate, key, &weakness))
        rg_explain(why, why_size, "%s (--tls-cert) cannot be used: %s", settings->certificate_file, weakness);
    else
        status = check_dates(settings->certificate_file, certificate, now, why, why_size);
    X509_free(certificate);
    EVP_PKEY_free(key);
    (void)rg_x509_error();
    return status;
}

enum rg_status rg_operator_load(const struct rg_identity_settings *settings, int64_t now, char **ca,
                                size_t *ca_size, struct rg_key_pair *pair, char *why, size_t why_size)
{
    char *authority = NULL;
    size_t size = 0;
    *pair = (struct rg_key_pair){0};
    enum rg_status status = read_file(settings->ca_file, "--tls-ca", false, &authority, &size, why, why_size);
    if (status == RG_OK)
        status = read_file(settings->certificate_file, "--tls-cert", false, &pair->certificate,
                           &pair->certificate_size, why, why_size);
    if (status == RG_OK)
        status = read_file(settings->key_file, "--tls-key", true, &pair->key, &pair->key_size, why, why_size);
    if (status == RG_OK)
        status = check_ca(settings, authority, size, why, why_size);
    if (status == RG_OK)
        status = check_pair(settings, pair, now, why, why_size);
    if (status != RG_OK) {
        free(authority);
        rg_key_pair_fini(pair);
        return status;
    }
    *ca = authority;
    *ca_size = size;
    return RG_OK;
}

bool rg_operator_allows(const struct rg_identity_settings *settings, const char *name)
{
    for (size_t i = 0; i < settings->n_allowed; i++) {
        const char *pattern = settings->allowed[i];
        const size_t size = strlen(pattern);
        const bool begins = size && pattern[size - 1] == '*';
        if (begins ? strncmp(name, pattern, size - 1) == 0 : strcmp(name, pattern) == 0)
            return true;
    }
    return settings->n_allowed == 0;
}
