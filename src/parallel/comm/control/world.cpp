// SPDX-License-Identifier: Apache-2.0
#include "comm/control/world.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include <unistd.h>

#include "comm/control/temporary_directory.hpp"

namespace trireme::comm {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0)
    return "localhost";
  return name.data();
}

class SelfWorld final : public World {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] int local_rank() const override { return 0; }
  [[nodiscard]] int local_size() const override { return 1; }
  [[nodiscard]] const std::string& host() const override { return host_; }

  void barrier() override {}
  void sum(std::span<std::int64_t> /*values*/) override {}
  void max(std::span<std::int64_t> /*values*/) override {}
  std::vector<double> gather_all(std::span<const double> values) override {
    return {values.begin(), values.end()};
  }
  std::vector<std::string> gather_all(const std::string& text) override { return {text}; }
  std::string broadcast(std::string bytes, int root) override {
    TRIREME_EXPECT(root == 0, "broadcast from rank {} in a world of one", root);
    return bytes;
  }
  [[noreturn]] void abort(ExitCode code) noexcept override {
    TemporaryDirectory::remove_all();
    std::_Exit(static_cast<int>(code));
  }

 private:
  std::string host_ = host_name();
};

}  // namespace

std::unique_ptr<World> make_self_world() {
  return std::make_unique<SelfWorld>();
}

std::vector<double> largest_of_ranks(World& world, std::span<const double> values) {
  std::vector<double> largest(values.begin(), values.end());
  const std::vector<double> all = world.gather_all(values);
  for (std::size_t i = 0; i < all.size(); ++i) {
    double& most = largest[i % values.size()];
    most = std::max(most, all[i]);
  }
  return largest;
}

std::vector<std::uint64_t> sums_modulo(World& world, std::span<const std::uint64_t> values) {
  std::vector<std::int64_t> halves;  // because World adds signed numbers: 2^31 ranks fit
  for (const std::uint64_t value : values) {
    halves.push_back(static_cast<std::int64_t>(value & 0xffffffffU));
    halves.push_back(static_cast<std::int64_t>(value >> 32U));
  }
  world.sum(halves);
  std::vector<std::uint64_t> sums;
  for (std::size_t i = 0; i < halves.size(); i += 2)
    sums.push_back(static_cast<std::uint64_t>(halves[i]) +
                   (static_cast<std::uint64_t>(halves[i + 1]) << 32U));
  return sums;
}

}  // namespace trireme::comm
