// SPDX-License-Identifier: Apache-2.0
// Ends the job when some processes do not call MPI_Init, or when the hosts cannot reach each other
// during MPI's first exchange.
//
// MPI waits without a deadline, for example when a launcher started another program as a rank, when
// a firewall drops its packets, or when it has chosen the bridge of a container engine, whose
// address is the same on every host. The watchdog does not exist yet, and needs messages itself. So
// the hosts exchange their addresses through the launcher (MPI_Publish_name), and the timer of the
// exchange reports addresses that two hosts share.
#pragma once

#include <thread>

namespace trireme::comm {

/// The timer of MPI_Init. Destroy it when that has returned. Ends the process after 600 s, as large
/// jobs may start slowly, or after the number of seconds in TRIREME_START_DEADLINE.
[[nodiscard]] std::jthread init_timer();

/// The timer of the first exchange. Destroy it when the exchange has ended. It ends after 60 s, or
/// the number of seconds in TRIREME_START_DEADLINE. Requires an initialized MPI.
[[nodiscard]] std::jthread start_timer();

}  // namespace trireme::comm
