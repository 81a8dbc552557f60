/* internal.h - lists of transports, for both ends of an upgrade. */
#ifndef RG_TRANSPORT_UPGRADE_INTERNAL_H
#define RG_TRANSPORT_UPGRADE_INTERNAL_H

#include "transport/upgrade/upgrade.h"

/** A full list stays as it is. */
void rg_upgrade_add(struct rg_transport_list *list, const char *name);
bool rg_upgrade_has(const struct rg_transport_list *list, const char *name);

#endif
