#pragma once
#include "kbench_cuda/device.h"

#define CUDART_INF_F __builtin_huge_valf()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF __builtin_huge_val()
#define CUDART_NAN __builtin_nan("")
#define CUDART_PI_F 3.141592654f
#define CUDART_PIO2_F 1.570796327f
#define CUDART_PI 3.1415926535897931e+0
#define CUDART_SQRT_TWO_F 1.414213562f
#define CUDART_SQRT_HALF_F 0.707106781f
#define CUDART_LN2_F 0.693147181f
#define CUDART_L2E_F 1.442695041f
#define CUDART_MAX_NORMAL_F 3.402823466e+38f
#define CUDART_MIN_DENORM_F 1.401298464e-45f
#define CUDART_ZERO_F 0.0f
#define CUDART_ONE_F 1.0f
