#!/bin/sh
# Slurm's HealthCheckProgram: drains this node where cudadoctor finds a problem, with the names of what is wrong as the reason.
#   slurm.conf: HealthCheckProgram=/etc/slurm/health-check.sh  HealthCheckInterval=600  HealthCheckNodeState=IDLE
# No kernel is run: jobs may be on the GPUs. What cannot be determined drains nothing. Slurm kills this script after 60 s.
# A node that is drained already keeps its reason, and none is resumed by itself: `scontrol update NodeName=… State=RESUME` after it
# is mended.
doctor=${CUDADOCTOR:-/opt/cudadoctor/bin/cudadoctor}
node=${SLURMD_NODENAME:-$(hostname -s)}
PATH=${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
export PATH # Slurm gives none

scontrol show node "$node" | grep -q 'State=[^ ]*DRAIN' && exit 0
said=$("$doctor" check --no-run --quiet --timeout 20 --node "$node" 2>&1)
[ $? -eq 1 ] || exit 0
found=$(printf '%s\n' "$said" | sed -n 's/^[^ ]* \(CD[0-9]* [a-z0-9-]*\).*/\1/p' | paste -sd, -)
[ -n "$found" ] || exit 0 # a Python that cannot start cudadoctor ends with 1 too
scontrol update NodeName="$node" State=DRAIN Reason="cudadoctor: $found"
