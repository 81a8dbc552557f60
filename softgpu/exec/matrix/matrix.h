/*
 * matrix.h - internal to the operations on matrices: matrix.c and mma.c do all of them, lane by lane; lanes_matrix.c
 * those of kernels in loop form, whose registers are columns; mma_vectors.h the most common of these, with
 * vector instructions.
 */
#ifndef SG_EXEC_MATRIX_MATRIX_H
#define SG_EXEC_MATRIX_MATRIX_H

#include "softgpu/exec/engine.h"

#define SG_MATRIX_MAX_A   (16 * 256) /* m * k of any shape; a quarter of it in doubles */
#define SG_MATRIX_MAX_B   (8 * 256)  /* k * n; the same */
#define SG_MATRIX_MAX_SUM (16 * 16)  /* m * n */

struct sg_matrix_request {
    struct sg_matrix_kind kind;
    uint32_t stride;
    unsigned char *address;
    struct sg_matrix_fragments *fragments;
};

/*
 * What one multiplication works on. The slot keeps it: it is too large for a fiber's stack and for
 * thread-local storage.
 */
struct sg_matrix_scratch {
    union {
        float f32[SG_MATRIX_MAX_A];
        double f64[SG_MATRIX_MAX_A / 4];
        int32_t s32[SG_MATRIX_MAX_A];
    } a;
    union {
        float f32[SG_MATRIX_MAX_B];
        double f64[SG_MATRIX_MAX_B / 4];
        int32_t s32[SG_MATRIX_MAX_B];
    } b;
    union {
        float f32[SG_MATRIX_MAX_SUM];
        double f64[SG_MATRIX_MAX_SUM];
        int32_t s32[SG_MATRIX_MAX_SUM];
    } c;
    int32_t sum[SG_MATRIX_MAX_SUM];
    uint8_t places[SG_MATRIX_MAX_A]; /* of a's elements, by rows: which row of b each goes with */
    struct sg_matrix_fragments fragments[SG_WARP_SIZE]; /* of lanes in loop form */
};

/**
 * Where a warp's lanes in loop form have their registers: lane 0's element of a column, the others behind it.
 */
struct sg_matrix_view {
    unsigned char *context;
    uint64_t stride; /* of columns, by their number */
    uint32_t first;  /* thread */
};

static inline uint32_t *sg_matrix_words(const struct sg_matrix_view *view, uint32_t column)
{
    return (uint32_t *)(void *)(view->context + view->stride * column) + view->first;
}

static inline uint64_t *sg_matrix_doublewords(const struct sg_matrix_view *view, uint32_t column)
{
    return (uint64_t *)(void *)(view->context + view->stride * column) + view->first;
}

/** The place of a lane's element `i` of c or d, row by row. */
static inline uint32_t sg_matrix_sum_place(const struct sg_matrix_kind *kind, uint32_t lane, uint32_t i)
{
    uint32_t blocks = kind->m / 8u, row = lane / 4 + 8 * (i / 2 % blocks);
    return row * kind->n + 8 * (i / 2 / blocks) + lane % 4 * 2 + i % 2;
}

/** Bits of an element of the type (SG_MATRIX_F16 and so on). */
unsigned sg_matrix_bits(uint8_t type);
/** c += a b of the lanes' fragments; a lane without request is NULL. */
void sg_matrix_multiply(struct sg_matrix_scratch *scratch, struct sg_matrix_request *const *requests,
                        const struct sg_matrix_kind *kind);

/** Works on the requests (struct sg_matrix_request) that the lanes of `group` brought as their values. */
void sg_matrix_resolve(const struct sg_lane_exchange *exchange, uint32_t group);
/** The scratch of the slot that runs the calling thread, or NULL where there is no memory. */
struct sg_matrix_scratch *sg_matrix_scratch_get(struct sg_slot *slot);
/** Does what lanes ask for, all of the same kind; a lane without request is NULL. */
void sg_matrix_resolve_same(struct sg_matrix_scratch *scratch, struct sg_matrix_request *const *requests,
                            const struct sg_matrix_kind *kind);

/**
 * Multiplies matrices of a whole warp; false, with nothing done, for kinds that only sg_matrix_resolve_same
 * does. Results are the same as its: products of these types are exact in float, so fused or not is one.
 */
typedef bool (*sg_matrix_multiplier)(struct sg_matrix_scratch *scratch, const struct sg_matrix_view *view,
                                     const struct sg_matrix_op *op);
bool sg_matrix_multiply_plain(struct sg_matrix_scratch *scratch, const struct sg_matrix_view *view,
                              const struct sg_matrix_op *op);
bool sg_matrix_multiply_avx2(struct sg_matrix_scratch *scratch, const struct sg_matrix_view *view,
                             const struct sg_matrix_op *op);
bool sg_matrix_multiply_avx512(struct sg_matrix_scratch *scratch, const struct sg_matrix_view *view,
                               const struct sg_matrix_op *op);

#endif
