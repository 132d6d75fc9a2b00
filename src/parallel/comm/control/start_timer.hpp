// SPDX-License-Identifier: Apache-2.0
// Ends the job when the hosts cannot reach each other during MPI's first exchange.
//
// MPI waits in it without a deadline, for example when a firewall drops its packets, or when it has
// chosen the bridge of a container engine, whose address is the same on every host. The watchdog
// does not exist yet, and needs messages itself. So the hosts exchange their addresses through the
// launcher (MPI_Publish_name), and the timer reports addresses that two hosts share.
#pragma once

#include <string>
#include <thread>

namespace trireme::comm {

/// The addresses of this host except loopback: "eth0 10.1.2.3, docker0 172.17.0.1 (a bridge: …)".
std::string interfaces_text();

/// Destroy it when the exchange has ended.
class StartTimer {
 public:
  /// In seconds; the variable TRIREME_START_DEADLINE overrides it.
  static constexpr double default_deadline_s = 60;

  /// Requires an initialized MPI.
  StartTimer();

 private:
  std::jthread thread_;
};

}  // namespace trireme::comm
