/*
 * random_meetings.c - barriers of several kinds with memory of the block between them, operations of warps
 * with full and partial masks.
 */
#include "random_writer.h"

/* All threads of the block wait for all others, in one of the ways there are. */
static void meet(struct writer *w, uint32_t barrier)
{
    uint32_t label = w->labels++;
    switch (random_next(w, 4)) {
    case 0: /* a barrier in memory; some of the threads do other things before they look */
        fprintf(w->file, "mbarrier.arrive.shared.b64 %%state, [mb];\n");
        if (random_next(w, 2)) {
            fprintf(w->file, "@%%p%u bra A%u;\n", random_next(w, P), label);
            random_instruction(w);
            fprintf(w->file, "A%u:\n", label);
        }
        fprintf(w->file, "M%u: mbarrier.%s_wait.shared.b64 %%more, [mb], %%state;\n@!%%more bra M%u;\n",
                label, random_next(w, 2) ? "try" : "test", label);
        break;
    case 1: /* as programs do it by hand: one thread looks for all, or each for itself */
        fprintf(w->file,
                "membar.cta; mov.u32 %%base, 1; atom.shared.add.u32 %%base, [counts+8], %%base;\n"
                "div.u32 %%base, %%base, %u; mad.lo.u32 %%base, %%base, %u, %u;\n",
                w->threads, w->threads, w->threads);
        if (random_next(w, 2))
            fprintf(w->file, "setp.ne.u32 %%more, %%tid, %u; @%%more bra A%u;\n", random_next(w, w->threads),
                    label);
        fprintf(w->file,
                "M%u: ld.volatile.shared.u32 %%at, [counts+8]; setp.lt.u32 %%more, %%at, %%base;\n%s"
                "@%%more bra M%u;\nA%u: bar.sync %u;\n",
                label, random_next(w, 3) == 0 ? "@%more nanosleep.u32 20;\n" : "", label, label, barrier);
        break;
    default:
        fprintf(w->file, "bar.sync %u;\n", barrier);
        break;
    }
}

/* What the threads of the block leave for each other, between two barriers. */
void random_shared_memory(struct writer *w)
{
    uint32_t distance = random_next(w, 70), barrier = random_next(w, 3);
    fprintf(w->file, "st.shared.u32 [%%own], %%r%u;\n", random_next(w, R));
    meet(w, barrier);
    fprintf(w->file,
            "add.u32 %%at, %%tid, %u; rem.u32 %%at, %%at, %u; shl.b32 %%at, %%at, 2; mov.u32 %%base, sv; "
            "add.u32 %%at, "
            "%%at, %%base; ld.shared.u32 %%r%u, [%%at];\n",
            distance, w->threads, random_next(w, R));
    meet(w, barrier);
    switch (random_next(w, 4)) {
    case 0:
        fprintf(w->file, "bar.red.popc.u32 %%r%u, 0, %%p%u;\n", random_next(w, R), random_next(w, P));
        break;
    case 1:
        fprintf(w->file, "bar.red.or.pred %%p%u, 0, %%p%u;\n", random_next(w, P), random_next(w, P));
        break;
    case 2: /* counts of values in shared memory, all added before anybody looks */
        fprintf(
            w->file,
            "bar.sync 0;\nst.shared.u32 [counts+4], 0;\nbar.sync 0;\nred.shared.add.u32 [counts+4], %%r%u;\n"
            "bar.sync 0;\nld.shared.u32 %%r%u, [counts+4];\nbar.sync 0;\n",
            random_next(w, R), random_next(w, R));
        break;
    default:
        break;
    }
}

void random_warp_operation(struct writer *w)
{
    static const char *const modes[] = {"up", "down", "bfly", "idx"};
    uint32_t label = w->labels++, p = random_next(w, P), r = random_next(w, R);
    bool partial = random_next(w, 2) != 0;
    if (partial) /* the lanes for which the predicate holds, by themselves */
        fprintf(w->file, "vote.sync.ballot.b32 %%mask, %%p%u, -1;\n@!%%p%u bra W%u;\n", p, p, label);
    else
        fprintf(w->file, "mov.u32 %%mask, -1;\n");
    switch (random_next(w, 6)) {
    case 0:
    case 1: { /* from lanes that take part: others' values are not defined */
        const char *mode = modes[random_next(w, 4)];
        if (partial)
            fprintf(w->file, "shfl.sync.idx.b32 %%r%u, %%r%u, %%laneid, 31, %%mask;\n", random_next(w, R), r);
        else
            fprintf(w->file, "shfl.sync.%s.b32 %%r%u|%%p%u, %%r%u, %u, %u, %%mask;\n", mode,
                    random_next(w, R), random_next(w, P), r, random_next(w, 32),
                    mode[0] == 'u'      ? 0
                    : random_next(w, 2) ? 31
                                        : 0x181f);
        break;
    }
    case 2:
        fprintf(w->file, "vote.sync.%s.pred %%p%u, %%p%u, %%mask;\n", random_next(w, 2) ? "any" : "all",
                random_next(w, P), random_next(w, P));
        break;
    case 3:
        fprintf(w->file, "and.b32 %%r%u, %%r%u, 3; match.any.sync.b32 %%r%u, %%r%u, %%mask;\n", r, r,
                random_next(w, R), r);
        break;
    case 4:
        fprintf(w->file, "match.all.sync.b64 %%r%u|%%p%u, %%rd%u, %%mask;\n", random_next(w, R),
                random_next(w, P), random_next(w, RD));
        break;
    default: {
        static const char *const ops[] = {"add.u32", "min.s32", "max.u32", "and.b32", "xor.b32"};
        fprintf(w->file, "redux.sync.%s %%r%u, %%r%u, %%mask;\n", ops[random_next(w, 5)], random_next(w, R),
                r);
        break;
    }
    }
    if (partial)
        fprintf(w->file, "W%u:\n", label);
    fprintf(w->file, "bar.warp.sync -1;\n");
}
