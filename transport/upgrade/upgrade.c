/* upgrade.c - what is wished for and offered (upgrade.h); the two ends: server.c, client.c. */
#include "transport/upgrade/internal.h"

#include "transport/topology/rails.h"

#include <stdio.h>
#include <string.h>

enum rg_status rg_transport_choice_parse(const char *text, enum rg_transport_choice *out)
{
    static const struct {
        const char *name;
        enum rg_transport_choice choice;
    } names[] = {{"", RG_TRANSPORT_AUTO},
                 {"auto", RG_TRANSPORT_AUTO},
                 {"tcp", RG_TRANSPORT_TCP},
                 {"rdma", RG_TRANSPORT_RDMA}};
    for (size_t i = 0; text && i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i].name) == 0) {
            *out = names[i].choice;
            return RG_OK;
        }
    return RG_ERR_INVALID;
}

void rg_upgrade_add(struct rg_transport_list *list, const char *name)
{
    if (list->n < RG_CONTROL_TRANSPORTS)
        snprintf(list->names[list->n++], sizeof list->names[0], "%s", name);
}

bool rg_upgrade_has(const struct rg_transport_list *list, const char *name)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (strcmp(list->names[i], name) == 0)
            return true;
    return false;
}

void rg_upgrade_offer(enum rg_transport_choice choice, struct rg_transport_list *out)
{
    struct rg_rail any;
    out->n = 0;
    if (choice == RG_TRANSPORT_RDMA || (choice == RG_TRANSPORT_AUTO && rg_rails_here(NULL, 0, &any, 1) > 0))
        rg_upgrade_add(out, "rdma");
    rg_upgrade_add(out, "tcp");
}

bool rg_upgrade_is_offered(const struct rg_transport_list *offered)
{
    return rg_upgrade_has(offered, "rdma");
}
