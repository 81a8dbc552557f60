/*
 * fuzz_groups.c - lanes that exchange values in group after group, each lane in its own pace, at few instructions: in loop form and
 * with a stack for each thread they get what is computed here.
 *
 * usage: fuzz_groups [FIRST_SEED [COUNT]]
 *
 * A group is a mask and the instruction at which its lanes meet. Every lane goes through the groups of its warp in one order, and
 * leaves out those that it is not in; so groups with lanes of their own are at work at the same time, and lanes with different masks
 * are at the same instruction. Each form has a process of its own, since it is chosen by the environment.
 */
#include "softgpu/compiler/compiler.h"
#include "softgpu/exec/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LANES      32u
#define WARPS      3u
#define GROUPS_MAX 60u
#define SECONDS    900u /* that one form may take; a kernel that hangs is ended by SIGALRM */

enum { BALLOT, SHUFFLE, SUM, MATCH, ELECT, N_MEETINGS };

struct group {
    uint32_t mask, meeting;
};

static const char *const forms[] = {"", "-loops"};

static const char text[] =
    ".version 8.7\n.target sm_90\n.address_size 64\n"
    ".visible .entry k(.param .u64 groups, .param .u64 out, .param .u32 n) {\n"
    ".reg .b64 %groups, %out, %at; .reg .b32 %mask, %meeting, %i, %n, %tid, %lane, %own, %v, %h, %y;\n"
    ".reg .pred %p, %q;\n"
    "ld.param.u64 %groups, [groups]; ld.param.u64 %out, [out]; ld.param.u32 %n, [n];\n"
    "mov.u32 %lane, %laneid; mov.u32 %tid, %tid.x; shr.u32 %y, %tid, 5; mul.lo.u32 %y, %y, %n;\n"
    "mad.wide.u32 %groups, %y, 8, %groups; mad.wide.u32 %out, %tid, 4, %out;\n"
    "mov.u32 %i, 0; mov.u32 %h, %tid; mov.u32 %own, 1; shl.b32 %own, %own, %lane;\n"
    "NEXT: setp.ge.u32 %p, %i, %n; @%p bra END;\n"
    "mad.wide.u32 %at, %i, 8, %groups; ld.global.v2.u32 {%mask, %meeting}, [%at]; add.u32 %i, %i, 1;\n"
    "and.b32 %y, %mask, %own; setp.eq.u32 %p, %y, 0; @%p bra NEXT;\n"
    "{ T: .branchtargets BALLOT, SHUFFLE, SUM, MATCH, ELECT; brx.idx %meeting, T; }\n"
    "BALLOT: and.b32 %y, %h, 1; setp.ne.u32 %q, %y, 0; vote.sync.ballot.b32 %v, %q, %mask; bra MET;\n"
    "SHUFFLE: bfind.u32 %y, %mask; shfl.sync.idx.b32 %v, %h, %y, 31, %mask; bra MET;\n"
    "SUM: redux.sync.add.u32 %v, %h, %mask; bra MET;\n"
    "MATCH: and.b32 %y, %h, 3; match.any.sync.b32 %v, %y, %mask; bra MET;\n"
    "ELECT: elect.sync %v|%q, %mask; selp.b32 %y, 77, 0, %q; add.u32 %v, %v, %y;\n"
    "MET: mad.lo.u32 %h, %h, 0x9E3779B1, %v; shr.u32 %y, %h, 15; xor.b32 %h, %h, %y; bra NEXT;\n"
    "END: st.global.u32 [%out], %h; ret; }\n";

static uint64_t state;

static uint32_t next(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 20) % below);
}

/* One of a kind: any lanes, few, a half of one end or one lane, two lanes and now and then all. */
static uint32_t draw_mask(uint32_t kind)
{
    uint32_t any = next(UINT32_MAX) + 1, lane = next(LANES);
    switch (kind) {
    case 0:
        return any;
    case 1: {
        uint32_t few = any & next(UINT32_MAX) & next(UINT32_MAX);
        return few != 0 ? few : 1u << lane;
    }
    case 2:
        return any % 4 == 0   ? UINT32_MAX
               : any % 4 == 1 ? 1u << lane
               : any % 4 == 2 ? UINT32_MAX >> lane
                              : UINT32_MAX << lane;
    default:
        return any % 10 == 0 ? UINT32_MAX : 1u << lane | 1u << next(LANES);
    }
}

/* What a lane of the group gets from all of them. */
static uint32_t met(const struct group *group, const uint32_t values[LANES], uint32_t lane)
{
    uint32_t first = (uint32_t)__builtin_ctz(group->mask), last = 31 - (uint32_t)__builtin_clz(group->mask),
             result = 0;
    if (group->meeting == SHUFFLE)
        return values[last];
    if (group->meeting == ELECT)
        return first + (lane == first ? 77 : 0);
    for (uint32_t l = 0; l < LANES; l++) {
        if (!(group->mask >> l & 1))
            continue;
        if (group->meeting == SUM)
            result += values[l];
        else if (group->meeting == BALLOT ? values[l] & 1 : (values[l] & 3) == (values[lane] & 3))
            result |= 1u << l;
    }
    return result;
}

static void meet_all(const struct group *groups, uint32_t n, uint32_t values[LANES])
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t before[LANES];
        memcpy(before, values, sizeof(before));
        for (uint32_t lane = 0; lane < LANES; lane++) {
            if (!(groups[i].mask >> lane & 1))
                continue;
            uint32_t value = before[lane] * 0x9E3779B1u + met(&groups[i], before, lane);
            values[lane] = value ^ value >> 15;
        }
    }
}

static bool is_right(const struct sg_kernel *kernel, void *code, uint64_t seed)
{
    static struct group groups[WARPS * GROUPS_MAX];
    static uint32_t out[WARPS * LANES];
    state = (seed + 1) * 0x9e3779b97f4a7c15u;
    uint32_t n = 1 + next(GROUPS_MAX), warps = 1 + next(WARPS), kind = next(4), good = 0;
    for (uint32_t i = 0; i < warps * n; i++)
        groups[i] = (struct group){draw_mask(kind), next(N_MEETINGS)};
    const struct {
        const struct group *groups;
        uint32_t *out, n;
    } params = {groups, out, n};
    struct sg_launch launch = {.kernel_name = "k",
                               .code = code,
                               .form = kernel->form,
                               .grid = {1, 1, 1},
                               .block = {warps * LANES, 1, 1},
                               .params = (const void *)&params,
                               .params_size = kernel->params_size};
    struct sg_fault_report report;
    int fault = (int)sg_exec_run(&launch, &report);
    for (uint32_t warp = 0; warp < warps; warp++) {
        uint32_t values[LANES];
        for (uint32_t lane = 0; lane < LANES; lane++)
            values[lane] = warp * LANES + lane;
        meet_all(groups + (size_t)warp * n, n, values);
        good += memcmp(values, out + (size_t)warp * LANES, sizeof(values)) == 0;
    }
    if (fault != 0 || good != warps)
        printf("seed %llu: fault %d, %u of %u warps are right\n", (unsigned long long)seed, fault, good,
               warps);
    return fault == 0 && good == warps;
}

static int run_all(uint64_t first, uint64_t seeds)
{
    struct sg_text log = {0};
    struct sg_program *program = NULL;
    void *code = NULL;
    uint64_t bad = 0;
    if (sg_program_create(text, strlen(text), 120, &log, &program) != SG_COMPILE_OK ||
        sg_program_code(program, 0, &log, &code) != SG_COMPILE_OK) {
        printf("it does not compile: %s\n", log.data ? log.data : "");
        return 2;
    }
    for (uint64_t seed = first; seed < first + seeds; seed++)
        bad += !is_right(sg_program_kernel(program, 0), code, seed);
    sg_program_destroy(program);
    sg_text_fini(&log);
    return bad != 0;
}

int main(int count, char **arguments)
{
    uint64_t first = count > 1 ? strtoull(arguments[1], NULL, 0) : 1;
    uint64_t seeds = count > 2 ? strtoull(arguments[2], NULL, 0) : 1000;
    bool bad = false;
    setvbuf(stdout, NULL, _IOLBF, 0);
    setenv("SOFTGPU_CACHE", "off", 1);
    for (size_t form = 0; form < sizeof(forms) / sizeof(forms[0]); form++) {
        pid_t child = fork();
        if (child == 0) {
            setenv("SOFTGPU_OPT", forms[form], 1);
            alarm(SECONDS);
            _exit(run_all(first, seeds));
        }
        int status = 1;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            printf("SOFTGPU_OPT='%s': the process ends with status %#x\n", forms[form], (unsigned)status);
            bad = true;
        }
    }
    printf("%s: seeds %llu to %llu\n", bad ? "failed" : "ok", (unsigned long long)first,
           (unsigned long long)(first + seeds - 1));
    return bad;
}
