/*
 * pieces.c - a row of threads in pieces (divergence.h), and what is kept once a block instead of once a thread.
 *
 * Where a region's piece is the whole block and its leaf ends a turn with everything as affine as it should
 * be, what can be kept is not stored for each thread but as the first one's value (struct sg_lanes); if the
 * next turn is the region's own, it goes on with that at once. Whatever else runs has it put into its columns
 * first.
 */
#include "softgpu/compiler/codegen/loops/frame.h"

#define TURNS_MAX 16u /* that a region takes by itself, before the engine has a look at the grid */

// clang-format off
/* A row in pieces, whose threads take the same way; divergence.h. In each: */
static const char piece_head[] =
    "piece:\n"
    "  %piece.i = phi i32 [ 0, %row.checked ], [ %piece.end, %piece.done ]$\n";

static const char piece_thread[] = SG_FRAME_THREAD;

/* In block form the first piece of a row asks by itself: what rows have in common is computed once. */
static const char piece_first[] =
    "  %first.i = and i32 0, 0\n"
    SG_FRAME_THREAD;

static const char piece_first_head[] =
    "  br label %piece\n"
    "piece:\n"
    "  %piece.i = phi i32 [ 0, %row.checked ], [ %piece.end, %piece.again ]\n"
    "  %divergence = phi i64 [ %first.divergence, %row.checked ], [ %again.divergence, %piece.again ]\n";

static const char piece_again[] =
    "piece.done:\n"
    "  %piece.more = icmp ult i32 %piece.end, %count\n"
    "  br i1 %piece.more, label %piece.again, label %row.end\n"
    "piece.again:\n"
    "  %again.i = add nuw nsw i32 %piece.end, 0\n"
    SG_FRAME_THREAD;

static const char piece_bounds[] =
    "  %divergence.extent.64 = lshr i64 %divergence, 8\n"
    "  %divergence.extent = trunc i64 %divergence.extent.64 to i32\n"
    "  %divergence.leaf = trunc i64 %divergence to i8\n"
    "  %piece.left = sub nuw nsw i32 %count, %piece.i\n"
    "  %piece.count = call i32 @llvm.umin.i32(i32 %divergence.extent, i32 %piece.left)\n"
    "  %piece.end = add nuw nsw i32 %piece.i, %piece.count\n";

static const char piece_choice[] = /* bits of the leaves that keep */
    "  %piece.all = icmp eq i32 %piece.count, %total\n"
    "  %piece.block = and i1 %piece.all, %whole\n"
    "  %leaf.bits = lshr i8 #0, %divergence.leaf\n"
    "  %leaf.keeps = trunc i8 %leaf.bits to i1\n"
    "  %piece.keeps = and i1 %piece.block, %leaf.keeps\n"
    "  br i1 %piece.keeps, label %piece.kept, label %piece.full\n"
    "piece.full:\n"
    "  %kept.still = load i64, ptr %kept.p, align 8\n"
    "  %kept.some = icmp ne i64 %kept.still, 0\n"
    "  br i1 %kept.some, label %piece.settle, label %piece.go\n"
    "piece.settle:\n"
    "  call void @sg.settle(ptr %lanes)\n"
    "  br label %piece.go\n"
    "piece.kept:\n"
    "  switch i8 %divergence.leaf, label %piece.go [";

static const char piece_no_choice[] =
    "  br label %piece.go\n";

static const char piece_go[] =
    "piece.go:\n"
    "  switch i8 %divergence.leaf, label %leaf.0.loop [";

static const char leaf_turn[] =
    "$.loop:\n"
    "  %$.i = phi i32 [ %piece.i, %piece.go ], [ %$.i.next, %$.loop ]\n"
    SG_FRAME_THREAD;

static const char kept_turn[] =
    "$.loop:\n"
    "  %$.i = phi i32 [ 0, %piece.kept ], [ %$.i.next, %$.loop ]\n"
    SG_FRAME_THREAD;

static const char kept_value[] = /* of the name, place in $, register among the kept */
    "  %new.from.#0 = getelementptr i64, ptr %$, i64 #1\n"
    "  %new.value.#0 = load i64, ptr %new.from.#0, align 8\n"
    "  %new.to.#0 = getelementptr i64, ptr %kept.first, i64 #2\n"
    "  store i64 %new.value.#0, ptr %new.to.#0, align 8\n";

static const char kept_first[] = /* of the name; place among the affine ones: the next turn's */
    "  %next.to.#0 = getelementptr i64, ptr %firsts, i64 #1\n"
    "  store i64 %new.value.#0, ptr %next.to.#0, align 8\n";

static const char kept_end[] = /* registers that are kept now, point */
    "  %$.before = load i64, ptr %kept.p, align 8\n"
    "  %$.kept = or i64 %$.before, #0\n"
    "  store i64 %$.kept, ptr %kept.p, align 8\n"
    "  store i32 #1, ptr %came, align 4\n";

static const char kept_again[] = /* the next turn is this region's, too; turns; where it tree if that is known */
    "  %turns.before = load i32, ptr %turns, align 4\n"
    "  %turns.now = add i32 %turns.before, 1\n"
    "  store i32 %turns.now, ptr %turns, align 4\n"
    "  %turns.more = icmp ult i32 %turns.now, #0\n"
    "  br i1 %turns.more, label %kept.again, label %piece.done\n"
    "kept.again:\n"
    "  store i32 #1, ptr %came, align 4\n"
    "  br label %piece\n";

static const char leaf_turn_end[] =
    "  %$.i.next = add nuw nsw i32 %$.i, 1\n"
    "  %$.more = icmp ne i32 %$.i.next, %piece.end\n" /* a piece has a thread: so LLVM sees how many turns there are */
    "  br i1 %$.more, label %$.loop, label %$.done, !llvm.loop !#0\n"
    "$.done:\n";

static const char leaf_came[] = /* all of them have come to a point */
    "  %$.whole = icmp eq i32 %piece.count, %total\n"
    "  br i1 %$.whole, label %$.came, label %$.fill\n"
    "$.came:\n"
    "  store i32 #0, ptr %came, align 4\n"
    "  br label %piece.done\n"
    "$.fill:\n"
    "  call void @sg.fill(ptr %points, i32 %piece.linear, i32 %piece.count, i16 #0)\n";

static const char piece_end[] =
    "piece.done:\n"
    "  %piece.more = icmp ult i32 %piece.end, %count\n"
    "  br i1 %piece.more, label %piece, label %row.end\n";

/* --- what is kept once a block: struct sg_lanes, divergence.h --- */

static const char kept_head[] = /* offsets */
    "  %kept.p = getelementptr i8, ptr %lanes, i64 #0\n"
    "  %kept.first = getelementptr i8, ptr %lanes, i64 #1\n"
    "  %from.first = icmp eq i32 %first, 0\n"
    "  %to.last = icmp eq i32 %end, %nx\n"
    "  %rows = mul i32 %ny, %nz\n"
    "  %one.row = icmp eq i32 %rows, 1\n"
    "  %whole.row = and i1 %from.first, %to.last\n"
    "  %whole = and i1 %whole.row, %one.row\n";

static const char kept_begin[] = /* of the block: nothing is */
    "  store i64 0, ptr %kept.p, align 8\n"
    "  %kept = and i64 0, 0\n"
    "  %kept.now = and i1 false, false\n"
    "  br label %begin\n";

static const char kept_needed[] = /* registers that have to be for it to be made use of */
    "  %kept = load i64, ptr %kept.p, align 8\n"
    "  %kept.needed = and i64 %kept, #0\n"
    "  %kept.all = icmp eq i64 %kept.needed, #0\n"
    "  %kept.now = and i1 %kept.all, %whole\n"
    "  br i1 %kept.now, label %kept.take, label %kept.else\n"
    "kept.take:\n";

static const char kept_take[] = /* register among the kept, place among the affine ones */
    "  %kept.from.#0 = getelementptr i64, ptr %kept.first, i64 #0\n"
    "  %kept.value.#0 = load i64, ptr %kept.from.#0, align 8\n"
    "  %kept.to.#0 = getelementptr i64, ptr %firsts, i64 #1\n"
    "  store i64 %kept.value.#0, ptr %kept.to.#0, align 8\n";

static const char kept_not_needed[] =
    "  %kept = load i64, ptr %kept.p, align 8\n"
    "  %kept.now = and i1 false, false\n"
    "  br label %kept.else\n";

static const char kept_else[] = /* columns have to be as they seem */
    "kept.else:\n"
    "  %kept.any = icmp ne i64 %kept, 0\n"
    "  br i1 %kept.any, label %kept.settle, label %begin\n"
    "kept.settle:\n"
    "  call void @sg.settle(ptr %lanes)\n"
    "  br label %begin\n";

static const char settle_head[] = /* offsets */
    "define internal void @sg.settle(ptr %lanes) noinline nounwind {\n"
    "entry:\n"
    "  %block = load ptr, ptr %lanes, align 8\n"
    "  %n.p = getelementptr i8, ptr %block, i64 #0\n"
    "  %n = load i32, ptr %n.p, align 4\n"
    "  %context.p = getelementptr i8, ptr %lanes, i64 #1\n"
    "  %context = load ptr, ptr %context.p, align 8\n"
    "  %stride.p = getelementptr i8, ptr %lanes, i64 #2\n"
    "  %stride = load i64, ptr %stride.p, align 8\n"
    "  %kept.p = getelementptr i8, ptr %lanes, i64 #3\n"
    "  %kept.first = getelementptr i8, ptr %lanes, i64 #4\n"
    "  %kept = load i64, ptr %kept.p, align 8\n"
    "  br label %test.0\n";

static const char settle_register[] = /* among the kept, its bit, column, step, the next one */
    "test.#0:\n"
    "  %bit.#0 = and i64 %kept, #1\n"
    "  %is.#0 = icmp ne i64 %bit.#0, 0\n"
    "  br i1 %is.#0, label %fill.#0, label %test.#4\n"
    "fill.#0:\n"
    "  %at.#0 = mul i64 %stride, #2\n"
    "  %column.#0 = getelementptr i8, ptr %context, i64 %at.#0\n"
    "  %first.p.#0 = getelementptr i64, ptr %kept.first, i64 #0\n"
    "  %first.#0 = load i64, ptr %first.p.#0, align 8\n"
    "  br label %loop.#0\n"
    "loop.#0:\n"
    "  %i.#0 = phi i32 [ 0, %fill.#0 ], [ %i.next.#0, %loop.#0 ]\n"
    "  %i.64.#0 = zext i32 %i.#0 to i64\n"
    "  %far.#0 = mul i64 %i.64.#0, #3\n"
    "  %value.64.#0 = add i64 %first.#0, %far.#0\n"
    "  %value.#0 = $\n";

static const char settle_register_end[] =
    "  %p.#0 = getelementptr $, ptr %column.#0, i64 %i.64.#0\n"
    "  store $ %value.#0, ptr %p.#0, align #5\n"
    "  %i.next.#0 = add nuw nsw i32 %i.#0, 1\n"
    "  %more.#0 = icmp ult i32 %i.next.#0, %n\n"
    "  br i1 %more.#0, label %loop.#0, label %test.#4\n";

static const char settle_end[] = /* their number */
    "test.#0:\n"
    "  store i64 0, ptr %kept.p, align 8\n"
    "  ret void\n"
    "}\n";
// clang-format on

struct sg_keeping sg_keeping_find(const struct sg_codegen *gen, uint32_t point)
{
    const struct sg_regions *regions = &gen->loops.regions;
    struct sg_keeping keeping = {.possible = point != 0 && regions->n_kept > 0 &&
                                             gen->loops.divergence[point].first != NULL};
    uint32_t n_affine = 0;
    for (uint32_t i = 0; i < regions->n_kept; i++)
        keeping.place[i] = UINT32_MAX;
    for (uint32_t reg = 0; point != 0 && reg < gen->reach->functions[0]->n_regs; reg++) {
        bool affine = sg_regions_has(regions->affine[point], reg), kept = false;
        for (uint32_t i = 0; i < regions->n_kept; i++) {
            if (regions->kept[i] != reg)
                continue;
            kept = true;
            if (affine) {
                keeping.place[i] = n_affine;
                keeping.needed |= 1u << i;
            } else if (sg_regions_has(regions->load[point], reg)) {
                keeping.possible = false; /* it is read from its column */
            }
        }
        if (affine && !kept)
            keeping.possible = false;
        n_affine += affine;
    }
    keeping.possible &= keeping.needed != 0;
    return keeping;
}

static void put_kept_value(FILE *file, uint32_t leaf, uint32_t number, const char *array, uint32_t place)
{
    uint64_t name = (uint64_t)leaf * SG_KEPT_MAX + number;
    sg_frame_put(file, kept_value, array, NUMBERS(name, place, number));
}

/*
 * The leaf that tree to the region's own beginning and leaves there what it needs; UINT32_MAX: there is none.
 */
static uint32_t find_circle(const struct sg_divergence *tree, const struct sg_keeping *keeping,
                            uint64_t point)
{
    for (uint32_t i = 0; i < tree->n_leaves && keeping != NULL && keeping->possible; i++)
        if (tree->leaves[i].keeps && tree->leaves[i].next == point)
            return i;
    return UINT32_MAX;
}

static void put_kept_turns(FILE *file, const struct sg_pieces *p)
{
    const struct sg_divergence *tree = p->tree;
    const struct sg_keeping *keeping = p->keeping;
    uint32_t circle = find_circle(tree, keeping, p->point);
    char name[16];
    for (uint32_t i = 0; i < tree->n_leaves; i++) {
        const struct sg_divergence_leaf *leaf = &tree->leaves[i];
        if (!leaf->keeps)
            continue;
        snprintf(name, sizeof(name), "kept.%u", i);
        sg_frame_put(file, kept_turn, name, NULL);
        sg_frame_put(file, p->call, name, NUMBERS(p->point, p->affine, leaf->decisions | 1u));
        sg_frame_put(file, leaf_turn_end, name, NUMBERS(p->loop + SG_LEAVES_MAX + i));
        uint64_t kept = leaf->written;
        for (uint32_t k = 0; k < SG_KEPT_MAX; k++) {
            if (leaf->written >> k & 1) {
                put_kept_value(file, i, k, "exits", k);
                if (i == circle && (keeping->needed >> k & 1))
                    sg_frame_put(file, kept_first, NULL, NUMBERS(i * SG_KEPT_MAX + k, keeping->place[k]));
            } else if (keeping->needed >> k & 1) {
                put_kept_value(file, i, k, "firsts", keeping->place[k]);
                kept |= UINT64_C(1) << k;
            }
        }
        sg_frame_put(file, kept_end, name, NUMBERS(kept, leaf->next));
        if (i == circle)
            sg_frame_put(file, kept_again, name, NUMBERS(TURNS_MAX, p->next));
        else
            fputs("  br label %piece.done\n", file);
    }
}

void sg_frame_put_pieces(FILE *file, const struct sg_pieces *p)
{
    const struct sg_divergence *tree = p->tree;
    char name[16];
    uint32_t keeps = 0;
    for (uint32_t i = 0; i < tree->n_leaves && p->keeping != NULL; i++)
        keeps |= (uint32_t)tree->leaves[i].keeps << i;
    if (p->asks_alone) {
        sg_frame_put(file, piece_first, "first", NULL);
        sg_frame_put(file, p->divergence, "first.", NULL);
        sg_frame_put(file, piece_first_head, NULL, NULL);
    } else {
        sg_frame_put(file, piece_head,
                     find_circle(tree, p->keeping, p->point) != UINT32_MAX ? ", [ 0, %kept.again ]" : "",
                     NULL);
        sg_frame_put(file, piece_thread, "piece", NULL);
        sg_frame_put(file, p->divergence, "", NUMBERS(p->point, p->affine));
    }
    sg_frame_put(file, piece_bounds, NULL, NULL);
    sg_frame_put(file, keeps != 0 ? piece_choice : piece_no_choice, NULL, NUMBERS(keeps));
    for (uint32_t i = 0; i < tree->n_leaves && keeps != 0; i++)
        if (keeps >> i & 1)
            fprintf(file, " i8 %u, label %%kept.%u.loop", i, i);
    if (keeps != 0)
        fputs(" ]\n", file);
    sg_frame_put(file, piece_go, NULL, NULL);
    for (uint32_t i = 1; i < tree->n_leaves; i++)
        fprintf(file, " i8 %u, label %%leaf.%u.loop", i, i);
    fputs(" ]\n", file);
    for (uint32_t i = 0; i < tree->n_leaves; i++) {
        const struct sg_divergence_leaf *leaf = &tree->leaves[i];
        snprintf(name, sizeof(name), "leaf.%u", i);
        sg_frame_put(file, leaf_turn, name, NULL);
        sg_frame_put(file, p->call, name, NUMBERS(p->point, p->affine, leaf->decisions));
        if (p->store != NULL && leaf->next == 0)
            sg_frame_put(file, p->store, name, NULL);
        sg_frame_put(file, leaf_turn_end, name, NUMBERS(p->loop + i));
        if (p->store != NULL && leaf->next != 0)
            sg_frame_put(file, leaf_came, name, NUMBERS(leaf->next));
        fputs("  br label %piece.done\n", file);
    }
    if (keeps != 0)
        put_kept_turns(file, p);
    if (p->asks_alone) {
        sg_frame_put(file, piece_again, "again", NULL);
        sg_frame_put(file, p->divergence, "again.", NULL);
        fputs("  br label %piece\n", file);
    } else {
        sg_frame_put(file, piece_end, NULL, NULL);
    }
}

/* What a region begins with, for registers that are kept. */
void sg_frame_put_kept(FILE *file, const struct sg_regions *regions, uint32_t point,
                       const struct sg_keeping *keeping)
{
    if (regions->n_kept == 0) {
        fputs("  br label %begin\n", file);
    } else {
        sg_frame_put(file, kept_head, NULL,
                     NUMBERS(offsetof(struct sg_lanes, kept), offsetof(struct sg_lanes, kept_first)));
        if (point == 0) {
            sg_frame_put(file, kept_begin, NULL, NULL);
        } else if (keeping->possible) {
            sg_frame_put(file, kept_needed, NULL, NUMBERS(keeping->needed));
            for (uint32_t i = 0; i < regions->n_kept; i++)
                if (keeping->needed >> i & 1)
                    sg_frame_put(file, kept_take, NULL, NUMBERS(i, keeping->place[i]));
            fputs("  br label %begin\n", file);
        } else {
            sg_frame_put(file, kept_not_needed, NULL, NULL);
        }
        if (point != 0)
            sg_frame_put(file, kept_else, NULL, NULL);
    }
    fputs("begin:\n", file);
}

/* The function that puts what is kept into its columns. */
void sg_frame_put_settle(FILE *file, const struct sg_ptx_function *kernel, const struct sg_regions *regions)
{
    sg_frame_put(file, settle_head, NULL,
                 NUMBERS(offsetof(struct sg_block, n_threads), offsetof(struct sg_lanes, context),
                         offsetof(struct sg_lanes, stride), offsetof(struct sg_lanes, kept),
                         offsetof(struct sg_lanes, kept_first)));
    for (uint32_t i = 0; i < regions->n_kept; i++) {
        uint32_t reg = regions->kept[i], bytes = sg_types[kernel->regs[reg].type].bits / 8u;
        char type[8], value[64];
        snprintf(type, sizeof(type), "i%u", 8 * bytes);
        snprintf(value, sizeof(value),
                 bytes == 8 ? "add i64 %%value.64.%u, 0" : "trunc i64 %%value.64.%u to %s", i, type);
        const uint64_t *numbers =
            NUMBERS(i, UINT64_C(1) << i, regions->column[reg], (uint64_t)regions->step[reg], i + 1, bytes);
        sg_frame_put(file, settle_register, value, numbers);
        sg_frame_put(file, settle_register_end, type, numbers);
    }
    sg_frame_put(file, settle_end, NULL, NUMBERS(regions->n_kept));
}
