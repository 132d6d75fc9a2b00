// SPDX-License-Identifier: Apache-2.0
#include "fiber.hpp"

#include <cstdint>
#include <cstdlib>

#include <sys/mman.h>

#include "settings.hpp"

#ifdef EMULATED_UNDER_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the registers that a function must preserve and loads those of the new stack.
asm(R"(
.text
.globl emulated_switch_stack
.type emulated_switch_stack, @function
emulated_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulated_switch_stack, . - emulated_switch_stack
)");
extern "C" void emulated_switch_stack(void** old_stack_pointer, void* new_stack_pointer);

namespace emulated {
namespace {

constexpr std::size_t page = 4096, stack_bytes = std::size_t{96} << 10U;

/// Offset of a stack's first frame: the hot ends of different stacks use different cache sets.
std::size_t next_offset() {
  constexpr std::size_t step = 576, range = std::size_t{32} << 10U;
  static std::size_t offset = 0;
  offset = (offset + step) % range;
  return offset / 16 * 16;
}

// The two fibers of the current switch; the GPU has only one thread.
Fiber* entering = nullptr;
Fiber* leaving = nullptr;

}  // namespace

Fiber::Fiber(Body body) : bytes_(stack_bytes), body_(body) {
  memory_ = mmap(nullptr, page + stack_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory_ == MAP_FAILED || mprotect(memory_, page, PROT_NONE) != 0)
    fail("no memory for the stack of a thread");
  bottom_ = static_cast<char*>(memory_) + page;
  // What the switch pops: six registers, the address to continue at, and its return address.
  auto* top = reinterpret_cast<std::uintptr_t*>(static_cast<char*>(memory_) + page + stack_bytes -
                                                next_offset());
  *--top = 0;
  *--top = reinterpret_cast<std::uintptr_t>(&Fiber::enter);
  for (int i = 0; i < 6; ++i) *--top = 0;
  stack_pointer_ = top;
}

Fiber::~Fiber() {
  if (memory_ != nullptr)
    munmap(memory_, page + stack_bytes);
}

void Fiber::switch_to(Fiber& other) {
  entering = &other;
  leaving = this;
#ifdef EMULATED_UNDER_ADDRESS_SANITIZER
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, other.bottom_, other.bytes_);
  emulated_switch_stack(&stack_pointer_, other.stack_pointer_);
  __sanitizer_finish_switch_fiber(fake_stack, &leaving->bottom_, &leaving->bytes_);
#else
  emulated_switch_stack(&stack_pointer_, other.stack_pointer_);
#endif
}

void Fiber::enter() {
#ifdef EMULATED_UNDER_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(nullptr, &leaving->bottom_, &leaving->bytes_);
#endif
  entering->body_();
  std::abort();
}

}  // namespace emulated
