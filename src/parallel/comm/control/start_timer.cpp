// SPDX-License-Identifier: Apache-2.0
#include "comm/control/start_timer.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/error_line.hpp"
#include "base/threads.hpp"

namespace trireme::comm {
namespace {

double deadline_s(double otherwise) {
  const char* text = std::getenv("TRIREME_START_DEADLINE");  // NOLINT(concurrency-mt-unsafe)
  const double seconds = text == nullptr ? 0 : std::strtod(text, nullptr);
  return seconds > 0 ? seconds : otherwise;
}

/// The addresses of this host except loopback: "eth0 10.1.2.3, docker0 172.17.0.1 (a bridge: …)".
std::string interfaces_text() {
  std::string text;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0)
    return "not known";
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_LOOPBACK) != 0 ||
        (one->ifa_flags & IFF_UP) == 0)
      continue;
    std::array<char, INET6_ADDRSTRLEN> address{};
    const int family = one->ifa_addr->sa_family;
    if (family == AF_INET)
      ::inet_ntop(family, &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr,
                  address.data(), address.size());
    else if (family == AF_INET6)
      ::inet_ntop(family, &reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr,
                  address.data(), address.size());
    else
      continue;
    std::error_code ignored;
    const bool bridge =
        std::filesystem::exists(fmt::format("/sys/class/net/{}/bridge", one->ifa_name), ignored);
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", one->ifa_name, address.data(),
                        bridge ? " (a bridge: its address is often the same on every host)" : "");
  }
  ::freeifaddrs(all);
  return text.empty() ? "none" : text;
}

/// Time in which other ranks print their lines before this one ends the job.
constexpr std::chrono::seconds for_the_others{3};

/// One rank of each host reports for all of them.
bool reports_for_its_host() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"})
    if (const char* text = std::getenv(name))  // NOLINT(concurrency-mt-unsafe)
      return std::string_view(text) == "0";
  return true;
}

/// The service name under which a host's first rank publishes its name and addresses. They are sent
/// through the launcher, which reaches all hosts.
std::string service_of(int rank) {
  return fmt::format("trireme-start-{}", rank);
}

void publish_addresses(int rank, const std::string& host) {
  const std::string text =
      fmt::format("{} {}", host, interfaces_text()).substr(0, MPI_MAX_PORT_NAME - 1);
  MPI_Publish_name(service_of(rank).c_str(), MPI_INFO_NULL, text.c_str());
}

/// Prints each address that another host has as well. May run until the process ends.
void name_equal_addresses(int rank, const std::string& host) {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::string here = interfaces_text() + ",";
  for (int other = rank + 1; other < ranks; ++other) {
    std::array<char, MPI_MAX_PORT_NAME> text{};
    if (MPI_Lookup_name(service_of(other).c_str(), MPI_INFO_NULL, text.data()) != MPI_SUCCESS)
      continue;  // not the first rank of its host
    const std::string there = text.data();
    const auto space = there.find(' ');
    std::istringstream addresses(there.substr(std::min(space, there.size() - 1) + 1));
    for (std::string one; std::getline(addresses >> std::ws, one, ',');)
      if (here.find(one.substr(std::min(one.find(' '), one.size())) + ",") != std::string::npos)
        error_line(
            "[rank {} {}] error: {} and {} have the same address: {}. Exclude it: mpirun --mca "
            "btl_tcp_if_exclude lo,{}",
            rank, host, host, there.substr(0, space), one, one.substr(0, one.find(' ')));
  }
}

void end_job(double waited_s) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  if (reports_for_its_host()) {
    try {
      // On a separate thread: a launcher that does not answer must not delay the end.
      std::thread([rank, name = std::string(host.data())] {
        publish_addresses(rank, name);
        std::this_thread::sleep_for(std::chrono::seconds(1));  // the others' timers end as well
        name_equal_addresses(rank, name);
      }).detach();
    } catch (const std::system_error&) {  // the line below has the addresses
    }
    error_line(
        "[rank {} {}] error: MPI's first exchange with the other hosts has not ended within {:.0f} "
        "s. Either a firewall drops their messages, or MPI uses an interface that does not connect "
        "the hosts. Addresses of {}: {}. Name the interface that connects the hosts: mpirun --mca "
        "btl_tcp_if_include INTERFACE. To wait longer, set TRIREME_START_DEADLINE to a number of "
        "seconds",
        rank, host.data(), waited_s, host.data(), interfaces_text());
  }
  std::this_thread::sleep_for(for_the_others);
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(ExitCode::environment));
  std::_Exit(static_cast<int>(ExitCode::environment));
}

void end_in_init(double waited_s) {
  if (!reports_for_its_host())
    std::this_thread::sleep_for(for_the_others);
  const char* rank = nullptr;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (rank == nullptr)
      rank = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  error_line(
      "[rank {} {}] error: MPI_Init has not ended within {:.0f} s, because some of the processes "
      "that the launcher started have not called it. They are another program, could not load "
      "trireme, or are still starting. Start trireme as every rank. To wait longer, set "
      "TRIREME_START_DEADLINE to a number of seconds",
      rank == nullptr ? "0" : rank, host.data(), waited_s);
  std::_Exit(static_cast<int>(ExitCode::environment));
}

/// Calls `end` after that time, unless the timer is destroyed before.
std::jthread timer(double seconds, void (*end)(double)) {
  return start_thread<std::jthread>("start-timer", [=](const std::stop_token& stop) {
    if (sleep_unless_stopped(stop, std::chrono::duration<double>(seconds)))
      end(seconds);
  });
}

}  // namespace

std::jthread init_timer() {
  return timer(deadline_s(600), end_in_init);
}

std::jthread start_timer() {
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks == 1 ? std::jthread() : timer(deadline_s(60), end_job);
}

}  // namespace trireme::comm
