/* address.c - addresses, as text. */
#include "transport/address.h"
#include "common/base/limits.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct good {
    const char *text, *formatted, *transport, *host;
    int port;
};

Test(address, good_ones)
{
    static const struct good table[] = {
        {"tcp://gpu7:7601", "tcp://gpu7:7601", "tcp", "gpu7", 7601},
        {"gpu7:7601", "tcp://gpu7:7601", "tcp", "gpu7", 7601},
        {"gpu7", "tcp://gpu7:7600", "tcp", "gpu7", RG_DEFAULT_PORT},
        {"10.0.0.7:0", "tcp://10.0.0.7:0", "tcp", "10.0.0.7", 0},
        {"[::1]:65535", "tcp://[::1]:65535", "tcp", "::1", 65535},
        {"[fe80::1%eth0]", "tcp://[fe80::1%eth0]:7600", "tcp", "fe80::1%eth0", RG_DEFAULT_PORT},
        {"tcp://[::]:1", "tcp://[::]:1", "tcp", "::", 1},
        {"*:7600", "tcp://*:7600", "tcp", "*", 7600},
        {"memory:1", "tcp://memory:1", "tcp", "memory", 1},
        {"unix:/run/x.sock", "unix:/run/x.sock", "tcp", "", 0},
        {"unix:///run/x.sock", "unix:/run/x.sock", "tcp", "", 0},
        {"unix:////run/x.sock", "unix:////run/x.sock", "tcp", "", 0},
        {"unix:@name", "unix:@name", "tcp", "", 0},
        {"mem:a:b", "mem:a:b", "mem", "", 0},
        {"rdma://host:1", "rdma://host:1", "rdma", "host", 1},
        {"rdma://[::1]", "rdma://[::1]:7600", "rdma", "::1", RG_DEFAULT_PORT},
        {"other://host/1", "other://host/1", "other", "", 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct rg_address address;
        char why[128] = "", text[320];
        cr_assert_eq(rg_address_parse(table[i].text, &address, why, sizeof why), RG_OK, "%s: %s",
                     table[i].text, why);
        rg_address_format(&address, text, sizeof text);
        cr_assert_str_eq(text, table[i].formatted);
        cr_assert_str_eq(address.transport, table[i].transport);
        cr_assert_str_eq(address.host, table[i].host);
        if (address.host[0])
            cr_assert_eq(address.port, table[i].port, "%s", table[i].text);
    }
}

Test(address, bad_ones)
{
    static const char *const table[] = {
        "",           ":7600",     "host:",       "host:x",
        "host:65536", "host:-1",   "host:1:2",    "::1",
        "[::1",       "[::1]7600", "[]:1",        "a b:1",
        "tcp://",     "tcp:///x",  "unix:",       "unix:relative",
        "unix:@",     "mem:",      "://x",        "UP://x",
        "../x://y",   "9p://x",    "host/path",   "ho[st",
        "host]:1",    "[[::1]:1",  "tcp://h:1/x", "averyveryverylongscheme://x",
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct rg_address address;
        char why[128] = "";
        cr_assert_eq(rg_address_parse(table[i], &address, why, sizeof why), RG_ERR_INVALID, "%s", table[i]);
        cr_assert_neq(why[0], '\0', "no reason for '%s'", table[i]);
        cr_assert_eq(rg_address_parse(table[i], &address, NULL, 0), RG_ERR_INVALID);
    }
    char host[400];
    memset(host, 'a', sizeof host);
    host[sizeof host - 1] = '\0';
    struct rg_address address;
    cr_assert_eq(rg_address_parse(host, &address, NULL, 0), RG_ERR_INVALID);
}

/* A number as a socket's address. */
static struct sockaddr_storage socket_address(const char *number, uint16_t port)
{
    struct sockaddr_storage out = {.ss_family = strchr(number, ':') ? AF_INET6 : AF_INET};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&out;
    if (out.ss_family == AF_INET)
        v4->sin_port = port;
    else
        v6->sin6_port = port;
    cr_assert_eq(inet_pton(out.ss_family, number,
                           out.ss_family == AF_INET ? (void *)&v4->sin_addr : (void *)&v6->sin6_addr),
                 1);
    return out;
}

Test(address, of_one_host)
{
    static const struct {
        const char *one, *other;
        bool same;
    } table[] = {
        {"10.0.0.7", "10.0.0.7", true},
        {"10.0.0.7", "10.0.0.8", false},
        {"::ffff:10.0.0.7", "10.0.0.7", true},
        {"::ffff:10.0.0.7", "::ffff:10.0.0.8", false},
        {"127.0.0.1", "127.3.2.1", true},
        {"::ffff:127.0.0.1", "127.0.0.9", true},
        {"::1", "::1", true},
        {"fd77::1", "fd77::1", true},
        {"fd77::1", "fd77::2", false},
        {"127.0.0.1", "10.0.0.7", false},
        {"0.0.0.7", "::7", false},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const struct sockaddr_storage one = socket_address(table[i].one, 1),
                                      other = socket_address(table[i].other, 2);
        cr_expect_eq(rg_address_is_same_host((const struct sockaddr *)&one, (const struct sockaddr *)&other),
                     table[i].same, "%s and %s", table[i].one, table[i].other);
    }
    const struct sockaddr_storage local = {.ss_family = AF_UNIX};
    cr_expect_not(rg_address_is_same_host((const struct sockaddr *)&local, (const struct sockaddr *)&local));
}

Test(address, within_host)
{
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    cr_expect(rg_address_is_within_host(ends[0]));
    close(ends[0]);
    close(ends[1]);
    cr_expect_not(rg_address_is_within_host(-1));

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
              fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(listener, (const struct sockaddr *)&address, size), 0);
    cr_assert_eq(listen(listener, 1), 0);
    cr_assert_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    cr_expect_not(rg_address_is_within_host(fd), "it has no other end yet");
    cr_assert_eq(connect(fd, (const struct sockaddr *)&address, size), 0);
    cr_expect(rg_address_is_within_host(fd));
    close(fd);
    close(listener);
}
