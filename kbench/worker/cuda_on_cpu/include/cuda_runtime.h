#pragma once
#include "kbench_cuda/device.h"
