/* logins.c - see logins.h. */
#include "server/daemon/page/logins.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BEARER_MIN = 16 };

/* In a time that does not tell how much of it was right. */
static bool is_same(const void *a, const void *b, size_t size)
{
    const volatile unsigned char *x = a, *y = b;
    unsigned char differs = 0;
    for (size_t i = 0; i < size; i++)
        differs |= x[i] ^ y[i];
    return differs == 0;
}

/* --- a scraper's token -------------------------------------------------------------------------------------- */

/* The first line, which is all that there is. */
static bool is_token(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (text[i] <= ' ' || text[i] >= 0x7f)
            return false;
    return size >= BEARER_MIN;
}

bool rg_logins_load_bearer(struct rg_logins *logins, const char *path)
{
    char text[sizeof logins->bearer + 2] = "";
    struct stat about;
    RG_CLEANUP_FD int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (file < 0 || fstat(file, &about) != 0) {
        rg_error("--http-token-file %s: %s", path, strerror(errno));
        return false;
    }
    if (about.st_mode & 0077) {
        rg_error("--http-token-file %s: others may read it (mode %03o): chmod 600", path,
                 (unsigned)(about.st_mode & 0777));
        return false;
    }
    const ssize_t got = read(file, text, sizeof text - 1);
    const size_t size = got > 0 ? strcspn(text, "\r\n") : 0;
    if (!is_token(text, size) || size >= sizeof logins->bearer ||
        text[size + strspn(text + size, "\r\n")] != '\0') {
        rg_error("--http-token-file %s: it has to hold one line of %d to %zu characters without spaces, like "
                 "that of 'openssl rand -hex 32'",
                 path, BEARER_MIN, sizeof logins->bearer - 1);
        explicit_bzero(text, sizeof text);
        return false;
    }
    memset(logins->bearer, 0, sizeof logins->bearer);
    memcpy(logins->bearer, text, size);
    explicit_bzero(text, sizeof text);
    return true;
}

bool rg_logins_bears(const struct rg_logins *logins, const char bearer[RG_CONTROL_TEXT])
{
    return logins->bearer[0] && is_same(logins->bearer, bearer, sizeof logins->bearer);
}

/* --- links and cookies -------------------------------------------------------------------------------------- */

static void forget(struct rg_login *login)
{
    explicit_bzero(login, sizeof *login);
}

static bool is_of(const struct rg_login *login, const struct rg_who *who)
{
    return login->who.proof == who->proof && login->who.uid == who->uid &&
           strcmp(login->who.name, who->name) == 0;
}

/* A place for one more: a free one, unless that would be too many of one identity: then its oldest. NULL: there is none. */
static struct rg_login *make_room(struct rg_logins *logins, const struct rg_who *who)
{
    struct rg_login *free = NULL, *oldest = NULL;
    const uint64_t now = rg_now_ns();
    unsigned n = 0;
    for (int i = 0; i < RG_LOGINS_MAX; i++) {
        struct rg_login *at = &logins->entries[i];
        if (at->until_ns && now >= at->until_ns)
            forget(at);
        if (!at->until_ns) {
            free = at;
        } else if (is_of(at, who)) {
            n++;
            oldest = !oldest || at->until_ns < oldest->until_ns ? at : oldest;
        }
    }
    return n < RG_LOGINS_OF_ONE_MAX && free ? free : oldest;
}

static struct rg_login *find(struct rg_logins *logins, const uint8_t secret[RG_PAGE_SECRET], bool is_link)
{
    struct rg_login *found = NULL;
    const uint64_t now = rg_now_ns();
    for (int i = 0; i < RG_LOGINS_MAX; i++) {
        struct rg_login *at = &logins->entries[i];
        if (at->until_ns > now && at->is_link == is_link && is_same(at->secret, secret, RG_PAGE_SECRET))
            found = at;
    }
    return found;
}

static bool fill(void *secret)
{
    return getrandom(secret, RG_PAGE_SECRET, 0) == RG_PAGE_SECRET;
}

enum rg_status rg_logins_make_link(struct rg_logins *logins, const struct rg_who *who,
                                   uint8_t secret[RG_PAGE_SECRET])
{
    struct rg_login *login = make_room(logins, who);
    if (!login)
        return RG_ERR_LIMIT;
    if (!fill(secret))
        return RG_ERR_NO_MEMORY;
    forget(login);
    login->is_link = true;
    login->who = *who;
    login->until_ns = rg_now_ns() + RG_LOGIN_LINK_S * 1000000000ull;
    memcpy(login->secret, secret, RG_PAGE_SECRET);
    return RG_OK;
}

const struct rg_login *rg_logins_exchange(struct rg_logins *logins, const uint8_t secret[RG_PAGE_SECRET])
{
    struct rg_login *login = find(logins, secret, true);
    if (!login || !fill(login->secret) || !fill(login->guard))
        return NULL;
    login->is_link = false;
    login->until_ns = rg_now_ns() + RG_LOGIN_COOKIE_S * 1000000000ull;
    return login;
}

const struct rg_login *rg_logins_find(struct rg_logins *logins, const uint8_t cookie[RG_PAGE_SECRET])
{
    return find(logins, cookie, false);
}

bool rg_logins_guards(const struct rg_login *login, const uint8_t guard[RG_PAGE_SECRET])
{
    return is_same(login->guard, guard, RG_PAGE_SECRET);
}

void rg_logins_end(struct rg_logins *logins, const uint8_t cookie[RG_PAGE_SECRET])
{
    struct rg_login *login = find(logins, cookie, false);
    if (login)
        forget(login);
}
