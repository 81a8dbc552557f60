/*
 * random_flow.c - branches that part threads, loops of different turns, calls; which statement comes next.
 */
#include "random_writer.h"

static void branch(struct writer *w)
{
    uint32_t label = w->labels++;
    bool uniform = w->uniform, otherwise = random_next(w, 2) != 0;
    fprintf(w->file, "@%s%%p%u bra E%u;\n", random_next(w, 2) ? "!" : "", random_next(w, P), label);
    w->uniform = false;
    random_statements(w, 1 + random_next(w, 4));
    if (otherwise)
        fprintf(w->file, "bra J%u;\n", label);
    fprintf(w->file, "E%u:\n", label);
    if (otherwise) {
        random_statements(w, 1 + random_next(w, 4));
        fprintf(w->file, "J%u:\n", label);
    }
    w->uniform = uniform;
}

static void loop(struct writer *w)
{
    uint32_t label = w->labels++;
    bool same = w->uniform && random_next(w, 2) != 0; /* the same number of turns for all threads */
    bool uniform = w->uniform;
    if (same)
        fprintf(w->file, "mov.u32 %%n%u, %u;\n", w->depth, 1 + random_next(w, 4));
    else
        fprintf(w->file, "and.b32 %%n%u, %%r%u, 3;\n", w->depth, random_next(w, R));
    w->uniform = same;
    fprintf(w->file, "L%u:\n", label);
    w->depth++;
    random_statements(w, 1 + random_next(w, 5));
    w->depth--;
    w->uniform = uniform;
    fprintf(w->file, "sub.s32 %%n%u, %%n%u, 1; setp.gt.s32 %%more, %%n%u, 0;\n@%%more bra L%u;\n", w->depth,
            w->depth, w->depth, label);
}

static void indexed_branch(struct writer *w)
{
    uint32_t label = w->labels++;
    bool uniform = w->uniform;
    w->uniform = false;
    fprintf(w->file,
            "and.b32 %%at, %%r%u, 1;\n{ T%u: .branchtargets B%ua, B%ub;\nbrx.idx %%at, T%u; }\nB%ua:\n",
            random_next(w, R), label, label, label, label, label);
    random_statements(w, 2);
    fprintf(w->file, "bra B%uc;\nB%ub:\n", label, label);
    random_statements(w, 2);
    fprintf(w->file, "B%uc:\n", label);
    w->uniform = uniform;
}

static void call(struct writer *w)
{
    uint32_t a = random_next(w, R), b = random_next(w, R);
    if (random_next(w, 2)) {
        fprintf(w->file, "call (%%r%u), helper, (%%r%u, %%r%u);\n", random_next(w, R), a, b);
        return;
    }
    fprintf(w->file,
            "{ .param .b32 x0; .param .b32 x1; .param .b32 y; st.param.b32 [x0], %%r%u; st.param.b32 [x1], "
            "%%r%u;\n"
            "P%u: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);\n"
            "mov.u64 %%a, other; call (y), %%a, (x0, x1), P%u; ld.param.b32 %%r%u, [y]; }\n",
            a, b, w->labels, w->labels, random_next(w, R));
    w->labels++;
}

/* A predicate that follows from the thread's place; it mostly changes within the block. */
static void compare_place(struct writer *w, uint32_t q)
{
    static const char *const comparisons[] = {"eq", "ne", "lt", "le", "gt", "ge"};
    static const int32_t factors[] = {1, 1, 1, -1, 4, -4, 3, 12};
    const char *comparison = comparisons[random_next(w, 6)];
    int32_t factor = factors[random_next(w, 8)];
    uint32_t there = random_next(w, 3) == 0 ? random_number(w)
                     : random_next(w, 2)    ? (random_next(w, 2) ? 0 : 0x80000000u)
                                            : random_next(w, 300);
    uint32_t start =
        there - (uint32_t)factor * random_next(w, w->threads); /* a thread of the block is there */
    uint32_t to = random_next(w, 3) == 0 ? random_next(w, 2) * 0x80000000u
                                         : start + (uint32_t)factor * random_next(w, w->threads);
    fprintf(w->file, "mov.u32 x0, %%tid.x; mad.lo.s32 x1, x0, %d, %d;\n", factor, (int32_t)start);
    switch (random_next(w, 6)) {
    case 0:
    case 1:
        fprintf(w->file, "setp.%s.s32 q%u, x1, %d;\n", comparison, q, (int32_t)to);
        break;
    case 2:
        fprintf(w->file, "setp.%s.u32 q%u, x1, %u;\n", comparison, q, to);
        break;
    case 3:
        fprintf(w->file, "mov.u32 x2, %u; setp.%s.u32 q%u, x2, x1;\n", to, comparison, q);
        break;
    case 4:
        fprintf(w->file, "cvt.s64.s32 y0, x1; shl.b64 y1, y0, 3; setp.%s.s64 q%u, y1, %lld;\n", comparison, q,
                8LL * (int32_t)to);
        break;
    default:
        fprintf(w->file, "mul.wide.u32 y0, x1, 4; setp.%s.u64 q%u, y0, %llu;\n", comparison, q, 4ULL * to);
        break;
    }
}

/* One or two of them decide who does what follows. */
void random_test_of_place(struct writer *w)
{
    static const char *const ways[] = {"and", "or", "xor"};
    uint32_t label = w->labels++, tests = 1 + random_next(w, 2);
    bool uniform = w->uniform;
    if (uniform && !w->alone)
        fprintf(w->file, "bar.sync 1;\n");
    fprintf(w->file, "{ .reg .pred q<3>;\n");
    for (uint32_t i = 0; i < tests; i++) { /* registers of their own, so that they have one writer each */
        fprintf(w->file, "{ .reg .b32 x<3>; .reg .b64 y<2>;\n");
        compare_place(w, i);
        fprintf(w->file, "}\n");
    }
    if (tests == 2)
        fprintf(w->file, "%s.pred q2, q0, q1;\n", ways[random_next(w, 3)]);
    fprintf(w->file, "@%sq%u bra X%u;\n", random_next(w, 2) ? "!" : "", tests == 2 ? 2 : 0, label);
    w->uniform = false;
    random_statements(w, 1 + random_next(w, 3));
    w->uniform = uniform;
    fprintf(w->file, "X%u: }\n", label);
}

/* Turns as of a loop over the grid, or the steps of a tree: ever fewer threads have something to do. */
static void loop_by_place(struct writer *w)
{
    uint32_t label = w->labels++;
    bool uniform = w->uniform;
    w->uniform = false;
    if (uniform && !w->alone && random_next(w, 2)) {
        fprintf(
            w->file,
            "{ .reg .b32 s; .reg .pred q<2>; mov.u32 s, %u;\nL%u: setp.ge.u32 q0, %%tid, s; @q0 bra X%u;\n",
            random_next(w, w->threads + 1), label, label);
        random_statements(w, 1 + random_next(w, 2));
        fprintf(w->file, "X%u: bar.sync 2; shr.u32 s, s, %u; setp.ne.u32 q1, s, 0; @q1 bra L%u; }\n", label,
                2 + random_next(w, 2), label);
    } else {
        uint32_t end = random_next(w, 2 * w->threads);
        fprintf(w->file,
                "{ .reg .b32 i; .reg .pred q<2>; add.u32 i, %%tid, %u; setp.ge.u32 q0, i, %u; @q0 bra "
                "X%u;\nL%u:\n",
                random_next(w, 9), end, label, label);
        random_statements(w, 1 + random_next(w, 2));
        fprintf(w->file, "add.u32 i, i, %u; setp.lt.u32 q1, i, %u; @q1 bra L%u;\nX%u: }\n",
                w->threads / 2 + 1 + random_next(w, w->threads), end, label, label);
    }
    w->uniform = uniform;
}

static void statement(struct writer *w)
{
    uint32_t kind = random_next(w, 44);
    if (!w->in_function && kind >= 42 && w->depth < 3) {
        if (kind == 42 || w->alone)
            random_test_of_place(w);
        else
            loop_by_place(w);
        return;
    }
    if (w->alone && ((!w->in_function && kind >= 30 && kind < 35) || kind == 37))
        kind = 0;
    if (kind < 25)
        random_instruction(w);
    else if (kind < 28)
        random_move_of_bits(w);
    else if (kind < 30)
        random_own_memory(w);
    else if (kind < 33 && w->uniform)
        random_shared_memory(w);
    else if (kind < 35 && w->uniform && w->threads % 32 == 0)
        random_warp_operation(w);
    else if (kind == 35)
        fprintf(w->file, "red.global.add.u32 [%%counters+%u], %%r%u;\n", random_next(w, 16) * 4,
                random_next(w, R));
    else if (kind == 36 && !w->in_function)
        call(w);
    else if (w->depth < 3 && kind == 37)
        loop(w);
    else if (w->depth < 3 && kind == 38)
        branch(w);
    else if (w->depth < 3 && kind == 39)
        indexed_branch(w);
    else
        random_instruction(w);
}

void random_statements(struct writer *w, uint32_t count)
{
    w->depth++;
    for (uint32_t i = 0; i < count; i++)
        statement(w);
    w->depth--;
}
