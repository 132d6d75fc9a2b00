// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/orthogonalize.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/round_up.hpp"

#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"
#include "ops/optimizer/orthogonalize_passes.hpp"

namespace trireme::ops {
namespace {

constexpr Polynomial newton_schulz{3.4445F, -4.7750F, 2.0315F};
constexpr std::array<Polynomial, 5> polar_express{{
    {8.156554524902461F, -22.48329292557795F, 15.878769915207462F},
    {4.042929935166739F, -2.808917465908714F, 0.5000178451051316F},
    {3.8916678022926607F, -2.772484153217685F, 0.5060648178503393F},
    {3.285753657755655F, -2.3681294933425376F, 0.46449024233003106F},
    {2.3465413258596377F, -1.7097828382687081F, 0.42323551169305323F},
}};

MatmulShape gram_of(std::int64_t rows, std::int64_t columns, DType products) {
  const bool wide = rows <= columns;
  const std::int64_t inner = std::min(rows, columns);
  return {.m = inner,
          .n = inner,
          .k = std::max(rows, columns),
          .a_transposed = !wide,
          .b_transposed = wide,
          .a = products,
          .b = products,
          .c = products};
}

MatmulShape product_of(std::int64_t m, std::int64_t n, std::int64_t k, DType products) {
  return {.m = m, .n = n, .k = k, .a = products, .b = products, .c = products};
}

/// X twice and two squares of it; in fp32 one X is the matrix itself.
struct Scratch {
  Scratch(std::int64_t rows, std::int64_t columns, DType products) {
    const std::int64_t whole = rows * columns;
    const std::int64_t inner = std::min(rows, columns);
    other = products == DType::f32 ? 0 : bytes_of(whole, products);
    gram = other + bytes_of(whole, products);
    squared = gram + bytes_of(inner * inner, products);
    end = squared + bytes_of(inner * inner, products);
  }
  std::int64_t other, gram, squared, end;  // where they begin, in bytes; the first X is at 0

 private:
  static std::int64_t bytes_of(std::int64_t elements, DType dtype) {
    return whole_lines(elements) * static_cast<std::int64_t>(size_bytes(dtype));
  }
};

}  // namespace

Orthogonalize::Orthogonalize(device::Device& device,
                             std::int64_t rows,
                             std::int64_t columns,
                             const OrthogonalizeOptions& options)
    : rows_(rows),
      columns_(columns),
      inner_(std::min(rows, columns)),
      options_(options),
      gram_(device, gram_of(rows, columns, options.products)),
      square_(device, product_of(inner_, inner_, inner_, options.products)),
      apply_(device, product_of(rows, columns, inner_, options.products)) {
  TRIREME_EXPECT(options.steps >= 1, "an orthogonalization in {} steps", options.steps);
}

std::int64_t Orthogonalize::scratch_bytes(std::int64_t rows, std::int64_t columns, DType products) {
  return Scratch(rows, columns, products).end;
}

double Orthogonalize::flops(std::int64_t rows, std::int64_t columns, std::int64_t steps) {
  const auto least = static_cast<double>(std::min(rows, columns));
  const auto most = static_cast<double>(std::max(rows, columns));
  return static_cast<double>(steps) * least * least * (4 * most + 2 * least);
}

void Orthogonalize::operator()(View matrix,
                               View scratch,
                               float scale,
                               device::Stream& stream) const {
  const std::int64_t elements = rows_ * columns_, square = inner_ * inner_;
  const DType type = options_.products;
  const Scratch places(rows_, columns_, type);
  expect_operands("orthogonalize", {{"the matrix", matrix, elements, DType::f32}});
  TRIREME_EXPECT(scratch.dtype == DType::u8 && scratch.elements >= places.end,
                 "{} bytes of scratch for {}", scratch.bytes(), places.end);
  const auto part = [&](std::int64_t begin, std::int64_t count) {
    return View(scratch.data + begin, count, type);
  };
  const View gram = part(places.gram, square), polynomial = part(places.squared, square);
  View from = type == DType::f32 ? matrix : part(0, elements), to = part(places.other, elements);
  const View sums(to.data, divided_up(elements, elements_per_sum), DType::f64);
  const bool express = options_.coefficients == Coefficients::polar_express;
  enqueue(Normalize{.x = from,
                    .matrix = matrix,
                    .sums = sums,
                    .factor = express ? 1.01 : 1.0,
                    .guard = express ? 1e-6 : 1e-7},
          type, stream);
  for (std::int64_t step = 0; step < options_.steps; ++step) {
    const auto turn = static_cast<std::size_t>(std::min<std::int64_t>(step, 4));
    gram_({.a = from, .b = from, .c = gram}, stream);
    square_({.a = gram, .b = gram, .c = polynomial}, stream);
    enqueue(Combine{.squared = polynomial,
                    .gram = gram,
                    .n = inner_,
                    .numbers = express ? polar_express[turn] : newton_schulz},
            type, stream);
    if (rows_ <= columns_)
      apply_({.a = polynomial, .b = from, .c = to}, stream);
    else
      apply_({.a = from, .b = polynomial, .c = to}, stream);
    std::swap(from, to);
  }
  run(Cast{.to = matrix, .from = from, .factor = scale}, stream);
}

}  // namespace trireme::ops
