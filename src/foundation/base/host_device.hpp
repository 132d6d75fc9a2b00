// SPDX-License-Identifier: Apache-2.0
// Marks a function that the host compiler and nvcc both compile, for both sides: arithmetic whose
// bits must be those of the other side. Such a function calls no library but <cmath>'s exact ones.
#pragma once

#ifdef __CUDACC__
#define TRIREME_HOST_DEVICE __host__ __device__
#else
#define TRIREME_HOST_DEVICE
#endif
