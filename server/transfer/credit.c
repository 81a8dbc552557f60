/* credit.c - when the client is told of credit. See credit.h. */
#include "server/transfer/credit.h"

#include "generated/server/execute.h"
#include "server/modules.h"
#include "server/transfer/staging.h"

struct credit {
    uint64_t seen;   /* taken by records before this one */
    uint64_t told;   /* of what is free, the client knows this */
    uint64_t looked; /* taken at the last look at what is free */
    uint64_t every;  /* the client is told of each so many bytes more; 0: of none */
};

/* Tells of what is free from `least` on; looks for it once `look_after` was taken since the last look. */
static void tell(struct rg_worker *worker, struct rg_staging_credit now, uint64_t least, uint64_t look_after)
{
    struct credit *credit = worker->state[RG_MODULE_CREDIT];
    if (!credit->every) /* it has not asked to be told */
        return;
    if (now.taken - credit->told >= least && now.taken - credit->looked >= look_after) {
        now = rg_staging_credit_look(worker);
        credit->looked = now.taken;
    }
    if (now.freed - credit->told < least)
        return;
    credit->told = now.freed;
    struct rg_notice notice = {.type = RG_NOTICE_CREDIT, .arg = {now.freed, 0, 0}};
    (void)rg_worker_notice(worker, &notice, NULL, 0, NULL, 0);
}

/* Where no buffer was taken, the driver has the data, or it is dropped. */
static void executed(struct rg_request *request, size_t bulk)
{
    struct credit *credit = request->worker->state[RG_MODULE_CREDIT];
    const struct rg_staging_credit now =
        rg_staging_credit(request->worker, credit->seen, bulk ? rg_bulk_credit_of(bulk) : 0);
    credit->seen = now.taken;
    tell(request->worker, now, credit->every, credit->every / 4);
}

void rg_credit_report(struct rg_worker *worker)
{
    const struct credit *credit = worker->state[RG_MODULE_CREDIT];
    const struct rg_staging_credit now = rg_staging_credit(worker, 0, 0);
    if (now.taken - credit->told > RG_BULK_CREDIT / 2) /* or it has credit */
        tell(worker, now, 1, 0);
}

CUresult rg_execute_rgCreditTell(struct rg_request *request, unsigned long long every)
{
    struct credit *credit = request->worker->state[RG_MODULE_CREDIT];
    credit->every = every ? every : 1;
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgCreditAsk(struct rg_request *request, unsigned long long *freed)
{
    struct credit *credit = request->worker->state[RG_MODULE_CREDIT];
    const struct rg_staging_credit now = rg_staging_credit_look(request->worker);
    credit->looked = now.taken;
    *freed = credit->told = now.freed;
    return CUDA_SUCCESS;
}

const struct rg_server_module rg_credit_module = {.size = sizeof(struct credit), .executed = executed};
