/*
 * operator.h - the files of the operator's own authority (--tls-ca, --tls-cert, --tls-key), as cert-manager, step-ca, SPIRE or a
 * Kubernetes secret put them there: read as a whole, checked, and kept in memory.
 *
 * Links are followed (a Kubernetes secret is made of them). The key may be read by its owner and group alone. Failures:
 * RG_ERR_INVALID or RG_ERR_IO with a sentence that names the file and what to do. One thread at a time.
 */
#ifndef RG_SERVER_IDENTITY_OPERATOR_H
#define RG_SERVER_IDENTITY_OPERATOR_H

#include "common/base/status.h"
#include "server/identity/authority.h"
#include "server/identity/identity.h"

#include <stddef.h>
#include <stdint.h>

/** Whether all three files are given, or none (RG_ERR_INVALID: some are). */
RG_MUST_CHECK enum rg_status rg_operator_check_settings(const struct rg_identity_settings *settings,
                                                        char *why, size_t why_size);
/** Reads them. `ca` is to be freed, the pair to be released by rg_key_pair_fini. */
RG_MUST_CHECK enum rg_status rg_operator_load(const struct rg_identity_settings *settings, int64_t now,
                                              char **ca, size_t *ca_size, struct rg_key_pair *pair, char *why,
                                              size_t why_size);
/** Whether the settings allow that name. */
bool rg_operator_allows(const struct rg_identity_settings *settings, const char *name);

#endif
