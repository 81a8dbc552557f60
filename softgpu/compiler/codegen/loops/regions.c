/*
 * regions.c - the loops of a kernel in loop form: a function for each region that takes any row of threads
 * from its point on (kernel_abi.h). Rows of the block come one after the other; bounds that always hold stand
 * there for LLVM to see.
 *
 * A region that loads registers that should be affine along a row checks them first, and has a loop for each
 * outcome.
 */
#include "softgpu/compiler/codegen/loops/frame.h"

#define BARRIERS               16u /* of a block */
#define INTERLEAVED_POINTS_MAX 12u
#define VECTOR_POINTS_MAX      96u                   /* kernels with more points would take long to compile */
#define LOOPS_EACH             (2 + SG_PIECES_LOOPS) /* metadata of a region's loops: any, affine, pieces */

// clang-format off
static const char regions_head[] =
    "declare i32 @" SG_GEN_BODY "(ptr, ptr, ptr, ptr, i64, i32, i32, i1, ptr, i32)\n"
    "declare i32 @llvm.umin.i32(i32, i32)\n"
    "define internal void @sg.fill(ptr %points, i32 %first, i32 %count, i16 %point) noinline nounwind {\n"
    "entry:\n"
    "  %first.64 = zext i32 %first to i64\n"
    "  %start = getelementptr i16, ptr %points, i64 %first.64\n"
    "  br label %loop\n"
    "loop:\n"
    "  %i = phi i32 [ 0, %entry ], [ %i.next, %loop ]\n"
    "  %i.64 = zext i32 %i to i64\n"
    "  %p = getelementptr i16, ptr %start, i64 %i.64\n"
    "  store i16 %point, ptr %p, align 2\n"
    "  %i.next = add nuw nsw i32 %i, 1\n"
    "  %more = icmp ult i32 %i.next, %count\n"
    "  br i1 %more, label %loop, label %end\n"
    "end:\n"
    "  ret void\n"
    "}\n";

static const char region_lead[] = /* number */
    "declare i64 @" SG_GEN_DIVERGENCE ".#0(ptr, ptr, ptr, ptr, i64, i32, i32, i1, ptr, ptr)\n";

static const char piece_divergence_region[] = /* point, affine */
    "  %divergence = call i64 @" SG_GEN_DIVERGENCE ".#0(ptr %thread, ptr %params, ptr %context, ptr %local, i64 %stride, i32 #0,"
    " i32 %start, i1 #1, ptr %firsts, ptr %exits)\n";

static const char region_head[] = /* number, offsets */
    "define internal i32 @sg.region.#0(ptr noalias %lanes, ptr noalias readonly %params, i32 %first, i32 %end) noinline #0 {\n"
    "entry:\n"
    "  %lanes.block = getelementptr i8, ptr %lanes, i64 #1\n"
    "  %block = load ptr, ptr %lanes.block, align 8, !invariant.load !3, !nonnull !3, !dereferenceable !6, !align !7\n"
    "  %lanes.context = getelementptr i8, ptr %lanes, i64 #2\n"
    "  %context = load ptr, ptr %lanes.context, align 8, !invariant.load !3\n"
    "  %lanes.local = getelementptr i8, ptr %lanes, i64 #3\n"
    "  %local = load ptr, ptr %lanes.local, align 8, !invariant.load !3\n"
    "  %lanes.stride = getelementptr i8, ptr %lanes, i64 #4\n"
    "  %stride = load i64, ptr %lanes.stride, align 8, !invariant.load !3\n"
    "  %points.at = mul i64 %stride, #5\n"
    "  %points = getelementptr i8, ptr %context, i64 %points.at\n"
    "  %firsts = alloca [#6 x i64], align 8\n"
    "  %exits = alloca [#8 x i64], align 8\n"
    "  %turns = alloca i32, align 4\n"
    "  store i32 0, ptr %turns, align 4\n"
    "  %came = alloca i32, align 4\n" /* where all threads have come to, or 0 */
    "  store i32 #7, ptr %came, align 4\n"
    "  %total = sub i32 %end, %first\n";

static const char region_rows[] =
    "  %from.start = icmp eq i32 %first, 0\n"
    "  br i1 %from.start, label %row, label %place\n"
    "place:\n" /* divisions are slow, and mostly not needed */
    "  %x.first = urem i32 %first, %nx\n"
    "  %rows.first = udiv i32 %first, %nx\n"
    "  %y.first = urem i32 %rows.first, %ny\n"
    "  %z.first = udiv i32 %rows.first, %ny\n"
    "  br label %row\n"
    "row:\n"
    "  %x.start = phi i32 [ 0, %begin ], [ %x.first, %place ], [ 0, %row.end ]\n"
    "  %y = phi i32 [ 0, %begin ], [ %y.first, %place ], [ %y.next, %row.end ]\n"
    "  %z = phi i32 [ 0, %begin ], [ %z.first, %place ], [ %z.next, %row.end ]\n"
    "  %at = phi i32 [ 0, %begin ], [ %first, %place ], [ %at.next, %row.end ]\n"
    "  %start = and i32 %at, 1023\n"
    "  %left.row = sub i32 %nx, %x.start\n"
    "  %left = sub i32 %end, %at\n"
    "  %smaller = call i32 @llvm.umin.i32(i32 %left.row, i32 %left)\n"
    "  %count = call i32 @llvm.umin.i32(i32 %smaller, i32 1024)\n"
    "  br label %row.check\n"
    "row.check:\n";

static const char region_check[] =
    "  %affine = call i1 @sg.affine.#0(ptr %context, i64 %stride, i32 %start, i32 %count, ptr %firsts)\n"
    "  br label %row.checked\n"
    "row.checked:\n"
    "  br i1 %affine, label %$, label %any.loop\n";

static const char region_check_if_not_kept[] =
    "  br i1 %kept.now, label %row.kept, label %row.test\n"
    "row.kept:\n"
    "  br label %row.checked\n"
    "row.test:\n"
    "  %affine.found = call i1 @sg.affine.#0(ptr %context, i64 %stride, i32 %start, i32 %count, ptr %firsts)\n"
    "  br label %row.checked\n"
    "row.checked:\n"
    "  %affine = phi i1 [ true, %row.kept ], [ %affine.found, %row.test ]\n"
    "  br i1 %affine, label %$, label %any.loop\n";

static const char region_no_check[] =
    "  br label %row.checked\n"
    "row.checked:\n"
    "  br label %$\n";

static const char region_call[] = /* point, affine, decisions */
    "  %$.next = call i32 @" SG_GEN_BODY
    "(ptr %thread, ptr %params, ptr %context, ptr %local, i64 %stride, i32 #0, i32 %start, i1 #1, ptr %firsts, i32 #2)\n";

static const char region_store[] = /* where the thread has come to */
    "  %$.point = trunc i32 %$.next to i16\n"
    "  %$.index = zext i32 %$.linear to i64\n"
    "  %$.point.p = getelementptr i16, ptr %points, i64 %$.index\n"
    "  store i16 %$.point, ptr %$.point.p, align 2, !llvm.access.group !0\n";

static const char region_end[] =
    "row.end:\n"
    "  %at.next = add i32 %at, %count\n"
    "  %y.inc = add i32 %y, 1\n"
    "  %y.wraps = icmp eq i32 %y.inc, %ny\n"
    "  %y.next = select i1 %y.wraps, i32 0, i32 %y.inc\n"
    "  %z.step = zext i1 %y.wraps to i32\n"
    "  %z.next = add i32 %z, %z.step\n"
    "  %again = icmp ult i32 %at.next, %end\n"
    "  br i1 %again, label %row, label %end.of.threads\n"
    "end.of.threads:\n"
    "  %came.to = load i32, ptr %came, align 4\n";

static const char region_on[] = /* the next region; where the number of the block's threads is */
    "  %from.first.on = icmp eq i32 %first, 0\n"
    "  %threads.p = getelementptr i8, ptr %block, i64 #1\n"
    "  %threads = load i32, ptr %threads.p, align 4, !invariant.load !3\n"
    "  %to.last.on = icmp eq i32 %end, %threads\n"
    "  %go.on = and i1 %from.first.on, %to.last.on\n"
    "  br i1 %go.on, label %on, label %ended\n"
    "on:\n"
    "  %on.to = call i32 @sg.region.#0(ptr %lanes, ptr %params, i32 %first, i32 %end)\n"
    "  br label %ended\n"
    "ended:\n"
    "  %result = phi i32 [ %came.to, %end.of.threads ], [ %on.to, %on ]\n";

/* Is each register of a list affine along [start, start + count)? */
static const char even_head[] =
    "define internal i1 @sg.affine.#0(ptr %context, i64 %stride, i32 %start.32, i32 %count, ptr %firsts) alwaysinline {\n"
    "entry:\n"
    "  %start = zext i32 %start.32 to i64\n";

static const char even_first[] = /* register, column, bytes, place */
    "  %at.#0 = mul i64 %stride, #1\n"
    "  %column.#0 = getelementptr i8, ptr %context, i64 %at.#0\n"
    "  %p.#0 = getelementptr $, ptr %column.#0, i64 %start\n"
    "  %v.#0 = load $, ptr %p.#0, align #2\n"
    "  %f.#0 = getelementptr i64, ptr %firsts, i64 #3\n"
    "  store $ %v.#0, ptr %f.#0, align 8\n";

static const char even_loop[] =
    "  br label %loop\n"
    "loop:\n"
    "  %i = phi i32 [ 0, %entry ], [ %i.next, %loop ]\n"
    "  %odd.0 = phi i32 [ 0, %entry ], [ %odd.last, %loop ]\n"
    "  %i.64 = zext i32 %i to i64\n";

static const char even_compare[] = /* register, bytes, step */
    "  %q.#0 = getelementptr $, ptr %p.#0, i64 %i.64\n"
    "  %w.#0 = load $, ptr %q.#0, align #1, !llvm.access.group !0\n"
    "  %s.#0 = mul i64 %i.64, #2\n"
    "  %t.#0 = trunc i64 %s.#0 to $\n"
    "  %u.#0 = add $ %v.#0, %t.#0\n"
    "  %d.#0 = icmp ne $ %w.#0, %u.#0\n"
    "  %z.#0 = zext i1 %d.#0 to i32\n";

static const char even_compare_64[] =
    "  %q.#0 = getelementptr i64, ptr %p.#0, i64 %i.64\n"
    "  %w.#0 = load i64, ptr %q.#0, align 8, !llvm.access.group !0\n"
    "  %s.#0 = mul i64 %i.64, #2\n"
    "  %u.#0 = add i64 %v.#0, %s.#0\n"
    "  %d.#0 = icmp ne i64 %w.#0, %u.#0\n"
    "  %z.#0 = zext i1 %d.#0 to i32\n";

static const char even_end[] =
    "  %i.next = add nuw nsw i32 %i, 1\n"
    "  %more = icmp ult i32 %i.next, %count\n"
    "  br i1 %more, label %loop, label %end\n"
    "end:\n"
    "  %affine = icmp eq i32 %odd.last, 0\n"
    "  ret i1 %affine\n"
    "}\n";
// clang-format on

/* The check of a region's registers that should be affine; false if there are none. */
static bool put_affine(FILE *file, struct sg_codegen *gen, uint32_t point)
{
    const struct sg_ptx_function *kernel = gen->reach->functions[0];
    const struct sg_regions *regions = &gen->loops.regions;
    uint32_t count = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t reg = 0; point > 0 && reg < kernel->n_regs; reg++) {
            if (!sg_regions_has(regions->affine[point], reg))
                continue;
            unsigned bytes = sg_types[kernel->regs[reg].type].bits / 8;
            const char *type = bytes == 8 ? "i64" : bytes == 4 ? "i32" : bytes == 2 ? "i16" : "i8";
            bytes = bytes == 0 ? 1 : bytes;
            if (pass == 0) {
                if (count == 0)
                    sg_frame_put(file, even_head, NULL, NUMBERS(point));
                sg_frame_put(file, even_first, type, NUMBERS(reg, regions->column[reg], bytes, count++));
            } else {
                sg_frame_put(file, bytes == 8 ? even_compare_64 : even_compare, type,
                             NUMBERS(reg, bytes, (uint64_t)regions->step[reg]));
                fprintf(file, "  %%odd.%u = or i32 %%odd.%u, %%z.%u\n", count + 1, count, reg);
                count++;
            }
        }
        if (count == 0)
            return false;
        if (pass == 0) {
            sg_frame_put(file, even_loop, NULL, NULL);
            count = 0;
        }
    }
    fprintf(file, "  %%odd.last = or i32 %%odd.%u, 0\n", count);
    sg_frame_put(file, even_end, NULL, NULL);
    return true;
}

/* The metadata of the regions' loops. Compiling takes the longer the more of them are vectorised. */
static void put_loops(FILE *file, const struct sg_regions *regions, const struct sg_divergence *tree)
{
    const char *few = regions->n_points > INTERLEAVED_POINTS_MAX ? ", !9, !10" : "";
    for (uint32_t point = 0; point <= regions->n_points; point++) {
        bool checked = false;
        for (uint32_t i = 0; point > 0 && i < regions->n_words; i++)
            checked |= regions->affine[point][i] != 0;
        uint32_t any = SG_FRAME_FIRST_LOOP + LOOPS_EACH * point;
        bool many = regions->n_points > VECTOR_POINTS_MAX;
        fprintf(file, "!%u = distinct !{!%u, !2%s}\n", any, any, many || checked ? ", !8, !10" : few);
        for (uint32_t i = 1; i < LOOPS_EACH; i++) { /* where registers are affine, and leaves */
            bool rare =
                i >= 2 && i < 2 + SG_LEAVES_MAX && tree[point].leaves[i - 2].keeps; /* it has a twin */
            fprintf(file, "!%u = distinct !{!%u, !2%s}\n", any + i, any + i,
                    many   ? ", !8, !10"
                    : rare ? ", !9, !10"
                           : few);
        }
    }
}

/*
 * Does a region divergence to a barrier of the whole block, and nowhere else? Then a block that comes there
 * as a whole goes on at once. Not back to where it was: the engine has to have a look from time to time. And
 * not from the block's start, which neighbouring blocks have one after the other (exec/lanes/lanes.c).
 */
static bool goes_on(const struct sg_codegen *gen, uint32_t point)
{
    const struct sg_ptx_function *kernel = gen->reach->functions[0];
    uint32_t next = gen->loops.regions.next[point];
    if (point == 0 || next <= point || next == SG_POINT_END)
        return false;
    for (uint32_t i = 0; i < kernel->n_insns; i++) {
        const struct sg_insn *insn = &kernel->insns[i];
        if (gen->loops.regions.points[i] == next)
            return insn->form->op == SG_OP_BAR && SG_MOD(insn, SG_GROUP_BAR) == SG_BAR_SYNC &&
                   insn->n_operands == 1 && insn->operands[0].kind == SG_OPERAND_INTEGER &&
                   insn->operands[0].value < BARRIERS && insn->guard == 0;
    }
    return false;
}

void sg_frame_put_regions(FILE *file, struct sg_codegen *gen)
{
    sg_frame_put(file, regions_head, NULL, NULL);
    if (gen->loops.regions.n_kept > 0)
        sg_frame_put_settle(file, gen->reach->functions[0], &gen->loops.regions);
    for (uint32_t point = 0; point <= gen->loops.regions.n_points; point++) {
        uint32_t next = gen->loops.regions.next[point], loop = SG_FRAME_FIRST_LOOP + LOOPS_EACH * point;
        const struct sg_divergence *tree = &gen->loops.divergence[point];
        const char *store = next == 0 ? region_store : NULL;
        bool led = tree->first != NULL, checked = put_affine(file, gen, point);
        if (led)
            sg_frame_put(file, region_lead, NULL, NUMBERS(point));
        sg_frame_put(file, region_head, NULL,
                     NUMBERS(point, offsetof(struct sg_lanes, block), offsetof(struct sg_lanes, context),
                             offsetof(struct sg_lanes, local), offsetof(struct sg_lanes, stride),
                             SG_LANES_POINT, SG_AFFINE_MAX, next, SG_KEPT_MAX));
        sg_frame_put_start(file);
        struct sg_keeping keeping = sg_keeping_find(gen, point);
        sg_frame_put_kept(file, &gen->loops.regions, point, &keeping);
        sg_frame_put(file, region_rows, NULL, NULL);
        sg_frame_put(file,
                     keeping.possible ? region_check_if_not_kept
                     : checked        ? region_check
                                      : region_no_check,
                     led       ? "piece"
                     : checked ? "affine.loop"
                               : "any.loop",
                     NUMBERS(point));
        if (checked || !led)
            sg_frame_put_turn(file, "any", region_call, NUMBERS(point, 0, 0), store, loop);
        if (led)
            sg_frame_put_pieces(
                file, &(struct sg_pieces){.tree = tree,
                                          .divergence = piece_divergence_region,
                                          .call = region_call,
                                          .store = store,
                                          .point = point,
                                          .affine = checked,
                                          .next = next,
                                          .keeping = gen->loops.regions.n_kept > 0 ? &keeping : NULL,
                                          .loop = loop + 2});
        else if (checked)
            sg_frame_put_turn(file, "affine", region_call, NUMBERS(point, 1, 0), store, loop + 1);
        sg_frame_put(file, region_end, NULL, NULL);
        bool on = goes_on(gen, point);
        if (on)
            sg_frame_put(file, region_on, NULL, NUMBERS(next, offsetof(struct sg_block, n_threads)));
        sg_frame_put_finish(file, on ? "i32 %result" : "i32 %came.to");
    }
    put_loops(file, &gen->loops.regions, gen->loops.divergence);
}
