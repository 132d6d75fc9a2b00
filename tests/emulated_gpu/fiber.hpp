// SPDX-License-Identifier: Apache-2.0
// Stacks of their own on one thread, and the switch between them: a dozen instructions of x86-64,
// since ucontext asks the kernel at each switch. The address sanitizer is told of each.
//
// A fiber, once started, runs `body` again and again: body() returns never, it switches away.
#pragma once

#include <cstddef>

namespace emulated {

class Fiber {
 public:
  using Body = void (*)();

  /// The stack that the calling thread has anyway.
  Fiber() = default;
  explicit Fiber(Body body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// From `this`, which runs, to `other`. Returns when somebody switches back.
  void switch_to(Fiber& other);

 private:
  static void enter();

  void* stack_pointer_ = nullptr;
  void* memory_ = nullptr;        // with a guard page below; null: not ours
  const void* bottom_ = nullptr;  // as the sanitizer knows the stack
  std::size_t bytes_ = 0;
  Body body_ = nullptr;
};

}  // namespace emulated
