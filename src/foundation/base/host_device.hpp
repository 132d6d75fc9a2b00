// SPDX-License-Identifier: Apache-2.0
// Marks a function that both the host compiler and nvcc compile, and whose results must have the
// same bits on both. Such a function calls no library except exact functions of <cmath>.
#pragma once

#ifdef __CUDACC__
#define TRIREME_HOST_DEVICE __host__ __device__
#else
#define TRIREME_HOST_DEVICE
#endif
