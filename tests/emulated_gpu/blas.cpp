// SPDX-License-Identifier: Apache-2.0
// A stand-in for cuBLASLt on the emulated GPU: the calls that trireme makes, checked against the
// documented contract. Sources: cublasLt.h and the cuBLAS user guide, section cublasLtMatmul().
//
// 1. The heuristics return CUBLAS_STATUS_NOT_SUPPORTED for a combination that is documented as
//    unsupported. A contradictory call returns CUBLAS_STATUS_INVALID_VALUE and prints a line to
//    standard error. Undocumented limits, such as the shapes for which a GELU is really fused, are
//    not emulated: the real heuristics may refuse more.
// 2. An algorithm is valid for the product it was offered for (types, sizes, transposes, epilogue)
//    and for the alignment of addresses promised then, up to 16 bytes. Other uses are refused.
// 3. Operands in memory that a GPU cannot reach give CUBLAS_STATUS_EXECUTION_FAILED.
// 4. Two algorithms are offered, whose sums differ in the last bits: one sums over all of k, the
//    other adds two halves of k through the workspace. For long sums the second one comes first,
//    so that the workspace is used and its previous contents are lost.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/hash.hpp"

#include "emulated_gpu/blas_descriptors.hpp"
#include "emulated_gpu/blas_product.hpp"
#include "emulated_gpu/device.hpp"
#include "emulated_gpu/queue.hpp"
#include "emulated_gpu/settings.hpp"

struct cublasLtContext {
  std::uint64_t tag = 0;
};

namespace emulated::blas {
namespace {

constexpr std::uint64_t handle_tag = 0x637562616c73ULL, algorithm_tag = 0x616c676fULL;
constexpr std::int64_t long_sum = 1024;

/// A product as the caller describes it.
struct Problem {
  const Description* description;
  const Layout *a, *b, *c, *d;

  [[nodiscard]] bool transposes_a() const { return description->transposes_a != CUBLAS_OP_N; }
  [[nodiscard]] bool transposes_b() const { return description->transposes_b != CUBLAS_OP_N; }
  [[nodiscard]] std::int64_t depth() const { return transposes_a() ? a->rows : a->columns; }
  [[nodiscard]] bool has_bias() const {
    return (description->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  }
  [[nodiscard]] bool has_auxiliary() const { return (description->epilogue & 128U) != 0; }
  /// Writes the sums of B over k, one per column of D, in the place of a bias.
  [[nodiscard]] bool has_bias_gradient() const {
    return description->epilogue == CUBLASLT_EPILOGUE_BGRADB;
  }
  [[nodiscard]] bool has_vector() const { return has_bias() || has_bias_gradient(); }
};

/// The alignment of an address in bytes, at most 16; null has the largest alignment.
std::uint64_t aligned_to(const void* at) {
  return at == nullptr ? 16
                       : std::uint64_t{1} << static_cast<unsigned>(std::countr_zero(
                             reinterpret_cast<std::uintptr_t>(at) | std::uintptr_t{16}));
}

struct Alignments {
  std::uint64_t a, b, c, d, bias, auxiliary;
};

/// The contents of cublasLtMatmulAlgo_t.
struct Algorithm {
  std::uint64_t tag, splits, workspace_bytes, problem;
  std::uint64_t alignments;  // one byte for each operand
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

std::uint64_t pack(const Alignments& a) {
  std::uint64_t packed = 0;
  for (const std::uint64_t bytes : {a.a, a.b, a.c, a.d, a.bias, a.auxiliary})
    packed = packed << 8U | bytes;
  return packed;
}

bool each_suffices(std::uint64_t have, std::uint64_t wanted) {
  for (unsigned i = 0; i < 6; ++i)
    if ((have >> 8 * i & 0xffU) < (wanted >> 8 * i & 0xffU))
      return false;
  return true;
}

/// A hash of everything that determines the choice of an algorithm.
std::uint64_t digest(const Problem& p) {
  std::uint64_t hash = 0;
  const auto add = [&](auto value) {
    hash = trireme::element_hash(hash, static_cast<std::uint64_t>(value));
  };
  for (const Layout* m : {p.a, p.b, p.c, p.d}) {
    add(m->type);
    add(m->rows);
    add(m->columns);
    add(m->leading);
  }
  add(p.transposes_a());
  add(p.transposes_b());
  add(p.description->epilogue);
  add(p.description->auxiliary_leading);
  return hash;
}

cublasStatus_t examine_sizes(const Problem& p) {
  const std::int64_t rows = p.transposes_a() ? p.a->columns : p.a->rows;
  const std::int64_t depth = p.transposes_b() ? p.b->columns : p.b->rows;
  const std::int64_t columns = p.transposes_b() ? p.b->rows : p.b->columns;
  if (rows != p.d->rows || columns != p.d->columns || depth != p.depth() ||
      p.c->rows != p.d->rows || p.c->columns != p.d->columns)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "%td x %td times %td x %td into %td x %td", rows,
                  p.depth(), depth, columns, p.d->rows, p.d->columns);
  return CUBLAS_STATUS_SUCCESS;
}

/// The guide's table for compute type 32F without TF32, with the type of the bias.
cublasStatus_t examine_types(const Problem& p) {
  const Description& s = *p.description;
  if (s.compute != CUBLAS_COMPUTE_32F || s.scale != CUDA_R_32F || p.a->type != p.b->type ||
      p.c->type != p.d->type)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool known = (p.a->type == CUDA_R_32F && p.d->type == CUDA_R_32F) ||
                     (p.a->type == CUDA_R_16BF && p.d->type == CUDA_R_16BF) ||
                     (p.a->type == CUDA_R_16BF && p.d->type == CUDA_R_32F);
  if (!known || (p.has_vector() && s.bias_type != -1 && s.bias_type != p.d->type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t examine_epilogue(const Problem& p) {
  switch (p.description->epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_BGRADB:
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
      break;
    default:
      return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "epilogue %u is not known here",
                    p.description->epilogue);
  }
  // "Must be divisible by 8 and be no less than the number of rows in the output matrix."
  // Source: cublasLt.h, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD.
  const std::int64_t leading = p.description->auxiliary_leading;
  if (leading % 8 != 0 || leading < p.d->rows)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "an auxiliary matrix with columns of %td at %td",
                  p.d->rows, leading);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t examine(const Problem& p) {
  if (p.description == nullptr || p.a == nullptr || p.b == nullptr || p.c == nullptr ||
      p.d == nullptr)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a descriptor is missing");
  for (const auto& check : {examine_sizes, examine_types, examine_epilogue})
    if (const auto status = check(p); status != CUBLAS_STATUS_SUCCESS)
      return status;
  return CUBLAS_STATUS_SUCCESS;
}

/// The bytes from the first column to the last, including gaps between columns.
std::size_t bytes_of(const Layout& m) {
  return static_cast<std::size_t>((m.columns - 1) * m.leading + m.rows) *
         (m.type == CUDA_R_16BF ? 2 : 4);
}

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(a),
             second = reinterpret_cast<std::uintptr_t>(b);
  return first < second + b_bytes && second < first + a_bytes;
}

Matrix at(const void* data, const Layout& m) {
  return {const_cast<void*>(data), m.type, m.rows, m.columns, m.leading};
}

/// The arguments of cublasLtMatmul apart from the problem.
struct Call {
  const void *a, *b, *c;
  void *d, *workspace;
  std::size_t workspace_bytes;
  float beta;
};

cublasStatus_t examine_call(const Problem& p, const Algorithm& algorithm, const Call& call) {
  const Description& s = *p.description;
  if (algorithm.tag != algorithm_tag || algorithm.problem != digest(p))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the algorithm is one for another product");
  if (p.has_vector() && s.bias == nullptr)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a bias at no address");
  if (p.has_auxiliary() && s.auxiliary == nullptr)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "an auxiliary matrix at no address");
  const void* bias = p.has_vector() ? s.bias : call.d;
  const void* auxiliary = p.has_auxiliary() ? s.auxiliary : call.d;
  for (const void* operand :
       {call.a, call.b, call.c, static_cast<const void*>(call.d), bias, auxiliary})
    if (!reaches(operand))
      return refuse(CUBLAS_STATUS_EXECUTION_FAILED, "%p is memory that no GPU reaches", operand);
  const std::uint64_t have =
      pack({aligned_to(call.a), aligned_to(call.b), aligned_to(call.c), aligned_to(call.d),
            aligned_to(s.bias), aligned_to(s.auxiliary)});
  if (!each_suffices(have, algorithm.alignments))
    return refuse(
        CUBLAS_STATUS_INVALID_VALUE,
        "addresses aligned to %012lx bytes (A, B, C, D, bias, auxiliary), promised %012lx", have,
        algorithm.alignments);
  // "Must be 256B aligned". Source: cuBLAS user guide, cublasLtMatmul(), workspace.
  if (call.workspace_bytes < algorithm.workspace_bytes ||
      reinterpret_cast<std::uintptr_t>(call.workspace) % 256 != 0)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a workspace of %zu bytes at %p, %zu wanted",
                  call.workspace_bytes, call.workspace, algorithm.workspace_bytes);
  if (call.beta != 0 && call.c == call.d && p.c->leading != p.d->leading)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "C in place of D, but laid out in another way");
  const std::size_t d_bytes = bytes_of(*p.d);
  if (overlap(call.d, d_bytes, call.a, bytes_of(*p.a)) ||
      overlap(call.d, d_bytes, call.b, bytes_of(*p.b)) ||
      (algorithm.splits > 1 && overlap(call.d, d_bytes, call.workspace, algorithm.workspace_bytes)))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "D lies in an operand or in the workspace");
  return CUBLAS_STATUS_SUCCESS;
}

/// Whether a test injects a failure into this kind of product.
bool injects_into(const Problem& p, const char* where) {
  const char* kind = p.has_auxiliary()       ? "gelu"
                     : p.has_bias_gradient() ? "row_sums"
                     : p.has_bias()          ? "bias"
                                             : "plain";
  return injects("TRIREME_EMULATED_CUBLASLT_REFUSES", std::string(kind) + where);
}

}  // namespace
}  // namespace emulated::blas

using namespace emulated::blas;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  *handle = new cublasLtContext{handle_tag};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (handle == nullptr || handle->tag != handle_tag)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->tag = 0;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the GPU program failed to execute";
    default:
      return "<unknown>";
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wishes,
                                              int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* returned) {
  if (handle == nullptr || handle->tag != handle_tag)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  const auto* preference = known<Preference>(wishes);
  if (requested <= 0 || results == nullptr || returned == nullptr || preference == nullptr)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "heuristics without preference or place");
  *returned = 0;
  const Problem p{known<Description>(description), known<Layout>(a), known<Layout>(b),
                  known<Layout>(c), known<Layout>(d)};
  if (const auto status = examine(p); status != CUBLAS_STATUS_SUCCESS)
    return status;
  if (injects_into(p, ""))
    return CUBLAS_STATUS_INTERNAL_ERROR;
  if (p.has_bias() && p.d->columns == 1)
    return CUBLAS_STATUS_INVALID_VALUE;  // as expected of the real library; no message of ours
  // The alignment matters also for pointers that are not dereferenced here. Source: cublasLt.h,
  // CUBLASLT_MATMUL_DESC_BIAS_POINTER and _EPILOGUE_AUX_POINTER.
  const auto promised = [](std::uint32_t bytes) { return std::uint64_t{std::min(bytes, 16U)}; };
  const std::uint64_t alignments =
      pack({promised(preference->alignment_a), promised(preference->alignment_b),
            promised(preference->alignment_c), promised(preference->alignment_d),
            p.has_vector() ? aligned_to(p.description->bias) : 1,
            p.has_auxiliary() ? aligned_to(p.description->auxiliary) : 1});
  const auto halves_bytes = static_cast<std::uint64_t>(p.d->rows * p.d->columns) * 2 * 4;
  const bool may_split =
      p.depth() >= 2 && halves_bytes <= preference->workspace_bytes &&
      (preference->reduction_schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0;
  const auto offer = [&](std::uint64_t splits) {
    if (*returned == requested)
      return;
    cublasLtMatmulHeuristicResult_t& result = results[(*returned)++];
    result = {};
    const Algorithm algorithm{algorithm_tag, splits, splits > 1 ? halves_bytes : 0, digest(p),
                              alignments};
    std::memcpy(&result.algo, &algorithm, sizeof algorithm);
    result.workspaceSize = algorithm.workspace_bytes;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1;
  };
  if (may_split && p.depth() >= long_sum)
    offer(2);
  offer(1);
  if (may_split && p.depth() < long_sum)
    offer(2);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle,
                              cublasLtMatmulDesc_t description,
                              const void* alpha,
                              const void* a,
                              cublasLtMatrixLayout_t a_layout,
                              const void* b,
                              cublasLtMatrixLayout_t b_layout,
                              const void* beta,
                              const void* c,
                              cublasLtMatrixLayout_t c_layout,
                              void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* chosen,
                              void* workspace,
                              std::size_t workspace_bytes,
                              cudaStream_t stream) {
  if (handle == nullptr || handle->tag != handle_tag)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  const Problem p{known<Description>(description), known<Layout>(a_layout), known<Layout>(b_layout),
                  known<Layout>(c_layout), known<Layout>(d_layout)};
  if (const auto status = examine(p); status != CUBLAS_STATUS_SUCCESS)
    return status;
  if (injects_into(p, "_launch"))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (alpha == nullptr || beta == nullptr || a == nullptr || b == nullptr || c == nullptr ||
      d == nullptr || chosen == nullptr)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a product of nothing");
  Algorithm algorithm{};
  std::memcpy(&algorithm, chosen, sizeof algorithm);
  Product product;
  std::memcpy(&product.alpha, alpha, sizeof product.alpha);
  std::memcpy(&product.beta, beta, sizeof product.beta);
  const Call call{a, b, c, d, workspace, workspace_bytes, product.beta};
  if (const auto status = examine_call(p, algorithm, call); status != CUBLAS_STATUS_SUCCESS)
    return status;
  const Description& s = *p.description;
  product.a = at(a, *p.a);
  product.b = at(b, *p.b);
  product.c = at(c, *p.c);
  product.d = at(d, *p.d);
  product.transposes_a = p.transposes_a();
  product.transposes_b = p.transposes_b();
  product.epilogue = s.epilogue;
  if (const std::int64_t n = p.has_bias_gradient() ? p.d->columns : p.d->rows; p.has_vector())
    product.bias = {const_cast<void*>(s.bias), p.d->type, n, 1, n};
  if (p.has_auxiliary())
    product.auxiliary = {s.auxiliary, p.d->type, p.d->rows, p.d->columns, s.auxiliary_leading};
  product.splits = static_cast<int>(algorithm.splits);
  product.workspace = static_cast<float*>(workspace);
  const char* what = p.has_auxiliary() ? "cublasLtMatmul with GELU" : "cublasLtMatmul";
  return emulated::enqueue(stream, what, [product] { multiply(product); }) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
