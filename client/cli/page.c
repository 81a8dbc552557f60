/*
 * page.c - remote-gpu page: the address of a server's status page, with a secret by which a browser is, once, who ran the command.
 */
#include "client/cli/base/cli.h"
#include "client/query/query.h"
#include "common/base/log.h"
#include "common/base/printable.h"

#include <stdio.h>
#include <string.h>

static bool show(const struct rg_cli_settings *settings, const char *server)
{
    char why[RG_CONTROL_REASON + 512] = "", link[RG_CONTROL_REASON];
    struct rg_control message;
    if (rg_query_accounts(server, RG_PURPOSE_PAGE, NULL, 0, settings->timeout_ns, &message, why,
                          sizeof why) != RG_OK) {
        rg_error("%s", why);
        return false;
    }
    snprintf(link, sizeof link, "%.*s", (int)message.answer.size, (const char *)message.answer.data);
    rg_control_fini(&message);
    rg_printable_clean(link);
    puts(link);
    explicit_bzero(link, sizeof link);
    return true;
}

int rg_cli_page(const struct rg_cli_settings *settings, int argc, char **argv)
{
    int status = 0;
    if (!rg_cli_no_words("page", argc, argv))
        return RG_EXIT_FAILURE;
    for (size_t i = 0; i < settings->server.n; i++)
        if (!show(settings, settings->server.items[i]))
            status = RG_EXIT_FAILURE;
    return status;
}
