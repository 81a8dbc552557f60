/*
 * credit.h - tells the client how much of what its copies to the device brought is free again
 * (proto/bulk_credit.h). What takes credit is in staging.c. The dispatcher.
 */
#ifndef RG_SERVER_TRANSFER_CREDIT_H
#define RG_SERVER_TRANSFER_CREDIT_H

struct rg_worker;

/** The client had no credit for a copy: it is told whatever is free again. */
void rg_credit_report(struct rg_worker *worker);

#endif
