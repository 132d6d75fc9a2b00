// SPDX-License-Identifier: Apache-2.0
// The environment variables of the emulated GPU, read once, and the choices of the seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace emulated {

/// TRIREME_EMULATED_GPUS: number of GPUs; 0 emulates a machine without a driver.
int num_gpus();
/// TRIREME_EMULATED_CUDNN: result of cudnnGetVersion(); 91900 by default.
std::size_t cudnn_version();
/// TRIREME_EMULATED_QUEUE=lazy.
bool is_lazy();
/// Whether the environment variable `name` is `value`. Read at every call, so that a test can inject a
/// failure into some calls only:
/// TRIREME_EMULATED_CUDNN_REFUSES=create | validate | build_operation_graph | create_execution_plans |
/// check_support | build_plans | execute;
/// TRIREME_EMULATED_CUBLASLT_REFUSES=bias | gelu | row_sums | plain (by the heuristics) |
/// bias_launch | gelu_launch | row_sums_launch | plain_launch.
bool injects(const char* name, std::string_view value);

enum class Order : std::uint8_t { forward, reverse, shuffled };

/// Random choices from TRIREME_EMULATED_SEED. Each object has its own sequence, so that one
/// component's order does not depend on how often another chooses. Not shared by threads.
class Chooser {
 public:
  Chooser();
  [[nodiscard]] Order order() const { return order_; }
  /// A number in 0 … count - 1.
  std::size_t one_of(std::size_t count);
  /// 0 … count - 1 in an order that depends on the seed.
  void permutation(std::vector<std::uint32_t>& places, std::uint32_t count);
  void arrange(std::vector<std::uint32_t>& ascending);

 private:
  std::uint64_t next();

  Order order_;
  std::uint64_t state_;
};

/// Prints a message and aborts.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace emulated
