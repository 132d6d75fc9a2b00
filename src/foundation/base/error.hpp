// SPDX-License-Identifier: Apache-2.0
// The kinds of errors, by their cause, with an exit code for each.
//
// 1. A mistake of the user is a UserError. It lists all findings, each with its place in the input;
//    printed by rank 0; exit 2.
// 2. A failure of the environment (MPI, NCCL, CUDA, HDF5, a file system) is an EnvironmentError:
//    the library, the call, its message, our source line; printed by the rank where it occurs; exit
//    3. std::system_error and std::bad_alloc belong here as well.
// 3. A bug of trireme is a ContractError with the violated condition and its values; exit 4.
// 4. "Checkpointed, not finished" is not an error; exit 75 (EX_TEMPFAIL of sysexits.h) asks the
//    scheduler to start the job again. A user's `trireme stop` ends it with 76: nothing may start
//    the job again on its own.
//
// Throw freely; catch in main, in destructors and at thread entries, nowhere else.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace trireme {

enum class ExitCode : int {
  done = 0,
  user_error = 2,
  environment = 3,
  contract = 4,
  requeue = 75,
  stopped = 76
};

/// Place of a finding in a text. Line and column count from 1; 0 means "the whole file".
struct Place {
  std::string file;
  int line = 0;
  int column = 0;
};

/// One finding about the user's input. `subject` is a dotted key or similar, and may be empty.
struct Diagnostic {
  Place place;
  std::string subject;
  std::string text;
};

/// "file:line:column: error: subject: text", without the parts that are empty.
std::string to_string(const Diagnostic& diagnostic);

class UserError : public std::exception {
 public:
  explicit UserError(std::vector<Diagnostic> findings);
  /// One finding without a place in a file.
  explicit UserError(std::string text);
  UserError(Place place, std::string text);

  [[nodiscard]] const std::vector<Diagnostic>& findings() const { return findings_; }
  /// All findings, one line each.
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::vector<Diagnostic> findings_;
  std::string text_;
};

/// Collects findings. The first 20 are listed; the others are only counted.
class Findings {
 public:
  void add(Diagnostic finding);
  void add(Place place, std::string subject, std::string text) {
    add(Diagnostic{std::move(place), std::move(subject), std::move(text)});
  }
  [[nodiscard]] std::size_t size() const { return first_.size() + more_; }
  /// Throws UserError if there are findings.
  void settle();

 private:
  std::vector<Diagnostic> first_;
  std::size_t more_ = 0;
};

/// `which` is the library ("MPI", "HDF5", "file system"), `statement` the call as written, `reason`
/// its own message; `file` and `line` are those of the throw expression.
class EnvironmentError : public std::runtime_error {
 public:
  EnvironmentError(std::string_view which,
                   std::string_view statement,
                   std::string_view reason,
                   const char* file = __builtin_FILE(),
                   int line = __builtin_LINE());

  /// True if every rank throws for this failure, so no rank has to be told (comm::together).
  [[nodiscard]] bool known_to_all() const { return known_to_all_; }
  void mark_known_to_all() { known_to_all_ = true; }
  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
  bool known_to_all_ = false;
};
class DeviceError : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};
class CommError : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};
class StorageError : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

class ContractError : public std::logic_error {
 public:
  ContractError(std::string_view kind,
                std::string_view condition,
                std::string_view text,
                const char* file = __builtin_FILE(),
                int line = __builtin_LINE());
};

/// The exit code for an exception, and the lines to print.
struct Verdict {
  ExitCode code;
  std::vector<std::string> lines;
};
Verdict verdict_of(const std::exception& error);

namespace detail {
[[noreturn]] void fail_contract(
    const char* kind, const char* condition, const std::string& text, const char* file, int line);
}  // namespace detail

}  // namespace trireme

/// A precondition; always checked. The message names the values: TRIREME_EXPECT(a == b, "a is
/// {}, b is {}", a, b).
#define TRIREME_EXPECT(condition, ...)                                                             \
  do {                                                                                             \
    if (!(condition)) [[unlikely]]                                                                 \
      ::trireme::detail::fail_contract("expected", #condition, fmt::format(__VA_ARGS__), __FILE__, \
                                       __LINE__);                                                  \
  } while (false)

/// An expensive condition inside a function. It is checked only in audit builds, and compiled in
/// all builds.
#ifdef TRIREME_AUDIT
#define TRIREME_AUDIT_ENABLED true
#else
#define TRIREME_AUDIT_ENABLED false
#endif
#define TRIREME_ASSERT(condition, ...)                                                             \
  do {                                                                                             \
    if (TRIREME_AUDIT_ENABLED && !(condition)) [[unlikely]]                                        \
      ::trireme::detail::fail_contract("asserted", #condition, fmt::format(__VA_ARGS__), __FILE__, \
                                       __LINE__);                                                  \
  } while (false)
