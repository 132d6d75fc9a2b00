// SPDX-License-Identifier: Apache-2.0
// Fibers: separate stacks on one thread. A switch takes a dozen x86-64 instructions, because
// ucontext makes a system call each time. The address sanitizer is told of each switch.
//
// A fiber runs `body` repeatedly once it is started. body() never returns; it switches away.
#pragma once

#include <cstddef>

namespace emulated {

class Fiber {
 public:
  using Body = void (*)();

  /// The original stack of the calling thread.
  Fiber() = default;
  explicit Fiber(Body body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Switches from `this`, which runs, to `other`. Returns when a fiber switches back.
  void switch_to(Fiber& other);

 private:
  static void enter();

  void* stack_pointer_ = nullptr;
  void* memory_ = nullptr;        // with a guard page below; null: not allocated by us
  const void* bottom_ = nullptr;  // the stack as the sanitizer knows it
  std::size_t bytes_ = 0;
  Body body_ = nullptr;
};

}  // namespace emulated
