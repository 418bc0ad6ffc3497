// Licensed under the Apache License, Version 2.0. See LICENSE.
#include "kernel_images.hpp"

#define SAR_IMAGE(name)                                           \
  extern "C" {                                                    \
  extern const char sar_image_##name[], sar_image_##name##_end[]; \
  }
SAR_IMAGE(ptx_0)
SAR_IMAGE(ptx_1)
SAR_IMAGE(ptx_2)
SAR_IMAGE(ptx_3)
SAR_IMAGE(ptx_4)
SAR_IMAGE(ptx_5)
SAR_IMAGE(gfx90a)
SAR_IMAGE(gfx942)
SAR_IMAGE(gfx950)
#ifdef SAR_HAVE_SM_90
SAR_IMAGE(sm_90_0)
SAR_IMAGE(sm_90_1)
SAR_IMAGE(sm_90_2)
SAR_IMAGE(sm_90_3)
SAR_IMAGE(sm_90_4)
SAR_IMAGE(sm_90_5)
#endif

namespace sar::gpu {

const Image *embedded_images(size_t *count) {
#define SAR_ENTRY(architecture, type, name)                            \
  Image {                                                              \
    architecture, type, sar_image_##name,                              \
        static_cast<size_t>(sar_image_##name##_end - sar_image_##name) \
  }
  static const Image images[] = {
#ifdef SAR_HAVE_SM_90
      SAR_ENTRY("sm_90", 0, sm_90_0),      SAR_ENTRY("sm_90", 1, sm_90_1),
      SAR_ENTRY("sm_90", 2, sm_90_2),      SAR_ENTRY("sm_90", 3, sm_90_3),
      SAR_ENTRY("sm_90", 4, sm_90_4),      SAR_ENTRY("sm_90", 5, sm_90_5),
#endif
      SAR_ENTRY("gfx950", kTypes, gfx950), SAR_ENTRY("gfx942", kTypes, gfx942),
      SAR_ENTRY("gfx90a", kTypes, gfx90a), SAR_ENTRY("ptx", 0, ptx_0),
      SAR_ENTRY("ptx", 1, ptx_1),          SAR_ENTRY("ptx", 2, ptx_2),
      SAR_ENTRY("ptx", 3, ptx_3),          SAR_ENTRY("ptx", 4, ptx_4),
      SAR_ENTRY("ptx", 5, ptx_5),
  };
  *count = sizeof images / sizeof *images;
  return images;
}

}  // namespace sar::gpu
