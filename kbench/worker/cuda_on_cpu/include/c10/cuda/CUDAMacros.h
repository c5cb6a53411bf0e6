#pragma once
#define C10_CUDA_API
