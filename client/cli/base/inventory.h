/*
 * inventory.h - what servers answered, collected and put into words, tables and JSON.
 */
#ifndef RG_CLIENT_CLI_BASE_INVENTORY_H
#define RG_CLIENT_CLI_BASE_INVENTORY_H

#include "client/cli/base/settings.h"
#include "client/query/query.h"
#include "proto/control/control.h"

#include <jansson.h>

struct rg_answer_of {
    const char *server;
    unsigned first; /* number of its first GPU in the list of all servers that answered */
    bool ok;
    struct rg_control message; /* an inventory if ok */
    char why[1024];            /* else the reason */
    json_t *pool;              /* of a list: what the server's pool has; NULL: it is in none */
};

/** Asks all servers of the settings. NULL: there are none, or no memory; it was said. */
struct rg_answer_of *rg_inventory_ask(const struct rg_cli_settings *settings, enum rg_purpose purpose);
void rg_inventory_free(const struct rg_cli_settings *settings, struct rg_answer_of *answers);

/** The exit status of a question: 0 if all servers answered. Says which did not, unless that is in the JSON.
 */
int rg_inventory_status(const struct rg_cli_settings *settings, const struct rg_answer_of *answers);

/**
 * A subcommand that asks all servers: nothing but options may follow `subcommand`; prints JSON if that was
 * asked for, else each answer by `print`. `look_on`, unless NULL, may find out more about each server first. The exit status.
 */
int rg_inventory_show(const struct rg_cli_settings *settings, const char *subcommand, int argc, char **argv,
                      void (*look_on)(const struct rg_cli_settings *settings, struct rg_answer_of *answer),
                      void (*print)(const struct rg_answer_of *answer));

#endif
