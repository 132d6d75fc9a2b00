// SPDX-License-Identifier: Apache-2.0
#include "emulated_gpu/blas_product.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/dtype.hpp"

#include "emulated_gpu/touch.hpp"

namespace emulated::blas {
namespace {

using trireme::Bf16;

float load(const Matrix& m, std::int64_t i, std::int64_t j) {
  const std::int64_t at = i + j * m.leading;
  return m.type == CUDA_R_16BF ? static_cast<float>(static_cast<const Bf16*>(m.data)[at])
                               : static_cast<const float*>(m.data)[at];
}

void store(const Matrix& m, std::int64_t i, std::int64_t j, float value) {
  const std::int64_t at = i + j * m.leading;
  if (m.type == CUDA_R_16BF)
    static_cast<Bf16*>(m.data)[at] = Bf16(value);
  else
    static_cast<float*>(m.data)[at] = value;
}

void expect_touchable(const Matrix& m, const char* what) {
  const std::size_t element = m.type == CUDA_R_16BF ? sizeof(Bf16) : sizeof(float);
  for (std::int64_t j = 0; j < m.columns; ++j)
    touch(static_cast<const std::byte*>(m.data) + static_cast<std::size_t>(j * m.leading) * element,
          static_cast<std::size_t>(m.rows) * element, what);
}

/// op(M) as fp32, with the index of k outermost: [k, other index].
std::vector<float> packed(const Matrix& m, bool k_is_row) {
  const std::int64_t depth = k_is_row ? m.rows : m.columns, width = k_is_row ? m.columns : m.rows;
  std::vector<float> values(static_cast<std::size_t>(depth * width));
  for (std::int64_t k = 0; k < depth; ++k)
    for (std::int64_t i = 0; i < width; ++i)
      values[static_cast<std::size_t>(k * width + i)] = k_is_row ? load(m, k, i) : load(m, i, k);
  return values;
}

/// sums[j · rows + i] = Σ a[k, i] · b[k, j] over k in [begin, end).
void add_up(float* sums,
            const std::vector<float>& a,
            const std::vector<float>& b,
            std::int64_t rows,
            std::int64_t columns,
            std::int64_t begin,
            std::int64_t end) {
  constexpr std::int64_t block = 256;
  std::vector<float> partial(static_cast<std::size_t>(rows));
  for (std::int64_t j = 0; j < columns; ++j) {
    float* column = sums + j * rows;
    std::fill_n(column, rows, 0.0F);
    for (std::int64_t first = begin; first < end; first += block) {
      std::fill(partial.begin(), partial.end(), 0.0F);
      for (std::int64_t k = first; k < std::min(end, first + block); ++k) {
        const float factor = b[static_cast<std::size_t>(k * columns + j)];
        const float* from = a.data() + k * rows;
        for (std::int64_t i = 0; i < rows; ++i)
          partial[static_cast<std::size_t>(i)] += from[i] * factor;
      }
      for (std::int64_t i = 0; i < rows; ++i) column[i] += partial[static_cast<std::size_t>(i)];
    }
  }
}

/// Source: Hendrycks, Gimpel 2016, section 2, the tanh form.
constexpr float root = 0.7978845608028654F, cubic = 0.044715F;  // sqrt(2 / pi)

float gelu(float x) {
  return 0.5F * x * (1 + std::tanh(root * (x + cubic * x * x * x)));
}

float gelu_gradient(float x) {
  const float t = std::tanh(root * (x + cubic * x * x * x));
  return 0.5F * (1 + t) + 0.5F * x * (1 - t * t) * root * (1 + 3 * cubic * x * x);
}

}  // namespace

void multiply(const Product& p) {
  expect_touchable(p.a, "A of a product");
  expect_touchable(p.b, "B of a product");
  expect_touchable(p.d, "D of a product");
  if (p.beta != 0)
    expect_touchable(p.c, "C of a product");
  expect_touchable(p.bias, "bias of a product");
  expect_touchable(p.auxiliary, "auxiliary matrix of a product");

  const std::int64_t rows = p.d.rows, columns = p.d.columns, elements = rows * columns;
  const std::vector<float> a = packed(p.a, p.transposes_a), b = packed(p.b, !p.transposes_b);
  const std::int64_t depth = static_cast<std::int64_t>(a.size()) / rows;
  std::vector<float> own;
  float* sums = p.workspace;
  if (p.splits > 1) {
    touch(sums, static_cast<std::size_t>(elements * p.splits) * sizeof(float), "workspace");
  } else {
    own.resize(static_cast<std::size_t>(elements));
    sums = own.data();
  }
  for (int split = 0; split < p.splits; ++split)
    add_up(sums + split * elements, a, b, rows, columns, depth * split / p.splits,
           depth * (split + 1) / p.splits);

  for (std::int64_t j = 0; j < columns && p.epilogue == CUBLASLT_EPILOGUE_BGRADB; ++j) {
    float sum = 0;
    for (std::int64_t k = 0; k < depth; ++k) sum += b[static_cast<std::size_t>(k * columns + j)];
    store(p.bias, j, 0, sum);
  }
  for (std::int64_t j = 0; j < columns; ++j)
    for (std::int64_t i = 0; i < rows; ++i) {
      float sum = 0;
      for (int split = 0; split < p.splits; ++split) sum += sums[split * elements + j * rows + i];
      float value = p.alpha * sum;
      if (p.beta != 0)
        value += p.beta * load(p.c, i, j);
      if ((p.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) {
        // Seen on an H100 with cuBLASLt 13.1: the bias is added to the stored result where its rows are
        // not multiples of 16 bytes.
        if (p.d.type == CUDA_R_16BF && rows % 8 != 0)
          value = static_cast<float>(Bf16(value));
        value += load(p.bias, i, 0);
      }
      if (p.epilogue == CUBLASLT_EPILOGUE_DGELU) {
        value *= gelu_gradient(load(p.auxiliary, i, j));
      } else if ((p.epilogue & CUBLASLT_EPILOGUE_GELU) != 0) {
        store(p.auxiliary, i, j, value);
        value = gelu(value);
      }
      store(p.d, i, j, value);
    }
}

}  // namespace emulated::blas
