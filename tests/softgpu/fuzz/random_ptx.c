/*
 * random_ptx.c - see random_ptx.h.
 *
 * Registers of every kind begin with what the thread reads; statements work on them: instructions and memory
 * of the thread's own (random_values.c), memory of the block and operations of warps (random_meetings.c),
 * branches that part threads, loops with different numbers of turns, calls (random_flow.c). All registers are
 * written at the end. Some branches and loops depend on the thread's place alone, by numbers that may
 * overflow between two threads.
 *
 * Bits of NaN are no part of what is compared: PTX leaves them open, and so does LLVM. A number that is not
 * one is replaced before its bits can be seen.
 */
#include "random_ptx.h"
#include "random_writer.h"

#include <stdlib.h>

static const char declarations[] =
    ".reg .b32 %r<10>, %n<8>, %at, %base, %own, %tid, %mask; .reg .b64 %rd<6>, %a, %b, %in, %out, %state, "
    "%counters;\n"
    ".reg .b16 %h<6>; .reg .f32 %f<6>; .reg .f64 %fd<4>; .reg .pred %p<5>, %nan, %more;\n";

static void write_kernel(struct writer *w)
{
    FILE *f = w->file;
    fprintf(f,
            ".visible .entry k(.param .u64 in, .param .u64 out, .param .u64 counters)\n{\n%s"
            ".local .align 16 .b8 lv[64]; .shared .align 16 .b8 sv[4096]; .shared .align 4 .b8 counts[16]; "
            ".shared "
            ".align 8 .b64 mb;\n",
            declarations);
    fprintf(f,
            "ld.param.u64 %%in, [in]; ld.param.u64 %%out, [out]; ld.param.u64 %%counters, [counters];\n"
            "mov.u32 %%tid, %%tid.x; mov.u32 %%at, %%ctaid.x; mad.lo.u32 %%at, %%at, %u, %%tid;\n"
            "mul.wide.u32 %%a, %%at, %u; add.u64 %%in, %%in, %%a; add.u64 %%out, %%out, %%a;\n"
            "shl.b32 %%own, %%tid, 2; mov.u32 %%base, sv; add.u32 %%own, %%own, %%base;\n",
            w->threads, RANDOM_WORDS * 4);
    if (!w->alone)
        fprintf(f,
                "setp.ne.u32 %%more, %%tid, 0; @%%more bra START; mbarrier.init.shared.b64 [mb], %u; "
                "st.shared.u32 "
                "[counts+8], 0;\nSTART: bar.sync 0;\n",
                w->threads);
    uint32_t at = 0;
    for (uint32_t i = 0; i < R; i++)
        fprintf(f, "ld.global.u32 %%r%u, [%%in+%u];\n", i, 4 * at++);
    for (uint32_t i = 0; i < RD; i++)
        fprintf(f, "ld.global.u64 %%rd%u, [%%in+%u];\n", i, i * 8 + 16);
    for (uint32_t i = 0; i < H; i++)
        fprintf(f, "ld.global.u16 %%h%u, [%%in+%u];\n", i, i * 2 + 64);
    for (uint32_t i = 0; i < F; i++)
        fprintf(f, "ld.global.f32 %%f%u, [%%in+%u];\n", i, i * 4 + 80);
    for (uint32_t i = 0; i < FD; i++)
        fprintf(f, "ld.global.f64 %%fd%u, [%%in+%u];\n", i, i * 8 + 96);
    for (uint32_t i = 0; i < P; i++)
        fprintf(f, "and.b32 %%at, %%r%u, %u; setp.ne.u32 %%p%u, %%at, 0;\n", i, 1u << i, i);
    for (uint32_t i = 0; i < 16; i++)
        fprintf(f, "st.local.u32 [lv+%u], %%r%u;\n", i * 4, i % R);
    w->uniform = true;
    if (w->alone) { /* its tests are asked beforehand (softgpu/compiler/regions/guards.c) */
        random_test_of_place(w);
        random_statements(w, random_next(w, 8));
        random_test_of_place(w);
    } else {
        random_statements(w, 12 + random_next(w, 40));
    }
    at = 0;
    for (uint32_t i = 0; i < R; i++)
        fprintf(f, "st.global.u32 [%%out+%u], %%r%u;\n", 4 * at++, i);
    for (uint32_t i = 0; i < RD; i++, at += 2)
        fprintf(f, "st.global.u64 [%%out+%u], %%rd%u;\n", 4 * at, i);
    for (uint32_t i = 0; i < F - 2; i++)
        fprintf(f,
                "setp.nan.f32 %%nan, %%f%u, %%f%u; selp.f32 %%f%u, 0f3F800000, %%f%u, %%nan; st.global.f32 "
                "[%%out+%u], %%f%u;\n",
                i, i, i, i, 4 * at++, i);
    for (uint32_t i = 0; i < H; i += 2)
        fprintf(f, "mov.b32 %%at, {%%h%u, %%h%u}; st.global.u32 [%%out+%u], %%at;\n", i, i + 1, 4 * at++);
    fprintf(f,
            "setp.nan.f64 %%nan, %%fd0, %%fd0; selp.f64 %%fd0, 0d3FF0000000000000, %%fd0, %%nan; mov.b64 "
            "{%%at, %%base}, %%fd0;\n"
            "st.global.u32 [%%out+%u], %%at; st.global.u32 [%%out+%u], %%base;\nmov.u32 %%at, 0;\n",
            4 * at, 4 * at + 4);
    at += 2;
    for (uint32_t i = 0; i < P; i++)
        fprintf(f, "selp.u32 %%base, %u, 0, %%p%u; or.b32 %%at, %%at, %%base;\n", 1u << i, i);
    fprintf(f, "st.global.u32 [%%out+%u], %%at;\nret;\n}\n", 4 * at);
}

/* A function of two words; its statements do not wait for anybody. */
static void write_function(struct writer *w, const char *head, const char *take, const char *give)
{
    fprintf(w->file, "%s\n{\n%s.local .align 16 .b8 lv[64];\n%s", head, declarations, take);
    for (uint32_t i = 2; i < R; i++)
        fprintf(w->file, "mad.lo.u32 %%r%u, %%r0, %u, %%r1;\n", i, random_number(w));
    for (uint32_t i = 0; i < RD; i++)
        fprintf(w->file, "mul.wide.s32 %%rd%u, %%r%u, %%r%u;\n", i, i, i + 1);
    for (uint32_t i = 0; i < H; i++)
        fprintf(w->file, "cvt.u16.u32 %%h%u, %%r%u;\n", i, i);
    for (uint32_t i = 0; i < F; i++)
        fprintf(w->file, "cvt.rn.f32.s32 %%f%u, %%r%u;\n", i, i);
    for (uint32_t i = 0; i < FD; i++)
        fprintf(w->file, "cvt.rn.f64.s32 %%fd%u, %%r%u;\n", i, i);
    for (uint32_t i = 0; i < P; i++)
        fprintf(w->file, "setp.lt.s32 %%p%u, %%r%u, %%r%u;\n", i, i, i + 1);
    for (uint32_t i = 0; i < 16; i++)
        fprintf(w->file, "st.local.u32 [lv+%u], %%r%u;\n", i * 4, i % R);
    fprintf(w->file, "mov.u64 %%counters, unused;\n");
    w->uniform = false;
    w->in_function = true;
    random_statements(w, 4 + random_next(w, 10));
    w->in_function = false;
    fprintf(w->file, "%s\nret;\n}\n", give);
}

char *random_ptx(uint64_t seed, uint32_t threads)
{
    char *text = NULL;
    size_t size = 0;
    struct writer w = {.file = open_memstream(&text, &size),
                       .state = (seed + 1) * 0x9e3779b97f4a7c15u,
                       .threads = threads,
                       .alone = seed % 5 == 0};
    if (w.file == NULL)
        return NULL;
    for (int i = 0; i < 8; i++)
        random_next(&w, 2);
    fprintf(w.file, ".version 8.7\n.target sm_90\n.address_size 64\n.global .align 4 .b8 unused[64];\n");
    write_function(&w, ".func (.reg .b32 result) helper(.reg .b32 x, .reg .b32 y)",
                   "mov.u32 %r0, x; mov.u32 %r1, y;\n", "mov.u32 result, %r2;");
    write_function(&w, ".func (.param .b32 result) other(.param .b32 x, .param .b32 y)",
                   "ld.param.b32 %r0, [x]; ld.param.b32 %r1, [y];\n", "st.param.b32 [result], %r3;");
    write_kernel(&w);
    fclose(w.file);
    return text;
}
