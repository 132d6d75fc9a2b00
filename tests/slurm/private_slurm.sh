#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command with a private Slurm: munge, slurmctld and two slurmds on this machine, for the virtual nodes n1 and n2 with one core each.
# They run in namespaces, so that no port, process or file is left when the command ends, however it ends.
#   usage: bash tests/slurm/private_slurm.sh COMMAND …       needs root; exit code 77: skipped, with the reason
# Inside, SLURM_CONF is set and sbatch, srun, squeue and scontrol talk to it.
set -euo pipefail
self=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)/$(basename "${BASH_SOURCE[0]}")

skip() {
  echo "skipped: a private Slurm needs $1"
  exit 77
}

configure() { # $1: directory
  mkdir -p "$1"/{ctld,tmp/n1,tmp/n2,spool/n1,spool/n2}
  dd if=/dev/urandom of="$1/munge.key" bs=128 count=1 status=none
  chmod 600 "$1/munge.key"
  # linuxproc and none replace cgroups. Each node has its own temporary directory, as on two machines, because Slurm's PMIx names its files
  # there by the job only. A requeued job may start again after cred_expire seconds. The other timeouts are for machines that stall for
  # seconds.
  cat >"$1/slurm.conf" <<EOF
ClusterName=trireme
SlurmctldHost=$(hostname -s)(10.98.0.1)
AuthType=auth/munge
AuthInfo=socket=$1/munge.socket,cred_expire=10
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
SlurmctldPort=6817
SlurmctldPidFile=$1/slurmctld.pid
SlurmctldLogFile=$1/slurmctld.log
SlurmdPidFile=$1/slurmd-%n.pid
SlurmdLogFile=$1/slurmd-%n.log
StateSaveLocation=$1/ctld
SlurmdSpoolDir=$1/spool/%n
TmpFS=$1/tmp/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,sched_min_interval=0
ReturnToService=2
MpiDefault=none
KillWait=60
BatchStartTimeout=120
MessageTimeout=60
TCPTimeout=30
JobCompType=jobcomp/none
MailProg=/bin/true
NodeName=n1 NodeHostname=$(hostname -s) NodeAddr=10.98.0.1 Port=7001 CPUs=1 RealMemory=200 State=UNKNOWN
NodeName=n2 NodeHostname=$(hostname -s) NodeAddr=10.98.0.1 Port=7002 CPUs=1 RealMemory=200 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=60 State=UP
EOF
  # slurmd 23.11 and later fails without the right to create cgroups unless they are disabled. Earlier versions lack the option.
  local version
  version=$(slurmd -V | grep -oE '[0-9]+\.[0-9]+' | head -n 1)
  [ "$(printf '%s\n' 23.11 "$version" | sort -V | head -n 1)" != 23.11 ] || echo "CgroupPlugin=disabled" >"$1/cgroup.conf"
}

inside() { # $1: directory
  local at=$1
  shift
  export SLURM_CONF=$at/slurm.conf
  hostname trireme-slurm
  ip link set lo up
  # Slurm looks up addresses, which requires a network interface other than loopback.
  ip link add slurm0 type bridge
  ip addr add 10.98.0.1/24 dev slurm0
  ip link set slurm0 up
  # MPICH's launcher resolves the host name.
  { cat /etc/hosts && echo "10.98.0.1 trireme-slurm"; } >"$at/hosts"
  mount --bind "$at/hosts" /etc/hosts
  configure "$at"
  munged --force --key-file="$at/munge.key" --socket="$at/munge.socket" --pid-file="$at/munged.pid" --log-file="$at/munged.log" \
    --seed-file="$at/munged.seed"
  slurmctld -f "$SLURM_CONF"
  slurmd -f "$SLURM_CONF" -N n1
  slurmd -f "$SLURM_CONF" -N n2
  local deadline=$((SECONDS + 120)) states=
  until states=$(timeout 20 sinfo -h -N -o %T 2>/dev/null | sort -u) && [ "$states" = idle ] || [ $SECONDS -ge $deadline ]; do
    sleep 0.2 # the nodes come up on their own
  done
  if [ "$states" != idle ]; then
    cat "$at"/*.log >&2
    echo "the private Slurm did not come up" >&2
    exit 1
  fi
  "$@"
}

outside() {
  [ $# -gt 0 ] || { sed -n '/^#   usage:/,/^# [^ ]/{/^#   /s/^# *//p}' "$self" >&2; exit 2; }
  [ "$(id -u)" -eq 0 ] || skip "root"
  for tool in munged slurmctld slurmd sbatch unshare setpriv ip; do
    command -v "$tool" >/dev/null || skip "$tool (bash modules/packages/setup.sh tests installs it on Debian)"
  done
  # When this script dies, the kernel kills the first process of the namespaces and with it all others in them.
  local enter=(setpriv --pdeathsig KILL unshare --net --uts --mount --pid --fork --kill-child --mount-proc) said
  said=$("${enter[@]}" true 2>&1) || skip "the right to make namespaces: ${said:-refused}"
  local at status=0
  at=$(mktemp -d /run/trireme-slurm-XXXXXX)
  trap 'rm -rf "$at"' EXIT
  "${enter[@]}" bash "$self" inside "$at" "$@" <&0 &
  local child=$!
  trap 'kill -KILL $child' INT TERM HUP
  wait $child || status=$?
  exit $status
}

case "${1:-}" in
  inside) inside "${@:2}" ;;
  *) outside "$@" ;;
esac
