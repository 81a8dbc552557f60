/*
 * export_table.h - the end of a context's life, as far as the runtime's context-local storage is concerned.
 */
#ifndef RG_CLIENT_API_EXPORT_TABLE_H
#define RG_CLIENT_API_EXPORT_TABLE_H

#include <stdint.h>

/** Runs the destructors of what was stored with the context. */
void rg_export_table_context_ended(uint64_t context);

#endif
