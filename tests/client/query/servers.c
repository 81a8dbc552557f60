/* The list of servers: all of a,b; the first of a|b; addresses of devices that stay apart. */
#include "client/query/servers.h"

#include <criterion/criterion.h>
#include <string.h>

Test(servers, lists)
{
    struct rg_servers servers;
    cr_assert(rg_servers_read(&servers, " one ,,two:7601|three,\r\n"));
    cr_assert_eq(servers.n, 2);
    cr_assert_str_eq(servers.items[0], "one");
    char *rest = servers.items[1];
    cr_assert_str_eq(rg_servers_next(&rest), "two:7601");
    cr_assert_str_eq(rg_servers_next(&rest), "three");
    cr_assert_null(rg_servers_next(&rest));
    rg_servers_free(&servers);
    rg_servers_free(&servers);
}

Test(servers, none_and_too_many)
{
    struct rg_servers servers;
    char many[4 * RG_SERVERS_MAX + 8] = "";
    cr_assert(!rg_servers_read(&servers, ""));
    cr_assert(!rg_servers_read(&servers, ",,"));
    for (unsigned i = 0; i < RG_SERVERS_MAX; i++)
        strcat(many, "a,");
    cr_assert(rg_servers_read(&servers, many));
    cr_assert_eq(servers.n, RG_SERVERS_MAX);
    rg_servers_free(&servers);
    strcat(many, "b");
    cr_assert(!rg_servers_read(&servers, many));
}

static void described(const char *server, const char *expected)
{
    char text[64];
    rg_servers_describe(server, text, sizeof text);
    cr_assert_str_eq(text, expected);
}

Test(servers, messages_name_the_port_that_is_used)
{
    described("gpu1", "gpu1 (port 7600)");
    described("gpu1:7600", "gpu1:7600");
    described("gpu1:7601", "gpu1:7601");
    described("gpu7600", "gpu7600 (port 7600)");
    described("[::1]", "[::1] (port 7600)");
    described("[::7600]", "[::7600] (port 7600)");
    described("[::1]:7602", "[::1]:7602");
    described("unix:/run/socket", "unix:/run/socket");
    described("gpu1:none", "gpu1:none");
    described("", "");
}

static void placed(unsigned server, const char *text, const char *expected)
{
    char pci[32];
    strcpy(pci, text);
    rg_servers_place(server, pci, sizeof pci);
    cr_assert_str_eq(pci, expected, "%s of server %u: %s", text, server, pci);
}

Test(servers, addresses_stay_apart)
{
    placed(0, "0000:65:00.0", "0000:65:00.0");
    placed(1, "0000:65:00.0", "1000:65:00.0");
    placed(2, "5347:01:00.0", "7347:01:00.0");
    placed(15, "0001:01:00.0", "F001:01:00.0");
    placed(1, "", "");
    placed(1, "nothing", "nothing");
}
