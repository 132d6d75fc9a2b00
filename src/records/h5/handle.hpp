// SPDX-License-Identifier: Apache-2.0
// Owners of HDF5 ids, and the check around every HDF5 call.
//
// 1. HDF5 is not thread-safe. All code in this directory holds a LibraryLock during HDF5 calls, so
//    threads may use different objects concurrently; an object belongs to one thread. The lock is
//    held for one call, so bulk data should not be moved inside one (Dataset::file_offset()).
// 2. HDF5 does not print errors. A failed call is a StorageError that names the call, the object,
//    the file, and the innermost message of HDF5's error stack. If a system call failed (no
//    permission, failing disk, no memory), it contains the system's message. If the file's content
//    is inconsistent, it is a DamagedError. Only a DamagedError is a reason to abandon a file; a
//    failed system call may succeed later.
// 3. Owners close their id in their destructor. Only close() of file.hpp reports write errors.
// 4. HDF5's exit handler is off: objects that are still open at exit are not written.
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include <hdf5.h>

#include "base/error.hpp"

namespace trireme::h5 {

/// The content of the file is not what was written.
class DamagedError : public StorageError {
 public:
  using StorageError::StorageError;
};

/// Holds the process's only lock for HDF5, which is recursive.
class LibraryLock : std::lock_guard<std::recursive_mutex> {
 public:
  LibraryLock();
};

/// The innermost message of the current error stack, on one line.
std::string innermost_message();

namespace detail {
/// Marks system messages, which our driver (file.cpp) puts on HDF5's error stack.
inline constexpr char by_system = '\x01';

void silence() noexcept;
/// Throws. `reason` is innermost_message() after the failed call.
[[noreturn]] void fail(const std::string& statement,
                       const std::string& reason,
                       const char* file = __builtin_FILE(),
                       int line = __builtin_LINE());
/// "H5Dread of /steps/loss in runs/a/run.h5": `call` without its arguments, and `name` relative to
/// `object`; `name` may be empty. Clears HDF5's error stack.
std::string about(const char* call, hid_t object, const std::string& name);
/// The call concerns `name` relative to `object`, if one of them is given.
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

/// Like H5Fclose, but never fails because of a failed write (file.hpp).
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

/// The value of an HDF5 call; throws StorageError on failure. Takes the lock before it evaluates
/// the arguments (HDF5's constants are calls), and holds it until the full expression ends.
#define TRIREME_H5(call)                                           \
  (::trireme::h5::LibraryLock(), ::trireme::h5::detail::silence(), \
   ::trireme::h5::detail::check((call), #call, __FILE__, __LINE__))
/// The same for a call about `name` relative to `object` (or `object` itself), which the error
/// names, together with their file.
#define TRIREME_H5_OF(object, name, call)                          \
  (::trireme::h5::LibraryLock(), ::trireme::h5::detail::silence(), \
   ::trireme::h5::detail::check((call), #call, __FILE__, __LINE__, object, name))
