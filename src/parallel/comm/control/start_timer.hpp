// SPDX-License-Identifier: Apache-2.0
// Ends the job when the hosts cannot reach each other during MPI's first exchange.
//
// MPI waits in it without a deadline, for example when a firewall drops its packets, or when it has
// chosen the bridge of a container engine, whose address is the same on every host. The watchdog
// does not exist yet, and needs messages itself. So the hosts exchange their addresses through the
// launcher (MPI_Publish_name), and the timer reports addresses that two hosts share.
#pragma once

#include <thread>

namespace trireme::comm {

/// The timer. Destroy it when the exchange has ended. It ends after 60 s, or the number of seconds in
/// TRIREME_START_DEADLINE. Requires an initialized MPI.
[[nodiscard]] std::jthread start_timer();

}  // namespace trireme::comm
