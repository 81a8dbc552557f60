/*
 * context_x86_64.S - the context switch for x86-64 (System V ABI); see context.h.
 *
 * The resumed side is entered by an indirect jump, not by ret: the return-address predictor would be wrong at
 * every switch, while the jump's target is nearly always the same.
 */
    .text

    .globl  sg_context_switch
    .hidden sg_context_switch
    .type   sg_context_switch, @function
    .p2align 4
sg_context_switch:
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
    popq    %rcx
    jmp     *%rcx
    .cfi_endproc
    .size   sg_context_switch, . - sg_context_switch

    .globl  sg_context_entry
    .hidden sg_context_entry
    .type   sg_context_entry, @function
    .p2align 4
sg_context_entry:
    .cfi_startproc
    .cfi_undefined rip
    movq    %r12, %rdi
    call    *%r13
    ud2
    .cfi_endproc
    .size   sg_context_entry, . - sg_context_entry

    .section .note.GNU-stack, "", @progbits
