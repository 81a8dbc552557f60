/*
 * frame.h - internal to the frames of kernels, which are written as LLVM's text: frame.c puts it together
 * and has block form; regions.c has loop form, pieces.c rows in pieces.
 *
 * The text is made of parts in which a name stands for $, and numbers for #0 to #9.
 */
#ifndef SG_COMPILER_CODEGEN_LOOPS_FRAME_H
#define SG_COMPILER_CODEGEN_LOOPS_FRAME_H

#include "softgpu/compiler/codegen/loops/loops.h"

#include <stdio.h>

#define SG_FRAME_FIRST_LOOP 11u /* the number of the first loop's metadata; frame.c has those before */

// clang-format off
#define SG_FRAME_THREAD /* tells the body which thread it is: the one at %x.start + %$.i */ \
    "  %$.x = add nuw nsw i32 %x.start, %$.i\n" \
    "  %$.linear = add nuw nsw i32 %start, %$.i\n" \
    "  store i32 %$.x, ptr %x.p, align 4\n" \
    "  store i32 %y, ptr %y.p, align 4\n" \
    "  store i32 %z, ptr %z.p, align 4\n" \
    "  store i32 %$.linear, ptr %linear.p, align 4\n" \
    "  store ptr %block, ptr %block.p, align 8\n" \
    "  store ptr null, ptr %engine.p, align 8\n"
// clang-format on

#define NUMBERS(...) ((const uint64_t[]){__VA_ARGS__})

/** Writes `text` with `name` for each $ and numbers[N] for each #N. */
void sg_frame_put(FILE *file, const char *text, const char *name, const uint64_t *numbers);
/** The thread as the body takes it, and the shape of its block. */
void sg_frame_put_start(FILE *file);
/** The end of a function, with what it returns. */
void sg_frame_put_finish(FILE *file, const char *result);
/** A loop over the threads of a row around `call`, which takes `numbers`; `store` (or NULL) follows it. */
void sg_frame_put_turn(FILE *file, const char *name, const char *call, const uint64_t *numbers,
                       const char *store, uint64_t loop);
/** The functions of all regions. */
void sg_frame_put_regions(FILE *file, struct sg_codegen *gen);

/** How a region begins with what is kept once a block (struct sg_lanes). */
struct sg_keeping {
    bool possible;               /* what is kept can be made use of here … */
    uint32_t needed;             /* … if these are (bits), those that are affine … */
    uint32_t place[SG_KEPT_MAX]; /* … in these places among the affine ones; UINT32_MAX: not affine */
};
/** What of it the region of a point makes use of. */
struct sg_keeping sg_keeping_find(const struct sg_codegen *gen, uint32_t point);
/** What the region of a point begins with on that account. */
void sg_frame_put_kept(FILE *file, const struct sg_regions *regions, uint32_t point,
                       const struct sg_keeping *keeping);
/** The function that puts what is kept into its columns. */
void sg_frame_put_settle(FILE *file, const struct sg_ptx_function *kernel, const struct sg_regions *regions);

/** A row in pieces whose threads take the same way (divergence.h). */
struct sg_pieces {
    const struct sg_divergence *tree;
    bool asks_alone; /* the first piece asks by itself: nothing is kept */
    const char *divergence,
        *call;         /* take the point and whether registers are affine, the call then the decisions */
    const char *store; /* what tells where a thread has come to, where that is not known; or NULL */
    uint64_t point;
    bool affine;
    uint32_t next;                    /* where all threads of the region come to, or 0 */
    const struct sg_keeping *keeping; /* NULL: nothing is kept */
    uint64_t loop;                    /* metadata of the loops, SG_PIECES_LOOPS of them */
};
#define SG_PIECES_LOOPS (2 * SG_LEAVES_MAX)
/** The loops over all pieces of a row. */
void sg_frame_put_pieces(FILE *file, const struct sg_pieces *pieces);

#endif
