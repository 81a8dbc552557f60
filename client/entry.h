/*
 * entry.h - the symbols that leave the client core: how the stand-in libraries (interpose/) reach it.
 */
#ifndef RG_CLIENT_ENTRY_H
#define RG_CLIENT_ENTRY_H

#include <stddef.h>

#define RG_CLIENT_ENTRY      "rg_client_entry"
#define RG_CLIENT_NVML_ENTRY "rg_client_nvml_entry"
#define RG_CLIENT_NCCL_ENTRY "rg_client_nccl_entry"

/**
 * The functions of the driver API by enum rg_api, those of NVML by enum rg_nvml_function, or of NCCL by enum
 * rg_nccl_function, `count` of them; NULL if
 * the caller was built for another number of functions (two installations mixed up). Any thread.
 */
typedef void *const *(*rg_client_entry_fn)(size_t count);

#endif
