/*
 * frame.c - the loops over a block's threads that call the body of a kernel, which LLVM inlines: one for the
 * whole kernel in block form, one for each region in loop form. There the number of the region's point is a
 * constant argument of the body, so that of each copy only what the region can reach is left.
 *
 * Accesses to memory in the body carry an access group that the loops name as parallel, since threads that do
 * not wait for each other may not depend on each other either. The loops are written as LLVM's text because
 * only the text can make distinct metadata; the body is added to the module that the text makes.
 */
#include "softgpu/compiler/codegen/loops/frame.h"

#include <inttypes.h>
#include <llvm-c/IRReader.h>
#include <stdlib.h>

// clang-format off
static const char block_head[] = /* size of a block's description */
    "declare void @" SG_GEN_BODY "(ptr, ptr, i32)\n"
    "declare i1 @" SG_GEN_GUARD "(ptr, ptr)\n"
    "declare i64 @" SG_GEN_DIVERGENCE ".0(ptr, ptr)\n"
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

static const char block_divergence[] =
    "  br label %row.checked\n"
    "row.checked:\n";

static const char block_call[] = "  call void @" SG_GEN_BODY "(ptr %thread, ptr %params, i32 #0)\n";

static const char piece_divergence_block[] = "  %$divergence = call i64 @" SG_GEN_DIVERGENCE ".0(ptr %thread, ptr %params)\n";

static const char block_divergence_call[] = "  call void @" SG_GEN_BODY "(ptr %thread, ptr %params, i32 #2)\n";

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
// clang-format on

/* All guards are known not to hold. */
static uint32_t decide_guards(const struct sg_guards *guards)
{
    uint32_t decisions = 0;
    for (uint32_t i = 0; i < guards->count; i++)
        decisions |= 1u << (2 * i + 2);
    return decisions;
}

static void put_block(FILE *file, const char *symbol, const struct sg_guards *guards,
                      const struct sg_divergence *tree)
{
    bool guarded = guards->count > 0;
    sg_frame_put(file, block_head, symbol, NUMBERS(sizeof(struct sg_block)));
    sg_frame_put_start(file);
    sg_frame_put(file, block_rows, NULL, NULL);
    if (tree->first != NULL) {
        sg_frame_put(file, block_divergence, NULL, NULL);
        sg_frame_put_pieces(file, &(struct sg_pieces){.tree = tree,
                                                      .divergence = piece_divergence_block,
                                                      .asks_alone = true,
                                                      .call = block_divergence_call,
                                                      .next = SG_POINT_END,
                                                      .loop = SG_FRAME_FIRST_LOOP});
    } else {
        sg_frame_put(file, guarded ? block_guard : block_no_guard, NULL, NULL);
        sg_frame_put_turn(file, "some", block_call, NUMBERS(0), NULL, 1);
        if (guarded)
            sg_frame_put_turn(file, "all", block_call, NUMBERS(decide_guards(guards)), NULL, 5);
    }
    sg_frame_put(file, block_end, NULL, NULL);
    sg_frame_put_finish(file, "void");
    for (uint32_t i = 0; i < tree->n_leaves; i++)
        fprintf(file, "!%u = distinct !{!%u, !2}\n", SG_FRAME_FIRST_LOOP + i, SG_FRAME_FIRST_LOOP + i);
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
        put_block(file, symbol, &gen->loops.guards, &gen->loops.divergence[0]);
    else
        sg_frame_put_regions(file, gen);
    sg_frame_put(file, metadata, NULL, NUMBERS(sizeof(struct sg_block)));
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
