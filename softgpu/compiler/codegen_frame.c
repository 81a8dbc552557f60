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

#include <llvm-c/IRReader.h>
#include <stdio.h>
#include <stdlib.h>

#define B gen->builder

/* The thread as the body takes it, and the shape of its block. Ends in the middle of the entry block. */
static const char frame_start[] =
    "entry:\n"
    "  %%thread = alloca [%zu x i8], align 16\n"
    "  %%nx.p = getelementptr i8, ptr %%block, i64 %zu\n"
    "  %%nx = load i32, ptr %%nx.p, align 4, !invariant.load !3, !range !4, !llvm.access.group !0\n"
    "  %%ny.p = getelementptr i8, ptr %%block, i64 %zu\n"
    "  %%ny = load i32, ptr %%ny.p, align 4, !invariant.load !3, !range !4\n"
    "  %%nz.p = getelementptr i8, ptr %%block, i64 %zu\n"
    "  %%nz = load i32, ptr %%nz.p, align 4, !invariant.load !3, !range !4\n"
    "  %%x.p = getelementptr i8, ptr %%thread, i64 %zu\n"
    "  %%y.p = getelementptr i8, ptr %%thread, i64 %zu\n"
    "  %%z.p = getelementptr i8, ptr %%thread, i64 %zu\n"
    "  %%linear.p = getelementptr i8, ptr %%thread, i64 %zu\n"
    "  %%block.p = getelementptr i8, ptr %%thread, i64 %zu\n"
    "  %%engine.p = getelementptr i8, ptr %%thread, i64 %zu\n"
    "  %%misaligned.p = getelementptr i8, ptr %%thread, i64 %zu\n"
    "  store i32 0, ptr %%misaligned.p, align 4\n";

static const char store_thread[] = "  store i32 %x, ptr %x.p, align 4\n"
                                   "  store i32 %y, ptr %y.p, align 4\n"
                                   "  store i32 %z, ptr %z.p, align 4\n"
                                   "  store i32 %linear, ptr %linear.p, align 4\n"
                                   "  store ptr %block, ptr %block.p, align 8\n"
                                   "  store ptr null, ptr %engine.p, align 8\n";

static const char block_head[] = "declare void @" SG_GEN_BODY "(ptr, ptr)\n"
                                 "define void @%s(ptr noalias %%block, ptr noalias readonly %%params) #0 {\n";

static const char block_loops[] = "  br label %plane\n"
                                  "plane:\n"
                                  "  %z = phi i32 [ 0, %entry ], [ %z.next, %plane.end ]\n"
                                  "  %plane.rows = mul i32 %z, %ny\n"
                                  "  br label %row\n"
                                  "row:\n"
                                  "  %y = phi i32 [ 0, %plane ], [ %y.next, %row.end ]\n"
                                  "  %rows = add i32 %plane.rows, %y\n"
                                  "  %first = mul i32 %rows, %nx\n"
                                  "  br label %thread.loop\n"
                                  "thread.loop:\n"
                                  "  %x = phi i32 [ 0, %row ], [ %x.next, %thread.loop ]\n"
                                  "  %linear = add i32 %first, %x\n";

static const char block_end[] = "  call void @" SG_GEN_BODY "(ptr %thread, ptr %params)\n"
                                "  %x.next = add nuw nsw i32 %x, 1\n"
                                "  %x.more = icmp ult i32 %x.next, %nx\n"
                                "  br i1 %x.more, label %thread.loop, label %row.end, !llvm.loop !1\n"
                                "row.end:\n"
                                "  %y.next = add nuw nsw i32 %y, 1\n"
                                "  %y.more = icmp ult i32 %y.next, %ny\n"
                                "  br i1 %y.more, label %row, label %plane.end\n"
                                "plane.end:\n"
                                "  %z.next = add nuw nsw i32 %z, 1\n"
                                "  %z.more = icmp ult i32 %z.next, %nz\n"
                                "  br i1 %z.more, label %plane, label %end\n"
                                "end:\n";

/* A misaligned access of any of the threads is told when all have had their turn: a branch would keep them apart. */
static const char frame_end[] = "  %misaligned = load i32, ptr %misaligned.p, align 4\n"
                                "  %wrong = icmp ne i32 %misaligned, 0\n"
                                "  br i1 %wrong, label %fault, label %return\n"
                                "fault:\n"
                                "  call void @sg_rt_misaligned(ptr %block)\n"
                                "  unreachable\n"
                                "return:\n"
                                "  ret void\n"
                                "}\n";

/* Threads [first, end) row by row; bounds that always hold are written out where LLVM cannot see them. */
static const char region_head[] = "define internal void @sg.region.%u(ptr noalias %%lanes, ptr noalias "
                                  "readonly %%params, i32 %%first, i32 %%end) "
                                  "#0 {\n"
                                  "begin:\n"
                                  "  %%lanes.block = getelementptr i8, ptr %%lanes, i64 %zu\n"
                                  "  %%block = load ptr, ptr %%lanes.block, align 8, !invariant.load !3\n"
                                  "  %%lanes.context = getelementptr i8, ptr %%lanes, i64 %zu\n"
                                  "  %%context = load ptr, ptr %%lanes.context, align 8, !invariant.load !3\n"
                                  "  %%lanes.local = getelementptr i8, ptr %%lanes, i64 %zu\n"
                                  "  %%local = load ptr, ptr %%lanes.local, align 8, !invariant.load !3\n"
                                  "  %%lanes.stride = getelementptr i8, ptr %%lanes, i64 %zu\n"
                                  "  %%stride = load i64, ptr %%lanes.stride, align 8, !invariant.load !3\n"
                                  "  br label %%entry\n";

static const char region_loops[] = "  %%points.at = mul i64 %%stride, %u\n"
                                   "  %%points = getelementptr i8, ptr %%context, i64 %%points.at\n"
                                   "  %%x.first = urem i32 %%first, %%nx\n"
                                   "  %%rows.first = udiv i32 %%first, %%nx\n"
                                   "  %%y.first = urem i32 %%rows.first, %%ny\n"
                                   "  %%z.first = udiv i32 %%rows.first, %%ny\n"
                                   "  br label %%row\n"
                                   "row:\n"
                                   "  %%x.start = phi i32 [ %%x.first, %%entry ], [ 0, %%row.end ]\n"
                                   "  %%y = phi i32 [ %%y.first, %%entry ], [ %%y.next, %%row.end ]\n"
                                   "  %%z = phi i32 [ %%z.first, %%entry ], [ %%z.next, %%row.end ]\n"
                                   "  %%at = phi i32 [ %%first, %%entry ], [ %%at.next, %%row.end ]\n"
                                   "  %%start = and i32 %%at, 1023\n"
                                   "  %%left.row = sub i32 %%nx, %%x.start\n"
                                   "  %%left = sub i32 %%end, %%at\n"
                                   "  %%smaller = call i32 @llvm.umin.i32(i32 %%left.row, i32 %%left)\n"
                                   "  %%count = call i32 @llvm.umin.i32(i32 %%smaller, i32 1024)\n"
                                   "  br label %%thread.loop\n"
                                   "thread.loop:\n"
                                   "  %%i = phi i32 [ 0, %%row ], [ %%i.next, %%thread.loop ]\n"
                                   "  %%x = add nuw nsw i32 %%x.start, %%i\n"
                                   "  %%linear = add nuw nsw i32 %%start, %%i\n";

static const char region_end[] =
    "  %%next = call i32 @" SG_GEN_BODY
    "(ptr %%thread, ptr %%params, ptr %%context, ptr %%local, i64 %%stride, i32 %u)\n"
    "  %%point = trunc i32 %%next to i16\n"
    "  %%point.index = zext i32 %%linear to i64\n"
    "  %%point.p = getelementptr i16, ptr %%points, i64 %%point.index\n"
    "  store i16 %%point, ptr %%point.p, align 2, !llvm.access.group !0\n"
    "  %%i.next = add nuw nsw i32 %%i, 1\n"
    "  %%more = icmp ult i32 %%i.next, %%count\n"
    "  br i1 %%more, label %%thread.loop, label %%row.end, !llvm.loop !%u\n"
    "row.end:\n"
    "  %%at.next = add i32 %%at, %%count\n"
    "  %%y.inc = add i32 %%y, 1\n"
    "  %%y.wraps = icmp eq i32 %%y.inc, %%ny\n"
    "  %%y.next = select i1 %%y.wraps, i32 0, i32 %%y.inc\n"
    "  %%z.step = zext i1 %%y.wraps to i32\n"
    "  %%z.next = add i32 %%z, %%z.step\n"
    "  %%again = icmp ult i32 %%at.next, %%end\n"
    "  br i1 %%again, label %%row, label %%end.of.threads\n"
    "end.of.threads:\n";

#define FIRST_LOOP 5u /* the number of the first loop's metadata */
static const char metadata[] = "attributes #0 = { nounwind null_pointer_is_valid }\n"
                               "!0 = distinct !{}\n"
                               "!1 = distinct !{!1, !2}\n"
                               "!2 = !{!\"llvm.loop.parallel_accesses\", !0}\n"
                               "!3 = !{}\n"
                               "!4 = !{i32 1, i32 1025}\n";

static void write_start(FILE *file)
{
    size_t ntid = offsetof(struct sg_block, ntid), tid = offsetof(struct sg_thread, tid);
    fprintf(file, frame_start, sizeof(struct sg_thread), ntid, ntid + 4, ntid + 8, tid, tid + 4, tid + 8,
            offsetof(struct sg_thread, linear), offsetof(struct sg_thread, block),
            offsetof(struct sg_thread, engine), offsetof(struct sg_thread, misaligned));
}

static void write_block(FILE *file, const char *symbol)
{
    fprintf(file, block_head, symbol);
    write_start(file);
    fputs(block_loops, file);
    fputs(store_thread, file);
    fputs(block_end, file);
    fputs(frame_end, file);
}

static void write_regions(FILE *file, uint32_t n_points)
{
    fputs("declare i32 @" SG_GEN_BODY
          "(ptr, ptr, ptr, ptr, i64, i32)\ndeclare i32 @llvm.umin.i32(i32, i32)\n",
          file);
    for (uint32_t point = 0; point <= n_points; point++) {
        fprintf(file, region_head, point, offsetof(struct sg_lanes, block),
                offsetof(struct sg_lanes, context), offsetof(struct sg_lanes, local),
                offsetof(struct sg_lanes, stride));
        write_start(file);
        fprintf(file, region_loops, SG_LANES_POINT);
        fputs(store_thread, file);
        fprintf(file, region_end, point, FIRST_LOOP + point);
        fputs(frame_end, file);
    }
    for (uint32_t loop = FIRST_LOOP; loop <= FIRST_LOOP + n_points; loop++)
        fprintf(file, "!%u = distinct !{!%u, !2}\n", loop, loop);
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
        write_block(file, symbol);
    else
        write_regions(file, gen->regions.n_points);
    fputs(metadata, file);
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

void sg_gen_loop_code(struct sg_codegen *gen, const char *symbol)
{
    char name[32];
    uint32_t count = gen->regions.n_points + 1;
    LLVMValueRef *points = SG_NEW_ARRAY(gen->arena, LLVMValueRef, count),
                 *codes = SG_NEW_ARRAY(gen->arena, LLVMValueRef, count);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "sg.region.%u", i);
        points[i] = describe_point(gen, &gen->points[i]);
        codes[i] = LLVMGetNamedFunction(gen->llvm, name);
    }
    LLVMValueRef fields[] = {
        word(gen, 32, gen->regions.n_points),
        word(gen, 32, gen->regions.context_size),
        word(gen, 32, gen->regions.local_size),
        word(gen, 32, 0),
        add_constant(gen, LLVMConstArray(LLVMTypeOf(points[0]), points, count), "sg.points"),
        add_constant(gen, LLVMConstArray(gen->pointer, codes, count), "sg.regions"),
    };
    LLVMValueRef code = add_constant(
        gen, LLVMConstStructInContext(gen->context, fields, sizeof(fields) / sizeof(fields[0]), 0), symbol);
    LLVMSetLinkage(code, LLVMExternalLinkage);
    LLVMSetAlignment(code, 16);
}
