/* page_request.h - what is asked of the worker about memory that is shared (RG_ANSWER_MANAGED_OUT), and its
 * answer. */
#ifndef RG_CLIENT_MANAGED_PAGE_REQUEST_H
#define RG_CLIENT_MANAGED_PAGE_REQUEST_H

#include "proto/wire.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rg_session;

struct rg_page_request {
    struct rg_session *session;
    uint64_t context, address;
    size_t size;    /* at most RG_BULK_MAX */
    unsigned flags; /* enum rg_managed_flags */
    void *data;     /* where the contents go */
    /* the answer */
    CUresult result; /* the worker's, or that the session has ended */
    bool busy;       /* the device may be at work; with RG_MANAGED_IF_IDLE there are no contents then */
    bool steady;
    bool done;
    uint64_t id;
};

/** Sends a request. Each must be waited for. */
void rg_page_request_send(struct rg_page_request *request);
void rg_page_request_wait(struct rg_page_request *request);

#endif
