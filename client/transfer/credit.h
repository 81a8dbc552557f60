/*
 * credit.h - whether bulk data of a copy to the device may be sent now (proto/bulk_credit.h).
 *
 * As long as the device takes the data about as fast as it comes, there is always credit, and nothing is
 * asked. Where a stream does not go on, the credit is used up at some time: then copies are put into their
 * streams without data (rgCopyInDeferred), which the worker asks for when it is their turn. So nothing that other
 * threads do stands behind data that nobody can take.
 *
 * Any thread; no locks held but that of shared pages.
 */
#ifndef RG_CLIENT_TRANSFER_CREDIT_H
#define RG_CLIENT_TRANSFER_CREDIT_H

#include "client/core/hooks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rg_session;

/** Takes credit for a record with `size` bytes of data; false: there is none. May ask the worker. */
bool rg_credit_take(struct rg_session *session, size_t size);
/** The record was not sent. */
void rg_credit_return(struct rg_session *session, size_t size);
/** RG_NOTICE_CREDIT. */
rg_notice_handler rg_credit_notice;

#endif
