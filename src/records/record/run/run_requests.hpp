// SPDX-License-Identifier: Apache-2.0
// Requests to a run from another terminal or host. `trireme stop` and `trireme save` create a file
// in the run directory; rank 0 of the run removes the file and acts.
//
// 1. Only files with these exact names are read and removed: save.request, stop.request and
//    stop-now.request. Their content is ignored.
// 2. Rank 0 polls once per second on a separate thread, so a stalled file system does not delay a
//    step. It reopens the directory for each poll: NFS then asks its server, instead of answering
//    from its cache that the file does not exist.
// 3. Requests from before the run locked its directory were for an earlier run, so RunDirectory
//    removes them. Requests that arrive while the run starts are handled when this object exists.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>

#include "record/run/run_directory.hpp"

namespace trireme::record {

enum class RunRequest { save, stop, stop_now };

std::string file_of(RunRequest request);

/// Sends a request to the run that uses `run_directory`. Returns the lock holder ("process 4711 on
/// node07"). Throws UserError if this is not a run directory or no run uses it, StorageError if the
/// request cannot be written.
std::string ask_run(const std::string& run_directory, RunRequest request);

/// Removes requests to an earlier run. Throws StorageError if one cannot be removed.
void remove_requests(const std::string& run_directory);

/// Receives requests on rank 0.
class RunRequests {
 public:
  /// The object's thread calls `listener` once for each request.
  RunRequests(std::string run_directory, std::function<void(RunRequest)> listener);

 private:
  /// Whether there is such a request that was not handled yet. Removes its file.
  bool take(RunRequest request);
  void serve(const std::stop_token& stop);

  const std::string run_directory_;
  const std::function<void(RunRequest)> listener_;
  /// When the handled requests were written whose files could not be removed.
  std::array<std::filesystem::file_time_type, 3> remaining_{};
  std::jthread thread_;  // last: it uses the other members
};

}  // namespace trireme::record
