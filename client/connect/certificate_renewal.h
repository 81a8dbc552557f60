/*
 * certificate_renewal.h - sessions that are to outlive the certificate by which they were begun.
 *
 * A server ends a session when its certificate expires. A program that runs longer shows the renewed one: its thread looks, a few times
 * before the end, whether the files of its credentials have become others (cert-manager has renewed them, or another program has
 * done so), lets the server renew them if that is due, and shows the new certificate by a connection of its own (RG_PURPOSE_STAY). The
 * session's connections stay as they are.
 *
 * One thread for all sessions that begin together, and only where there is a certificate; asleep but for a moment at most once an hour,
 * and the more often the nearer the end is, at most once a second. What fails is tried again; shortly before the end it is said once.
 */
#ifndef RG_CLIENT_CONNECT_CERTIFICATE_RENEWAL_H
#define RG_CLIENT_CONNECT_CERTIFICATE_RENEWAL_H

#include "common/base/status.h"

/** `n` sessions from number `first` on have begun. Once for each. */
RG_MUST_CHECK enum rg_status rg_certificate_renewal_start(unsigned first, unsigned n);

#endif
