// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/orthogonalize.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/round_up.hpp"

#include "ops/cpu/optimizer/orthogonalize.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

using cpu::Polynomial;

constexpr Polynomial newton_schulz{3.4445F, -4.7750F, 2.0315F};
constexpr std::array<Polynomial, 5> polar_express{{
    {8.156554524902461F, -22.48329292557795F, 15.878769915207462F},
    {4.042929935166739F, -2.808917465908714F, 0.5000178451051316F},
    {3.8916678022926607F, -2.772484153217685F, 0.5060648178503393F},
    {3.285753657755655F, -2.3681294933425376F, 0.46449024233003106F},
    {2.3465413258596377F, -1.7097828382687081F, 0.42323551169305323F},
}};

MatmulShape gram_of(std::int64_t rows, std::int64_t columns) {
  const bool wide = rows <= columns;
  const std::int64_t inner = std::min(rows, columns);
  return {.m = inner,
          .n = inner,
          .k = std::max(rows, columns),
          .a_transposed = !wide,
          .b_transposed = wide};
}

}  // namespace

Orthogonalize::Orthogonalize(device::Device& device,
                             std::int64_t rows,
                             std::int64_t columns,
                             const OrthogonalizeOptions& options)
    : rows_(rows),
      columns_(columns),
      inner_(std::min(rows, columns)),
      options_(options),
      gram_(device, gram_of(rows, columns)),
      square_(device, {.m = inner_, .n = inner_, .k = inner_}),
      apply_(device, {.m = rows, .n = columns, .k = inner_}) {
  TRIREME_EXPECT(options.steps >= 1, "an orthogonalization in {} steps", options.steps);
}

std::int64_t Orthogonalize::scratch_elements(std::int64_t rows, std::int64_t columns) {
  const std::int64_t inner = std::min(rows, columns);
  return whole_lines(rows * columns) + 2 * whole_lines(inner * inner);
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
  TRIREME_EXPECT(matrix.elements == elements, "{} elements in a matrix of {} x {}", matrix.elements,
                 rows_, columns_);
  const View gram = scratch.slice(whole_lines(elements), square);
  const View polynomial = scratch.slice(whole_lines(elements) + whole_lines(square), square);
  device::cpu::Stream& queue = on_cpu(stream, "orthogonalize");
  const bool express = options_.coefficients == Coefficients::polar_express;
  View from = matrix, to = scratch.slice(0, elements);
  queue.run([x = from.as<float>(), sums = to.as<float>(), elements, express] {
    cpu::normalize(x, reinterpret_cast<double*>(sums), elements, express ? 1.01 : 1.0,
                   express ? 1e-6 : 1e-7);
  });
  for (std::int64_t step = 0; step < options_.steps; ++step) {
    const auto turn = static_cast<std::size_t>(std::min<std::int64_t>(step, 4));
    const Polynomial numbers = express ? polar_express[turn] : newton_schulz;
    gram_(from, from, gram, stream);
    square_(gram, gram, polynomial, stream);
    queue.run([p = polynomial.as<float>(), a = gram.as<float>(), n = inner_, numbers] {
      cpu::polynomial(p, a, n, numbers);
    });
    if (rows_ <= columns_)
      apply_(polynomial, from, to, stream);
    else
      apply_(from, polynomial, to, stream);
    std::swap(from, to);
  }
  queue.run([out = matrix.as<float>(), x = from.as<float>(), scale, elements] {
    cpu::scale_into(out, x, scale, elements);
  });
}

}  // namespace trireme::ops
