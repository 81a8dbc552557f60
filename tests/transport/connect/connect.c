/* connect.c - chains of filters as text, and why a connection cannot be made. */
#include "transport/connect/connect.h"
#include "transport/connect/registry.h"

#include <criterion/criterion.h>
#include <string.h>

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
        {"delay:oneway=2", "filter delay: '2' is not a duration (like 10min, 2ms or 50us)"},
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
