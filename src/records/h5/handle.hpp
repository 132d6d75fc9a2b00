// SPDX-License-Identifier: Apache-2.0
// Owners of HDF5 ids, and the check around every HDF5 call.
//
// 1. HDF5 is not thread-safe. Every call of it in this room holds a LibraryLock, so threads may
//    work on different objects at the same time; one object belongs to one thread. The lock is held
//    for one call, so bulk data must not be moved inside one (Dataset::file_offset()).
// 2. HDF5's own printing of errors is off; a failing call is a StorageError with the call, the
//    object and file that it was about, and the innermost message of HDF5's error stack. If the
//    system refused the call (no permission, a failing disk, no memory), the error contains the
//    system's message. If the file contradicts itself, the error is a DamagedError. Only that is a
//    reason to give up a file: what the system refused today it may allow tomorrow.
// 3. Owners close their id in their destructor. close() of file.hpp reports what a file that was
//    written lacks.
// 4. HDF5's exit handler is off: objects that are still open at exit are not written.
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include <hdf5.h>

#include "base/error.hpp"

namespace trireme::h5 {

/// What is in the file is not what was written.
class DamagedError : public StorageError {
 public:
  using StorageError::StorageError;
};

/// Holds the process's one lock on HDF5. A thread may take it again.
class LibraryLock : std::lock_guard<std::recursive_mutex> {
 public:
  LibraryLock();
};

/// The innermost message of the current error stack, in one line.
std::string innermost_message();

namespace detail {
/// Begins messages of the system, which our driver (file.cpp) adds to HDF5's own.
inline constexpr char by_system = '\x01';

void silence() noexcept;
/// `reason` is innermost_message() after the call that failed.
[[noreturn]] void fail(const std::string& statement,
                       const std::string& reason,
                       const char* file = __builtin_FILE(),
                       int line = __builtin_LINE());
/// "H5Dread of /steps/loss in runs/a/run.h5": `call` without its arguments; `name` is below
/// `object`, or empty. Asking for names clears HDF5's messages.
std::string about(const char* call, hid_t object, const std::string& name);
/// The call is about `name` below `object`, if one of them is given.
template <class T>
T check(T result,
        const char* statement,
        const char* file,
        int line,
        hid_t object = H5I_INVALID_HID,
        const std::string& name = "") {
  if (result < 0) {
    const std::string reason = innermost_message();
    const bool known = object != H5I_INVALID_HID || !name.empty();
    fail(known ? about(statement, object, name) : statement, reason, file, line);
  }
  return result;
}
}  // namespace detail

/// Owns one id: move-only.
template <herr_t (*Destroy)(hid_t)>
class Handle {
 public:
  Handle() noexcept = default;
  explicit Handle(hid_t id) noexcept : id_(id) {}
  Handle(Handle&& other) noexcept : id_(other.release()) {}
  Handle& operator=(Handle&& other) noexcept {
    Handle taken(std::move(other));
    std::swap(id_, taken.id_);
    return *this;
  }
  ~Handle() {
    const LibraryLock lock;
    if (*this)
      Destroy(id_);
  }

  [[nodiscard]] hid_t get() const noexcept { return id_; }
  hid_t release() noexcept { return std::exchange(id_, H5I_INVALID_HID); }
  explicit operator bool() const noexcept { return id_ != H5I_INVALID_HID; }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

/// As H5Fclose, but does not fail because of a write (file.hpp).
herr_t close_file(hid_t file);

using File = Handle<&close_file>;
using Group = Handle<&H5Gclose>;
using Space = Handle<&H5Sclose>;
using Type = Handle<&H5Tclose>;
using Properties = Handle<&H5Pclose>;
using Attribute = Handle<&H5Aclose>;
using Object = Handle<&H5Oclose>;
using DatasetId = Handle<&H5Dclose>;

}  // namespace trireme::h5

/// The value of an HDF5 call, or a StorageError. The lock is taken before the arguments are looked
/// at, because HDF5's constants are calls, and lasts to the end of the whole expression.
#define TRIREME_H5(call)                                           \
  (::trireme::h5::LibraryLock(), ::trireme::h5::detail::silence(), \
   ::trireme::h5::detail::check((call), #call, __FILE__, __LINE__))
/// The same for a call about `name` below `object` (or about `object` itself): the error names
/// them, and the file that they are in.
#define TRIREME_H5_OF(object, name, call)                          \
  (::trireme::h5::LibraryLock(), ::trireme::h5::detail::silence(), \
   ::trireme::h5::detail::check((call), #call, __FILE__, __LINE__, object, name))
