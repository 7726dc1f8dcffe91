#!/bin/sh
# Slurm's Prolog: before a job starts, the stack is proven by running kernels on the GPUs of the node.
#   slurm.conf: Prolog=/etc/slurm/prolog.sh  PrologFlags=Alloc  MessageTimeout and BatchStartTimeout above the 25 s that it may take
# Where cudadoctor finds a problem, the node is drained with the names of what is wrong as the reason, and the job is requeued
# (exit code 1). What cannot be determined stops no job.
doctor=${CUDADOCTOR:-/opt/cudadoctor/bin/cudadoctor}
node=${SLURMD_NODENAME:-$(hostname -s)}
PATH=${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
export PATH # Slurm gives none

said=$("$doctor" check --quiet --timeout 20 --node "$node" 2>&1)
[ $? -eq 1 ] || exit 0
found=$(printf '%s\n' "$said" | sed -n 's/^[^ ]* \(CD[0-9]* [a-z0-9-]*\).*/\1/p' | paste -sd, -)
[ -n "$found" ] || exit 0 # a Python that cannot start cudadoctor ends with 1 too
scontrol update NodeName="$node" State=DRAIN Reason="cudadoctor: $found"
exit 1
