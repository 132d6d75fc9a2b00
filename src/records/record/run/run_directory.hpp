// SPDX-License-Identifier: Apache-2.0
// The directory of a run's files, and the lock that prevents a second run in it.
//
// The file `run.id` names the run to which the directory belongs. The record and the checkpoints
// have the same name, so those of another run are recognized. Its second line is the path that the
// directory had when it was last used, by which a copy is recognized.
//
// 1. This class changes only the files `lock` and `run.id` in the directory. As soon as that of a
//    run is locked, requests to an earlier one are removed (run_requests.hpp): later ones are for
//    this run.
// 2. The lock is an flock of rank 0's process and ends with it; the text in the file names the
//    process that holds it. The directory itself is locked in the same way, so a second run is
//    refused even if the file was deleted. (A network file system locks directories for one host
//    only, until expect_in_place() has recreated the file.)
//    When the process that the file names has ended, or may have, since it was on another host, the
//    file system may not know of it yet (NFS, for a minute or two): LockWait says how long to wait.
// 3. On a file system without flock the directory is used without a lock; locked() is false, so
//    that the caller can warn.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "files/descriptor.hpp"
#include "files/file_lock.hpp"

#include "comm/control/world.hpp"

namespace trireme::record {

/// How long to wait for the lock of a process that may have ended.
struct LockWait {
  std::chrono::duration<double> timeout{0};
  /// Called once, when the wait begins.
  std::function<void(const std::string&)> say = [](const std::string&) {};
};

class RunDirectory {
 public:
  static constexpr const char* run_key = "run.directory";

  /// Collective: rank 0 creates and locks, all ranks get the outcome.
  ///
  /// Throws on every rank (comm::together): UserError when a file is in the way or another run
  /// holds the lock (with its process id and host); StorageError when the directory cannot be
  /// created or written, or a rank finds another directory under this path than rank 0.
  /// `key`: the deck key that names it, for messages.
  RunDirectory(std::string path,
               comm::World& world,
               std::string key = run_key,
               const LockWait& wait = {});

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string checkpoints() const { return path_ + "/checkpoints"; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  /// True on every rank when rank 0 holds the lock.
  [[nodiscard]] bool locked() const { return locked_; }

  /// Throws StorageError when the directory is no longer where it was: removed, moved away, or with
  /// another one in its place; what is open in it is still written, under the old name. Marks the
  /// file `lock` as used now, makes it again when it was removed, and throws StorageError when
  /// another process has locked it meanwhile. Rank 0.
  void expect_in_place();

  /// What `run.id` holds; "" when there is none, or one that a crash left empty. Rank 0. Throws
  /// StorageError when it cannot be read, UserError when it is none.
  [[nodiscard]] std::string stored_id() const;
  /// From now on the directory is this run's; on the disk when this returns. Rank 0.
  void set_id(const std::string& id);
  /// What set_id() was given.
  [[nodiscard]] const std::string& id() const { return id_; }

 private:
  void create_and_lock(bool first_start, const LockWait& wait);
  /// While the holder may have ended, waits until the timeout.
  [[nodiscard]] files::Taken take(files::FileLock& lock, const LockWait& wait) const;
  void expect_shared(comm::World& world) const;

  std::string path_;
  std::string id_;
  const std::string key_;
  const std::string host_;
  std::optional<files::FileLock> lock_;
  files::Descriptor place_;  ///< the directory itself, locked as well where it can be
  bool locked_ = false;
};

/// The path without slashes at its end, which a shell adds when it completes a name.
std::string without_end_slashes(std::string path);

/// Throws UserError when the checkpoints that a run in `directory` would use, through the link
/// DIRECTORY/checkpoints or in `elsewhere` ("": no such place), are another's: no run was in this
/// directory, or it is a copy of one that still uses them. Changes nothing.
void expect_own_checkpoints(const std::string& directory, const std::string& elsewhere);

/// 16 hexadecimal digits that no other run has: of the system's randomness.
std::string new_run_id();

/// Renames a file or directory that is in the way of a run's files to the first free
/// `path`.`why`-N, N from 1, which is returned. Throws StorageError.
std::string move_aside(const std::string& path, const char* why);

}  // namespace trireme::record
