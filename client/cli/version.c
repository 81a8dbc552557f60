/*
 * version.c - remote-gpu version: of this command, and of the servers that were named.
 */
#include "client/cli/base/cli.h"
#include "client/cli/base/inventory.h"
#include "client/cli/base/output.h"

#include <stddef.h>
#include <stdio.h>

static bool print_json(const struct rg_cli_settings *settings, const struct rg_answer_of *answers)
{
    json_t *servers = json_array();
    for (size_t i = 0; answers && i < settings->server.n; i++) {
        const struct rg_inventory *inventory = &answers[i].message.inventory;
        rg_cli_json_add(&servers,
                        answers[i].ok
                            ? json_pack("{s:s, s:s, s:[ii]}", "address", answers[i].server, "software",
                                        inventory->software, "protocol", (int)inventory->protocol_major,
                                        (int)inventory->protocol_minor)
                            : json_pack("{s:s, s:s}", "address", answers[i].server, "error", answers[i].why));
    }
    return rg_cli_print_json(json_pack("{s:s, s:[ii], s:o}", "software", "remote-gpu " RG_VERSION, "protocol",
                                       RG_PROTOCOL_MAJOR, RG_PROTOCOL_MINOR, "servers", servers));
}

int rg_cli_version(const struct rg_cli_settings *settings, int argc, char **argv)
{
    if (!rg_cli_no_words("version", argc, argv))
        return RG_EXIT_FAILURE;
    /* only those that somebody named: the version is a question about this machine first */
    bool named = rg_options_is_set(&settings->options, offsetof(struct rg_cli_settings, server));
    struct rg_answer_of *answers = named ? rg_inventory_ask(settings, RG_PURPOSE_INVENTORY) : NULL;
    if (named && !answers)
        return RG_EXIT_FAILURE;
    int status = answers ? rg_inventory_status(settings, answers) : 0;
    if (settings->json) {
        status = print_json(settings, answers) ? status : RG_EXIT_FAILURE;
    } else {
        printf("remote-gpu %s, protocol %d.%d\n", RG_VERSION, RG_PROTOCOL_MAJOR, RG_PROTOCOL_MINOR);
        for (size_t i = 0; answers && i < settings->server.n; i++)
            if (answers[i].ok)
                printf("%s: %s, protocol %u.%u\n", answers[i].server, answers[i].message.inventory.software,
                       answers[i].message.inventory.protocol_major,
                       answers[i].message.inventory.protocol_minor);
    }
    rg_inventory_free(settings, answers);
    return status;
}
