// SPDX-License-Identifier: Apache-2.0
// Products through cuBLASLt. It counts in columns where we count in rows: a row-major C[M, N] is
// its column-major C'[N, M] = B'·A', so B is its first operand and A its second, and what is stored
// transposed for us is the opposite for it.
//
// 1. The algorithm is the first that cuBLASLt's heuristics offer for (shape, dtypes, alignment of
//    the addresses), asked once and kept: a function of these alone, so that runs repeat to the
//    bit. Nothing is timed, because the fastest of today may not be that of tomorrow.
// 2. Sums that several blocks share go through the workspace in fp32, in a fixed order; schemes
//    that add in place, in the order of arrival, or in the output's dtype, are not asked for.
// 3. fp32 is multiplied in fp32, not in TF32.
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include <cublasLt.h>
#include <fmt/format.h>

#include "base/error.hpp"

#include "device/cuda/handle.hpp"

#include "ops/dispatch.hpp"
#include "ops/elementwise_cuda.hpp"
#include "ops/matmul_backend.hpp"

namespace trireme::ops {
namespace {

void check(cublasStatus_t status, const char* statement, int line) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw DeviceError("cuBLASLt", statement, cublasLtGetStatusString(status), __FILE__, line);
}
#define TRIREME_CUBLAS(call) check((call), #call, __LINE__)

/// One per device.
struct Library {
  Library() { TRIREME_CUBLAS(cublasLtCreate(&handle)); }
  ~Library() { cublasLtDestroy(handle); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  cublasLtHandle_t handle = nullptr;
};

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// A dense column-major matrix.
struct Layout {
  Layout(DType dtype, std::int64_t rows, std::int64_t columns) {
    TRIREME_CUBLAS(cublasLtMatrixLayoutCreate(&raw, type_of(dtype),
                                              static_cast<std::uint64_t>(rows),
                                              static_cast<std::uint64_t>(columns), rows));
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(raw); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  cublasLtMatrixLayout_t raw = nullptr;
};

struct Description {
  Description() { TRIREME_CUBLAS(cublasLtMatmulDescCreate(&raw, CUBLAS_COMPUTE_32F, CUDA_R_32F)); }
  ~Description() { cublasLtMatmulDescDestroy(raw); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    TRIREME_CUBLAS(cublasLtMatmulDescSetAttribute(raw, attribute, &value, sizeof value));
  }

  cublasLtMatmulDesc_t raw = nullptr;
};

struct Preference {
  Preference() { TRIREME_CUBLAS(cublasLtMatmulPreferenceCreate(&raw)); }
  ~Preference() { cublasLtMatmulPreferenceDestroy(raw); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;

  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    TRIREME_CUBLAS(cublasLtMatmulPreferenceSetAttribute(raw, attribute, &value, sizeof value));
  }

  cublasLtMatmulPreference_t raw = nullptr;
};

/// The largest power of two up to 256 that divides the address.
std::uint32_t alignment_of(const std::byte* at) {
  return 1U << static_cast<unsigned>(
             std::countr_zero(reinterpret_cast<std::uintptr_t>(at) | std::uintptr_t{256}));
}

/// Of b, a and c, as cuBLASLt counts them.
using Alignments = std::array<std::uint32_t, 3>;

void expect_multipliable(const MatmulShape& s) {
  if (s.a != s.b || (s.c != s.a && s.c != DType::f32))
    throw DeviceError("cuBLASLt",
                      fmt::format("matmul of {} and {} into {}", name(s.a), name(s.b), name(s.c)),
                      "factors of one dtype, and a result of theirs or fp32", __FILE__, __LINE__);
}

class MatmulCuda final : public Matmul::Implementation {
 public:
  /// Requires: expect_multipliable(s) has passed.
  MatmulCuda(device::Device& device, const MatmulShape& s)
      : shape_(s),
        library_(device::cuda::kept_with<Library>(device)),
        first_(s.b, s.b_transposed ? s.k : s.n, s.b_transposed ? s.n : s.k),
        second_(s.a, s.a_transposed ? s.m : s.k, s.a_transposed ? s.k : s.m),
        result_(s.c, s.n, s.m),
        // A bias of another dtype than the result is written to the result beforehand.
        fused_bias_(s.bias && s.b == s.c && !s.accumulate) {
    description_.set(CUBLASLT_MATMUL_DESC_TRANSA, s.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    description_.set(CUBLASLT_MATMUL_DESC_TRANSB, s.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (fused_bias_) {
      description_.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      description_.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(s.b));
    }
  }

  void run(const std::byte* a,
           const std::byte* b,
           const std::byte* bias,
           std::byte* c,
           device::Stream& stream) override {
    const auto raw = device::cuda::handle_of(stream);
    const bool separate_bias = shape_.bias && !fused_bias_;
    if (separate_bias)
      spread_bias(c, bias, raw);
    if (fused_bias_)
      description_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias));
    const cublasLtMatmulAlgo_t& algorithm =
        algorithm_for({alignment_of(b), alignment_of(a), alignment_of(c)});
    const float alpha = 1, beta = shape_.accumulate || separate_bias ? 1 : 0;
    TRIREME_CUBLAS(cublasLtMatmul(library_.handle, description_.raw, &alpha, b, first_.raw, a,
                                  second_.raw, &beta, c, result_.raw, c, result_.raw, &algorithm,
                                  device::cuda::workspace_of(stream), device::cuda::workspace_bytes,
                                  raw));
  }

 private:
  void spread_bias(std::byte* c, const std::byte* bias, device::cuda::RawStream raw) const {
    with_float_type(shape_.c, [&](auto zero_c) {
      with_float_type(shape_.b, [&](auto zero_b) {
        using C = decltype(zero_c);
        using B = decltype(zero_b);
        cuda::spread_bias(reinterpret_cast<C*>(c), reinterpret_cast<const B*>(bias), shape_.m,
                          shape_.n, shape_.accumulate, raw);
      });
    });
  }

  const cublasLtMatmulAlgo_t& algorithm_for(const Alignments& alignments) {
    for (const Known& known : known_)
      if (known.alignments == alignments)
        return known.algorithm;
    Preference preference;
    preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, device::cuda::workspace_bytes);
    preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments[0]);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments[1]);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments[2]);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments[2]);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    TRIREME_CUBLAS(cublasLtMatmulAlgoGetHeuristic(library_.handle, description_.raw, first_.raw,
                                                  second_.raw, result_.raw, result_.raw,
                                                  preference.raw, 1, &found, &count));
    if (count == 0)
      throw DeviceError("cuBLASLt",
                        fmt::format("matmul {} x {} x {}, {} x {} -> {}", shape_.m, shape_.n,
                                    shape_.k, name(shape_.a), name(shape_.b), name(shape_.c)),
                        fmt::format("no algorithm for addresses aligned to {}, {} and {} bytes",
                                    alignments[1], alignments[0], alignments[2]),
                        __FILE__, __LINE__);
    return known_.emplace_back(Known{alignments, found.algo}).algorithm;
  }

  struct Known {
    Alignments alignments;
    cublasLtMatmulAlgo_t algorithm;
  };

  const MatmulShape shape_;
  Library& library_;
  Description description_;
  Layout first_, second_, result_;
  const bool fused_bias_;
  std::vector<Known> known_;
};

}  // namespace

std::unique_ptr<Matmul::Implementation> make_matmul_cuda(device::Device& device,
                                                         const MatmulShape& shape) {
  expect_multipliable(shape);
  return std::make_unique<MatmulCuda>(device, shape);
}

}  // namespace trireme::ops
