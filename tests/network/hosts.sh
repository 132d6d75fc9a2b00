#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command together with emulated hosts on one machine: north, south and, with --hosts, east and west. Each is a network
# namespace whose links have a given rate.
#   usage: bash hosts.sh [--rate RATE] [--hosts 2|3|4] COMMAND [ARGUMENT …]     RATE: in the notation of tc; default: 2gbit
#          bash hosts.sh link up|down|RATE                                      inside COMMAND: cuts or restores the link of north; sets the rate of all
#          bash hosts.sh sent HOST                                              inside COMMAND: prints how many bytes HOST has sent over its link
#   e.g.:  bash hosts.sh mpirun -H north:1,south:1 --bind-to none -n 2 build/trireme input/quickstart.yaml
#
# COMMAND runs on an additional host, head. Its environment tells mpirun how to reach the others. Two networks connect the hosts:
#   control   connects all by a bridge; mpirun starts and ends ranks over it; it is never slowed or cut
#   wire      connects all except head; only MPI's messages use it; a token bucket limits each host's end. Two hosts are
#             connected by one veth pair, more hosts by a bridge
# Each host has its own name, since Open MPI treats equal names as one node, and its own /dev/shm. Processes, files and cores are shared.
# Latency is not added: that needs netem, which many kernels lack.
#
# Everything, including temporary files ($TMPDIR), is in namespaces of this process. They end with the script, so several can run at once
# and nothing needs to be cleaned up. Root is not needed if users may create namespaces.
#
# exit code: COMMAND's; 77, with the reason, if this machine cannot run it
set -euo pipefail

self=$(realpath "${BASH_SOURCE[0]}")
export PATH="$PATH:/usr/sbin:/sbin"
all_hosts=(north south east west)
hosts=("${all_hosts[@]:0:${TRIREME_HOSTS:-2}}")

skip() {
  echo "skipped: hosts need $1"
  exit 77
}

on_host() { nsenter --net="/run/netns/$1" "${@:2}"; }

limit() { # rate
  # The bucket holds one 64 KiB packet, as the kernel sends it. A larger bucket saves up unused wire time, which no real link does: with 256
  # KiB at 1 Gbit/s, reductions between phases of compute took 3.0 instead of 4.8 ms.
  for host in "${hosts[@]}"; do
    tc -n "$host" qdisc replace dev wire root tbf rate "$1" burst 72kb latency 400ms
  done
}

change_link() {
  case "$1" in
    up | down) ip -n north link set wire "$1" ;;
    *) limit "$1" ;;
  esac
}

make_networks() {
  mount -t tmpfs tmpfs /run
  mkdir /run/netns /run/tmp
  ip link set lo up
  ip link add control type bridge
  ip address add 10.77.0.1/24 dev control
  ip link set control up
  local number=2
  for host in "${hosts[@]}"; do
    ip netns add "$host"
    ip link add "$host" master control type veth peer name control netns "$host"
    ip link set "$host" up
    ip -n "$host" address add "10.77.0.$number/24" dev control
    ip -n "$host" link set lo up
    ip -n "$host" link set control up
    number=$((number + 1))
  done
  if [ ${#hosts[@]} -eq 2 ]; then
    ip -n north link add wire type veth peer name wire netns south
  else
    ip link add wire type bridge
    ip link set wire up
    for host in "${hosts[@]}"; do
      ip link add "wire-$host" master wire type veth peer name wire netns "$host"
      ip link set "wire-$host" up
    done
  fi
  number=1
  for host in "${hosts[@]}"; do
    ip -n "$host" address add "10.78.0.$number/24" dev wire
    ip -n "$host" link set wire up
    number=$((number + 1))
  done
  limit 2gbit
  hostname head
}

# mpirun starts this in place of ssh, as: HOST COMMAND-LINE …
make_launch_agent() {
  cat >/run/agent <<'AGENT'
#!/bin/sh
host=$1
shift
exec nsenter --net="/run/netns/$host" unshare --uts --mount sh -c \
  'hostname "$1" && mount -t tmpfs tmpfs /dev/shm && eval "$2"' sh "$host" "$*"
AGENT
  chmod +x /run/agent
  export TMPDIR=/run/tmp TRIREME_HOSTS_SH="$self"
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export OMPI_MCA_plm=rsh OMPI_MCA_plm_rsh_agent=/run/agent OMPI_MCA_plm_rsh_no_tree_spawn=1
  export PRTE_MCA_plm=ssh PRTE_MCA_plm_ssh_agent=/run/agent PRTE_MCA_plm_ssh_no_tree_spawn=1 PRTE_MCA_prte_if_include=control # Open MPI 5
  export OMPI_MCA_oob_tcp_if_include=control OMPI_MCA_pml=ob1 OMPI_MCA_btl=vader,tcp,self OMPI_MCA_btl_tcp_if_include=wire
  # On some kernels (Linux 6.18), a rank that yields loses its whole time slice; next to a busy process it may not run for minutes.
  export OMPI_MCA_mpi_yield_when_idle=0
}

inside() { # rate, command …
  local rate=$1 said
  shift
  # A subshell, so that a failing step ends it even though its result is checked.
  set +e
  said=$(set -e; make_networks 2>&1)
  local made=$?
  set -e
  [ $made -eq 0 ] || skip "veth pairs, a bridge and a token bucket from the kernel, which said: ${said:-nothing}"
  limit "$rate" || exit 2
  make_launch_agent
  "$@"
}

outside() {
  local rate=2gbit
  while [[ "${1:-}" == --* ]]; do
    case "$1" in
      --rate) rate=${2:?"--rate needs a RATE"} ;;
      --hosts) export TRIREME_HOSTS=${2:?"--hosts needs a number"} ;;
      *) break ;;
    esac
    shift 2
  done
  [[ ${TRIREME_HOSTS:-2} =~ ^[234]$ ]] || { echo "error: --hosts takes 2, 3 or 4" >&2; exit 2; }
  [ $# -gt 0 ] || { sed -n '/^#   usage:/,/^# [^ ]/{/^#   /s/^# *//p}' "$self" >&2; exit 2; }
  for tool in ip tc unshare nsenter setpriv hostname mpirun; do
    command -v "$tool" >/dev/null || skip "the program $tool"
  done
  [[ $("${TRIREME_MPIRUN:-mpirun}" --version) =~ \((Open MPI|OpenRTE)\)\ [45]\. ]] || skip "Open MPI 4 or 5, whose launchers take another agent than ssh in these words"
  # When this script dies, the kernel kills the first process of the namespaces and with it all others in them.
  local enter=(setpriv --pdeathsig KILL unshare --net --uts --mount --pid --fork --kill-child --mount-proc) said
  if ! said=$("${enter[@]}" true 2>&1); then
    enter+=(--user --map-root-user)
    said=$("${enter[@]}" true 2>&1) || skip "the right to make namespaces: ${said:-refused}"
  fi
  "${enter[@]}" bash "$self" inside "$rate" "$@" <&0 &
  local child=$! status=0
  trap 'kill -KILL $child' INT TERM HUP
  wait $child || status=$?
  exit $status
}

case "${1:-}" in
  inside) inside "${@:2}" ;;
  sent) on_host "${2:?"sent needs a HOST"}" awk '$1 == "wire:" { print $10 }' /proc/net/dev ;;
  link) change_link "${2:?"link needs up, down or a RATE"}" ;;
  *) outside "$@" ;;
esac
