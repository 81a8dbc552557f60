/* address.c - addresses and filter chains, as text. */
#include "transport/address.h"
#include "transport/connect/connect.h"
#include "transport/connect/registry.h"
#include "transport/operations.h"

#include <criterion/criterion.h>

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

Test(filter, chains)
{
    struct rg_filter_chain chain;
    char why[160] = "";
    cr_assert_eq(rg_filter_chain_parse(NULL, &chain, why, sizeof why), RG_OK);
    cr_assert_eq(chain.count, 0);
    cr_assert_eq(rg_filter_chain_parse("", &chain, why, sizeof why), RG_OK);
    cr_assert_eq(chain.count, 0);
    cr_assert_eq(rg_filter_chain_parse("delay:oneway=2ms,bandwidth=10Gb;fault:send_close_after=3;fault;",
                                       &chain, why, sizeof why),
                 RG_OK, "%s", why);
    cr_assert_eq(chain.count, 3);
    cr_assert_str_eq(chain.links[0].filter->name, "delay");
    cr_assert_str_eq(chain.links[0].options, "oneway=2ms,bandwidth=10Gb");
    cr_assert_str_eq(chain.links[1].filter->name, "fault");
    cr_assert_str_eq(chain.links[1].options, "send_close_after=3");
    cr_assert_str_eq(chain.links[2].options, "");
}

Test(filter, bad_chains)
{
    static const char *const table[][2] = {
        {"slow", "there is no filter 'slow'"},
        {"delay;;fault", "there is no filter ''"},
        {"delay:oneway", "filter delay: 'oneway' is not an option (like key=value)"},
        {"delay:oneway=", "filter delay: 'oneway=' is not an option (like key=value)"},
        {"delay:oneway=2", "filter delay: '2' is not a duration (like 2ms or 50us)"},
        {"delay:oneway=2h", "filter delay: oneway is more than a minute"},
        {"delay:twoway=2ms", "filter delay: there is no option 'twoway' (oneway, bandwidth, flow)"},
        {"fault:send_lost_at=x", "filter fault: 'x' is not an integer"},
        {"fault:nothing=1", "filter fault: there is no option 'nothing'"},
        {"fault;fault;fault;fault;fault", "more than 4 filters"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct rg_filter_chain chain;
        char why[160] = "";
        cr_assert_eq(rg_filter_chain_parse(table[i][0], &chain, why, sizeof why), RG_ERR_INVALID, "%s",
                     table[i][0]);
        cr_assert_str_eq(why, table[i][1]);
    }
    char options[400] = "delay:";
    memset(options + 6, 'x', sizeof options - 7);
    struct rg_filter_chain chain;
    cr_assert_eq(rg_filter_chain_parse(options, &chain, NULL, 0), RG_ERR_INVALID);
}

Test(transport, refuses_with_a_reason)
{
    static const struct {
        const char *address, *filters, *why;
        enum rg_status status;
    } table[] = {
        {"mem:nobody", "", "connection refused", RG_ERR_UNREACHABLE},
        {"mem:nobody", "nope", "there is no filter 'nope'", RG_ERR_INVALID},
        {"host:99999", "", "'99999' is not a port number", RG_ERR_INVALID},
        {"127.0.0.1:1", "", "connection refused", RG_ERR_UNREACHABLE},
        {"[::1]:1", "", "connection refused", RG_ERR_UNREACHABLE},
        {"unix:/nonexistent/socket", "", "no such socket", RG_ERR_UNREACHABLE},
        {"unix:@nobody-listens-here", "", "connection refused", RG_ERR_UNREACHABLE},
        {"no-such-host.invalid:1", "", "no such host", RG_ERR_UNREACHABLE},
    };
    rg_transport_register(&rg_transport_tcp_ops);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct rg_conn *conn = NULL;
        const struct rg_transport_options options = {.filters = table[i].filters, .connect_timeout_ms = 3000};
        char why[160] = "";
        cr_assert_eq(rg_transport_connect(table[i].address, &options, why, sizeof why, &conn),
                     table[i].status, "%s: %s", table[i].address, why);
        if (strstr(table[i].address, ".invalid") == NULL) /* without a name server, the reason is another */
            cr_assert_str_eq(why, table[i].why);
        cr_assert_null(conn);
    }
}
