/*
 * frame_text.c - text that the frames of all forms have in common, and how pieces are put together.
 */
#include "softgpu/compiler/codegen/loops/frame.h"

#include <inttypes.h>

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

static const char turn[] = /* the head of a loop over the threads of a row */
    "$.loop:\n"
    "  %$.i = phi i32 [ 0, %row.checked ], [ %$.i.next, %$.loop ]\n"
    SG_FRAME_THREAD;

static const char turn_end[] = /* its end; the loop's metadata */
    "  %$.i.next = add nuw nsw i32 %$.i, 1\n"
    "  %$.more = icmp ne i32 %$.i.next, %count\n"
    "  br i1 %$.more, label %$.loop, label %row.end, !llvm.loop !#0\n";

static const char start_misaligned[] = /* what accesses that are not aligned leave; offset */
    "  %misaligned.p = getelementptr i8, ptr %thread, i64 #0\n"
    "  store i32 0, ptr %misaligned.p, align 4\n";

/* Misaligned accesses are told when all threads have had their turn: a branch would keep them apart. */
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

// clang-format on

/* Writes a piece of text; #0 behind "attributes" or a brace stays as it is. */
void sg_frame_put(FILE *file, const char *piece, const char *name, const uint64_t *numbers)
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

void sg_frame_put_start(FILE *file)
{
    size_t ntid = offsetof(struct sg_block, ntid), tid = offsetof(struct sg_thread, tid);
    sg_frame_put(file, start, NULL,
                 NUMBERS(sizeof(struct sg_thread), ntid, ntid + 4, ntid + 8, tid, tid + 4, tid + 8,
                         offsetof(struct sg_thread, linear), offsetof(struct sg_thread, block),
                         offsetof(struct sg_thread, engine)));
    sg_frame_put(file, start_misaligned, NULL, NUMBERS(offsetof(struct sg_thread, misaligned)));
}

void sg_frame_put_finish(FILE *file, const char *result)
{
    sg_frame_put(file, finish, result, NULL);
}

void sg_frame_put_turn(FILE *file, const char *name, const char *call, const uint64_t *numbers,
                       const char *store, uint64_t loop)
{
    sg_frame_put(file, turn, name, NULL);
    sg_frame_put(file, call, name, numbers);
    if (store != NULL)
        sg_frame_put(file, store, name, NULL);
    sg_frame_put(file, turn_end, name, &loop);
}
