/* class.h - requests that ask for the same, and what of the pool could ever be theirs. */
#ifndef RG_POOL_SCHEDULE_CLASS_H
#define RG_POOL_SCHEDULE_CLASS_H

#include "pool/schedule/plan.h"

/** Sorts the snapshot's requests into classes. */
RG_MUST_CHECK enum rg_status rg_pool_classes_init(struct rg_pool_plan *plan);
/** Finds out which devices match, at the first call for a class. */
RG_MUST_CHECK enum rg_status rg_pool_class_match(struct rg_pool_plan *plan, struct rg_pool_class *class);
/** Why no server could ever give the class what it asks for: fills the class's figures. Of one whose `most` is too small. */
void rg_pool_class_impossible(struct rg_pool_plan *plan, struct rg_pool_class *class);

#endif
