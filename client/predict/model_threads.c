/* model_threads.c - how the threads of a recorded run depended on one another, and which of their queries are
 * loops. */
#include "client/predict/model_making.h"

#include <stdlib.h>

#define JOIN_NS 100000 /* a thread that computes for less has not waited for another */

/* --- threads that wait for one another ------------------------------------------------------------------ */

/* Begins of all steps in the run that was recorded. The caller frees them. */
static uint64_t *starts_of(const struct rg_thread_model *thread)
{
    uint64_t *starts = malloc((thread->n + 1) * sizeof *starts), now = thread->offset;
    for (size_t i = 0; starts && i < thread->n; i++) {
        now += thread->steps[i].gap;
        starts[i] = now;
        if (thread->steps[i].kind != RG_STEP_POST && thread->steps[i].kind != RG_STEP_SAVED)
            now += thread->steps[i].time;
    }
    return starts;
}

/* A thread begins because another one started it: the main one, as far as anybody can know. */
static void find_parent(struct rg_model *model, uint32_t child, const uint64_t *main_starts)
{
    struct rg_thread_model *thread = &model->threads[child];
    const struct rg_thread_model *parent = &model->threads[0];
    size_t at = parent->n;
    while (at > 0) {
        const struct rg_step *step = &parent->steps[at - 1];
        const uint64_t over = main_starts[at - 1] + (step->kind == RG_STEP_POST ? 0 : step->time);
        if (over <= thread->offset) {
            thread->parent = 0;
            thread->parent_step = (uint32_t)(at - 1);
            thread->offset -= over;
            model->threads[0].steps[at - 1].starts = true;
            return;
        }
        at--;
    }
    thread->parent = child;
}

/*
 * Where the main thread computed for long and another one ended meanwhile, it has waited for that end: its
 * time goes on from there. A list of such threads begins at model->joins[step->join].
 */
static bool find_joins(struct rg_model *model, const uint64_t *main_starts, const uint64_t *ends)
{
    struct rg_thread_model *thread = &model->threads[0];
    const size_t capacity = 1 + 2 * model->n_threads;
    model->joins = malloc(capacity * sizeof *model->joins);
    if (!model->joins)
        return false;
    model->joins[model->n_joins++] = UINT32_MAX;
    for (size_t i = 0; i < thread->n; i++) {
        struct rg_step *step = &thread->steps[i];
        const uint64_t from = main_starts[i] - step->gap, to = main_starts[i];
        uint64_t latest = 0;
        if (step->gap < JOIN_NS)
            continue;
        const size_t list = model->n_joins;
        for (uint32_t j = 1; j < model->n_threads; j++)
            if (ends[j] > from && ends[j] <= to) {
                model->joins[model->n_joins++] = j;
                latest = ends[j] > latest ? ends[j] : latest;
            }
        if (model->n_joins == list)
            continue;
        model->joins[model->n_joins++] = UINT32_MAX;
        step->join = (uint32_t)list;
        step->gap = to - latest;
    }
    return true;
}

bool rg_model_relate_threads(struct rg_model *model)
{
    uint64_t *main_starts = starts_of(&model->threads[0]);
    uint64_t *ends = calloc(model->n_threads, sizeof *ends);
    bool good = main_starts && ends;
    for (uint32_t i = 1; good && i < model->n_threads; i++) {
        uint64_t *starts = starts_of(&model->threads[i]);
        good = starts != NULL;
        if (good)
            ends[i] = starts[model->threads[i].n - 1];
        free(starts);
        if (good)
            find_parent(model, i, main_starts);
    }
    good = good && find_joins(model, main_starts, ends);
    free(main_starts);
    free(ends);
    return good;
}

/* --- queries in a loop ---------------------------------------------------------------------------------- */

static bool same_query(const struct rg_record_model *a, const struct rg_record_model *b)
{
    return a->use.act == b->use.act && a->use.stream == b->use.stream && a->use.event == b->use.event;
}

/* What step asks about, if it asks; NULL: it does not. */
static struct rg_record_model *asked(const struct rg_model *model, const struct rg_step *step)
{
    if (step->kind != RG_STEP_POST && step->kind != RG_STEP_POLL)
        return NULL;
    struct rg_record_model *record = &model->records[step->record];
    return record->flags & (RG_RECORD_QUERY | RG_RECORD_POLL) ? record : NULL;
}

void rg_model_find_loops(struct rg_model *model, struct rg_thread_model *thread)
{
    for (size_t i = thread->n; i-- > 0;) {
        struct rg_record_model *record = asked(model, &thread->steps[i]);
        if (!record)
            continue;
        record->skip = (uint32_t)i + (thread->steps[i].kind == RG_STEP_POLL ? 1 : 2); /* behind its reply */
        if (record->flags & RG_RECORD_READY || record->skip >= thread->n)
            continue;
        const struct rg_record_model *next = asked(model, &thread->steps[record->skip]);
        if (next && same_query(record, next))
            record->skip = next->skip;
    }
}
