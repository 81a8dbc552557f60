/*
 * abi.c - what generated code takes for granted about kernel_abi.h.
 */
#include "softgpu/kernel_abi.h"

_Static_assert(sizeof(((struct sg_block *)0)->ntid) == 3 * sizeof(uint32_t), "ntid is three words");
_Static_assert(sizeof(((struct sg_block *)0)->ctaid) == 3 * sizeof(uint32_t), "ctaid is three words");
_Static_assert(sizeof(((struct sg_block *)0)->nctaid) == 3 * sizeof(uint32_t), "nctaid is three words");
_Static_assert(sizeof(((struct sg_thread *)0)->tid) == 3 * sizeof(uint32_t), "tid is three words");
_Static_assert(sizeof(((struct sg_block *)0)->sm_id) == 4 && sizeof(((struct sg_block *)0)->n_sm) == 4,
               "words");
_Static_assert(sizeof(((struct sg_block *)0)->shared_static) == 4, "a word");
_Static_assert(sizeof(((struct sg_block *)0)->shared_total) == 4, "a word");
_Static_assert(sizeof(((struct sg_block *)0)->cluster_nctaid) == 3 * sizeof(uint32_t),
               "cluster_nctaid is three words");
_Static_assert(sizeof(((struct sg_block *)0)->cluster_explicit) == 4, "a word");
_Static_assert(sizeof(((struct sg_block *)0)->grid_id) == 8, "two words");
_Static_assert(sizeof(((struct sg_block *)0)->grid_workspace) == 8, "two words");
_Static_assert(sizeof(((struct sg_thread *)0)->linear) == 4, "a word");
_Static_assert(sizeof(struct sg_point) == 16 && sizeof(((struct sg_loop_code *)0)->n_points) == 4,
               "as frame.c");
_Static_assert(offsetof(struct sg_loop_code, points) == 24 && offsetof(struct sg_loop_code, regions) == 32,
               "as frame.c");
_Static_assert(offsetof(struct sg_site, line) == 24 && offsetof(struct sg_site, bytes) == 32 &&
                   offsetof(struct sg_site, align) == 36 && offsetof(struct sg_site, space) == 38,
               "the constants of access.c");
_Static_assert(sizeof(void *) == 8, "addresses have 64 bits");
