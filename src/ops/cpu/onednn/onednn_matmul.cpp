// SPDX-License-Identifier: Apache-2.0
// Products by oneDNN, one single-threaded primitive per piece of C: for processors without AVX-512.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <dnnl.h>
#include <dnnl.hpp>
#include <fmt/format.h>
#include <omp.h>

#include "base/error.hpp"
#include "base/round_up.hpp"

#include "device/buffer.hpp"
#include "device/cpu/cpu_stream.hpp"

#include "ops/cpu/onednn/onednn.hpp"
#include "ops/matmul_backend.hpp"

namespace trireme::ops {
namespace {

using dnnl::memory;

/// One edge of the output, cut into equal pieces and a rest.
struct Cut {
  std::int64_t total = 0, piece = 0;
  [[nodiscard]] std::int64_t count() const { return divided_up(total, piece); }
  [[nodiscard]] std::int64_t size(std::int64_t i) const {
    return std::min(piece, total - i * piece);
  }
  [[nodiscard]] bool has_rest() const { return total % piece != 0; }
};

/// Pieces of 256 x 256, halved down to 64 while there are too few of them to share out.
/// Source: 256 x 384 x 128 to 128 x 128 x 128 run equally fast on one Zen 4 core (110 GFLOP/s).
std::array<Cut, 2> cut_output(std::int64_t m, std::int64_t n) {
  constexpr std::int64_t largest = 256, smallest = 64, enough = 32;
  Cut rows{m, largest}, columns{n, largest};
  while (rows.count() * columns.count() < enough &&
         (rows.piece > smallest || columns.piece > smallest)) {
    auto& longer = rows.piece >= columns.piece ? rows : columns;
    longer.piece /= 2;
  }
  // No rest of one row or column: oneDNN 3.7 takes the wrong stride for one on AVX-512 (seen with
  // 64 x 1 x 1 and 1 x 63 x 67, A transposed).
  for (Cut* cut : {&rows, &columns})
    while (cut->total > cut->piece && cut->total % cut->piece == 1) --cut->piece;
  return {rows, columns};
}

/// The primitive of one piece size, and how long its scratch is.
struct Piece {
  dnnl::primitive primitive;
  std::size_t scratch_bytes = 0;
};

/// Memory objects that one thread fills with addresses; they are too heavy to make per call.
struct Arguments {
  std::array<std::array<memory, 5>, 4> of_piece;  // a, b, c, bias, scratch for each piece size
};

class OnednnMatmul final : public Matmul::Implementation {
 public:
  OnednnMatmul(device::Device& device, const MatmulShape& shape)
      : shape_(shape),
        rows_(cut_output(shape.m, shape.n)[0]),
        columns_(cut_output(shape.m, shape.n)[1]),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_) {
    // Primitives are made for the present number of threads; these run on one.
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    try {
      arguments_.resize(static_cast<std::size_t>(threads));
      for (int i = 0; i < 4; ++i) make_piece(i);
      omp_set_num_threads(threads);
    } catch (const dnnl::error& error) {
      omp_set_num_threads(threads);
      throw DeviceError(
          fmt::format("oneDNN {}", onednn_version()),
          fmt::format("matmul {} x {} -> {}", name(shape.a), name(shape.b), name(shape.c)),
          error.what(), __FILE__, __LINE__);
    } catch (...) {
      omp_set_num_threads(threads);
      throw;
    }
    for (const auto& piece : pieces_)
      scratch_stride_ = std::max(scratch_stride_, (piece.scratch_bytes + 4095) / 4096 * 4096);
    scratch_ = device.allocate(scratch_stride_ * arguments_.size(), "matmul scratch");
    for (std::size_t t = 0; t < arguments_.size(); ++t)
      for (auto& memories : arguments_[t].of_piece)
        if (memories[4])
          memories[4].set_data_handle(scratch_.data() + t * scratch_stride_);
  }

  void run(const std::byte* a,
           const std::byte* b,
           const std::byte* bias,
           std::byte* c,
           device::Stream& stream) override {
    device::cpu::stream_of(stream).run([this, a, b, bias, c] { multiply(a, b, bias, c); });
  }

 private:
  /// Bit 0 of `index`: the rest of the rows; bit 1: the rest of the columns.
  void make_piece(int index) {
    const bool rest_rows = (index & 1) != 0, rest_columns = (index & 2) != 0;
    if ((rest_rows && !rows_.has_rest()) || (rest_columns && !columns_.has_rest()) ||
        (!rest_rows && rows_.total < rows_.piece) ||
        (!rest_columns && columns_.total < columns_.piece))
      return;
    const auto& s = shape_;
    const memory::dim m = rest_rows ? s.m % rows_.piece : rows_.piece;
    const memory::dim n = rest_columns ? s.n % columns_.piece : columns_.piece;
    using Dims = memory::dims;
    const memory::desc a({m, s.k}, onednn_type(s.a), s.a_transposed ? Dims{1, s.m} : Dims{s.k, 1});
    const memory::desc b({s.k, n}, onednn_type(s.b), s.b_transposed ? Dims{1, s.k} : Dims{s.n, 1});
    const memory::desc c({m, n}, onednn_type(s.c), Dims{s.n, 1});
    const memory::desc bias({1, n}, onednn_type(s.b), Dims{s.n, 1});

    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
    const auto chosen = onednn_product(engine_, a, b, s.bias ? &bias : nullptr, c, attributes);
    auto& piece = pieces_[static_cast<std::size_t>(index)];
    piece.primitive = dnnl::matmul(chosen);
    piece.scratch_bytes = chosen.scratchpad_desc().get_size();
    for (auto& thread : arguments_)
      thread.of_piece[static_cast<std::size_t>(index)] = {
          memory(a, engine_, nullptr), memory(b, engine_, nullptr), memory(c, engine_, nullptr),
          memory(bias, engine_, nullptr), memory(chosen.scratchpad_desc(), engine_, nullptr)};
  }

  void multiply(const std::byte* a, const std::byte* b, const std::byte* bias, std::byte* c) {
    const std::int64_t count = rows_.count() * columns_.count();
    const int threads =  // NOLINT(clang-analyzer-deadcode.DeadStores): the pragma reads it
        static_cast<int>(std::min({count, static_cast<std::int64_t>(omp_get_max_threads()),
                                   static_cast<std::int64_t>(arguments_.size())}));
    std::atomic<int> failure{dnnl_success};
#pragma omp parallel num_threads(threads)
    {
      omp_set_num_threads(1);  // of this thread, for oneDNN
      auto& mine = arguments_[static_cast<std::size_t>(omp_get_thread_num())];
#pragma omp for schedule(static)
      for (std::int64_t i = 0; i < count; ++i) {
        const int status =
            multiply_piece(mine, i / columns_.count(), i % columns_.count(), a, b, bias, c);
        if (status != dnnl_success)
          failure = status;
      }
    }
    if (failure != dnnl_success)
      throw DeviceError(fmt::format("oneDNN {}", onednn_version()), "dnnl_primitive_execute",
                        fmt::format("status {}", failure.load()), __FILE__, __LINE__);
  }

  int multiply_piece(Arguments& mine,
                     std::int64_t row_piece,
                     std::int64_t column_piece,
                     const std::byte* a,
                     const std::byte* b,
                     const std::byte* bias,
                     std::byte* c) const {
    const auto& s = shape_;
    const std::int64_t row = row_piece * rows_.piece, column = column_piece * columns_.piece;
    const auto index = (rows_.size(row_piece) < rows_.piece ? std::size_t{1} : 0) +
                       (columns_.size(column_piece) < columns_.piece ? std::size_t{2} : 0);
    const auto at = [](const std::byte* base, DType dtype, std::int64_t element) {
      return const_cast<std::byte*>(base) + static_cast<std::size_t>(element) * size_bytes(dtype);
    };
    auto& memories = mine.of_piece[index];
    dnnl_memory_set_data_handle(memories[0].get(), at(a, s.a, s.a_transposed ? row : row * s.k));
    dnnl_memory_set_data_handle(memories[1].get(),
                                at(b, s.b, s.b_transposed ? column * s.k : column));
    dnnl_memory_set_data_handle(memories[2].get(), at(c, s.c, row * s.n + column));
    std::array<dnnl_exec_arg_t, 5> list{{{DNNL_ARG_SRC, memories[0].get()},
                                         {DNNL_ARG_WEIGHTS, memories[1].get()},
                                         {DNNL_ARG_DST, memories[2].get()},
                                         {DNNL_ARG_SCRATCHPAD, memories[4].get()},
                                         {DNNL_ARG_BIAS, memories[3].get()}}};
    if (s.bias)
      dnnl_memory_set_data_handle(memories[3].get(), at(bias, s.b, column));
    return dnnl_primitive_execute(pieces_[index].primitive.get(), stream_.get(), s.bias ? 5 : 4,
                                  list.data());
  }

  MatmulShape shape_;
  Cut rows_, columns_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::array<Piece, 4> pieces_;
  std::vector<Arguments> arguments_;  // one per thread
  std::size_t scratch_stride_ = 0;    // bytes per thread
  device::Buffer scratch_;
};

}  // namespace

std::unique_ptr<Matmul::Implementation> make_onednn_matmul(device::Device& device,
                                                           const MatmulShape& shape) {
  return std::make_unique<OnednnMatmul>(device, shape);
}

bool has_onednn() {
  return true;
}

const char* onednn_version() {
  static const std::string text = [] {
    const auto* version = dnnl_version();
    return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
  }();
  return text.c_str();
}

}  // namespace trireme::ops
