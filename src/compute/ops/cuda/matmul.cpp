// SPDX-License-Identifier: Apache-2.0
// Products through cuBLASLt. It is column-major, and we are row-major: our C[M, N] is its C'[N, M]
// = B'·A'. So B is its first operand and A its second, and the transposition flags refer to those.
// 1. By default the algorithm is the first that cuBLASLt's heuristics offer for (shape, dtypes,
//    alignment of the addresses), requested once and kept. It depends only on these, so runs are
//    bitwise reproducible. With ProductOptions::timed they are not: the fastest algorithm may
//    differ between runs and ranks.
// 2. Sums that several blocks share use the workspace in fp32, in a fixed order. Reduction schemes
//    in place, in order of arrival, or in the output's dtype are excluded.
// 3. fp32 is multiplied in fp32, not in TF32.
// 4. In bf16, GELU and its gradient are fused if cuBLASLt offers that for the shape; rows of Z must
//    be multiples of 8 elements. In fp32 they are separate passes, because the library's tanh is
//    not exact enough; in bf16 its error is below the rounding. With `timed`, a product that is
//    slower with its epilogue than with a separate GELU is not fused.
// 5. A bias is fused if it has the result's dtype, rows of the result are multiples of 16 bytes and
//    cuBLASLt offers it; else it is written to the result beforehand. For other rows cuBLASLt 13.1
//    rounds the product to bf16 before adding the bias and rounds again (measured on an H100).
// 6. With ProductOptions::fused_row_sums, the sums of A's rows are the epilogue of the product that
//    reads A. cuBLASLt does not document in which order it adds them.
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "device/cuda/handle.hpp"

#include "ops/cuda/cublaslt.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"
#include "ops/matmul_backend.hpp"

namespace trireme::ops {
namespace {

using cublaslt::Description;
using cublaslt::Layout;
using cublaslt::Library;
using cublaslt::Preference;

/// The largest power of two up to 256 that divides the address.
std::uint32_t alignment_of(const std::byte* at) {
  return 1U << static_cast<unsigned>(
             std::countr_zero(reinterpret_cast<std::uintptr_t>(at) | std::uintptr_t{256}));
}

/// Alignment of biases and of the Z of a GELU. cuBLASLt has no preference attribute for them, and
/// its vectorized epilogues read 16 bytes at a time.
constexpr std::uint32_t vector_alignment = 16;

/// Alignments of b, a and c, in cuBLASLt's order.
using Alignments = std::array<std::uint32_t, 3>;

void expect_multipliable(const MatmulShape& s) {
  if (s.a != s.b || (s.c != s.a && s.c != DType::f32))
    throw DeviceError("cuBLASLt",
                      fmt::format("matmul of {} and {} into {}", name(s.a), name(s.b), name(s.c)),
                      "factors of one dtype, and a result of theirs or fp32");
}

/// One variant of the product: its description for cuBLASLt, and the algorithms chosen so far.
struct Variant {
  struct Known {
    Alignments alignments;
    cublasLtMatmulAlgo_t algorithm;
    bool found;
  };
  Description description;
  float beta = 0;  ///< factor of the previous contents of C
  std::vector<Known> known;
};

Alignments alignments_of(const MatmulCall& call) {
  return {alignment_of(call.b.data), alignment_of(call.a.data), alignment_of(call.c.data)};
}

class MatmulCuda final : public Matmul::Implementation {
 public:
  /// Requires: expect_multipliable(s) has passed.
  MatmulCuda(device::Device& device, const MatmulShape& s, const ProductOptions& options)
      : shape_(s),
        options_(options),
        device_(device),
        library_(device::cuda::kept_with<Library>(device)),
        first_(s.b, s.b_transposed ? s.k : s.n, s.b_transposed ? s.n : s.k),
        second_(s.a, s.a_transposed ? s.m : s.k, s.a_transposed ? s.k : s.m),
        result_(s.c, s.n, s.m) {
    describe(plain_.description);
    plain_.beta = s.accumulate || s.bias ? 1.0F : 0.0F;
    const bool whole_vectors = s.n * static_cast<std::int64_t>(size_bytes(s.c)) % 16 == 0;
    if (s.bias && s.b == s.c && !s.accumulate && whole_vectors) {
      Description& biased = biased_.emplace().description;
      describe(biased);
      biased.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cublaslt::type_of(s.b));
      biased.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    }
    if (s.row_sums && options_.fused_row_sums && s.a == DType::bf16) {
      Description& summed = summed_.emplace().description;
      summed_->beta = 1;
      describe(summed);
      row_sums_ = device.allocate(static_cast<std::size_t>(s.m) * sizeof(float), "sums of rows");
      summed.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cublaslt::type_of(DType::f32));
      summed.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(row_sums_.data()));
      summed.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BGRADB);
    }
    const bool fuses = (s.epilogue == Epilogue::gelu && options_.fused_gelu) ||
                       (s.epilogue == Epilogue::gelu_backward && options_.fused_gelu_backward);
    if (!fuses || s.c != DType::bf16 || s.n % 8 != 0 || (s.bias && !biased_))
      return;
    Description& fused = fused_.emplace().description;
    describe(fused);
    if (s.bias)
      fused.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cublaslt::type_of(s.b));
    fused.set(CUBLASLT_MATMUL_DESC_EPILOGUE, s.epilogue == Epilogue::gelu_backward
                                                 ? CUBLASLT_EPILOGUE_DGELU
                                             : s.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                                                      : CUBLASLT_EPILOGUE_GELU_AUX);
    fused.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.n);
  }

  void run(const MatmulCall& call, device::Stream& stream) override {
    const std::byte* bias = call.bias.data;
    if (biased_ && alignment_of(bias) >= vector_alignment) {
      biased_->description.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias));
      if (auto* known = algorithm_for(*biased_, call, stream);
          known != nullptr && try_launch(*biased_, *known, call, stream))
        return;
    }
    if (shape_.bias)
      with_float_type(shape_.c, [&](auto zero) {
        cuda::run<decltype(zero)>(
            cuda::Queue{device::cuda::handle_of(stream)},
            SpreadBias{.c = call.c, .bias = call.bias, .accumulate = shape_.accumulate});
      });
    const auto* known = algorithm_for(plain_, call, stream);
    if (known == nullptr)
      throw DeviceError("cuBLASLt", description_of(alignments_of(call)),
                        fmt::format("no algorithm is offered ({})", words_of(refusal_)));
    launch(plain_, known->algorithm, call, stream);
  }

  [[nodiscard]] bool fuses_epilogue() const override { return fused_.has_value(); }

  bool run_epilogue(const MatmulCall& call, device::Stream& stream) override {
    std::byte* z = call.z.data;
    const std::byte* bias = call.bias.data;
    if (!fused_ || alignment_of(z) < vector_alignment ||
        alignment_of(call.c.data) < vector_alignment ||
        (shape_.bias && alignment_of(bias) < vector_alignment))
      return false;
    Description& description = fused_->description;
    description.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(z));
    if (shape_.bias)
      description.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias));
    const std::size_t before = fused_->known.size();
    auto* known = algorithm_for(*fused_, call, stream);
    if (known == nullptr)
      return false;
    const auto fused = [&] { launch(*fused_, known->algorithm, call, stream); };
    const auto apart = [&] { run_apart(shape_, call, stream); };
    if (options_.timed && fused_->known.size() > before &&
        seconds_of(apart, stream) < seconds_of(fused, stream)) {
      known->found = false;
      return false;
    }
    return try_launch(*fused_, *known, call, stream);
  }

  [[nodiscard]] bool sums_rows() const override { return summed_.has_value(); }

  bool run_row_sums(const MatmulCall& call, device::Stream& stream) override {
    if (!summed_)
      return false;
    const std::size_t before = summed_->known.size();
    auto* known = algorithm_for(*summed_, call, stream);
    if (known == nullptr)
      return false;
    const View apart_sums = row_sums_.view(DType::f32);
    if (options_.timed && summed_->known.size() > before) {
      const device::Buffer aside = stand_in(stream);
      MatmulCall trial = call;
      trial.c = aside.view(shape_.c, 0, call.c.elements);
      const auto fused = [&] { launch(*summed_, known->algorithm, trial, stream); };
      const auto apart = [&] {
        run(trial, stream);
        ops::run(BiasBackward{.db = apart_sums, .dy = call.a}, stream);
      };
      if (seconds_of(apart, stream) < seconds_of(fused, stream)) {
        known->found = false;
        return false;
      }
    }
    if (!try_launch(*summed_, *known, call, stream))
      return false;
    ops::run(Add{.sum = call.row_sums, .term = apart_sums}, stream);
    return true;
  }

 private:
  /// The attributes that all variants share.
  void describe(Description& description) const {
    const MatmulShape& s = shape_;
    description.set(CUBLASLT_MATMUL_DESC_TRANSA, s.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    description.set(CUBLASLT_MATMUL_DESC_TRANSB, s.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (options_.blocks > 0)
      description.set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
                      static_cast<std::int32_t>(options_.blocks));
  }

  [[nodiscard]] cublasStatus_t enqueue(const Variant& variant,
                                       const cublasLtMatmulAlgo_t& algorithm,
                                       const MatmulCall& call,
                                       device::Stream& stream) const {
    constexpr float alpha = 1;
    return TRIREME_LT(cublasLtMatmul)(
        library_.handle, variant.description.raw, &alpha, call.b.data, first_.raw, call.a.data,
        second_.raw, &variant.beta, call.c.data, result_.raw, call.c.data, result_.raw, &algorithm,
        device::cuda::workspace_of(stream, options_.workspace_bytes), options_.workspace_bytes,
        device::cuda::handle_of(stream));
  }

  void launch(const Variant& variant,
              const cublasLtMatmulAlgo_t& algorithm,
              const MatmulCall& call,
              device::Stream& stream) const {
    if (const auto status = enqueue(variant, algorithm, call, stream);
        status != CUBLAS_STATUS_SUCCESS)
      throw DeviceError("cuBLASLt", description_of(alignments_of(call)), words_of(status));
  }

  /// Launches a product that plain_ can replace. If cuBLASLt refuses it, returns false and does not
  /// use this variant again for these alignments.
  bool try_launch(const Variant& variant,
                  Variant::Known& known,
                  const MatmulCall& call,
                  device::Stream& stream) {
    const auto status = enqueue(variant, known.algorithm, call, stream);
    if (status == CUBLAS_STATUS_SUCCESS)
      return true;
    known.found = false;
    note_refusal(variant, known.alignments, status);
    return false;
  }

  static std::string words_of(cublasStatus_t status) {
    return fmt::format("status {}, {}", static_cast<int>(status),
                       TRIREME_LT(cublasLtGetStatusString)(status));
  }

  [[nodiscard]] std::string description_of(const Alignments& alignments) const {
    const MatmulShape& s = shape_;
    return fmt::format(
        "matmul C[{}, {}] {}= A{}[{}, {}] B{}[{}, {}] of {} and {} into {}, leading dimensions "
        "A {}, B {}, C {}, alignments A {}, B {}, C {} bytes",
        s.m, s.n, s.accumulate ? "+" : "", s.a_transposed ? "^T" : "", s.m, s.k,
        s.b_transposed ? "^T" : "", s.k, s.n, name(s.a), name(s.b), name(s.c),
        s.a_transposed ? s.m : s.k, s.b_transposed ? s.k : s.n, s.n, alignments[1], alignments[0],
        alignments[2]);
  }

  void note_refusal(const Variant& variant,
                    const Alignments& alignments,
                    cublasStatus_t status) const {
    const char* what = fused_ && &variant == &*fused_     ? "GELU"
                       : summed_ && &variant == &*summed_ ? "sums of rows"
                                                          : "a bias";
    device_.note(
        fmt::format("cuBLASLt refuses a product with {} ({}), which is computed in two "
                    "operations instead: {}",
                    what, words_of(status), description_of(alignments)));
  }

  /// The first `most` algorithms of the heuristics; empty if cuBLASLt offers none. Any status
  /// except success means that this variant is not offered.
  [[nodiscard]] std::vector<cublasLtMatmulHeuristicResult_t> offers(const Variant& variant,
                                                                    const Alignments& alignments,
                                                                    int most) {
    Preference preference;
    preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                   std::uint64_t{options_.workspace_bytes});
    preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments[0]);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments[1]);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments[2]);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments[2]);
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
    int count = 0;
    const cublasStatus_t status = TRIREME_LT(cublasLtMatmulAlgoGetHeuristic)(
        library_.handle, variant.description.raw, first_.raw, second_.raw, result_.raw, result_.raw,
        preference.raw, most, found.data(), &count);
    if (status != CUBLAS_STATUS_SUCCESS) {
      // Products of one row cannot have a bias: INVALID_VALUE is the expected answer.
      const bool expected = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                            (shape_.m == 1 && status == CUBLAS_STATUS_INVALID_VALUE);
      if (&variant == &plain_)
        refusal_ = status;
      else if (!expected)
        note_refusal(variant, alignments, status);
      return {};
    }
    found.resize(static_cast<std::size_t>(count));
    std::erase_if(found, [](const auto& offer) { return offer.state != CUBLAS_STATUS_SUCCESS; });
    return found;
  }

  /// Null if there is none.
  Variant::Known* algorithm_for(Variant& variant, const MatmulCall& call, device::Stream& stream) {
    const Alignments alignments = alignments_of(call);
    for (Variant::Known& known : variant.known)
      if (known.alignments == alignments)
        return known.found ? &known : nullptr;
    constexpr int candidates = 8;
    const auto offered = offers(variant, alignments, options_.timed ? candidates : 1);
    Variant::Known& known =
        variant.known.emplace_back(Variant::Known{alignments, {}, !offered.empty()});
    if (offered.empty())
      return nullptr;
    known.algorithm =
        offered[offered.size() > 1 ? fastest(variant, offered, call, stream) : 0].algo;
    return &known;
  }

  template <class Work>
  static double seconds_of(const Work& work, device::Stream& stream) {
    constexpr int runs = 5;
    const auto begin = stream.device().make_event(), end = stream.device().make_event();
    work();  // warms up
    stream.record(*begin);
    for (int run = 0; run < runs; ++run) work();
    stream.record(*end);
    stream.synchronize();
    return end->seconds() - begin->seconds();
  }

  /// A temporary buffer for C.
  [[nodiscard]] device::Buffer stand_in(device::Stream& stream) const {
    return stream.device().allocate(
        static_cast<std::size_t>(shape_.m * shape_.n) * size_bytes(shape_.c), "products on trial");
  }

  /// Times the algorithms on the call's operands. Results go to a buffer, since C may be added to.
  std::size_t fastest(const Variant& variant,
                      const std::vector<cublasLtMatmulHeuristicResult_t>& offered,
                      const MatmulCall& call,
                      device::Stream& stream) const {
    const device::Buffer aside = stand_in(stream);
    MatmulCall trial = call;
    trial.c = aside.view(shape_.c, 0, call.c.elements);
    std::size_t best = 0;
    double shortest = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < offered.size(); ++i) {
      const auto work = [&] { launch(variant, offered[i].algo, trial, stream); };
      if (const double seconds = seconds_of(work, stream); seconds < shortest) {
        shortest = seconds;
        best = i;
      }
    }
    return best;
  }

  const MatmulShape shape_;
  const ProductOptions options_;
  device::Device& device_;
  Library& library_;
  cublasStatus_t refusal_ = CUBLAS_STATUS_NOT_SUPPORTED;  // status of the heuristics for plain_
  Layout first_, second_, result_;
  Variant plain_;
  std::optional<Variant> biased_;  // with the bias, if its dtype allows it
  std::optional<Variant> fused_;   // with the epilogue, if the shape allows it
  std::optional<Variant> summed_;  // with the sums of A's rows, which it writes to row_sums_
  device::Buffer row_sums_;
};

}  // namespace

std::unique_ptr<Matmul::Implementation> make_matmul_cuda(device::Device& device,
                                                         const MatmulShape& shape,
                                                         const ProductOptions& options) {
  expect_multipliable(shape);
  return std::make_unique<MatmulCuda>(device, shape, options);
}

}  // namespace trireme::ops
