// SPDX-License-Identifier: Apache-2.0
#include "nn/product_list.hpp"

#include <algorithm>

namespace trireme::nn {

void ProductList::add(const ListedProduct& product) {
  const auto known = std::ranges::find_if(all_, [&](const ListedProduct& one) {
    return one.layer == product.layer && one.products == product.products &&
           one.bias_is_fused == product.bias_is_fused;
  });
  if (known == all_.end())
    all_.push_back(product);
  else
    known->count += product.count;
}

}  // namespace trireme::nn
