/*
 * turn.c - turns with executable graphs and with the streams that they are launched into (rg_graph_turn_begin, graph.h).
 *
 * A launch may take as long as it likes: where its stream holds no more, it waits for the device, and the device perhaps for another
 * thread's launch. So a turn keeps out nobody but who wants the same graph or the same stream. Turns are few at any time: a list.
 * Nobody is cancelled in a turn, or while he waits for one: it would never end.
 */
#include "common/base/uncancelled.h"
#include "common/cuda/graph/graph.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list; a leaf */
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static struct rg_graph_turn *turns;

static bool is_free(const struct rg_graph_turn *wanted)
{
    for (const struct rg_graph_turn *turn = turns; turn; turn = turn->next)
        if (turn->exec == wanted->exec ||
            (turn->launches && wanted->launches && turn->stream == wanted->stream))
            return false;
    return true;
}

void rg_graph_turn_begin(struct rg_graph_turn *turn)
{
    turn->cancelled = rg_uncancelled_begin();
    RG_SCOPED_LOCK(&lock);
    while (!is_free(turn))
        pthread_cond_wait(&ended, &lock);
    turn->next = turns;
    turns = turn;
}

void rg_graph_turn_end(const struct rg_graph_turn *turn)
{
    pthread_mutex_lock(&lock);
    struct rg_graph_turn **at = &turns;
    while (*at != turn)
        at = &(*at)->next;
    *at = turn->next;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
    rg_uncancelled_end(&turn->cancelled);
}
