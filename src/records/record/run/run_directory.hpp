// SPDX-License-Identifier: Apache-2.0
// The directory of a run's files, and the lock that prevents a second run in it.
//
// The file `run.id` names the run that owns the directory. The record and the checkpoints contain
// the same name, so files of another run are detected. Its second line is the path of the directory
// when it was last used, so a copy is detected.
//
// 1. This class changes only the files `lock` and `run.id`. After it has locked a run's directory,
//    it removes requests to earlier runs (run_requests.hpp); later requests are for this run.
// 2. The lock is an flock of rank 0's process and ends with it; the file's text names that process.
//    The directory itself is also locked, so a second run is refused even if the file was deleted.
//    (Over NFS, directory locks work only within one host, until expect_in_place() has recreated
//    the file.) If the process that the file names has or may have ended (it was on another host),
//    the file system may not know that yet (NFS: for 1 to 2 minutes). LockWait says how long to
//    wait.
// 3. On a file system without flock the directory is used without a lock; locked() is then false.
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

  /// Collective. Rank 0 creates and locks the directory; all ranks get the result.
  ///
  /// Throws on every rank (comm::together): UserError if a file is in the way or another run holds
  /// the lock (with its process id and host); StorageError if the directory cannot be created or
  /// written, or if a rank finds a different directory at this path than rank 0. `key`: the deck
  /// key of the directory, for messages.
  RunDirectory(std::string path,
               comm::World& world,
               std::string key = run_key,
               const LockWait& wait = {});

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string checkpoints() const { return path_ + "/checkpoints"; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  /// True on every rank when rank 0 holds the lock.
  [[nodiscard]] bool locked() const { return locked_; }

  /// Throws StorageError if the directory was removed, moved or replaced; open files in it are then
  /// written under its old identity. Updates the timestamps of the file `lock`, recreates it if it
  /// was removed, and throws StorageError if another process has locked it meanwhile. Rank 0.
  void expect_in_place();

  /// The run name in `run.id`; "" if the file is missing, or empty after a crash. Rank 0. Throws
  /// StorageError if it cannot be read, UserError if it does not contain a run name.
  [[nodiscard]] std::string stored_id() const;
  /// Makes this run the owner of the directory; on disk when this returns. Rank 0.
  void set_id(const std::string& id);
  [[nodiscard]] const std::string& id() const { return id_; }

 private:
  void create_and_lock(bool first_start, const LockWait& wait);
  /// Tries to lock. If the holder may have ended, retries until the timeout.
  [[nodiscard]] files::Taken take(files::FileLock& lock, const LockWait& wait) const;
  void expect_shared(comm::World& world) const;

  std::string path_;
  std::string id_;
  const std::string key_;
  const std::string host_;
  std::optional<files::FileLock> lock_;
  files::Descriptor place_;  ///< the directory, locked if the file system supports it
  bool locked_ = false;
};

/// The path without trailing slashes, which shells add when they complete a name.
std::string without_end_slashes(std::string path);

/// Throws UserError if the checkpoints that a run in `directory` would use belong to another run:
/// `directory` had no run, or is a copy of one that still uses them. They are in the target of the
/// link DIRECTORY/checkpoints or in `elsewhere` ("": none). Changes nothing.
void expect_own_checkpoints(const std::string& directory, const std::string& elsewhere);

/// A new run name: 64 random bits of the operating system as 16 hexadecimal digits.
std::string new_run_id();

/// Renames a file or directory that blocks the path of a run's file. Returns the new name, the
/// first free `path`.`why`-N with N from 1. Throws StorageError.
std::string move_aside(const std::string& path, const char* why);

}  // namespace trireme::record
