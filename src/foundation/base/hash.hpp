// SPDX-License-Identifier: Apache-2.0
// 64-bit hashes against accidents (damaged files, diverged ranks), not against adversaries.
//
// hash_bytes    XXH64 of a run of bytes, for small things read whole.
// hash_elements the sum of element_hash (base/mix.hpp), a strong mix of (index, bits), modulo 2^64
//               over the elements of a tensor: a hash that does not depend on how the tensor was
//               cut or in which order the pieces were seen, and that changes when two elements are
//               swapped.
//
// Source: XXH64, Y. Collet, "xxHash fast digest algorithm", format description 0.1.1, with its
// five primes; summing hashes: Bellare, Micciancio 1997, "AdHash".
#pragma once

#include <cstdint>
#include <string_view>

#include "base/view.hpp"

namespace trireme {

/// Sum of element_hash(begin + i, bits of data[i]) modulo 2^64. Host memory.
std::uint64_t hash_elements(ConstView data, std::int64_t begin);

/// XXH64.
std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t seed = 0);

}  // namespace trireme
