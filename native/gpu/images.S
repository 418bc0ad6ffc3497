// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// The compiled kernels, as they came from the compiler. The build puts their folder on the include path.
        .section .rodata, "a", %progbits
.macro image name, file
        .balign 4096
        .globl  sar_image_\name
        .hidden sar_image_\name
        .type   sar_image_\name, %object
sar_image_\name:
        .incbin "\file"
        .byte   0
        .globl  sar_image_\name\()_end
        .hidden sar_image_\name\()_end
sar_image_\name\()_end:
        .size   sar_image_\name, . - sar_image_\name
.endm
        image ptx_0, kernels.0.ptx
        image ptx_1, kernels.1.ptx
        image ptx_2, kernels.2.ptx
        image ptx_3, kernels.3.ptx
        image ptx_4, kernels.4.ptx
        image ptx_5, kernels.5.ptx
        image gfx90a, kernels.gfx90a.co
        image gfx942, kernels.gfx942.co
        image gfx950, kernels.gfx950.co
#ifdef SAR_HAVE_SM_90
        image sm_90_0, kernels.0.sm_90.cubin
        image sm_90_1, kernels.1.sm_90.cubin
        image sm_90_2, kernels.2.sm_90.cubin
        image sm_90_3, kernels.3.sm_90.cubin
        image sm_90_4, kernels.4.sm_90.cubin
        image sm_90_5, kernels.5.sm_90.cubin
#endif
        .section .note.GNU-stack, "", %progbits
