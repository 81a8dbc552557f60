/* server_times.c - see server_times.h. */
#include "client/profile/server_times.h"

#include "client/core/queue.h"
#include "client/core/receiver.h"
#include "client/core/session.h"
#include "common/base/clock.h"
#include "common/sync/scoped_lock.h"

#include <errno.h>
#include <pthread.h>

#define PATIENCE_NS 10000000000ull

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_cond_t answered;  /* by the clock that only grows, which no initialiser says */
static uint64_t last_id, due_id; /* due_id: not 0 while an answer is due */
static struct rg_time *place;    /* NULL: nobody waits for it any more */
static struct rg_notice answer;

static void init(void)
{
    rg_cond_init(&answered);
}

int rg_times_fetch(struct rg_session *session, bool all, struct rg_time *out, uint64_t *more,
                   uint64_t *dropped)
{
    const struct timespec until = rg_timespec(rg_now_ns() + PATIENCE_NS);
    pthread_once(&once, init);
    pthread_mutex_lock(&lock);
    if (due_id) { /* one that did not come in time */
        pthread_mutex_unlock(&lock);
        return -1;
    }
    due_id = ++last_id;
    place = out;
    pthread_mutex_unlock(&lock);
    rg_receiver_expect_notices(session, 1);
    const struct rg_answer question = {.type = RG_ANSWER_TIMES, .id = due_id, .arg = {all}};
    rg_queue_answer(session, &question, NULL, 0, NULL);
    pthread_mutex_lock(&lock);
    int error = 0;
    while (due_id && error != ETIMEDOUT && rg_session_lives(session))
        error = pthread_cond_timedwait(&answered, &lock, &until);
    const bool came = due_id == 0;
    place = NULL;
    *dropped = answer.arg[1];
    *more = answer.arg[2];
    const int n = came ? (int)answer.arg[0] : -1;
    pthread_mutex_unlock(&lock);
    rg_receiver_expect_notices(session, -1);
    return n;
}

bool rg_times_notice(struct rg_session *session, const struct rg_notice *notice, size_t bulk_size)
{
    RG_SCOPED_LOCK(&lock);
    /* The lock is held while data comes in, so that whoever waits does not take its memory away. */
    bool good = due_id && notice->id == due_id && notice->arg[0] <= RG_TIMES_PART &&
                bulk_size == notice->arg[0] * sizeof(struct rg_time);
    if (good && bulk_size && rg_conn_recv_bulk(session->conn, place, bulk_size) != RG_OK)
        good = false;
    if (good) {
        due_id = 0;
        answer = *notice;
        pthread_cond_signal(&answered);
    }
    return good;
}
