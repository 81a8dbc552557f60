/*
 * modules.c - which part of the client hears of what. This file is above all parts, and the only one that knows them all; what
 * several of them hear is told in the order that is written here.
 */
#include "client/modules.h"

#include "client/api/context.h"
#include "client/api/module.h"
#include "client/connect/server_message.h"
#include "client/core/hooks.h"
#include "client/core/thread.h"
#include "client/managed/managed.h"
#include "client/managed/unified.h"
#include "client/multiserver/peer_link.h"
#include "client/prealloc/prealloc.h"
#include "client/prefetch/startup_profile.h"
#include "client/timeline/timeline.h"
#include "client/transfer/answers.h"
#include "client/transfer/credit.h"
#include "client/transfer/transfer.h"

#include <pthread.h>

static void sender_idle(struct rg_session *session)
{
    rg_prealloc_answer_reclaim(session);
    rg_prealloc_age(session);
}

static void hello(struct rg_client_hello *hello)
{
    hello->contexts = rg_startup_profile_contexts();
}

static void thread_ends(struct rg_thread *thread)
{
    rg_prealloc_give_back_thread(thread->number);
}

static void thread_ended(struct rg_thread *thread)
{
    rg_timeline_end_thread(&thread->timeline);
}

static void host_call_begins(void)
{
    rg_timeline_new_epoch(); /* that it runs shows how far the stream is */
    rg_unified_host_call_begins();
}

/* What is ready for allocations, then what was loaded in vain. */
static bool out_of_memory(struct rg_session *session)
{
    const bool allocations = rg_prealloc_give_back(session);
    return rg_modules_give_back() || allocations;
}

static void fill_hooks(void)
{
    rg_hooks = (struct rg_hooks){
        .contexts_suspect = rg_context_find_failed,
        .blocks_on_context = rg_timeline_blocks_on_context,
        .work_begins = rg_managed_begin_work,
        .work_ends = rg_unified_end_work,
        .has_waited = rg_unified_settle,
        .out_of_memory = out_of_memory,
        .sender_is_due = rg_prealloc_any,
        .sender_idle = sender_idle,
        .sender_runs = rg_prealloc_answer_reclaim,
        .sender_piece = rg_answers_send_next,
        .notice =
            {
                [RG_NOTICE_HOST_CALL] = rg_transfer_notice,
                [RG_NOTICE_DEFERRED_READ] = rg_transfer_notice,
                [RG_NOTICE_RENDEZVOUS] = rg_transfer_notice,
                [RG_NOTICE_MANAGED] = rg_transfer_notice,
                [RG_NOTICE_PREALLOC] = rg_prealloc_notice,
                [RG_NOTICE_RECLAIM] = rg_prealloc_reclaim_notice,
                [RG_NOTICE_DONE] = rg_timeline_notice,
                [RG_NOTICE_CREDIT] = rg_credit_notice,
                [RG_NOTICE_SAY] = rg_server_message_notice,
                [RG_NOTICE_PEER_LOST] = rg_peer_link_notice,
            },
        .host_call_begins = host_call_begins,
        .host_call_ends = rg_unified_host_call_ends,
        .hello = hello,
        .session_settles = rg_transfers_settle,
        .session_ended = rg_transfers_drop,
        .thread_ends = thread_ends,
        .thread_ended = thread_ended,
    };
}

void rg_modules_register(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once,
                 fill_hooks); /* several threads may load this library at once, by each of its entries */
}
