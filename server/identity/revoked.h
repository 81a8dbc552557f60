/*
 * revoked.h - the file `revoked`: certificates that are refused although their authority has signed them. For the operator's own
 * authority, whose certificates users/ does not know; it counts for ours as well.
 *
 * A line is the name in a certificate as it stands there (spiffe://example.org/alice), or serial:4f0c…; '#' begins a comment. Removing
 * a line allows the certificate again. One thread at a time.
 */
#ifndef RG_SERVER_IDENTITY_REVOKED_H
#define RG_SERVER_IDENTITY_REVOKED_H

#include "common/base/status.h"
#include "server/identity/state.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** RG_ERR_REFUSED: the file names it, and `why` says which of the two. Any other failure: the file cannot be read. */
RG_MUST_CHECK enum rg_status rg_revoked_check(const struct rg_state *state, const char *name,
                                              const uint8_t *serial, size_t serial_size, char *why,
                                              size_t why_size);
/** Adds a line, unless it is there already (*added). With the lock. */
RG_MUST_CHECK enum rg_status rg_revoked_add(const struct rg_state *state, const char *line, bool *added,
                                            char *why, size_t why_size);
/** The file's text, to be freed; an empty one if there is no file. */
RG_MUST_CHECK enum rg_status rg_revoked_read(const struct rg_state *state, char **text, char *why,
                                             size_t why_size);
/** The next entry of that text, which is changed; NULL: no more. */
char *rg_revoked_next(char **at);

#endif
