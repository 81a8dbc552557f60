/*
 * client.c - what a server does for clients, without one: usage: client STATE_DIR open | join TOKEN | check NAME SERIAL | wait NAME SERIAL
 *
 * join prints user and serial number of the certificate, and leaves it as STATE_DIR.crt. check prints "allowed" with the limits, or the
 * reason. wait does so as soon as the certificate is refused. Exit status 1: refused.
 */
#include "server/identity/fields.h"
#include "server/identity/identity.h"

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct rg_identity_store *store;
static char why[512];

static int value_of(char letter)
{
    const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const char *at = strchr(letters, letter);
    return letter && at ? (int)(at - letters) : 0;
}

/* The secret of rgpu1:LETTERS@HOST:PORT. */
static void secret_of(const char *token, uint8_t secret[RG_IDENTITY_SECRET])
{
    uint8_t payload[48];
    token += strlen("rgpu1:");
    for (int i = 0; i < 16; i++, token += 4) {
        const int bits = value_of(token[0]) << 18 | value_of(token[1]) << 12 | value_of(token[2]) << 6 |
                         value_of(token[3]);
        payload[3 * i] = (uint8_t)(bits >> 16);
        payload[3 * i + 1] = (uint8_t)(bits >> 8);
        payload[3 * i + 2] = (uint8_t)bits;
    }
    memcpy(secret, payload + 32, RG_IDENTITY_SECRET);
}

static int join(const char *folder, const char *token)
{
    struct rg_identity_grant grant;
    uint8_t secret[RG_IDENTITY_SECRET], point[RG_IDENTITY_PUBLIC_KEY];
    size_t size;
    char serial[2 * RG_IDENTITY_SERIAL + 1], path[4096];
    EVP_PKEY *key = EVP_EC_gen("P-256");
    if (strlen(token) < 70 ||
        EVP_PKEY_get_octet_string_param(key, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point, &size) != 1)
        return 2;
    EVP_PKEY_free(key);
    secret_of(token, secret);
    if (rg_identity_join(store, secret, point, &grant, why, sizeof why) != RG_OK) {
        printf("%s\n", why);
        return 1;
    }
    rg_serial_text(grant.serial, grant.serial_size, serial);
    snprintf(path, sizeof path, "%s.crt", folder);
    FILE *out = fopen(path, "we");
    if (!out)
        return 2;
    fputs(grant.certificate, out);
    fclose(out);
    printf("%s %s\n", grant.user, serial);
    return 0;
}

static int check(const char *name, const char *text)
{
    struct rg_identity_limits limits;
    uint8_t serial[RG_IDENTITY_SERIAL], size;
    if (!rg_serial_parse(text, serial, &size))
        return 2;
    const enum rg_status status =
        rg_identity_check(store, name, serial, size, &limits, NULL, why, sizeof why);
    if (status == RG_OK)
        printf("allowed %u %u\n", limits.max_sessions, limits.max_gpus);
    else
        printf("%s\n", why);
    return status == RG_OK ? 0 : status == RG_ERR_REFUSED ? 1 : 2;
}

static int wait_for_refusal(const char *name, const char *serial)
{
    int status;
    do {
        struct pollfd fd = {.fd = rg_identity_watch_fd(store), .events = POLLIN};
        if ((status = check(name, serial)) != 0)
            break;
        fflush(stdout);
        if (poll(&fd, 1, 20000) != 1)
            return 3;
        (void)rg_identity_changed(store);
    } while (true);
    return status;
}

int main(int argc, char **argv)
{
    const struct rg_identity_settings settings = {.state_dir = argv[1]};
    if (argc < 3 || rg_identity_open(&settings, &store, why, sizeof why) != RG_OK) {
        fprintf(stderr, "%s\n", why);
        return 2;
    }
    int status = 2;
    if (strcmp(argv[2], "open") == 0) {
        rg_identity_note_port(store, 7654);
        status = 0;
    } else if (argc == 4 && strcmp(argv[2], "join") == 0) {
        status = join(argv[1], argv[3]);
    } else if (argc == 5) {
        status = (strcmp(argv[2], "wait") == 0 ? wait_for_refusal : check)(argv[3], argv[4]);
    }
    rg_identity_close(store);
    return status;
}
