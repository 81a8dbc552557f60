/* base64.h - etcd's JSON gateway carries keys and values in base64 (RFC 4648, with padding). Any thread. */
#ifndef RG_POOL_ETCD_BASE64_H
#define RG_POOL_ETCD_BASE64_H

#include <stddef.h>

/** The encoded form with its NUL, to be freed by the caller; NULL: no memory. */
char *rg_base64_encode(const void *data, size_t size);
/** The bytes with a NUL behind them, to be freed by the caller, and how many in *size; NULL: no memory, or `text` is not base64. */
char *rg_base64_decode(const char *text, size_t *size);

#endif
