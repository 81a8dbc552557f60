/*
 * codegen_frame.c - the loops over a block's threads that call the body of a kernel, which LLVM inlines: one for the
 * whole kernel in block form, one for each region in loop form. There the number of the region's point is a constant
 * argument of the body, so that of each copy only what the region can reach is left.
 *
 * Accesses to memory in the body carry an access group that the loops name as parallel, since threads that do not wait
 * for each other may not depend on each other either. The loops are written as LLVM's text because only the text can
 * make distinct metadata; the body is added to the module that the text makes.
 */
#include "softgpu/compiler/codegen.h"

#include <inttypes.h>
#include <llvm-c/IRReader.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define B gen->builder

/*
 * The text is made of pieces in which a name stands for $, and numbers for #0 to #9.
 */
// clang-format off
static const char start[] = /* the thread as the body takes it, and the shape of its block; sizes and offsets */
    "  %thread = alloca [#0 x i8], align 16\n"
    "  %nx.p = getelementptr i8, ptr %block, i64 #1\n"
    "  %nx = load i32, ptr %nx.p, align 4, !invariant.load !3, !range !4, !llvm.access.group !0\n"
    "  %ny.p = getelementptr i8, ptr %block, i64 #2\n"
    "  %ny = load i32, ptr %ny.p, align 4, !invariant.load !3, !range !4\n"
    "  %nz.p = getelementptr i8, ptr %block, i64 #3\n"
    "  %nz = load i32, ptr %nz.p, align 4, !invariant.load !3, !range !4\n"
    "  %x.p = getelementptr i8, ptr %thread, i64 #4\n"
    "  %y.p = getelementptr i8, ptr %thread, i64 #5\n"
    "  %z.p = getelementptr i8, ptr %thread, i64 #6\n"
    "  %linear.p = getelementptr i8, ptr %thread, i64 #7\n"
    "  %block.p = getelementptr i8, ptr %thread, i64 #8\n"
    "  %engine.p = getelementptr i8, ptr %thread, i64 #9\n";

#define THREAD /* tells the body which thread it is: the one at %x.start + %$.i */ \
    "  %$.x = add nuw nsw i32 %x.start, %$.i\n" \
    "  %$.linear = add nuw nsw i32 %start, %$.i\n" \
    "  store i32 %$.x, ptr %x.p, align 4\n" \
    "  store i32 %y, ptr %y.p, align 4\n" \
    "  store i32 %z, ptr %z.p, align 4\n" \
    "  store i32 %$.linear, ptr %linear.p, align 4\n" \
    "  store ptr %block, ptr %block.p, align 8\n" \
    "  store ptr null, ptr %engine.p, align 8\n"

static const char turn[] = /* the head of a loop over the threads of a row */
    "$.loop:\n"
    "  %$.i = phi i32 [ 0, %row.checked ], [ %$.i.next, %$.loop ]\n"
    THREAD;

static const char turn_end[] = /* its end; the loop's metadata */
    "  %$.i.next = add nuw nsw i32 %$.i, 1\n"
    "  %$.more = icmp ult i32 %$.i.next, %count\n"
    "  br i1 %$.more, label %$.loop, label %row.end, !llvm.loop !#0\n";

/* A row in pieces, whose threads take the same way; leads.h. In each: */
static const char piece_head[] =
    "piece:\n"
    "  %piece.i = phi i32 [ 0, %row.checked ], [ %piece.end, %piece.done ]$\n";

static const char piece_thread[] = THREAD;

static const char piece_lead_block[] = "  %lead = call i64 @" SG_GEN_LEAD ".0(ptr %thread, ptr %params)\n";

static const char piece_lead_region[] = /* point, even */
    "  %lead = call i64 @" SG_GEN_LEAD ".#0(ptr %thread, ptr %params, ptr %context, ptr %local, i64 %stride, i32 #0,"
    " i32 %start, i1 #1, ptr %firsts, ptr %exits)\n";

static const char piece_bounds[] =
    "  %lead.extent.64 = lshr i64 %lead, 8\n"
    "  %lead.extent = trunc i64 %lead.extent.64 to i32\n"
    "  %lead.leaf = trunc i64 %lead to i8\n"
    "  %piece.left = sub nuw nsw i32 %count, %piece.i\n"
    "  %piece.count = call i32 @llvm.umin.i32(i32 %lead.extent, i32 %piece.left)\n"
    "  %piece.end = add nuw nsw i32 %piece.i, %piece.count\n";

static const char piece_choice[] = /* bits of the leaves that keep */
    "  %piece.all = icmp eq i32 %piece.count, %total\n"
    "  %piece.block = and i1 %piece.all, %whole\n"
    "  %leaf.bits = lshr i8 #0, %lead.leaf\n"
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
    "  switch i8 %lead.leaf, label %piece.go [";

static const char piece_no_choice[] =
    "  br label %piece.go\n";

static const char piece_go[] =
    "piece.go:\n"
    "  switch i8 %lead.leaf, label %leaf.0.loop [";

static const char leaf_turn[] =
    "$.loop:\n"
    "  %$.i = phi i32 [ %piece.i, %piece.go ], [ %$.i.next, %$.loop ]\n"
    THREAD;

static const char kept_turn[] =
    "$.loop:\n"
    "  %$.i = phi i32 [ 0, %piece.kept ], [ %$.i.next, %$.loop ]\n"
    THREAD;

static const char kept_value[] = /* of the name, place in $, register among the kept */
    "  %new.from.#0 = getelementptr i64, ptr %$, i64 #1\n"
    "  %new.value.#0 = load i64, ptr %new.from.#0, align 8\n"
    "  %new.to.#0 = getelementptr i64, ptr %kept.first, i64 #2\n"
    "  store i64 %new.value.#0, ptr %new.to.#0, align 8\n";

static const char kept_first[] = /* of the name; place among the even ones: the next turn's */
    "  %next.to.#0 = getelementptr i64, ptr %firsts, i64 #1\n"
    "  store i64 %new.value.#0, ptr %next.to.#0, align 8\n";

static const char kept_end[] = /* registers that are kept now, point */
    "  %$.before = load i64, ptr %kept.p, align 8\n"
    "  %$.kept = or i64 %$.before, #0\n"
    "  store i64 %$.kept, ptr %kept.p, align 8\n"
    "  store i32 #1, ptr %came, align 4\n";

static const char kept_again[] = /* the next turn is this region's, too; turns; where it leads if that is known */
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
    "  %$.more = icmp ult i32 %$.i.next, %piece.end\n"
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

static const char start_misaligned[] = /* what accesses that are not aligned leave; offset */
    "  %misaligned.p = getelementptr i8, ptr %thread, i64 #0\n"
    "  store i32 0, ptr %misaligned.p, align 4\n";

/* A misaligned access of any of the threads is told when all have had their turn: a branch would keep them apart. */
static const char finish[] =
    "  %misaligned = load i32, ptr %misaligned.p, align 4\n"
    "  %wrong = icmp ne i32 %misaligned, 0\n"
    "  br i1 %wrong, label %fault, label %return\n"
    "fault:\n"
    "  call void @sg_rt_misaligned(ptr %block)\n"
    "  unreachable\n"
    "return:\n"
    "  ret $\n"
    "}\n";

/* --- block form --- */

static const char block_head[] = /* size of a block's description */
    "declare void @" SG_GEN_BODY "(ptr, ptr, i32)\n"
    "declare i1 @" SG_GEN_GUARD "(ptr, ptr)\n"
    "declare i64 @" SG_GEN_LEAD ".0(ptr, ptr)\n"
    "declare i32 @llvm.umin.i32(i32, i32)\n"
    "define void @$(ptr noalias align 8 dereferenceable(#0) %block, ptr noalias readonly %params) #0 {\n"
    "entry:\n";

static const char block_rows[] =
    "  br label %plane\n"
    "plane:\n"
    "  %z = phi i32 [ 0, %entry ], [ %z.next, %plane.end ]\n"
    "  %plane.rows = mul i32 %z, %ny\n"
    "  br label %row\n"
    "row:\n"
    "  %y = phi i32 [ 0, %plane ], [ %y.next, %row.end ]\n"
    "  %rows = add i32 %plane.rows, %y\n"
    "  %at = mul i32 %rows, %nx\n"
    "  %start = and i32 %at, 1023\n"
    "  %x.start = and i32 0, 0\n"
    "  %count = add i32 %nx, 0\n";

static const char block_guard[] = /* does a guard stop any thread of the row? */
    "  br label %guard.loop\n"
    "guard.loop:\n"
    "  %guard.x = phi i32 [ 0, %row ], [ %guard.x.next, %guard.loop ]\n"
    "  %guard.any = phi i32 [ 0, %row ], [ %guard.or, %guard.loop ]\n"
    "  %guard.linear = add nuw nsw i32 %start, %guard.x\n"
    "  store i32 %guard.x, ptr %x.p, align 4\n"
    "  store i32 %y, ptr %y.p, align 4\n"
    "  store i32 %z, ptr %z.p, align 4\n"
    "  store i32 %guard.linear, ptr %linear.p, align 4\n"
    "  store ptr %block, ptr %block.p, align 8\n"
    "  store ptr null, ptr %engine.p, align 8\n"
    "  %guard.stops = call i1 @" SG_GEN_GUARD "(ptr %thread, ptr %params)\n"
    "  %guard.word = zext i1 %guard.stops to i32\n"
    "  %guard.or = or i32 %guard.any, %guard.word\n"
    "  %guard.x.next = add nuw nsw i32 %guard.x, 1\n"
    "  %guard.more = icmp ult i32 %guard.x.next, %nx\n"
    "  br i1 %guard.more, label %guard.loop, label %row.checked\n"
    "row.checked:\n"
    "  %stops = icmp ne i32 %guard.or, 0\n"
    "  br i1 %stops, label %some.loop, label %all.loop\n";

static const char block_no_guard[] =
    "  br label %row.checked\n"
    "row.checked:\n"
    "  br label %some.loop\n";

static const char block_leads[] =
    "  br label %row.checked\n"
    "row.checked:\n"
    "  br label %piece\n";

static const char block_call[] = "  call void @" SG_GEN_BODY "(ptr %thread, ptr %params, i32 #0)\n";

static const char block_lead_call[] = "  call void @" SG_GEN_BODY "(ptr %thread, ptr %params, i32 #2)\n";

static const char block_end[] =
    "row.end:\n"
    "  %y.next = add nuw nsw i32 %y, 1\n"
    "  %y.more = icmp ult i32 %y.next, %ny\n"
    "  br i1 %y.more, label %row, label %plane.end\n"
    "plane.end:\n"
    "  %z.next = add nuw nsw i32 %z, 1\n"
    "  %z.more = icmp ult i32 %z.next, %nz\n"
    "  br i1 %z.more, label %plane, label %end\n"
    "end:\n";

/* --- loop form: threads [first, end) row by row; bounds that always hold stand there for LLVM to see --- */

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
    "declare i64 @" SG_GEN_LEAD ".#0(ptr, ptr, ptr, ptr, i64, i32, i32, i1, ptr, ptr)\n";

static const char region_head[] = /* number, offsets */
    "define internal i32 @sg.region.#0(ptr noalias %lanes, ptr noalias readonly %params, i32 %first, i32 %end) #0 {\n"
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

/* --- what is kept once a block: struct sg_lanes, leads.h --- */

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

static const char kept_take[] = /* register among the kept, place among the even ones */
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

static const char region_begin[] =
    "begin:\n";

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
    "  %even = call i1 @sg.even.#0(ptr %context, i64 %stride, i32 %start, i32 %count, ptr %firsts)\n"
    "  br label %row.checked\n"
    "row.checked:\n"
    "  br i1 %even, label %$, label %any.loop\n";

static const char region_check_if_not_kept[] =
    "  br i1 %kept.now, label %row.kept, label %row.test\n"
    "row.kept:\n"
    "  br label %row.checked\n"
    "row.test:\n"
    "  %even.found = call i1 @sg.even.#0(ptr %context, i64 %stride, i32 %start, i32 %count, ptr %firsts)\n"
    "  br label %row.checked\n"
    "row.checked:\n"
    "  %even = phi i1 [ true, %row.kept ], [ %even.found, %row.test ]\n"
    "  br i1 %even, label %$, label %any.loop\n";

static const char region_no_check[] =
    "  br label %row.checked\n"
    "row.checked:\n"
    "  br label %$\n";

static const char region_call[] = /* point, even, decisions */
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

/* Is each register of a list even along [start, start + count)? */
static const char even_head[] =
    "define internal i1 @sg.even.#0(ptr %context, i64 %stride, i32 %start.32, i32 %count, ptr %firsts) alwaysinline {\n"
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
    "  %even = icmp eq i32 %odd.last, 0\n"
    "  ret i1 %even\n"
    "}\n";

static const char metadata[] =
    "attributes #0 = { nounwind null_pointer_is_valid }\n"
    "!0 = distinct !{}\n"
    "!1 = distinct !{!1, !2}\n"
    "!2 = !{!\"llvm.loop.parallel_accesses\", !0}\n"
    "!3 = !{}\n"
    "!4 = !{i32 1, i32 1025}\n"
    "!5 = distinct !{!5, !2}\n"
    "!6 = !{i64 #0}\n"
    "!7 = !{i64 8}\n"
    "!8 = !{!\"llvm.loop.vectorize.enable\", i1 false}\n"
    "!9 = !{!\"llvm.loop.interleave.count\", i32 1}\n"
    "!10 = !{!\"llvm.loop.unroll.disable\"}\n";
#define INTERLEAVED_POINTS_MAX 12u
#define VECTOR_POINTS_MAX 96u /* kernels with more points would take long to compile */
#define TURNS_MAX 16u /* that a region takes by itself, before the engine has a look at the grid */
#define FIRST_LOOP 11u /* the number of the first region's metadata; each has so many: */
#define LOOPS_EACH (2 + 2 * SG_LEAVES_MAX)
// clang-format on

#define NUMBERS(...) ((const uint64_t[]){__VA_ARGS__})

/* Writes a piece of text; #0 behind "attributes" or a brace stays as it is. */
static void put(FILE *file, const char *piece, const char *name, const uint64_t *numbers)
{
    for (const char *p = piece; *p != '\0'; p++) {
        bool number =
            *p == '#' && numbers != NULL && !(p > piece && p[-1] == ' ' && p[1] == '0' && p[2] == ' ');
        if (*p == '$')
            fputs(name, file);
        else if (number)
            fprintf(file, "%" PRIu64, numbers[*++p - '0']);
        else
            fputc(*p, file);
    }
}

static void put_start(FILE *file)
{
    size_t ntid = offsetof(struct sg_block, ntid), tid = offsetof(struct sg_thread, tid);
    put(file, start, NULL,
        NUMBERS(sizeof(struct sg_thread), ntid, ntid + 4, ntid + 8, tid, tid + 4, tid + 8,
                offsetof(struct sg_thread, linear), offsetof(struct sg_thread, block),
                offsetof(struct sg_thread, engine)));
    put(file, start_misaligned, NULL, NUMBERS(offsetof(struct sg_thread, misaligned)));
}

static void put_turn(FILE *file, const char *name, const char *call, const uint64_t *numbers, bool store,
                     uint64_t loop)
{
    put(file, turn, name, NULL);
    put(file, call, name, numbers);
    if (store)
        put(file, region_store, name, NULL);
    put(file, turn_end, name, &loop);
}

/* The places among a region's even registers of those that are kept, by their number there; UINT32_MAX: not even. */
struct keeping {
    uint32_t needed; /* bits: those that are even */
    bool possible;   /* what is kept can be made use of here */
    uint32_t place[SG_KEPT_MAX];
};

static struct keeping find_keeping(const struct sg_codegen *gen, uint32_t point)
{
    const struct sg_regions *regions = &gen->regions;
    struct keeping keeping = {.possible =
                                  point != 0 && regions->n_kept > 0 && gen->leads[point].first != NULL};
    uint32_t n_even = 0;
    for (uint32_t i = 0; i < regions->n_kept; i++)
        keeping.place[i] = UINT32_MAX;
    for (uint32_t reg = 0; point != 0 && reg < gen->reach->functions[0]->n_regs; reg++) {
        bool even = sg_regions_has(regions->even[point], reg), kept = false;
        for (uint32_t i = 0; i < regions->n_kept; i++) {
            if (regions->kept[i] != reg)
                continue;
            kept = true;
            if (even) {
                keeping.place[i] = n_even;
                keeping.needed |= 1u << i;
            } else if (sg_regions_has(regions->load[point], reg)) {
                keeping.possible = false; /* it is read from its column */
            }
        }
        if (even && !kept)
            keeping.possible = false;
        n_even += even;
    }
    keeping.possible &= keeping.needed != 0;
    return keeping;
}

static void put_kept_value(FILE *file, uint32_t leaf, uint32_t number, const char *array, uint32_t place)
{
    uint64_t name = (uint64_t)leaf * SG_KEPT_MAX + number;
    put(file, kept_value, array, NUMBERS(name, place, number));
}

/* The leaf that leads to the region's own beginning and leaves there what it needs; UINT32_MAX: there is none. */
static uint32_t find_circle(const struct sg_leads *leads, const struct keeping *keeping, uint64_t point)
{
    for (uint32_t i = 0; i < leads->n_leaves && keeping != NULL && keeping->possible; i++)
        if (leads->leaves[i].keeps && leads->leaves[i].next == point)
            return i;
    return UINT32_MAX;
}

static void put_kept_turns(FILE *file, const struct sg_leads *leads, const struct keeping *keeping,
                           uint64_t point, bool even, uint32_t next, uint64_t loop)
{
    uint32_t circle = find_circle(leads, keeping, point);
    char name[16];
    for (uint32_t i = 0; i < leads->n_leaves; i++) {
        const struct sg_leaf *leaf = &leads->leaves[i];
        if (!leaf->keeps)
            continue;
        snprintf(name, sizeof(name), "kept.%u", i);
        put(file, kept_turn, name, NULL);
        put(file, region_call, name, NUMBERS(point, even, leaf->decisions | 1u));
        put(file, leaf_turn_end, name, NUMBERS(loop + i));
        uint64_t kept = leaf->written;
        for (uint32_t k = 0; k < SG_KEPT_MAX; k++) {
            if (leaf->written >> k & 1) {
                put_kept_value(file, i, k, "exits", k);
                if (i == circle && (keeping->needed >> k & 1))
                    put(file, kept_first, NULL, NUMBERS(i * SG_KEPT_MAX + k, keeping->place[k]));
            } else if (keeping->needed >> k & 1) {
                put_kept_value(file, i, k, "firsts", keeping->place[k]);
                kept |= UINT64_C(1) << k;
            }
        }
        put(file, kept_end, name, NUMBERS(kept, leaf->next));
        if (i == circle)
            put(file, kept_again, name, NUMBERS(TURNS_MAX, next));
        else
            fputs("  br label %piece.done\n", file);
    }
}

/*
 * A row in pieces. `lead` and `call` take the point and whether registers are even, `call` then the decisions. With
 * `next` 0 threads tell what they have come to, unless the leaf knows. `keeping`: of a region.
 */
static void put_pieces(FILE *file, const struct sg_leads *leads, const char *lead, const char *call,
                       uint64_t point, bool even, uint32_t next, const struct keeping *keeping, uint64_t loop)
{
    char name[16];
    uint32_t keeps = 0;
    bool store = next == 0;
    for (uint32_t i = 0; i < leads->n_leaves && keeping != NULL; i++)
        keeps |= (uint32_t)leads->leaves[i].keeps << i;
    put(file, piece_head, find_circle(leads, keeping, point) != UINT32_MAX ? ", [ 0, %kept.again ]" : "",
        NULL);
    put(file, piece_thread, "piece", NULL);
    put(file, lead, NULL, NUMBERS(point, even));
    put(file, piece_bounds, NULL, NULL);
    put(file, keeps != 0 ? piece_choice : piece_no_choice, NULL, NUMBERS(keeps));
    for (uint32_t i = 0; i < leads->n_leaves && keeps != 0; i++)
        if (keeps >> i & 1)
            fprintf(file, " i8 %u, label %%kept.%u.loop", i, i);
    if (keeps != 0)
        fputs(" ]\n", file);
    put(file, piece_go, NULL, NULL);
    for (uint32_t i = 1; i < leads->n_leaves; i++)
        fprintf(file, " i8 %u, label %%leaf.%u.loop", i, i);
    fputs(" ]\n", file);
    for (uint32_t i = 0; i < leads->n_leaves; i++) {
        const struct sg_leaf *leaf = &leads->leaves[i];
        snprintf(name, sizeof(name), "leaf.%u", i);
        put(file, leaf_turn, name, NULL);
        put(file, call, name, NUMBERS(point, even, leaf->decisions));
        if (store && leaf->next == 0)
            put(file, region_store, name, NULL);
        put(file, leaf_turn_end, name, NUMBERS(loop + i));
        if (store && leaf->next != 0)
            put(file, leaf_came, name, NUMBERS(leaf->next));
        fputs("  br label %piece.done\n", file);
    }
    if (keeps != 0)
        put_kept_turns(file, leads, keeping, point, even, next, loop + SG_LEAVES_MAX);
    put(file, piece_end, NULL, NULL);
}

/* All guards are known not to hold. */
static uint32_t decide_guards(const struct sg_guards *guards)
{
    uint32_t decisions = 0;
    for (uint32_t i = 0; i < guards->count; i++)
        decisions |= 1u << (2 * i + 2);
    return decisions;
}

static void put_block(FILE *file, const char *symbol, const struct sg_guards *guards,
                      const struct sg_leads *leads)
{
    bool guarded = guards->count > 0;
    put(file, block_head, symbol, NUMBERS(sizeof(struct sg_block)));
    put_start(file);
    put(file, block_rows, NULL, NULL);
    if (leads->first != NULL) {
        put(file, block_leads, NULL, NULL);
        put_pieces(file, leads, piece_lead_block, block_lead_call, 0, false, SG_POINT_END, NULL, FIRST_LOOP);
    } else {
        put(file, guarded ? block_guard : block_no_guard, NULL, NULL);
        put_turn(file, "some", block_call, NUMBERS(0), false, 1);
        if (guarded)
            put_turn(file, "all", block_call, NUMBERS(decide_guards(guards)), false, 5);
    }
    put(file, block_end, NULL, NULL);
    put(file, finish, "void", NULL);
    for (uint32_t i = 0; i < leads->n_leaves; i++)
        fprintf(file, "!%u = distinct !{!%u, !2}\n", FIRST_LOOP + i, FIRST_LOOP + i);
}

/* The check of a region's registers that should be even; false if there are none. */
static bool put_even(FILE *file, struct sg_codegen *gen, uint32_t point)
{
    const struct sg_function *kernel = gen->reach->functions[0];
    const struct sg_regions *regions = &gen->regions;
    uint32_t count = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t reg = 0; point > 0 && reg < kernel->n_regs; reg++) {
            if (!sg_regions_has(regions->even[point], reg))
                continue;
            unsigned bytes = sg_types[kernel->regs[reg].type].bits / 8;
            const char *type = bytes == 8 ? "i64" : bytes == 4 ? "i32" : bytes == 2 ? "i16" : "i8";
            bytes = bytes == 0 ? 1 : bytes;
            if (pass == 0) {
                if (count == 0)
                    put(file, even_head, NULL, NUMBERS(point));
                put(file, even_first, type, NUMBERS(reg, regions->column[reg], bytes, count++));
            } else {
                put(file, bytes == 8 ? even_compare_64 : even_compare, type,
                    NUMBERS(reg, bytes, (uint64_t)regions->step[reg]));
                fprintf(file, "  %%odd.%u = or i32 %%odd.%u, %%z.%u\n", count + 1, count, reg);
                count++;
            }
        }
        if (count == 0)
            return false;
        if (pass == 0) {
            put(file, even_loop, NULL, NULL);
            count = 0;
        }
    }
    fprintf(file, "  %%odd.last = or i32 %%odd.%u, 0\n", count);
    put(file, even_end, NULL, NULL);
    return true;
}

/* The metadata of the regions' loops: any, even. Compiling takes the longer the more of them are vectorised. */
static void put_loops(FILE *file, const struct sg_regions *regions)
{
    const char *few = regions->n_points > INTERLEAVED_POINTS_MAX ? ", !9, !10" : "";
    for (uint32_t point = 0; point <= regions->n_points; point++) {
        bool checked = false;
        for (uint32_t i = 0; point > 0 && i < regions->n_words; i++)
            checked |= regions->even[point][i] != 0;
        uint32_t any = FIRST_LOOP + LOOPS_EACH * point;
        bool many = regions->n_points > VECTOR_POINTS_MAX;
        fprintf(file, "!%u = distinct !{!%u, !2%s}\n", any, any, many || checked ? ", !8, !10" : few);
        for (uint32_t i = 1; i < LOOPS_EACH; i++) /* where registers are even, and leaves */
            fprintf(file, "!%u = distinct !{!%u, !2%s}\n", any + i, any + i, many ? ", !8, !10" : few);
    }
}

/* What a region begins with, for registers that are kept. */
static void put_kept(FILE *file, const struct sg_regions *regions, uint32_t point,
                     const struct keeping *keeping)
{
    if (regions->n_kept == 0) {
        fputs("  br label %begin\n", file);
    } else {
        put(file, kept_head, NULL,
            NUMBERS(offsetof(struct sg_lanes, kept), offsetof(struct sg_lanes, kept_first)));
        if (point == 0) {
            put(file, kept_begin, NULL, NULL);
        } else if (keeping->possible) {
            put(file, kept_needed, NULL, NUMBERS(keeping->needed));
            for (uint32_t i = 0; i < regions->n_kept; i++)
                if (keeping->needed >> i & 1)
                    put(file, kept_take, NULL, NUMBERS(i, keeping->place[i]));
            fputs("  br label %begin\n", file);
        } else {
            put(file, kept_not_needed, NULL, NULL);
        }
        if (point != 0)
            put(file, kept_else, NULL, NULL);
    }
    put(file, region_begin, NULL, NULL);
}

/* The function that puts what is kept into its columns. */
static void put_settle(FILE *file, const struct sg_function *kernel, const struct sg_regions *regions)
{
    put(file, settle_head, NULL,
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
        put(file, settle_register, value, numbers);
        put(file, settle_register_end, type, numbers);
    }
    put(file, settle_end, NULL, NUMBERS(regions->n_kept));
}

static void put_regions(FILE *file, struct sg_codegen *gen)
{
    put(file, regions_head, NULL, NULL);
    if (gen->regions.n_kept > 0)
        put_settle(file, gen->reach->functions[0], &gen->regions);
    for (uint32_t point = 0; point <= gen->regions.n_points; point++) {
        uint32_t next = gen->regions.next[point], loop = FIRST_LOOP + LOOPS_EACH * point;
        const struct sg_leads *leads = &gen->leads[point];
        bool led = leads->first != NULL, store = next == 0, checked = put_even(file, gen, point);
        if (led)
            put(file, region_lead, NULL, NUMBERS(point));
        put(file, region_head, NULL,
            NUMBERS(point, offsetof(struct sg_lanes, block), offsetof(struct sg_lanes, context),
                    offsetof(struct sg_lanes, local), offsetof(struct sg_lanes, stride), SG_LANES_POINT,
                    SG_EVEN_MAX, next, SG_KEPT_MAX));
        put_start(file);
        struct keeping keeping = find_keeping(gen, point);
        put_kept(file, &gen->regions, point, &keeping);
        put(file, region_rows, NULL, NULL);
        put(file,
            keeping.possible ? region_check_if_not_kept
            : checked        ? region_check
                             : region_no_check,
            led       ? "piece"
            : checked ? "even.loop"
                      : "any.loop",
            NUMBERS(point));
        if (checked || !led)
            put_turn(file, "any", region_call, NUMBERS(point, 0, 0), store, loop);
        if (led)
            put_pieces(file, leads, piece_lead_region, region_call, point, checked, next,
                       gen->regions.n_kept > 0 ? &keeping : NULL, loop + 2);
        else if (checked)
            put_turn(file, "even", region_call, NUMBERS(point, 1, 0), store, loop + 1);
        put(file, region_end, NULL, NULL);
        put(file, finish, "i32 %came.to", NULL);
    }
    put_loops(file, &gen->regions);
}

/* The access group hangs on one load of the frame. */
static void find_access_group(struct sg_codegen *gen)
{
    for (LLVMValueRef frame = LLVMGetFirstFunction(gen->llvm); frame != NULL;
         frame = LLVMGetNextFunction(frame))
        for (LLVMBasicBlockRef block = LLVMGetFirstBasicBlock(frame); block != NULL;
             block = LLVMGetNextBasicBlock(block))
            for (LLVMValueRef i = LLVMGetFirstInstruction(block); i != NULL; i = LLVMGetNextInstruction(i)) {
                gen->access_group = LLVMGetMetadata(i, gen->access_group_kind);
                if (gen->access_group != NULL)
                    return;
            }
}

bool sg_gen_frame(struct sg_codegen *gen, const char *symbol)
{
    char *text = NULL, *message = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (file == NULL)
        sg_fail(gen->arena->diagnostics, SG_COMPILE_NO_MEMORY, 0, "out of memory");
    fputs("declare void @sg_rt_misaligned(ptr) cold noreturn nounwind\n", file);
    if (gen->form == SG_CODE_BLOCK)
        put_block(file, symbol, &gen->guards, &gen->leads[0]);
    else
        put_regions(file, gen);
    put(file, metadata, NULL, NUMBERS(sizeof(struct sg_block)));
    bool written = fclose(file) == 0;
    LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, written ? size : 0, "frame");
    free(text);
    if (!written || LLVMParseIRInContext(gen->context, buffer, &gen->llvm, &message)) {
        sg_text_append(gen->arena->diagnostics->log, "frame of a kernel: %s\n",
                       message != NULL ? message : "no memory");
        LLVMDisposeMessage(message);
        return false;
    }
    find_access_group(gen);
    return true;
}

/* --- what the engine is given --- */

static LLVMValueRef word(struct sg_codegen *gen, unsigned bits, uint64_t value)
{
    return sg_gen_const(gen, bits, value);
}

static LLVMValueRef add_constant(struct sg_codegen *gen, LLVMValueRef value, const char *name)
{
    LLVMValueRef global = LLVMAddGlobal(gen->llvm, LLVMTypeOf(value), name);
    LLVMSetInitializer(global, value);
    LLVMSetGlobalConstant(global, 1);
    LLVMSetLinkage(global, LLVMInternalLinkage);
    return global;
}

static LLVMValueRef describe_point(struct sg_codegen *gen, const struct sg_point *point)
{
    LLVMValueRef fields[] = {
        word(gen, 8, point->kind), word(gen, 8, point->mode), word(gen, 8, point->constant), word(gen, 8, 0),
        word(gen, 32, point->a),   word(gen, 32, point->b),   word(gen, 32, point->mask)};
    return LLVMConstStructInContext(gen->context, fields, sizeof(fields) / sizeof(fields[0]), 0);
}

static LLVMValueRef describe_columns(struct sg_codegen *gen, const uint32_t columns[16])
{
    LLVMValueRef words[16];
    for (uint32_t i = 0; i < 16; i++)
        words[i] = word(gen, 32, columns[i]);
    return LLVMConstArray(gen->i32, words, 16);
}

static LLVMValueRef describe_matrix(struct sg_codegen *gen, const struct sg_matrix_op *op)
{
    uint64_t kind;
    memcpy(&kind, &op->kind, sizeof(kind));
    LLVMValueRef fields[] = {word(gen, 64, kind),           word(gen, 32, op->address),
                             word(gen, 32, op->strides),    word(gen, 32, op->stride),
                             word(gen, 32, 0),              describe_columns(gen, op->a),
                             describe_columns(gen, op->b), describe_columns(gen, op->c),
                             describe_columns(gen, op->d)};
    return LLVMConstStructInContext(gen->context, fields, sizeof(fields) / sizeof(fields[0]), 0);
}

/* The operations of all points of matrices, or NULL. */
static LLVMValueRef describe_matrices(struct sg_codegen *gen)
{
    uint32_t count = gen->n_matrices;
    if (count == 0)
        return LLVMConstNull(gen->pointer);
    LLVMValueRef *ops = SG_NEW_ARRAY(gen->arena, LLVMValueRef, count);
    for (uint32_t i = 0; i < count; i++)
        ops[i] = describe_matrix(gen, &gen->matrices[i]);
    return add_constant(gen, LLVMConstArray(LLVMTypeOf(ops[0]), ops, count), "sg.matrices");
}

void sg_gen_loop_code(struct sg_codegen *gen, const char *symbol)
{
    char name[32];
    uint32_t count = gen->regions.n_points + 1, takes_turns = 0;
    LLVMValueRef *points = SG_NEW_ARRAY(gen->arena, LLVMValueRef, count),
                 *codes = SG_NEW_ARRAY(gen->arena, LLVMValueRef, count);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "sg.region.%u", i);
        points[i] = describe_point(gen, &gen->points[i]);
        takes_turns |= gen->points[i].kind == SG_POINT_PASS && gen->points[i].mode == SG_PASS_TURN;
        codes[i] = LLVMGetNamedFunction(gen->llvm, name);
    }
    LLVMValueRef fields[] = {
        word(gen, 32, gen->regions.n_points),
        word(gen, 32, gen->regions.context_size),
        word(gen, 32, gen->regions.local_size),
        word(gen, 32, takes_turns),
        add_constant(gen, LLVMConstArray(LLVMTypeOf(points[0]), points, count), "sg.points"),
        add_constant(gen, LLVMConstArray(gen->pointer, codes, count), "sg.regions"),
        describe_matrices(gen),
    };
    LLVMValueRef code = add_constant(
        gen, LLVMConstStructInContext(gen->context, fields, sizeof(fields) / sizeof(fields[0]), 0), symbol);
    LLVMSetLinkage(code, LLVMExternalLinkage);
    LLVMSetAlignment(code, 16);
}
