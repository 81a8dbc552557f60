/* folder.c - see folder.h. */
#include "tests/server/identity/folder.h"

#include "common/base/cleanup.h"
#include "server/identity/tokens.h"
#include "tests/temporary.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *test_folder(void)
{
    static char *state;
    if (!state)
        state = temporary_path("state");
    return state;
}

const char *below(const char *name)
{
    static char paths[4][512];
    static unsigned at;
    char *path = paths[at++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", test_folder(), name);
    return path;
}

void write_file(const char *name, const char *text, mode_t mode)
{
    const int fd = open(below(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0, "%s", name);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    cr_assert_eq(fchmod(fd, mode), 0);
    close(fd);
}

char *read_file(const char *name)
{
    static char text[1 << 20];
    RG_CLEANUP_FD const int fd = open(below(name), O_RDONLY | O_CLOEXEC);
    const ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text);
    return size < 0 ? NULL : strndup(text, (size_t)size);
}

mode_t mode_of(const char *name)
{
    struct stat is;
    cr_assert_eq(stat(below(name), &is), 0, "%s", name);
    return is.st_mode & 07777;
}

size_t count_files(const char *name)
{
    size_t n = 0;
    DIR *entries = opendir(below(name));
    cr_assert_not_null(entries);
    for (const struct dirent *entry = readdir(entries); entry; entry = readdir(entries))
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(entries);
    return n;
}

const char *output_of(const char *format, ...)
{
    static char text[65536];
    char command[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    FILE *pipe = popen(command, "re");
    cr_assert_not_null(pipe);
    const size_t size = fread(text, 1, sizeof text - 1, pipe);
    text[size] = 0;
    cr_assert_eq(pclose(pipe), 0, "%s: %s", command, text);
    return text;
}

struct rg_identity_store *open_at(int64_t now)
{
    const struct rg_identity_settings settings = {.state_dir = test_folder(), .now = now};
    struct rg_identity_store *store = NULL;
    char why[512] = "";
    cr_assert_eq(rg_identity_open(&settings, &store, why, sizeof why), RG_OK, "%s", why);
    return store;
}

void open_fails(const struct rg_identity_settings *settings, const char *words)
{
    struct rg_identity_store *store = NULL;
    char why[512] = "";
    cr_expect_neq(rg_identity_open(settings, &store, why, sizeof why), RG_OK, "should say '%s'", words);
    cr_expect_null(store);
    cr_expect_not_null(strstr(why, words), "'%s' does not say '%s'", why, words);
}

void make_token(const char *user, uint32_t uses, int64_t expires, const struct rg_identity_limits *limits,
                uint8_t secret[RG_IDENTITY_SECRET])
{
    struct rg_token token = {.uses = uses, .uses_left = uses, .created = NOW, .expires = expires};
    struct rg_state folder;
    char why[512] = "";
    if (limits)
        token.limits = *limits;
    snprintf(token.user, sizeof token.user, "%s", user);
    cr_assert_eq(rg_state_open(&folder, test_folder(), true, why, sizeof why), RG_OK, "%s", why);
    cr_assert_eq(rg_state_lock(&folder, why, sizeof why), RG_OK, "%s", why);
    cr_assert_eq(rg_token_make(&token, secret, why, sizeof why), RG_OK, "%s", why);
    cr_assert_eq(rg_token_save(&folder, &token, why, sizeof why), RG_OK, "%s", why);
    rg_state_close(&folder);
}

void make_point(uint8_t point[RG_IDENTITY_PUBLIC_KEY])
{
    size_t size = 0;
    EVP_PKEY *key = EVP_EC_gen("P-256");
    cr_assert_eq(
        EVP_PKEY_get_octet_string_param(key, OSSL_PKEY_PARAM_PUB_KEY, point, RG_IDENTITY_PUBLIC_KEY, &size),
        1);
    cr_assert_eq(size, RG_IDENTITY_PUBLIC_KEY);
    EVP_PKEY_free(key);
}
