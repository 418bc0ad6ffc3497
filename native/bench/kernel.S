// Licensed under the Apache License, Version 2.0. See LICENSE.
        .section .rodata, "a", %progbits
        .globl  sar_bench_kernels
        .balign 4096
sar_bench_kernels:
        .incbin "one_barrier.ptx"
        .byte   0
        .section .note.GNU-stack, "", %progbits
