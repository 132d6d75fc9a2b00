// SPDX-License-Identifier: Apache-2.0
// Requests to a run from another terminal or another host: `trireme stop` and `trireme save` make a
// file in the run directory, and rank 0 of the run removes it and acts.
//
// 1. Only files with exactly these names are looked at and removed: save.request, stop.request and
//    stop-now.request. Their content has no meaning.
// 2. Rank 0 looks once a second on a thread of its own, so a file system that stalls delays no
//    step. It opens the directory before each look: NFS then asks its server, and does not answer
//    from its cache that there is no such file.
// 3. Requests that were there before the run locked its directory were for an earlier one:
//    RunDirectory removes them then. Those that come while the run starts wait for this object.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <thread>

#include "record/run/run_directory.hpp"

namespace trireme::record {

enum class RunRequest { save, stop, stop_now };

/// The name of its file.
std::string file_of(RunRequest request);

/// Asks the run that uses `run_directory`. Returns who that is ("process 4711 on node07"). Throws
/// UserError when this is not a run directory or no run uses it, StorageError when the request
/// cannot be written.
std::string ask_run(const std::string& run_directory, RunRequest request);

/// Removes what was asked of an earlier run.
void remove_requests(const std::string& run_directory);

/// Rank 0's side.
class RunRequests {
 public:
  /// `listener` is called by the thread of this object, for each request once.
  RunRequests(std::string run_directory, std::function<void(RunRequest)> listener);

 private:
  void serve(const std::stop_token& stop);

  const std::string run_directory_;
  const std::function<void(RunRequest)> listener_;
  std::jthread thread_;  // last: it uses the other members
};

}  // namespace trireme::record
