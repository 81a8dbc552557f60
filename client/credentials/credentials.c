/* credentials.c - see credentials.h. */
#include "client/credentials/credentials.h"

#include "common/base/log.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define OTHERS_MAY (S_IRWXG | S_IRWXO)
#define OTHERS_MAY_OF_ROOTS                                                                                  \
    (S_IWGRP | S_IXGRP | S_IRWXO) /* a group may be let read what root has put there */

/* --- the user's settings --------------------------------------------------------------------------------- */

static bool says_yes(const char *text)
{
    return strcasecmp(text, "yes") == 0 || strcasecmp(text, "true") == 0 || strcmp(text, "1") == 0 ||
           strcasecmp(text, "on") == 0;
}

/* Whether the variable has the first of two values; anything else than the two is said once and is `strict`. */
static bool is_first(const char *variable, const char *first, const char *second, bool strict,
                     atomic_flag *told)
{
    const char *text = secure_getenv(variable);
    if (!text || !*text)
        return strict;
    if (strcmp(text, first) == 0)
        return true;
    if (strcmp(text, second) != 0 && !atomic_flag_test_and_set(told))
        rg_warn("%s=%s is neither %s nor %s; taking %s", variable, text, first, second,
                strict ? first : second);
    return strcmp(text, second) == 0 ? false : strict;
}

struct rg_security_policy rg_security_policy(void)
{
    static atomic_flag encrypt_told = ATOMIC_FLAG_INIT, rdma_told = ATOMIC_FLAG_INIT;
    const char *allow = secure_getenv("REMOTE_GPU_ALLOW_UNAUTHENTICATED");
    return (struct rg_security_policy){
        .unauthenticated = allow && says_yes(allow),
        .control_only = !is_first("REMOTE_GPU_ENCRYPT", "always", "control", true, &encrypt_told),
        .no_rdma = !is_first("REMOTE_GPU_RDMA_POLICY", "allow", "deny", true, &rdma_told),
    };
}

bool rg_credentials_allow_rdma(const struct rg_credentials *credentials, char *why, size_t why_size)
{
    const struct rg_security_policy policy = rg_security_policy();
    if (policy.no_rdma)
        rg_explain(why, why_size, "--rdma deny (REMOTE_GPU_RDMA_POLICY) forbids it");
    else if (credentials->found && !policy.control_only)
        rg_explain(why, why_size,
                   "data would travel unencrypted; --encrypt control (REMOTE_GPU_ENCRYPT) allows that");
    else
        return true;
    return false;
}

/* --- places ------------------------------------------------------------------------------------------------ */

enum rg_status rg_credentials_base(char *out, size_t size, bool *named)
{
    const char *folder = secure_getenv("REMOTE_GPU_CREDENTIALS"), *config = secure_getenv("XDG_CONFIG_HOME"),
               *home = secure_getenv("HOME");
    int length;
    *named = folder && *folder;
    if (*named && *folder != '/') { /* the program may change its directory later */
        char here[PATH_MAX];
        if (!getcwd(here, sizeof here))
            return RG_ERR_NOT_FOUND;
        length = snprintf(out, size, "%s/%s", here, folder);
    } else if (*named) {
        length = snprintf(out, size, "%s", folder);
    } else if (config && *config == '/') {
        length = snprintf(out, size, "%s/remote-gpu", config);
    } else if (home && *home == '/') {
        length = snprintf(out, size, "%s/.config/remote-gpu", home);
    } else {
        return RG_ERR_NOT_FOUND;
    }
    return length > 0 && (size_t)length < size ? RG_OK : RG_ERR_NOT_FOUND;
}

void rg_credentials_server(const struct rg_address *address, char *out, size_t size)
{
    const bool brackets = strchr(address->host, ':') != NULL;
    snprintf(out, size, "%s%s%s:%u", brackets ? "[" : "", address->host, brackets ? "]" : "", address->port);
    for (char *at = out; size && *at && *at != '%'; at++) /* names of links are as they are written */
        *at = (char)tolower((unsigned char)*at);
}

enum rg_status rg_credentials_place(const char *base, const struct rg_address *server, char *out, size_t size)
{
    char name[300];
    rg_credentials_server(server, name, sizeof name);
    const int length = snprintf(out, size, "%s/servers/%s", base, name);
    return length > 0 && (size_t)length < size ? RG_OK : RG_ERR_INVALID;
}

bool rg_credentials_joined(char *out, size_t size)
{
    char base[PATH_MAX], path[PATH_MAX + 16], text[320] = "";
    bool named;
    if (rg_credentials_base(base, sizeof base, &named) != RG_OK)
        return false;
    snprintf(path, sizeof path, "%s/%s", base, RG_CREDENTIALS_SERVER);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    const ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    struct rg_address address;
    text[got > 0 ? strcspn(text, "\n") : 0] = 0;
    if (rg_address_parse(text, &address, NULL, 0) != RG_OK || strlen(text) >= size)
        return false;
    snprintf(out, size, "%s", text);
    return true;
}

bool rg_credentials_is_loopback(const struct rg_address *address)
{
    const char *host = address->host;
    if (strncasecmp(host, "::ffff:", 7) == 0)
        host += 7;
    unsigned part[4];
    int used = 0;
    if (sscanf(host, "%3u.%3u.%3u.%3u%n", &part[0], &part[1], &part[2], &part[3], &used) == 4 && !host[used])
        return part[0] == 127;
    return strcmp(host, "::1") == 0 || strcasecmp(host, "localhost") == 0;
}

/* --- the three files --------------------------------------------------------------------------------------- */

/* Whether the file can be used; RG_ERR_NOT_FOUND: it is not there. */
static enum rg_status check_file(const char *path, bool secret, char *why, size_t why_size)
{
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return RG_ERR_NOT_FOUND;
    if (fd < 0 || fstat(fd, &info) != 0) {
        rg_explain(why, why_size,
                   "cannot read %s: %s; it must be readable for the user that runs the program (%u)", path,
                   strerror(errno), (unsigned)geteuid());
        if (fd >= 0)
            close(fd);
        return RG_ERR_REFUSED;
    }
    close(fd);
    const mode_t too_much = info.st_uid == 0 ? OTHERS_MAY_OF_ROOTS : OTHERS_MAY;
    if (!S_ISREG(info.st_mode))
        rg_explain(why, why_size, "%s is not a file", path);
    else if (info.st_size == 0)
        rg_explain(why, why_size, "%s is empty; join the server again, or copy the credentials again", path);
    else if (secret && (info.st_mode & too_much))
        rg_explain(why, why_size,
                   "the key %s can be used by others (mode %04o); protect it with chmod 600 (in Kubernetes: "
                   "defaultMode: 0400), and if others could read it, ask for a new token and join again with "
                   "--force",
                   path, (unsigned)info.st_mode & 07777);
    else
        return RG_OK;
    return RG_ERR_REFUSED;
}

static bool put_path(char *out, const char *folder, const char *name)
{
    return snprintf(out, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

/* Looks at the three files in `folder`: whether they are there, and as they should be. */
static enum rg_status check(const char *folder, struct rg_credentials *out, char *why, size_t why_size)
{
    char server[PATH_MAX];
    memset(out, 0, sizeof *out);
    if (snprintf(out->folder, sizeof out->folder, "%s", folder) >= (int)sizeof out->folder ||
        !put_path(out->authority, folder, RG_CREDENTIALS_AUTHORITY) ||
        !put_path(out->certificate, folder, RG_CREDENTIALS_CERTIFICATE) ||
        !put_path(out->key, folder, RG_CREDENTIALS_KEY) || !put_path(server, folder, RG_CREDENTIALS_SERVER))
        return RG_FAILED(RG_ERR_REFUSED, why, why_size, "the name of the credentials folder is too long");
    const char *const paths[] = {out->authority, out->certificate, out->key};
    const char *missing = NULL;
    unsigned n_missing = 0;
    for (unsigned i = 0; i < 3; i++) {
        const enum rg_status status = check_file(paths[i], i == 2, why, why_size);
        if (status == RG_ERR_NOT_FOUND) {
            missing = missing ? missing : paths[i];
            n_missing++;
        } else if (status != RG_OK) {
            return status;
        }
    }
    if (n_missing == 3)
        return RG_FAILED(RG_ERR_NOT_FOUND, why, why_size, "there are no ca.crt, tls.crt and tls.key in %s",
                         folder);
    if (n_missing)
        return RG_FAILED(
            RG_ERR_REFUSED, why, why_size,
            "the credentials are not complete: %s is not there; join the server again with --force, "
            "or copy ca.crt, tls.crt and tls.key again",
            missing);
    out->found = true;
    out->joined = access(server, F_OK) == 0;
    return RG_OK;
}

/* --- which of them ----------------------------------------------------------------------------------------- */

static void each_joined(const char *base, rg_credentials_visitor *visit, void *user)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/servers", base);
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder && (entry = readdir(folder)))
        if (entry->d_name[0] != '.' && !visit(entry->d_name, user))
            break;
    if (folder)
        closedir(folder);
}

void rg_credentials_each_joined(rg_credentials_visitor *visit, void *user)
{
    char base[PATH_MAX];
    bool named;
    if (rg_credentials_base(base, sizeof base, &named) == RG_OK)
        each_joined(base, visit, user);
}

struct listed {
    char *out;
    size_t size, used;
};

static bool list_one(const char *server, void *user)
{
    struct listed *listed = user;
    listed->used += (size_t)snprintf(listed->out + listed->used, listed->size - listed->used, "%s%.280s",
                                     listed->used ? ", " : " (joined so far: ", server);
    return listed->used < listed->size;
}

/* The servers that this user has joined, for a sentence: " (joined: a:7600, b:7600)". */
static void list_joined(const char *base, char *out, size_t size)
{
    struct listed listed = {out, size, 0};
    *out = 0;
    each_joined(base, list_one, &listed);
    if (listed.used && listed.used < size)
        snprintf(out + listed.used, size - listed.used, ")");
}

/* A server of which nobody is known to vouch. */
static enum rg_status without(const struct rg_address *address, const char *base, char *why, size_t why_size)
{
    char joined[400] = "";
    if (rg_credentials_is_loopback(address) || rg_security_policy().unauthenticated)
        return RG_OK;
    if (base)
        list_joined(base, joined, sizeof joined);
    return RG_FAILED(
        RG_ERR_REFUSED, why, why_size,
        "there are no credentials for it%s; get a token from its operator (remote-gpud token --user NAME) "
        "and run 'remote-gpu join TOKEN' once, or say --allow-unauthenticated "
        "(REMOTE_GPU_ALLOW_UNAUTHENTICATED=yes) to use it without encryption and without knowing who it is",
        joined);
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? S_ISDIR(info.st_mode) : errno != ENOENT && errno != ENOTDIR;
}

enum rg_status rg_credentials_find(const char *server, struct rg_credentials *out, char *why, size_t why_size)
{
    struct rg_address address;
    char base[PATH_MAX], own[PATH_MAX];
    bool named;
    memset(out, 0, sizeof *out);
    enum rg_status status = rg_address_parse(server, &address, why, why_size);
    if (status != RG_OK)
        return status;
    if (!*address.host) /* within this machine */
        return RG_OK;
    const bool tcp = strcmp(address.scheme, "tcp") == 0;
    if (!tcp || rg_credentials_base(base, sizeof base, &named) != RG_OK ||
        rg_credentials_place(base, &address, own, sizeof own) != RG_OK)
        return without(&address, NULL, why, why_size);
    if (!named && access(base, X_OK) != 0) /* not there, or another user's home */
        return without(&address, NULL, why, why_size);
    if (is_folder(own)) {
        status = check(own, out, why, why_size);
        if (status == RG_ERR_NOT_FOUND) {
            rg_explain(why, why_size,
                       "the credentials folder %s is empty; join the server again with --force", own);
            status = RG_ERR_REFUSED;
        }
    } else {
        status = check(base, out, why, why_size);
        if (status == RG_ERR_NOT_FOUND && named) {
            rg_explain(why, why_size,
                       "REMOTE_GPU_CREDENTIALS names %s, and there are no ca.crt, tls.crt and tls.key for "
                       "%s; correct the variable, or mount or copy the credentials there",
                       base, server);
            status = RG_ERR_REFUSED;
        } else if (status == RG_ERR_NOT_FOUND) {
            status = without(&address, base, why, why_size);
        }
    }
    if (status != RG_OK)
        out->found = false;
    snprintf(out->server_name, sizeof out->server_name, "%s", address.host);
    return status;
}

const struct rg_tls_client *rg_credentials_tls(const struct rg_credentials *credentials,
                                               struct rg_tls_client *tls)
{
    if (!credentials->found)
        return NULL;
    *tls = (struct rg_tls_client){.ca_file = credentials->authority,
                                  .certificate_file = credentials->certificate,
                                  .key_file = credentials->key,
                                  .server_name = credentials->server_name};
    return tls;
}
