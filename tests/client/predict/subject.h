/* subject.h - a made-up program that is simulated: its trace, and the model of that. */
#ifndef RG_TESTS_CLIENT_PREDICT_SUBJECT_H
#define RG_TESTS_CLIENT_PREDICT_SUBJECT_H

#include "client/predict/simulate.h"
#include "tests/client/predict/build_trace.h"

#include <criterion/criterion.h>

struct subject {
    struct built built;
    struct rg_trace trace;
    struct rg_model model;
};

/** Reads what was built into `subject->built`. */
static inline void read_built(struct subject *subject)
{
    char why[200] = "";
    cr_assert_eq(rg_trace_parse(subject->built.data, subject->built.size, &subject->trace, why, sizeof why),
                 RG_OK, "%s", why);
    cr_assert_eq(rg_model_make(&subject->trace, &subject->model), RG_OK);
}

static inline void discard(struct subject *subject)
{
    rg_model_free(&subject->model);
    rg_trace_free(&subject->trace);
    free_built(&subject->built);
}

static inline void near(uint64_t found, uint64_t wanted, uint64_t tolerance, const char *what)
{
    const uint64_t difference = found > wanted ? found - wanted : wanted - found;
    cr_assert_leq(difference, tolerance, "%s: %llu instead of %llu", what, (unsigned long long)found,
                  (unsigned long long)wanted);
}

#endif
