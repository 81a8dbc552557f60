/*
 * cooperative_groups.c - cooperative groups for programs that call the device runtime library: handles and
 * barriers.
 *
 * The handle of the grid is the address of its workspace (%envreg1, %envreg2), 0 if it was not launched
 * cooperatively. Its word 8 counts the blocks that have come to a barrier, as nvcc's own code counts in word
 * 1: block 0 adds what makes the sum of all 2^31, so every barrier flips the highest bit, which the blocks
 * wait for.
 */
#include "softgpu/compiler/cooperative_groups.h"

#include <string.h>

static const char cooperative_groups[] =
    ".version 6.4\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".weak .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)\n"
    "{\n"
    "    .reg .pred %grid;\n"
    "    .reg .b32 %scope, %low, %high;\n"
    "    .reg .b64 %workspace;\n"
    "    ld.param.b32 %scope, [scope];\n"
    "    mov.u32 %high, %envreg1;\n"
    "    mov.u32 %low, %envreg2;\n"
    "    mov.b64 %workspace, {%low, %high};\n"
    "    setp.eq.s32 %grid, %scope, 1;\n" /* cudaCGScopeGrid */
    "    selp.b64 %workspace, %workspace, 0, %grid;\n"
    "    st.param.b64 [handle], %workspace;\n"
    "    ret;\n"
    "}\n"
    ".weak .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)\n"
    "{\n"
    "    .reg .pred %no, %other, %later, %wait;\n"
    "    .reg .b32 %x, %y, %z, %n, %m, %add, %before, %now;\n"
    "    .reg .b64 %handle;\n"
    "    ld.param.b64 %handle, [handle];\n"
    "    setp.eq.s64 %no, %handle, 0;\n"
    "    @%no bra refuse;\n"
    "    bar.sync 0;\n"
    "    mov.u32 %x, %tid.x;\n"
    "    mov.u32 %y, %tid.y;\n"
    "    mov.u32 %z, %tid.z;\n"
    "    or.b32 %x, %x, %y;\n"
    "    or.b32 %x, %x, %z;\n"
    "    setp.ne.s32 %other, %x, 0;\n"
    "    @%other bra together;\n"
    "    mov.u32 %x, %ctaid.x;\n"
    "    mov.u32 %y, %ctaid.y;\n"
    "    mov.u32 %z, %ctaid.z;\n"
    "    or.b32 %x, %x, %y;\n"
    "    or.b32 %x, %x, %z;\n"
    "    mov.u32 %n, %nctaid.x;\n"
    "    mov.u32 %m, %nctaid.y;\n"
    "    mul.lo.s32 %n, %n, %m;\n"
    "    mov.u32 %m, %nctaid.z;\n"
    "    mul.lo.s32 %n, %n, %m;\n"
    "    sub.s32 %n, 0x80000001, %n;\n"
    "    setp.ne.s32 %later, %x, 0;\n"
    "    selp.b32 %add, 1, %n, %later;\n"
    "    fence.acq_rel.gpu;\n"
    "    atom.add.u32 %before, [%handle+32], %add;\n"
    "again:\n"
    "    ld.acquire.gpu.u32 %now, [%handle+32];\n"
    "    xor.b32 %now, %now, %before;\n"
    "    setp.ge.s32 %wait, %now, 0;\n"
    "    @%wait bra again;\n"
    "    fence.acq_rel.gpu;\n"
    "together:\n"
    "    bar.sync 0;\n"
    "    st.param.b32 [result], 0;\n"
    "    ret;\n"
    "refuse:\n"
    "    st.param.b32 [result], 1;\n" /* cudaErrorInvalidValue */
    "    ret;\n"
    "}\n"
    ".weak .func (.param .b32 result) cudaCGSynchronizeGrid(.param .b64 handle, .param .b32 flags)\n"
    "{\n"
    "    .reg .b32 %flags, %result;\n"
    "    .reg .b64 %handle;\n"
    "    ld.param.b64 %handle, [handle];\n"
    "    ld.param.b32 %flags, [flags];\n"
    "    {\n"
    "        .param .b64 to;\n"
    "        .param .b32 with;\n"
    "        .param .b32 got;\n"
    "        st.param.b64 [to], %handle;\n"
    "        st.param.b32 [with], %flags;\n"
    "        call.uni (got), cudaCGSynchronize, (to, with);\n"
    "        ld.param.b32 %result, [got];\n"
    "    }\n"
    "    st.param.b32 [result], %result;\n"
    "    ret;\n"
    "}\n";

const char *sg_cooperative_groups(const struct sg_source *sources, size_t count)
{
    static const char prefix[] = "cudaCG";
    for (size_t i = 0; i < count; i++)
        if (memmem(sources[i].ptx, sources[i].size, prefix, sizeof prefix - 1) != NULL)
            return cooperative_groups;
    return NULL;
}
