// SPDX-License-Identifier: Apache-2.0
// Every MPI call goes through TRIREME_MPI: a code other than MPI_SUCCESS becomes a CommError with
// the statement, the source line and MPI's own message. The communicators have MPI_ERRORS_RETURN;
// otherwise MPI would end the process before the reason is printed.
#pragma once

#include <mpi.h>

namespace trireme::comm {

/// Throws CommError unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* statement, const char* file, int line);

}  // namespace trireme::comm

#define TRIREME_MPI(call) ::trireme::comm::check_mpi((call), #call, __FILE__, __LINE__)
