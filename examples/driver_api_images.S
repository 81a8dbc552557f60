/* The kernels of driver_api.c as the build made them: PTX text with an end mark, and a fat binary. */
    .section .rodata
    .globl kernels_ptx
    .globl kernels_fatbin
    .balign 16
kernels_ptx:
    .incbin KERNELS_PTX
    .byte 0
    .balign 16
kernels_fatbin:
    .incbin KERNELS_FATBIN
    .section .note.GNU-stack, "", @progbits
