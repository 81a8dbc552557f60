/*
 * entry.h - the one symbol that leaves the client core: how the stand-in libraries (interpose/) reach it.
 */
#ifndef RG_CLIENT_ENTRY_H
#define RG_CLIENT_ENTRY_H

#include <stddef.h>

#define RG_CLIENT_ENTRY "rg_client_entry"

/**
 * The functions of the driver API by enum rg_api, `count` of them; NULL if the caller was built for another number
 * of functions (two installations mixed up). Any thread.
 */
typedef void *const *(*rg_client_entry_fn)(size_t count);

#endif
