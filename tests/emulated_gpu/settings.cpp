// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string_view>

namespace emulated {
namespace {

std::uint64_t number(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0')
    return 0;
  char* end = nullptr;
  const auto value = std::strtoull(text, &end, 10);
  if (*end != '\0')
    fail("%s=%s is not a number", name, text);
  return value;
}

std::uint64_t seed() {
  static const std::uint64_t value = number("TRIREME_EMULATED_SEED");
  return value;
}

}  // namespace

int num_gpus() {
  static const auto count = static_cast<int>(number("TRIREME_EMULATED_GPUS"));
  return count;
}

std::size_t cudnn_version() {
  static const std::size_t version = number("TRIREME_EMULATED_CUDNN");
  return version == 0 ? 91900 : version;
}

bool is_lazy() {
  static const bool lazy = [] {
    const char* mode = std::getenv("TRIREME_EMULATED_QUEUE");
    return mode != nullptr && std::string_view(mode) == "lazy";
  }();
  return lazy;
}

bool injects(const char* name, std::string_view value) {
  const char* set = std::getenv(name);
  return set != nullptr && value == set;
}

Chooser::Chooser()
    : order_(seed() == 0   ? Order::forward
             : seed() == 1 ? Order::reverse
                           : Order::shuffled),
      state_(seed()) {}

// SplitMix64.
std::uint64_t Chooser::next() {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

std::size_t Chooser::one_of(std::size_t count) {
  switch (order_) {
    case Order::forward:
      return 0;
    case Order::reverse:
      return count - 1;
    case Order::shuffled:
      break;
  }
  return next() % count;
}

void Chooser::arrange(std::vector<std::uint32_t>& ascending) {
  if (order_ == Order::reverse)
    std::reverse(ascending.begin(), ascending.end());
  else if (order_ == Order::shuffled)
    for (std::size_t i = ascending.size(); i > 1; --i)
      std::swap(ascending[i - 1], ascending[next() % i]);
}

void Chooser::permutation(std::vector<std::uint32_t>& places, std::uint32_t count) {
  places.resize(count);
  std::iota(places.begin(), places.end(), 0U);
  arrange(places);
}

void fail(const char* format, ...) {
  std::fflush(nullptr);
  std::fputs("emulated GPU: ", stderr);
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
  std::abort();
}

}  // namespace emulated
