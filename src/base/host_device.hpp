// SPDX-License-Identifier: Apache-2.0
// Marks a function that the host compiler and nvcc both compile, for both sides.
#pragma once

#ifdef __CUDACC__
#define TRIREME_HOST_DEVICE __host__ __device__
#else
#define TRIREME_HOST_DEVICE
#endif
