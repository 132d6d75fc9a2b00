// SPDX-License-Identifier: Apache-2.0
// Compiles functions for several x86 levels. The loader chooses the highest level that the
// processor supports.
//
// 1. A marked function must not contain OpenMP regions: the region calls it. What it calls must be
//    inlined to be compiled for its level.
// 2. Bits may differ between levels where the body multiplies and adds in floating point, because
//    the compiler fuses these where the level can. Integers and additions alone do not differ.
#pragma once

// Sanitizers run before the loader's choice is safe, so they get the plain function; clang 14 does
// not clone templates. TRIREME_X86_LEVEL (the CMake option; default 4) omits higher levels, so that
// lower levels can be measured on a machine with AVX-512.
#ifndef TRIREME_X86_LEVEL
#define TRIREME_X86_LEVEL 4
#endif
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#if TRIREME_X86_LEVEL >= 4
#define TRIREME_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#elif TRIREME_X86_LEVEL == 3
#define TRIREME_CLONES __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define TRIREME_CLONES
#endif
/// Vectorizes loops regardless of the build's optimization level.
#define TRIREME_VECTOR_CLONES TRIREME_CLONES __attribute__((optimize("O3")))
#elif !defined(__x86_64__) && !defined(__clang__)
// On other processors (ARM, with NEON) there is only one level.
#define TRIREME_CLONES
#define TRIREME_VECTOR_CLONES __attribute__((optimize("O3")))
#else
#define TRIREME_CLONES
#define TRIREME_VECTOR_CLONES
#endif
