/*
 * api_table.h - the table through which the stand-in library and cuGetProcAddress reach the functions of the
 * client core.
 */
#ifndef RG_CLIENT_CORE_API_TABLE_H
#define RG_CLIENT_CORE_API_TABLE_H

#include "generated/proto/api_table.h"

/** By enum rg_api; generated. */
extern void *const rg_client_api[RG_API_COUNT];
/** What the application gets: rg_client_api, or wrappers of the same (client/profile/profile.h). */
extern void *const *rg_api_table;

#endif
