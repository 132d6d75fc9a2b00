// SPDX-License-Identifier: Apache-2.0
// Ends the job when the hosts cannot reach each other during MPI's first exchange.
//
// MPI waits without a deadline there, for example when a firewall drops its packets, or when it has
// chosen the bridge of a container engine, whose address is the same on every host. The watchdog
// does not exist yet, and needs messages itself. So the hosts tell each other their addresses by
// way of the launcher (MPI_Publish_name), and those that two of them have are named.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace trireme::comm {

/// "eth0 10.1.2.3, docker0 172.17.0.1 (a bridge: …)": the addresses of this host, but not loopback.
std::string interfaces_text();

class StartTimer {
 public:
  /// Seconds, when TRIREME_START_DEADLINE does not give another number.
  static constexpr double default_deadline_s = 60;

  /// Requires an initialized MPI.
  StartTimer();
  /// The exchange has ended.
  ~StartTimer();
  StartTimer(const StartTimer&) = delete;
  StartTimer& operator=(const StartTimer&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;  // last: it uses the other members
};

}  // namespace trireme::comm
