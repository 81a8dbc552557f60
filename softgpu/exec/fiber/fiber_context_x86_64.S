/*
 * fiber_context_x86_64.S - the context switch for x86-64 (System V ABI); see fiber_context.h.
 *
 * The resumed side is entered by ret, not by an indirect jump: the fibers of a block mostly wait in the same
 * call chain, so the processor's stack of return addresses predicts this return and those that follow, as if
 * the same fiber had gone on. With a jump that stack would be off by one for all of them.
 */
    .text

    .globl  sg_fiber_context_switch
    .hidden sg_fiber_context_switch
    .type   sg_fiber_context_switch, @function
    .p2align 4
sg_fiber_context_switch:
    .cfi_startproc
    pushq   %rbp
    pushq   %rbx
    pushq   %r12
    pushq   %r13
    pushq   %r14
    pushq   %r15
    movq    %rsp, (%rdi)
    movq    (%rsi), %rsp
    popq    %r15
    popq    %r14
    popq    %r13
    popq    %r12
    popq    %rbx
    popq    %rbp
    ret
    .cfi_endproc
    .size   sg_fiber_context_switch, . - sg_fiber_context_switch

    .globl  sg_fiber_context_entry
    .hidden sg_fiber_context_entry
    .type   sg_fiber_context_entry, @function
    .p2align 4
sg_fiber_context_entry:
    .cfi_startproc
    .cfi_undefined rip
    movq    %r12, %rdi
    call    *%r13
    ud2
    .cfi_endproc
    .size   sg_fiber_context_entry, . - sg_fiber_context_entry

    .section .note.GNU-stack, "", @progbits
