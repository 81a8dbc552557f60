/* pair.h - connections by TLS for tests of transports: how support.h's pairs are made of them. */
#ifndef RG_TESTS_TRANSPORT_TLS_PAIR_H
#define RG_TESTS_TRANSPORT_TLS_PAIR_H

#include "tests/transport/support.h"

/** For pair_open: TLS with the world's credentials (authority.h). */
const struct pair_security *pair_tls(void);
/**
 * Sends bytes that are no message, as the connection would: over TLS as one record. The connection can only be
 * destroyed afterwards. False: it has no descriptor, or cannot be got at.
 */
bool send_raw(struct rg_conn *conn, const void *data, size_t size);
/** What send_raw sends, in `wire`, which has room for WIRE_EXTRA more. *ends: the connection can only be destroyed. */
bool wire_bytes(struct rg_conn *conn, const void *data, size_t size, unsigned char *wire, size_t *wire_size,
                bool *ends);
enum { WIRE_EXTRA = 64 };
/** The same with the content type of a record and keys that rg_conn_tls_export gave, which are moved on. */
void send_record(int fd, struct rg_tls_keys *keys, int type, const void *data, size_t size);

#endif
